"""Processes of this machine that outlive the process which started them, and that a new process finds again.

A command runs under a few lines of shell, in a session of its own; these write down its exit code in the job folder.
Every process of the command carries a mark of its own in its environment, so what belongs to a job is known even if
a process id has been given to somebody else since, or a child has left its parent's process group as torchrun's
workers do. Nothing without that mark is ever signalled. What the command is, this file does not know.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tasks.launch.base import EXIT, LOG, JobState, LaunchError, LostError, parse_handle
from tasks.settings import environment, host
from toolformer_core.errors import UsageError

__all__ = ["LAUNCH_VARIABLE", "cancel", "find", "handle", "new_mark", "running_in", "start", "state"]

LAUNCH_VARIABLE = "TOOLFORMER_LAUNCH"
_SUPERVISE = 'file=$1 mark=$2; shift 2; "$@"; code=$?; echo "$mark $code" >"$file.part" && mv "$file.part" "$file"'
# A launch must not take itself for a rank of the job in which its starter runs; PET_ variables are torchrun's options.
_RANKS = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_TORCHRUN = ("PET_", "TORCHELASTIC_")
_POLL_S = 0.05
_LOOKS, _LOOK_S = 20, 0.002  # at a process that is just becoming another program


def new_mark() -> str:
    """Return a mark no other job has."""
    return uuid.uuid4().hex


def start(
    launcher: str, argv: Sequence[str], folder: Path, variables: Mapping[str, str], mark: str, **more: Any
) -> str:
    """Start a command in the job folder, its output appended to `log.txt`, and return the job's handle.

    Args:
        launcher: the launcher's name, which the handle keeps.
        argv: the command.
        folder: the job folder; the exit code will be in its file `exit`.
        variables: on top of this process's environment.
        mark: see `new_mark`.
        **more: what else the handle is to keep.

    Raises:
        UsageError: there is no such command.
        LaunchError: the process cannot be started, or the log cannot be written.
    """
    own = {name: value for name, value in environment().items() if name not in _RANKS}
    own = {name: value for name, value in own.items() if not name.startswith(_TORCHRUN)}
    everything = {**own, **variables, LAUNCH_VARIABLE: mark}
    if shutil.which(argv[0], path=everything.get("PATH")) is None:
        raise UsageError(f"{argv[0]} is not a program of this machine: name the python to train with by its full path")
    try:
        (folder / EXIT).unlink(missing_ok=True)
        with (folder / LOG).open("ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", _SUPERVISE, launcher, str(folder / EXIT), mark, *argv],
                cwd=folder,
                env=everything,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as exc:
        raise LaunchError(f"{argv[0]} cannot be started in {folder}: {exc.strerror}") from exc
    threading.Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie while we live
    return handle(launcher, folder, mark, process.pid, **more)


def handle(launcher: str, folder: Path, mark: str, pid: int, **more: Any) -> str:
    """Return the handle of a job: of the shell that writes down its exit code, and all that carries the mark."""
    record = {"launcher": launcher, "host": host(), "folder": str(folder), "mark": mark}
    return json.dumps({**record, "pid": pid, **more})


def running_in(folder: Path, launcher: str) -> tuple[str, int] | None:
    """Return mark and process id of the job of a launcher that runs in a folder on this machine; None without one."""
    begin = ["sh", "-c", _SUPERVISE, launcher, str(folder / EXIT)]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            words = process.cmdline()
            mark = words[len(begin)] if words[: len(begin)] == begin and len(words) > len(begin) else None
            if mark and _carries(process, mark, LAUNCH_VARIABLE) and _ended({"folder": folder, "mark": mark}) is None:
                return mark, process.pid
    return None


def find(mark: str, variable: str = LAUNCH_VARIABLE) -> list[psutil.Process]:
    """Return the living processes of this machine that carry a mark in a variable, oldest first."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if _carries(process, mark, variable):
                found.append((process.create_time(), process.pid, process))
    return [process for _, _, process in sorted(found, key=lambda item: item[:2])]


