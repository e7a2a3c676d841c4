# The package with all that its services in docker-compose.yml run: Prefect's server and workers, Dask, the commands.
# Versions as in constraints.txt.
#
#   docker build --tag toolformer-platform .
#   docker build --tag toolformer-platform --build-arg TORCH_INDEX=URL .     # torch from an index of PyTorch's
FROM python:3.11-slim AS build

ARG TORCH_INDEX=""
ARG EXTRAS="deepspeed,hf,lora,postgres,s3"
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/toolformer
ENV PATH=/opt/toolformer/bin:$PATH
WORKDIR /src
# torch first and alone, as in the Makefile, and before the sources: a change of ours does not fetch it again
COPY constraints.txt ./
RUN pip install --constraint constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY cli ./cli
COPY flows ./flows
COPY ops ./ops
COPY recipes ./recipes
COPY serving ./serving
COPY tasks ./tasks
COPY toolformer_core ./toolformer_core
COPY viewer ./viewer
COPY warehouse ./warehouse
RUN pip install --constraint constraints.txt ".[$EXTRAS]"
# What nothing here runs: pip, packages' tests (but numpy's, which its own modules import), Arrow's Flight, AWS's
# services but S3. DeepSpeed compiles with headers and sources.
WORKDIR /opt/toolformer/lib/python3.11/site-packages
RUN rm -rf pip pip-*.dist-info /opt/toolformer/bin/pip* torch/test pyarrow/*flight* && \
    find torch/bin -type f ! -name torch_shm_manager -delete && \
    find . -path './numpy*' -prune -o -type d -name tests -prune -exec rm -rf {} + && \
    find . -path './botocore/data/*' -prune -type d ! -name s3 ! -name 'sso*' ! -name sts -exec rm -rf {} + && \
    case "$EXTRAS" in *deepspeed*) ;; *) rm -rf torch/include pyarrow/include && \
        find . -path ./torch -prune -o -type f -regex '.*\.\(c\|cpp\|h\|pxd\|pxi\|pyi\|pyx\)' -exec rm {} + ;; esac

FROM python:3.11-slim

ENV PATH=/opt/toolformer/bin:$PATH PYTHONUNBUFFERED=1
COPY --from=build /opt/toolformer /opt/toolformer
# a new volume takes its owner from the folder that it covers
RUN useradd --uid 10001 --create-home toolformer && install --directory --owner toolformer /data
USER 10001
WORKDIR /data
CMD ["toolformer", "--help"]
