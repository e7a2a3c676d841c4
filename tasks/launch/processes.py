"""Processes of this machine that outlive the process which started them, and that a new process finds again.

All processes of a job carry its mark in their environment, by which they are known even if a process id is used again.
"""

import contextlib
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tasks.environment import environment
from tasks.launch.base import EXIT, LOG, BaseLauncher, JobState, LaunchError, LostError, ended
from tasks.provenance import host
from toolformer_core.errors import UsageError

LAUNCH_VARIABLE = "TOOLFORMER_LAUNCH"
# Without the last word the shell would become mv, and while it does so it would not seem to carry the mark.
_SUPERVISE = 'file=$1 mark=$2; shift 2; "$@"; echo "$mark $?" >"$file.part" && mv "$file.part" "$file"; exit'
# Set where this process is itself a rank of a distributed job; a command must not inherit them. PET_: for torchrun.
_OF_A_RANK = {*"RANK LOCAL_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT".split()}
_POLL_S = 0.05
_EXEC_TRIES, _EXEC_POLL_S = 20, 0.002  # to read the environment of a process in the middle of an exec


def find(mark: str, variable: str = LAUNCH_VARIABLE) -> list[psutil.Process]:
    """Return the living processes of this machine that carry a mark in a variable."""
    return _carriers(psutil.process_iter(), mark, variable)


def _carriers(processes: Iterable[psutil.Process], mark: str, variable: str) -> list[psutil.Process]:
    """Return the processes that live and carry a mark; amid an exec the kernel shows none, so they are read again."""
    found, unclear = [], list(processes)
    for _ in range(_EXEC_TRIES):
        without = []
        for process in unclear:
            with contextlib.suppress(psutil.Error, OSError):
                variables = process.environ()
                if not variables and process.exe():
                    without.append(process)
                elif variables.get(variable) == mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        if not without:
            break
        unclear = without
        time.sleep(_EXEC_POLL_S)
    return found


@dataclass(frozen=True, slots=True)
class ProcessLauncher(BaseLauncher):
    """A launcher whose job is a command on this machine. A job's `pid` is the shell that records the exit code."""

    def start(self, argv: Sequence[str], folder: Path, variables: Mapping[str, str], mark: str) -> str:
        """Start a command in the job folder, with variables besides those of this process; return the job's handle.

        The mark must be this job's alone. A UsageError: there is no such command; a LaunchError: it cannot be started,
        or the log cannot be written.
        """
        own = environment().items()
        env = {k: v for k, v in own if k not in _OF_A_RANK and not k.startswith(("PET_", "TORCHELASTIC_"))}
        env |= {**variables, LAUNCH_VARIABLE: mark}
        if shutil.which(argv[0], path=env.get("PATH")) is None:
            raise UsageError(f"{argv[0]} is no program of this machine: name the python to train with by its full path")
        try:
            (folder / EXIT).unlink(missing_ok=True)
            with (folder / LOG).open("ab") as log:
                process = subprocess.Popen(
                    ["sh", "-c", _SUPERVISE, self.name, str(folder / EXIT), mark, *argv],
                    cwd=folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as exc:
            raise LaunchError(f"{argv[0]} cannot be started in {folder}: {exc.strerror}") from exc
        threading.Thread(target=process.wait, daemon=True).start()  # or it leaves a zombie while this process lives
        return self.make_handle(host=host(), folder=str(folder), mark=mark, pid=process.pid)

    def find_job(self, folder: Path) -> str | None:
        """Return the handle of the launcher's job that runs in a folder on this machine; None if none does."""
        prefix = ["sh", "-c", _SUPERVISE, self.name, str(folder / EXIT)]
        for process in psutil.process_iter(["cmdline"]):
            argv = process.info["cmdline"] or []  # None: of a process that may not be looked at
            if argv[: len(prefix)] == prefix and len(argv) > len(prefix):
                mark = argv[len(prefix)]
                if _carriers([process], mark, LAUNCH_VARIABLE) and ended(str(folder), mark) is None:
                    return self.make_handle(host=host(), folder=str(folder), mark=mark, pid=process.pid)
        return None

    def state(self, handle: str) -> tuple[JobState, str]:
        record = self.parse_handle(handle)
        if (end := ended(record["folder"], record["mark"])) is not None:
            return end
        _check_host(record)
        if _is_supervised(record):
            return JobState.RUNNING, f"process {record['pid']}"
        if remaining := find(record["mark"]):
            return JobState.RUNNING, f"process {remaining[0].pid}, whose exit code nobody will record"
        gone = JobState.GONE, "its processes are gone and left no exit code (killed, or a reboot?)"
        return ended(record["folder"], record["mark"]) or gone  # it may have ended since the first look

    def end(self, handle: str, grace_s: float) -> None:
        """End a job's processes: send SIGTERM, `grace_s` seconds later SIGKILL to those still alive; wait for them."""
        record = self.parse_handle(handle)
        if ended(record["folder"], record["mark"]) is None:
            _check_host(record)
        deadline = time.monotonic() + grace_s
        _send_signal(_find_workers(record), signal.SIGTERM)
        while _find_workers(record) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        deadline = time.monotonic() + 10
        # More than once, as a dying launcher may just have started another process.
        while (remaining := _find_workers(record)) and time.monotonic() < deadline:
            _send_signal(remaining, signal.SIGKILL)
            time.sleep(_POLL_S)
        if remaining:
            pids = ", ".join(str(process.pid) for process in remaining)
            raise LaunchError(f"processes {pids} on {record['host']} do not end: end them by hand (kill -9)")
        while _is_supervised(record) and time.monotonic() < deadline:  # until the exit code is recorded
            time.sleep(_POLL_S)


def _check_host(record: Mapping[str, Any]) -> None:
    if record["host"] != host():
        raise LostError(f"this job was started on {record['host']}, and only from there can it be followed or ended")


def _is_supervised(record: Mapping[str, Any]) -> bool:
    """Return whether the shell that started the command lives; if it has ended, its process id may be in use again."""
    with contextlib.suppress(psutil.Error, ValueError):
        return bool(_carriers([psutil.Process(int(record["pid"]))], record["mark"], LAUNCH_VARIABLE))
    return False


def _find_workers(record: Mapping[str, Any]) -> list[psutil.Process]:
    return [process for process in find(record["mark"]) if process.pid != record["pid"]]


def _send_signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # psutil compares start times, so a reused id is left alone
            process.send_signal(number)