def _carries(process: psutil.Process, mark: str, variable: str) -> bool:
    """Whether a process lives and carries a mark.

    Between an exec's beginning and its end the kernel shows a program and no environment; a thread of the kernel's own
    has neither, and a zombie no more.
    """
    for _ in range(_LOOKS):
        variables = process.environ()
        if variables or not process.exe():
            break
        time.sleep(_LOOK_S)
    return variables.get(variable) == mark and process.status() != psutil.STATUS_ZOMBIE


def state(handle: str, launcher: str) -> tuple[JobState, str]:
    """Return how a job stands, and a short detail.

    Raises:
        UsageError: not a handle of this launcher.
        LostError: the job runs on another machine.
    """
    record = _record(handle, launcher)
    ended = _ended(record)
    if ended is not None:
        return ended
    _check_host(record)
    if _supervisor(record) is not None:
        return JobState.RUNNING, f"process {record['pid']}"
    left = find(record["mark"])
    if left:
        return JobState.RUNNING, f"process {left[0].pid}, whose exit code nobody will record"
    ended = _ended(record)
    if ended is not None:
        return ended
    return JobState.GONE, "its processes are gone and left no exit code (killed, or a reboot?)"


def cancel(handle: str, launcher: str, grace_s: float, *, ask_first: bool = True) -> None:
    """End a job's processes: SIGTERM, and SIGKILL for those still there after the grace period; then wait.

    Args:
        handle: of the job.
        launcher: whose handle it is.
        grace_s: seconds between the two signals.
        ask_first: False to wait the grace period without sending SIGTERM.

    Raises:
        UsageError: not a handle of this launcher.
        LostError: the job runs on another machine.
        LaunchError: a process cannot be ended.
    """
    record = _record(handle, launcher)
    if _ended(record) is None:
        _check_host(record)
    deadline = time.monotonic() + grace_s
    if ask_first:
        _signal(_workers(record), signal.SIGTERM)
    while _workers(record) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    deadline = time.monotonic() + 10
    while (left := _workers(record)) and time.monotonic() < deadline:  # a dying launcher may just have started one more
        _signal(left, signal.SIGKILL)
        time.sleep(_POLL_S)
    if left:
        numbers = ", ".join(str(process.pid) for process in left)
        raise LaunchError(f"processes {numbers} on {record['host']} do not end: end them by hand (kill -9)")
    while _supervisor(record) is not None and time.monotonic() < deadline:  # it is writing down the exit code
        time.sleep(_POLL_S)


def _record(handle: str, launcher: str) -> dict[str, Any]:
    return parse_handle(handle, launcher, "host", "folder", "mark", "pid")


def _check_host(record: Mapping[str, Any]) -> None:
    if record["host"] != host():
        raise LostError(f"this job was started on {record['host']}, and only from there can it be followed or ended")


def _ended(record: Mapping[str, Any]) -> tuple[JobState, str] | None:
    try:
        mark, code = Path(record["folder"], EXIT).read_text().split()
    except (OSError, ValueError):
        return None
    if mark != record["mark"] or not code.isdecimal():  # of an earlier attempt
        return None
    number = int(code)
    if number == 0:
        return JobState.SUCCEEDED, "exit code 0"
    known = {item.value: item.name for item in signal.Signals}
    name = known.get(number - 128)
    return JobState.FAILED, f"exit code {number}" + (f" ({name})" if name else "")


def _supervisor(record: Mapping[str, Any]) -> psutil.Process | None:
    """Return the shell that started the command, if it lives and its process id is still its own."""
    with contextlib.suppress(psutil.Error, OSError, ValueError):
        process = psutil.Process(int(record["pid"]))
        if _carries(process, record["mark"], LAUNCH_VARIABLE):
            return process
    return None


def _workers(record: Mapping[str, Any]) -> list[psutil.Process]:
    """Return all processes of the job but the shell that is to write down the exit code."""
    return [process for process in find(record["mark"]) if process.pid != record["pid"]]


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # psutil compares start times, so a reused id is left alone
            process.send_signal(number)
