"""A Dask scheduler and workers as processes of their own on loopback, and builds that use them."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.chaos import family, kill
from ops.ports import free_port
from tests.support.waiting import soon

_ROOT = Path(__file__).resolve().parents[2]
_DEATHS = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "2"}  # as docs/operating.md has it


@dataclass
class Build:
    process: subprocess.Popen[bytes]
    errors: Path

    def said(self) -> str:
        return self.errors.read_text(encoding="utf-8")

    def until(self, what: Callable[[], object], seconds: float = 240.0) -> None:
        def happened() -> bool:
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.said()[-4000:]}"
            return bool(what())

        soon(happened, seconds)

    def ended(self, seconds: float = 120.0) -> int:
        return self.process.wait(seconds)


@dataclass
class DaskProcesses:
    """Processes of one scheduler, and of builds that are given its address."""

    folder: Path
    api: str  # Prefect's
    port: int = 0
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def _start(self, words: list[str], log: Path) -> subprocess.Popen[bytes]:
        own = {**os.environ, **_DEATHS, "PYTHONPATH": str(_ROOT), "PREFECT_API_URL": self.api}
        out: IO[bytes]
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", *words], env=own, stdout=out, stderr=out, cwd=self.folder, start_new_session=True
            )
        self.started.append(process)
        return process

    def scheduler(self) -> subprocess.Popen[bytes]:
        """Start a scheduler, at the same port as the one before it."""
        self.port = self.port or free_port()
        words = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard", "--no-show", "--no-jupyter"]
        process = self._start(["distributed.cli.dask_scheduler", *words], self.folder / "scheduler.log")
        soon(self._answers)
        return process

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def worker(self, name: str, *words: str, threads: int = 1, nanny: bool = False) -> subprocess.Popen[bytes]:
        own = ["--name", name, "--nthreads", str(threads), "--no-dashboard", "--host", "127.0.0.1"]
        own += ["--local-directory", str(self.folder), *([] if nanny else ["--no-nanny"]), *words]
        return self._start(["distributed.cli.dask_worker", self.address, *own], self.folder / f"{name}.log")

    def worker_with_gpu(self, name: str) -> subprocess.Popen[bytes]:
        """One that says it has a GPU, as there need be none."""
        return self.worker(name, "--resources", "GPU=1", threads=3)

    def build(self, corpus: Path, data: Path, *words: str) -> Build:
        options = {
            "--corpus": str(corpus),
            "--data": str(data),
            "--tools": "calculator,calendar",
            "--shard-documents": "4",
            "--top-k": "3",
            "--samples": "2",
            "--tau-f": "calculator=-1,calendar=-1",
            "--runner": self.address,
        }
        own = [word for option in options.items() for word in option]
        errors = self.folder / f"build-{len(self.started)}.err"
        return Build(self._start(["cli.main", "build", *own, *words], errors), errors)

    def end(self) -> None:
        for process in self.started:
            kill(family(process))
            process.wait(10)


@contextmanager
def dask_processes(folder: Path, api: str) -> Iterator[DaskProcesses]:
    """Start a scheduler; end all that was started when the block is left."""
    folder.mkdir(parents=True, exist_ok=True)
    dask = DaskProcesses(folder, api)
    try:
        dask.scheduler()
        yield dask
    finally:
        dask.end()


def number_of(data: Path, stage: str = "") -> int:
    """Return how many commits a data folder has, of one stage or of all."""
    return len(list((data / "commits" / stage).rglob("*.json")))
