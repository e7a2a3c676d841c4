"""Does the model wait for tools? A build on Dask with one worker that offers a GPU and one that does not.

    python benchmarks/gpu_wait.py [--documents 2000] [--ms 20] [--tool-ms 200] [--json]

A stub stands for the model: it takes `--ms` milliseconds a document and draws one call for each, all different. The
tool answers after `--tool-ms` milliseconds. No GPU is used: a worker that offers one is a worker that is said to.

    busy_share   seconds the model works / seconds from its first start to its last end
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import parser_of, print_json, say_figures
from benchmarks.stub_builds import StubLM, use_in_builds
from toolformer_core.lm.base import Draw, DrawRequest
from toolformer_core.records import ToolResponse, ToolResult

_LOG, _MODEL_MS, _TOOL_MS = "GPU_WAIT_LOG", "GPU_WAIT_MODEL_MS", "GPU_WAIT_TOOL_MS"  # variables of the workers
_STARTS_S = 60


@contextmanager
def _logged() -> Iterator[None]:
    start = time.time()
    yield
    with open(os.environ[_LOG], "a", encoding="utf-8") as stream:
        stream.write(f"{start} {time.time()}\n")


class _WaitingLM(StubLM):
    """Draws another sum at every position."""

    def draw(self, tool: str, request: DrawRequest) -> Draw:
        return Draw(f"Calculator({request.seed} + 1)", True)


class _WaitingTool:
    """A tool that takes its time."""

    key, name, description, fingerprint = "calculator", "Calculator", "Waits.", "waits"

    def load(self) -> None:
        return None

    def run(self, input: str, context: str = "") -> ToolResult:
        time.sleep(float(os.environ[_TOOL_MS]) / 1000)
        return ToolResponse("1")


def dask_setup(worker: Any) -> None:
    """Put the stubs in the place of model and tool; Dask calls this when a worker starts."""
    use_in_builds(_WaitingLM(float(os.environ[_MODEL_MS]) / 1000, _logged), lambda tool: _WaitingTool())


def busy_share(intervals: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the seconds that some intervals cover together, and the seconds from the first start to the last end."""
    covered, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered, end - min(start for start, _ in intervals)


def measure(documents: int, ms: float, tool_ms: float, folder: Path) -> dict[str, Any]:
    """Build a made-up corpus on two workers that run the stubs; all that is written lies in the folder."""
    from tasks.environment import prepare_environment

    prepare_environment(str(folder / "data"))
    from flows.runtime.server import start_server, wait_for_server

    start_server()
    wait_for_server()  # Prefect reads its address when it is imported
    from distributed import Client
    from prefect.settings import PREFECT_API_URL

    from benchmarks.overhead import CORPUS, make_corpus
    from flows.build_dataset.flow import run_build
    from flows.build_dataset.parameters import BuildParameters
    from tests.support.dask_processes import dask_processes
    from warehouse.queries import rows_of

    make_corpus(folder / CORPUS, documents)
    parameters = BuildParameters(
        corpus=str(folder / CORPUS),
        data=str(folder / "data"),
        tools=["calculator"],
        tau_s=0.05,
        top_k=1,
        samples=1,
        shard_documents=50,
    )
    log = folder / "model.log"
    os.environ |= {_LOG: str(log), _MODEL_MS: str(ms), _TOOL_MS: str(tool_ms)}
    with dask_processes(folder / "dask", PREFECT_API_URL.value() or "") as dask:
        stubs = ("--preload", "benchmarks.gpu_wait")
        dask.worker("gpu", "--resources", "GPU=1", *stubs, threads=3)
        dask.worker("cpu", *stubs)
        with Client(dask.address) as client:
            client.wait_for_workers(2, timeout=_STARTS_S)
        start = time.perf_counter()
        result = run_build(parameters, dask.address)
        wall = time.perf_counter() - start
    intervals = [(float(a), float(b)) for a, b in (line.split() for line in log.read_text().splitlines())]
    busy, span = busy_share(intervals)
    (counted,) = rows_of(Path(result.snapshot), "SELECT count(*) AS n FROM scored")
    return {
        "documents": documents,
        "calls": counted["n"],  # scored
        "model_s": round(busy, 1),  # the model at work
        "span_s": round(span, 1),  # from its first start to its last end
        "busy_share": round(busy / span, 4),
        "wall_s": round(wall, 1),
    }


def main() -> None:
    a = parser_of(__doc__, documents=2000, ms=20.0, tool_ms=200.0).parse_args()
    with tempfile.TemporaryDirectory(prefix="gpu-wait-", ignore_cleanup_errors=True) as folder:
        report = measure(a.documents, a.ms, a.tool_ms, Path(folder))
    say_figures(report)
    if a.json:
        print_json(report)
    from cli.terminal import leave

    leave(0)  # as the command line does


if __name__ == "__main__":
    main()
