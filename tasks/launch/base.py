"""What all launchers share: the protocol `Launcher`, its requests and job states, and running other programs.

A launcher starts one program, once per process, on the machines it knows, and writes the program's output to `log.txt`
in the job folder. It does not know what is trained, reads no events and writes no stop file: to end a job gently the
caller writes that file and waits; `cancel` ends it at once. A launcher's own files lie in the job folder's `launch/`;
the program's exit code, if a launcher records it, in `exit`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tasks.environment import environment
from toolformer_core.errors import ToolformerError, UsageError

LOG = "log.txt"
EXIT = "exit"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")  # DNS allows 63 characters, and queues append some
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)
_TAIL_BYTES = 256 * 1024


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


class Accelerator(StrEnum):
    """The device that DeepSpeed computes on; `AUTO` leaves the choice to DeepSpeed."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A program to start, and where.

    Args:
        name: the job's name in queues: lower-case letters, digits and hyphens, at most 40 (see `dns_name`). Each
            attempt needs its own name; otherwise the previous attempt's job is taken for it.
        folder: the job folder, on a file system that all nodes share; made absolute, without resolving links.
        processes: number of processes per node.
        program: arguments of python: `("-m", module, ...)` or `(script, ...)`; the folder is appended.
        environment: further environment variables for every process.
        python: the interpreter on the nodes; default: this one.

    Raises:
        UsageError: a value that no launcher could use.
    """

    name: str
    folder: Path
    processes: int = 1
    program: tuple[str, ...] = ("-m", "toolformer_core.finetune")
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder).absolute())
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"job name {self.name!r}: use up to 40 lower-case letters, digits and hyphens, e.g. 'cc-7b'"
            )
        if self.processes < 1:
            raise UsageError(f"processes is {self.processes}: at least one process per node is needed")
        head = self.program[1:2] if self.program[:1] == ("-m",) else self.program[:1]
        if not head or head[0].startswith("-"):
            raise UsageError(f"program {self.program}: give ('-m', module, ...) or (script, ...)")
        for name, value in self.environment.items():
            if not _VARIABLE.fullmatch(name):
                raise UsageError(f"{name!r} is not a variable's name: use letters, digits and underscores")
            if any(ord(letter) < 32 for letter in value):
                raise UsageError(f"the variable {name} holds a line break or a control character: take it out")
        if any(ord(letter) < 32 for word in (str(self.folder), self.python, *self.program) for letter in word):
            raise UsageError("the folder, the program or python's path holds a control character: take it out")

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @property
    def exit_file(self) -> Path:
        return self.folder / EXIT

    @property
    def arguments(self) -> list[str]:
        """The program's arguments: they follow `python`, or torchrun's own options."""
        return [*self.program, str(self.folder)]

    def check_folder(self) -> None:
        """Check that the job folder exists.

        Raises:
            UsageError: it does not.
        """
        if not self.folder.is_dir():
            raise UsageError(f"there is no job folder {self.folder}: write the job before it is launched")


class Launcher(Protocol):
    """Starts programs in one way. A job's handle is a text by which another process or launcher finds it again."""

    name: ClassVar[str]
    poll_s: ClassVar[float]  # seconds between two requests for a job's state, as a queue serves other users too

    def preview(self, request: LaunchRequest) -> str:
        """Return what `submit` would run or apply: a command line, a script or a manifest."""

    def submit(self, request: LaunchRequest) -> str:
        """Start the program and return the job's handle.

        The answer can get lost after the job was accepted. So if a job of the same name and folder has not ended, its
        handle is returned, and no second job is started.

        Raises:
            UsageError: a program that launching needs is not installed on this machine, or a value is wrong.
            LaunchError: the launch was refused; nothing of it is left.
            LostError: there was no answer; repeating the request is safe.
        """

    def state(self, handle: str) -> tuple[JobState, str]:
        """Return the job's state, and a short detail such as `exit code 1` or `PENDING (Resources)`.

        Raises:
            LostError: the state cannot be read now, e.g. the queue does not answer; try again.
        """

    def cancel(self, handle: str) -> None:
        """End the job at once, and whatever a failed job has left running. Call it before another attempt.

        Raises:
            LaunchError: it could not be ended, or not on every machine.
        """


