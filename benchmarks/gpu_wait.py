"""Does the model wait for tools? A build on Dask with one worker that offers a GPU and one that does not.

    python benchmarks/gpu_wait.py [--documents 2000] [--ms 20] [--tool-ms 200] [--json]

A stub stands for the model: it takes `--ms` milliseconds a document and draws one call for each, all different. The
tool answers after `--tool-ms` milliseconds. No GPU is used: a worker that offers one is a worker that is said to.

    busy_share   seconds the model works / seconds from its first start to its last end

The last line is a JSON object with `--json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOG, MODEL_MS, TOOL_MS = "GPU_WAIT_LOG", "GPU_WAIT_MODEL_MS", "GPU_WAIT_TOOL_MS"  # variables of the workers
_STARTS_S = 60


@dataclass(frozen=True, slots=True)
class Report:
    """One build."""

    documents: int
    calls: int  # scored
    model_s: float  # the model at work
    span_s: float  # from its first start to its last end
    busy_share: float
    wall_s: float


def busy_share(intervals: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the seconds that some intervals cover together, and the seconds from the first start to the last end."""
    covered, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered, end - min(start for start, _ in intervals)


def measure(documents: int, ms: float, tool_ms: float, shard_documents: int, folder: Path) -> Report:
    """Build a made-up corpus on two workers that run the stubs; all that is written lies in the folder."""
    sys.path.insert(0, str(ROOT))
    import time

    from tasks.environment import prepare_environment

    prepare_environment(str(folder / "data"))
    from flows.runtime.server import start_server, wait_for_server

    start_server()
    wait_for_server()  # Prefect reads its address when it is imported
    from benchmarks.overhead import CORPUS, make_corpus
    from flows.build_dataset.flow import run_build
    from flows.build_dataset.parameters import BuildParameters
    from warehouse.queries import rows_of

    make_corpus(folder / CORPUS, documents)
    parameters = BuildParameters(
        corpus=str(folder / CORPUS),
        data=str(folder / "data"),
        tools=["calculator"],
        tau_s=0.05,
        top_k=1,
        draws=1,
        shard_documents=shard_documents,
    )
    log = folder / "model.log"
    variables = {**os.environ, LOG: str(log), MODEL_MS: str(ms), TOOL_MS: str(tool_ms), "PYTHONPATH": str(ROOT)}
    with ExitStack() as stack:
        address = _start_cluster(folder, variables, stack)
        start = time.perf_counter()
        result = run_build(parameters, address)
        wall = time.perf_counter() - start
    intervals = [(float(a), float(b)) for a, b in (line.split() for line in log.read_text().splitlines())]
    busy, span = busy_share(intervals)
    (counted,) = rows_of(Path(result.snapshot), "SELECT count(*) AS n FROM scored")
    return Report(documents, counted["n"], round(busy, 1), round(span, 1), round(busy / span, 4), round(wall, 1))


def _start_cluster(folder: Path, variables: dict[str, str], stack: ExitStack) -> str:
    """Start a scheduler and the two workers on loopback; they end with the stack."""
    import time

    def start(*words: str) -> None:
        process = subprocess.Popen([sys.executable, "-m", *words], env=variables, cwd=folder)
        stack.callback(process.wait)
        stack.callback(process.terminate)

    found = folder / "scheduler.json"
    local = ["--scheduler-file", str(found), "--host", "127.0.0.1", "--no-dashboard"]
    start("distributed.cli.dask_scheduler", "--port", "0", *local)
    for resources in (["--nthreads", "3", "--resources", "GPU=1"], ["--nthreads", "1"]):
        words = ["--no-nanny", "--preload", "benchmarks.stubs.gpu_wait", *local, *resources]
        start("distributed.cli.dask_worker", *words)
    deadline = time.monotonic() + _STARTS_S
    while not found.is_file():
        if time.monotonic() > deadline:
            raise SystemExit("Dask's scheduler did not start")
        time.sleep(0.1)
    from distributed import Client

    with Client(scheduler_file=str(found)) as client:
        client.wait_for_workers(2, timeout=_STARTS_S)
        return str(client.scheduler_info()["address"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--ms", type=float, default=20.0, help="the model's milliseconds a document")
    parser.add_argument("--tool-ms", type=float, default=200.0, help="the tool's milliseconds a call")
    parser.add_argument("--shard-documents", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpu-wait-") as folder:
        report = measure(a.documents, a.ms, a.tool_ms, a.shard_documents, Path(folder))
        if a.json:
            print(json.dumps(asdict(report)), flush=True)  # noqa: T201
        else:
            print(f"busy {report.busy_share:.1%} of {report.span_s} s; {report.calls} calls", flush=True)  # noqa: T201
        sys.stdout.flush()
        import atexit

        atexit._run_exitfuncs()  # as the command line leaves
    os._exit(0)


if __name__ == "__main__":
    main()
