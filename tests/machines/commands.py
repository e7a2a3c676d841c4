"""Commands of the program in processes of their own, and what their tests wait for."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prefect.settings import PREFECT_API_URL

from tests.support.servers_up import toolformer, variables
from tests.support.waiting import soon
from toolformer_core.finetune.events import read_events

_PATIENCE_S = 1800.0  # on a busy machine a command takes minutes to start


@dataclass
class Command:
    """A command that has been started; its output is in a file."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def await_(self, holds: Callable[[], object]) -> None:
        """Wait until something holds; fail if the command ends before."""
        soon(lambda: holds() or self.process.poll() is not None, _PATIENCE_S)
        assert self.process.poll() is None, self.text

    def ended(self) -> int:
        """Wait for the command's end; return its exit code."""
        return self.process.wait(_PATIENCE_S)


@contextmanager
def started(output: Path, *words: str, **environment: str) -> Iterator[Command]:
    """Start `toolformer WORDS`; kill it at the end of the block if it still runs."""
    own = {**variables(), "PREFECT_API_URL": str(PREFECT_API_URL.value()), **environment}
    with output.open("wb") as stream:
        process = subprocess.Popen(toolformer(*words), stdout=stream, stderr=stream, env=own)
    try:
        yield Command(process, output)
    finally:
        process.kill()
        process.wait()


def events(jobs: Path) -> list[dict[str, object]]:
    """Return what the trainings below a folder have reported."""
    return [event for file in jobs.glob("*/events.jsonl") for event in read_events(file.parent)[0]]
