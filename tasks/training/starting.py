"""Starts a training job once: records each launch, and finds a job that is already running."""

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.launch.base import JobState, Launcher, LaunchError, LaunchRequest, LostError
from tasks.settings import seconds
from toolformer_core.errors import ToolformerError, UsageError
from toolformer_core.finetune.events import FAILURE_FILE, STOP_FILE, read_events
from warehouse.errors import LockHeldError
from warehouse.files.base import put_local
from warehouse.files.lock import FileLock

_LAUNCH = "launch.json"  # in the job's folder: the launcher's handle, by which a later process can follow the job
_CLEAR_S = 300.0  # time that an earlier attempt has to end

_log = logging.getLogger(__name__)


def launch_request(folder: Path, processes: int, python: str | None = None) -> LaunchRequest:
    """Return the request for the next launch of a job; as long as a launch's reply is unknown, by the same name."""
    name = f"{folder.name[-33:]}-{_next_attempt(folder)}"
    return LaunchRequest(name=name, folder=folder, processes=processes, python=python or sys.executable)


def _next_attempt(folder: Path) -> int:
    """Return the number of the next launch; the job's own events count too, in case `launch.json` is gone."""
    record = launch_record(folder)
    if is_unanswered(record) and not _has_ended(folder, record):
        return int(record["attempt"])
    started = [event["event"] for event in read_events(folder)[0]].count("started")
    return max(int(record.get("attempt", 0)), started) + 1


@contextmanager
def job_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a job's folder while preparing the folder or starting its job; see `FileLock`."""

    def log_wait(error: LockHeldError) -> None:
        _log.warning("waiting at most %.0f s: %s", seconds("wait"), error)

    with FileLock(folder.with_name(f".{folder.name}.lock"), wait_s=seconds("wait"), on_wait=log_wait):
        yield


def launch(launcher: Launcher, folder: Path, processes: int, python: str | None = None) -> str:
    """Start the job, or find it running; return its handle.

    The attempt is recorded before the job is submitted. If the reply is lost or this process is killed, the same call
    submits the same attempt again, and the launcher adopts the job if it exists.

    Raises, besides what `Launcher.submit`, `state` and `cancel` raise:
        LockHeldError: another process was still starting the job after $TOOLFORMER_WAIT_S.
        UsageError: another launcher started the job, and it is unknown whether the job has ended.
        LaunchError: an earlier attempt does not end, or the launch cannot be recorded.
    """
    with job_lock(folder):
        handle = running_handle(launcher, folder)
        record = launch_record(folder)
        pending = is_unanswered(record) and record["launcher"] == launcher.name
        if handle is None and not pending:
            _end_earlier_attempt(launcher, folder, record)
        (folder / STOP_FILE).unlink(missing_ok=True)
        if handle is not None:
            return handle
        facts = record
        if not pending or _has_ended(folder, record):
            (folder / FAILURE_FILE).unlink(missing_ok=True)
            facts = {"launcher": launcher.name, "attempt": _next_attempt(folder), "events": _end_index(folder)}
            _write_record(folder, facts)
        try:
            handle = launcher.submit(launch_request(folder, processes, python))
        except LostError:
            raise
        except ToolformerError:
            _write_record(folder, record)  # nothing was started now, but an earlier launch may have started the job
            raise
        try:
            _write_record(folder, {**facts, "handle": handle})
        except LaunchError as exc:
            _log.warning("%s; until then the job is found by its name", exc)
        return handle


def _end_earlier_attempt(launcher: Launcher, folder: Path, record: Mapping[str, Any]) -> None:
    """End what an earlier attempt may have left running: two attempts in one folder would overwrite each other."""
    if record.get("launcher") == launcher.name:
        handle = str(record["handle"])
        launcher.cancel(handle)
        deadline = time.monotonic() + _CLEAR_S
        # a failed attempt, too, may leave a pod behind that would stop the new job
        while launcher.state(handle)[0] in (JobState.RUNNING, JobState.ENDING):
            if time.monotonic() > deadline:
                raise LaunchError(f"the earlier attempt {handle} was ended {_CLEAR_S:.0f} s ago and is still there")
            time.sleep(launcher.poll_s)
    elif record and not (folder / FAILURE_FILE).exists() and not _has_ended(folder, record):
        raise UsageError(
            f"the job in {folder} was started by the launcher {record.get('launcher')!r} and has not said that it "
            f"ended: follow it with that launcher's profile, or, if it is gone, remove {folder / _LAUNCH}"
        )


def launch_record(folder: Path) -> dict[str, Any]:
    """Return the record of the last launch: launcher, attempt, `events` (see `_end_index`), and the handle if known."""
    path = folder / _LAUNCH
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    except OSError as exc:  # it may name a running job, beside which nothing must be launched
        raise LostError(f"{path} cannot be read: {exc.strerror}") from exc
    return record if isinstance(record, dict) and "launcher" in record else {}


def _write_record(folder: Path, facts: Mapping[str, Any]) -> None:
    path = folder / _LAUNCH
    try:
        put_local(path, (json.dumps(facts) + "\n").encode())
    except OSError as exc:
        raise LaunchError(f"{path} cannot be written: {exc.strerror}; make room, or correct its permissions") from exc


def is_unanswered(record: Mapping[str, Any]) -> bool:
    return bool(record) and "handle" not in record


def _has_ended(folder: Path, record: Mapping[str, Any]) -> bool:
    return _end_index(folder) > int(record.get("events", 0))


def _end_index(folder: Path) -> int:
    """Return the number of events up to the last reported end; an end after that belongs to a later launch."""
    ends = ("finished", "stopped", "failed")
    return max((i for i, e in enumerate(read_events(folder)[0], 1) if e["event"] in ends), default=0)


def running_handle(launcher: Launcher, folder: Path) -> str | None:
    """Return the handle of the folder's job if this launcher started it and it has not ended; see `Launcher.state`."""
    record = launch_record(folder)
    if record.get("launcher") != launcher.name or is_unanswered(record):
        return None
    state, _ = launcher.state(record["handle"])
    return str(record["handle"]) if state in (JobState.PENDING, JobState.RUNNING) else None
