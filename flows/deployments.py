"""Deployments: the flows as forms in Prefect's UI, run by workers that have this package installed.

    build-dataset    work pool `default`
    finetune         work pool `gpu`: one worker a GPU node, `prefect worker start --pool gpu --type process --limit 1`

A worker imports the flow from its own installation; no code is copied. It runs each flow in an empty temporary folder,
so paths in the form must be absolute, and mean what they mean on the worker: the form's schema says so, and the API
refuses others before anything runs. `--limit 1` lets a worker train one model at a time; a pool's own limit would
count all nodes together. `python -m flows.deployments --data FOLDER` makes pools and deployments, as often as is liked.
This module starts no server and no worker.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tasks.settings import data_folder
from toolformer_core import __version__
from toolformer_core.errors import ToolformerError, UsageError

__all__ = ["DEPLOYMENTS", "POOLS", "DeployError", "Deployment", "deploy", "form"]

POOLS = {
    "default": "Annotates corpora: workers on machines that see the data folder",
    "gpu": "Trains models: a worker on each GPU node, or one where jobs are sent from; start workers with --limit 1",
}
_STEP = "prefect.deployments.steps.set_working_directory"
_ABSOLUTE = "^(/|[A-Za-z][A-Za-z0-9+.-]*://)"


class DeployError(ToolformerError):
    """Prefect's server could not be reached, or refused a pool or a deployment."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A flow in a work pool. It bears the flow's own name.

    Args:
        entrypoint: the flow's module path, which a worker imports.
        pool: one of `POOLS`.
        paths: fields that must be absolute paths or URLs.
        tags: as the UI shows them.
    """

    entrypoint: str
    pool: str
    paths: tuple[str, ...]
    tags: tuple[str, ...]

    def flow(self) -> Any:
        """Import the flow."""
        module, _, name = self.entrypoint.rpartition(".")
        return getattr(import_module(module), name)


DEPLOYMENTS = (
    Deployment(
        "flows.build_dataset.build_dataset",
        "default",
        ("data", "corpus", "prompts", "passages", "phrases"),
        ("toolformer", "data"),
    ),
    Deployment("flows.finetune.finetune", "gpu", ("data",), ("toolformer", "training")),
)


def form(deployment: Deployment) -> dict[str, Any]:
    """Return the JSON schema of a deployment's form: the flow's own, with paths that a worker can follow.

    `data` becomes required: the model's default is relative to a folder that a worker does not have.
    """
    from prefect.utilities.callables import parameter_schema

    schema = parameter_schema(deployment.flow()).model_dump_for_openapi()
    fields = schema["definitions"][schema["properties"]["parameters"]["$ref"].rsplit("/", 1)[-1]]
    for name in deployment.paths:
        field = fields["properties"][name]
        kinds = field.get("anyOf", [field])
        next(kind for kind in kinds if kind["type"] == "string")["pattern"] = _ABSOLUTE
        field["description"] = f"{field['description']} (absolute, as the worker sees it)"
    fields["properties"]["data"].pop("default")
    fields["required"] = sorted({*fields.get("required", ()), "data"})
    return schema


def deploy(data: str, *, api: str | None = None, tracking: str | None = None) -> list[str]:
    """Make the work pools that are missing, and make or renew the deployments.

    A pool that is there is left as it is; runs that wait or go on are not touched.

    Args:
        data: the data folder or URL that the forms are filled in with; made absolute.
        api: of Prefect's server, e.g. `http://127.0.0.1:4200/api`; default: the one that PREFECT_API_URL names.
        tracking: MLflow's server or database for all workers' runs; default: each worker's own MLFLOW_TRACKING_URI,
            else the data folder's database.

    Returns:
        The deployments' names, as `prefect deployment run` takes them.

    Raises:
        UsageError: no server is named.
        DeployError: it cannot be reached, or refuses.
    """
    from httpx import HTTPError
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectException
    from prefect.settings import PREFECT_API_URL, temporary_settings

    address = api or PREFECT_API_URL.value()
    if not address:
        raise UsageError("no Prefect server is named: start one (prefect server start) and set PREFECT_API_URL")
    try:
        with temporary_settings({PREFECT_API_URL: address}), get_client(sync_client=True) as client:
            for name, description in POOLS.items():
                _make_pool(client, name, description)
            return [_apply(client, deployment, data, tracking) for deployment in DEPLOYMENTS]
    except (HTTPError, PrefectException) as exc:
        told = next(iter(str(exc).splitlines()), "") or type(exc).__name__
        raise DeployError(f"Prefect's server at {address}: {told}") from exc


def _make_pool(client: Any, name: str, description: str) -> None:
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    try:
        client.create_work_pool(
            WorkPoolCreate(name=name, type="process", description=description, base_job_template=template)
        )
    except ObjectAlreadyExists:
        return


def _apply(client: Any, deployment: Deployment, data: str, tracking: str | None) -> str:
    """Make one deployment; the API renews one that has its name."""
    flow = deployment.flow()
    is_url = "://" in data
    # Without a pull step a worker copies the folder in which it was started. "." is the run's own temporary folder;
    # where the data is at a URL, a build keeps its catalog in the folder in which it runs, and that one must last.
    folder = str(Path.cwd()) if is_url else "."
    client.create_deployment(
        flow_id=client.create_flow_from_name(flow.name),
        name=flow.name,
        version=__version__,
        description=flow.description,
        tags=list(deployment.tags),
        entrypoint=deployment.entrypoint,
        work_pool_name=deployment.pool,
        pull_steps=[{_STEP: {"directory": folder}}],
        parameters={"parameters": {"data": data if is_url else str(Path(data).absolute())}},
        parameter_openapi_schema=form(deployment),
        enforce_parameter_schema=True,
        job_variables={"env": {"MLFLOW_TRACKING_URI": tracking}} if tracking else {},
    )
    return f"{flow.name}/{flow.name}"


def main(words: Sequence[str] | None = None) -> None:
    """Make pools and deployments on the server that PREFECT_API_URL names."""
    parser = argparse.ArgumentParser(prog="python -m flows.deployments", description=main.__doc__)
    parser.add_argument("--data", help="data folder or URL (default: $TOOLFORMER_DATA, else ./toolformer-data)")
    parser.add_argument("--tracking", help="MLflow's server or database for all workers' runs")
    told = parser.parse_args(words)
    try:
        names = deploy(data_folder(told.data), tracking=told.tracking)
    except ToolformerError as exc:
        parser.exit(2 if isinstance(exc, UsageError) else 1, f"{exc}\n")
    sys.stdout.write("".join(f"{name}\n" for name in names))


if __name__ == "__main__":
    main()