def dns_name(text: str) -> str:
    """Make a name for queues and pods from any text: `"C* (v2)"` gives `"c-v2"`."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not name[:1].isalpha():
        name = f"job-{name}"
    return name[:40].strip("-")


def check_plain_words(kind: str, *words: str) -> None:
    """Check that a remote shell, pdsh and a batch script pass these words on unchanged.

    Args:
        kind: what the words are, for the error message.
        *words: to check.

    Raises:
        UsageError: a word holds a space, a quote, `%`, `$` or the like.
    """
    for word in words:
        if not _PLAIN.fullmatch(word):
            raise UsageError(f"{kind} {word!r}: only letters, digits and @+=:,./_- can be passed to other machines")


def derived_port(folder: Path) -> int:
    """Return a port in 20000-28999 that depends on the folder's path alone.

    Two jobs on one node seldom share a port, and a preview shows the port that will be used.
    """
    offset = 0
    for byte in str(folder).encode():
        offset = (offset * 31 + byte) % 9000
    return 20000 + offset


def accelerator_variables(accelerator: Accelerator | str) -> dict[str, str]:
    """Return the environment variables that restrict DeepSpeed and torch to one kind of device."""
    if accelerator == Accelerator.CPU:
        return {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    return {"DS_ACCELERATOR": "cuda"} if accelerator == Accelerator.CUDA else {}


def gpus_to_request(gpus_per_node: int, accelerator: Accelerator | str, processes: int) -> int:
    """Return how many GPUs to request on a node, of a launcher's settings and the processes per node."""
    if gpus_per_node >= 0:
        return gpus_per_node
    return 0 if accelerator == Accelerator.CPU else processes


def rank_variables(accelerator: Accelerator | str, own: Mapping[str, str], request: LaunchRequest) -> dict[str, str]:
    """Return the variables of every rank: the launcher's own, over which the request's have precedence."""
    return {"PYTHONUNBUFFERED": "1", **accelerator_variables(accelerator), **own, **request.environment}


def last_line(text: str) -> str:
    """Return the last line of a text that is not empty; "" if there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def read_tail(path: Path, lines: int = 40) -> str:
    """Return a text file's last lines, reading at most its last 256 KiB; "" if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:]) if lines > 0 else ""


def write_file(path: Path, text: str) -> Path:
    """Write a file into the job folder's `launch/`, which is made if it does not exist.

    Raises:
        LaunchError: the disk is full, or the folder cannot be written.
    """
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise LaunchError(f"{path} cannot be written: {exc.strerror}; make room, or mend its permissions") from exc
    return path


def parse_handle(handle: str, launcher: str, *keys: str) -> dict[str, Any]:
    """Return the record that a handle holds as JSON.

    Args:
        handle: what `submit` returned.
        launcher: name of the launcher that must have made it.
        *keys: that the record must have.

    Raises:
        UsageError: it is not a handle of this launcher.
    """
    try:
        record = json.loads(handle)
    except ValueError:
        record = None
    if not isinstance(record, dict) or record.get("launcher") != launcher or any(key not in record for key in keys):
        raise UsageError(f"{handle!r} is not a job of the launcher {launcher}: pass what its submit returned")
    return record


def run_command(
    argv: Sequence[str], *, hint: str, timeout: float = 60.0, without_prefix: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a short command of a queue or of SSH in the C locale; return its output, whatever its exit code.

    Args:
        argv: the command.
        hint: what to do if the command is not installed.
        timeout: in seconds.
        without_prefix: environment variables whose names begin with it are not passed on; "": all are.

    Raises:
        UsageError: there is no such command.
        LostError: it did not answer in time.
    """
    variables = {**environment(), "LC_ALL": "C"}
    if without_prefix:
        variables = {name: value for name, value in variables.items() if not name.startswith(without_prefix)}
    try:
        return subprocess.run(
            argv, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
        )
    except (FileNotFoundError, PermissionError) as exc:
        raise UsageError(f"{argv[0]} is not on this machine's PATH: {hint}") from exc
    except subprocess.TimeoutExpired as exc:
        raise LostError(f"{argv[0]} did not answer within {timeout:.0f} s: see whether its service is up") from exc
