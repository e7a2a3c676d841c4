"""What all launchers share: the protocol `Launcher`, its requests and job states, and running other programs.

To end a job gently the caller writes the stop file into its folder and waits; `cancel` ends it at once.
"""

import json
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from tasks.environment import environment
from toolformer_core.errors import ToolformerError, UsageError

LOG = "log.txt"
EXIT = "exit"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[^\x00-\x1f]*")
_PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)
# Of a user's filters for squeue, and of the Slurm job in which this program may itself run.
_NOT_PASSED_ON = ("SQUEUE_", "SLURM_CPUS_PER_TASK")

Accelerator = Literal["auto", "cpu", "cuda"]


class LaunchError(ToolformerError):
    """A launch that was refused, or a job that cannot be followed or ended; the message says how to mend it."""


class LostError(LaunchError):
    """A command or server gave no answer, so the job may be queued or running. Repeating the call is safe."""


class JobState(StrEnum):
    """The state of a job. `GONE`: nothing is left of it, and no exit code was recorded."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"  # it is being ended or cleaned up; its processes may still run
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"  # by a person, or by whoever may end others' jobs
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A program to start, and where."""

    name: str  # in queues, of which lower-case letters, digits and hyphens are kept; each attempt needs its own
    folder: Path  # the job folder, on a file system that all nodes share; made absolute, without resolving links
    processes: int = 1  # per node
    program: tuple[str, ...] = ("-m", "toolformer_core.finetune")  # arguments of python, before the folder
    python: str = sys.executable  # the interpreter on the nodes

    def __post_init__(self) -> None:
        name = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        name = name if name[:1].isalpha() else f"job-{name}"
        object.__setattr__(self, "name", name[:40].strip("-"))  # DNS allows 63 characters, and queues append some
        object.__setattr__(self, "folder", Path(self.folder).absolute())

    @property
    def arguments(self) -> list[str]:
        """The program's arguments: they follow `python`, or torchrun's own options."""
        return [*self.program, str(self.folder)]

    def check_folder(self) -> None:
        if not self.folder.is_dir():
            raise UsageError(f"there is no job folder {self.folder}: write the job before it is launched")

    def write(self, name: str, text: str) -> None:
        """Write a file of the launcher into the job folder's `launch/`, or raise a LaunchError."""
        path = self.folder / "launch" / name
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as exc:
            raise LaunchError(f"{path} cannot be written: {exc.strerror}; make room, or mend its permissions") from exc


class Launcher(Protocol):
    """Starts programs in one way. A job's handle is a text by which another process or launcher finds it again."""

    name: ClassVar[str]
    poll_s: ClassVar[float]  # seconds between two requests for a job's state, as a queue serves other users too

    def preview(self, request: LaunchRequest) -> str:
        """Return what `submit` would run or apply: a command line, a script or a manifest."""

    def submit(self, request: LaunchRequest) -> str:
        """Start the program, unless a job of the same name and folder has not ended; return the job's handle.

        A UsageError: a program that launching needs is not on this machine, or a value is wrong. A LaunchError: the
        launch was refused, nothing of it is left. A LostError: there was no answer, repeating the request is safe.
        """

    def state(self, handle: str) -> tuple[JobState, str]:
        """Return the job's state, and a short detail such as `exit code 1`; a LostError: it is not known now."""

    def cancel(self, handle: str) -> None:
        """End the job, and what a failed one has left running, before another attempt; or raise a LaunchError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseLauncher:
    """What the launchers share: two settings, and helpers."""

    accelerator: Accelerator = "auto"  # `cpu` hides all GPUs, `cuda` requires them, `auto` takes what a node has
    environment: dict[str, str] = field(default_factory=dict)  # for every rank, e.g. of NCCL; before the launcher's own

    name: ClassVar[str]
    hint: ClassVar[str] = ""  # what to do if a command that the launcher runs is not installed
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # where a profile's settings are read

    def variables(self, **defaults: str) -> dict[str, str]:
        """Return the variables of every rank, or raise a UsageError if `environment` holds what is none."""
        for name, value in self.environment.items():
            if not _VARIABLE.fullmatch(f"{name}={value}"):
                raise UsageError(f"variable {name!r}: letters, digits and _ make a name, and one line of text a value")
        device = {"cpu": {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}, "cuda": {"DS_ACCELERATOR": "cuda"}}
        return {"PYTHONUNBUFFERED": "1", **device.get(self.accelerator, {}), **defaults, **self.environment}

    def exports(self) -> str:
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in self.variables().items())

    def gpus_to_request(self, gpus_per_node: int, processes: int) -> int:
        """Return how many GPUs to request on a node: if the setting is negative, one for each process on a GPU."""
        if gpus_per_node >= 0:
            return gpus_per_node
        return 0 if self.accelerator == "cpu" else processes

    @staticmethod
    def check_plain(kind: str, word: str) -> None:
        """Raise a UsageError unless a remote shell and a batch script pass a word, of some kind, on unchanged."""
        if not _PLAIN.fullmatch(word):
            raise UsageError(f"{kind} {word!r}: only letters, digits and @+=:,./_- can be passed to other machines")

    def make_handle(self, **record: object) -> str:
        return json.dumps({"launcher": self.name, **record})

    @staticmethod
    def parse_handle(handle: str) -> dict[str, Any]:
        try:
            return dict(json.loads(handle))
        except (ValueError, TypeError):
            raise UsageError(f"{handle!r} is no job of a launcher: pass what its submit returned") from None

    def run(self, *argv: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a short command of a queue or of SSH in the C locale; return its output, whatever its exit code.

        A UsageError: there is no such command; a LostError: it did not answer within `timeout` seconds.
        """
        variables = {name: value for name, value in environment().items() if not name.startswith(_NOT_PASSED_ON)}
        options: dict[str, Any] = {"env": {**variables, "LC_ALL": "C"}, "timeout": timeout, "stdin": subprocess.DEVNULL}
        try:
            return subprocess.run(argv, capture_output=True, text=True, check=False, **options)
        except (FileNotFoundError, PermissionError) as exc:
            raise UsageError(f"{argv[0]} is not on this machine's PATH: {self.hint}") from exc
        except subprocess.TimeoutExpired as exc:
            raise LostError(f"{argv[0]} did not answer within {timeout:.0f} s: see whether its service is up") from exc


def ended(folder: str, mark: str) -> tuple[JobState, str] | None:
    """Return how the job of this mark has ended, by the exit code in its folder; None: it has recorded none."""
    with suppress(OSError, ValueError):
        recorded, code = Path(folder, EXIT).read_text().split()
        if recorded == mark:  # else it is of an earlier attempt
            killed = {str(128 + item.value): f" ({item.name})" for item in signal.Signals}.get(code, "")
            return JobState.FAILED if int(code) else JobState.SUCCEEDED, f"exit code {code}{killed}"
    return None


def last_line(text: str) -> str:
    """Return the last line of a text that is not empty; "" if there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
