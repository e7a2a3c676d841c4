"""A training job launched, followed to its end, stopped. It knows no Prefect, no MLflow, and not what is trained.

In the job's folder, `launch.json` holds the launcher's handle, by which a later process goes on following. Finished, a
job is not trained again; half-way, it goes on from its last checkpoint; still running, it is only followed.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.launch.base import JobState, Launcher, LaunchError, LaunchRequest, LostError, dns_name, read_tail, write_file
from tasks.settings import seconds
from toolformer_core.errors import ToolformerError, UsageError
from toolformer_core.finetune.events import FAILURE_FILE, STOP_FILE, read_events
from warehouse.errors import LockHeldError
from warehouse.lock import FileLock

__all__ = [
    "Event",
    "Outcome",
    "TrainingError",
    "alone",
    "follow",
    "launch",
    "launch_request",
    "outcome_of",
    "running",
    "stop",
]

_LAUNCH = "launch.json"
_UNSURE_S = 600.0  # a queue may fail to answer for so long before nobody waits for it any more
_CLEAR_S = 300.0  # what is left of an earlier attempt has so long to end
_LAST_WORDS_S = 10.0  # shared file systems show the last lines of a finished job late

Event = dict[str, Any]
_log = logging.getLogger(__name__)


class TrainingError(ToolformerError):
    """A training run that failed.

    Args:
        reason: nan_loss, out_of_memory, disk_full, error, or gone (no word of how it ended).
        message: one line.
        tail: the log's last lines.
    """

    def __init__(self, reason: str, message: str, tail: str = "") -> None:
        self.reason = reason
        self.message = message
        self.tail = tail
        super().__init__(f"training failed ({reason}): {message}")

    def __reduce__(self) -> tuple[type[TrainingError], tuple[str, str, str]]:
        return (type(self), (self.reason, self.message, self.tail))

    @property
    def may_pass(self) -> bool:
        """Whether the same again may go well: a node or a process died, rather than the recipe being wrong."""
        return self.reason in ("gone", "error")


def launch_request(folder: Path, processes: int, python: str | None = None) -> LaunchRequest:
    """Return what the next launch of a job asks for.

    Its name in queues is of the folder and of the attempt: as long as the answer to a launch is not known, the next
    one has the same, and finds the job.
    """
    name = dns_name(f"{folder.name[-33:]}-{_next_attempt(folder)}")
    return LaunchRequest(name=name, folder=folder, processes=processes, python=python or sys.executable)


def _next_attempt(folder: Path) -> int:
    """Return the number of the next launch. The job's own word counts, too, should `launch.json` be gone."""
    noted = _noted(folder)
    if _unanswered(noted) and not _over(folder, noted):
        return int(noted["attempt"])
    started = len([e for e in read_events(folder)[0] if e["event"] == "started"])
    return max(int(noted.get("attempt", 0)), started) + 1


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only one to prepare a job's folder or to start its job, inside this block; others wait.

    Raises:
        LockHeldError: another process is at it, and still was after $TOOLFORMER_WAIT_S.
    """

    def waiting(held: LockHeldError) -> None:
        _log.warning("waiting at most %.0f s: %s", seconds("wait"), held)

    with FileLock(folder.with_name(f".{folder.name}.lock"), wait_s=seconds("wait"), waiting=waiting):
        yield


def launch(launcher: Launcher, folder: Path, processes: int, python: str | None = None) -> str:
    """Start the job, or find it running; return its handle.

    What is asked for is noted before it is asked: should the answer be lost, or this process be killed, the same call
    asks for the same attempt again, which a launcher takes over if it is there.

    Of two callers at once the second waits until the first has noted its job, and finds that.

    Raises:
        LockHeldError: another process starts the job, and still did after $TOOLFORMER_WAIT_S.
        UsageError: another launcher started the job, and nobody can say that it has ended.
        UsageError, LaunchError: see `Launcher.submit`, and `Launcher.cancel` for what an earlier attempt left behind.
        LaunchError: that does not end, or the launch cannot be noted.
        LostError: see `Launcher.submit` and `Launcher.state`; the same call goes on.
    """
    with alone(folder):
        return _launch(launcher, folder, processes, python)


def _launch(launcher: Launcher, folder: Path, processes: int, python: str | None) -> str:
    handle = running(launcher, folder)
    before = _noted(folder)
    asked = _unanswered(before) and before["launcher"] == launcher.name
    again = asked and not _over(folder, before)
    if handle is None and not asked:
        _clear(launcher, folder)
    (folder / STOP_FILE).unlink(missing_ok=True)
    if handle is not None:
        return handle
    facts = before
    if not again:
        (folder / FAILURE_FILE).unlink(missing_ok=True)
        facts = {"launcher": launcher.name, "attempt": _next_attempt(folder), "events": _ended(folder)}
        _note(folder, facts)
    try:
        handle = launcher.submit(launch_request(folder, processes, python))
    except LostError:
        raise
    except ToolformerError:
        _note(folder, before)  # nothing was started now; that nothing was before, this does not prove
        raise
    try:
        _note(folder, {**facts, "handle": handle})
    except LaunchError as exc:
        _log.warning("%s; until then the job is found by its name", exc)
    return handle


def _clear(launcher: Launcher, folder: Path) -> None:
    """End what an earlier attempt that is over may have left running: two in one folder write over each other."""
    told = _noted(folder)
    if told.get("launcher") == launcher.name:
        handle = str(told["handle"])
        launcher.cancel(handle)
        until = time.monotonic() + _CLEAR_S
        # even what has failed may leave a pod that still says that the job is to stop
        while launcher.state(handle)[0] in (JobState.RUNNING, JobState.ENDING):
            if time.monotonic() > until:
                raise LaunchError(f"the earlier attempt {handle} was ended {_CLEAR_S:.0f} s ago and is still there")
            time.sleep(launcher.poll_s)
    elif told and not (folder / FAILURE_FILE).exists() and not _over(folder, told):
        raise UsageError(
            f"the job in {folder} was started by the launcher {told.get('launcher')!r} and has not said that it "
            f"ended: follow it with that launcher's profile, or, if it is gone, remove {folder / _LAUNCH}"
        )


def _noted(folder: Path) -> dict[str, Any]:
    """Return what was noted of the last launch: launcher, attempt, `events` (see `_ended`), the handle once known."""
    note = folder / _LAUNCH
    try:
        told = json.loads(note.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    except OSError as exc:  # nothing must be launched beside what it may tell of
        raise LostError(f"{note} cannot be read: {exc.strerror}") from exc
    return told if isinstance(told, dict) and "launcher" in told else {}


def _note(folder: Path, facts: Mapping[str, Any]) -> None:
    note = folder / _LAUNCH
    try:
        part = write_file(folder / "launch" / _LAUNCH, json.dumps(facts) + "\n")
        part.replace(note)
    except OSError as exc:
        raise LaunchError(f"{note} cannot be written: {exc.strerror}; make room, or mend its permissions") from exc


def _unanswered(noted: Mapping[str, Any]) -> bool:
    """Whether a launch was asked for whose answer nobody has."""
    return bool(noted) and "handle" not in noted


def _over(folder: Path, noted: Mapping[str, Any]) -> bool:
    """Whether a noted launch has told of its end."""
    return _ended(folder) > int(noted.get("events", 0))


def _ended(folder: Path) -> int:
    """Return how many events there are up to the last end that a job told of: what ends behind it is another one's."""
    events = read_events(folder)[0]
    ends = [i for i, e in enumerate(events, 1) if e["event"] in ("finished", "stopped", "failed")]
    return max(ends, default=0)


def running(launcher: Launcher, folder: Path) -> str | None:
    """Return the handle of the folder's job if this launcher started it and it has not ended.

    Raises:
        LostError: nobody can tell.
    """
    told = _noted(folder)
    if told.get("launcher") != launcher.name or _unanswered(told):
        return None
    state, _ = launcher.state(told["handle"])
    return str(told["handle"]) if state in (JobState.PENDING, JobState.RUNNING) else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended."""

    finished: bool  # False: it stopped because asked to
    step: int
    best_step: int | None
    best_perplexity: float | None


def outcome_of(events: Sequence[Event]) -> Outcome | None:
    """Return how the last attempt ended by its own word; None if it did not say."""
    starts = [i for i, e in enumerate(events) if e["event"] == "started"]
    for event in events[starts[-1] :] if starts else ():
        if event["event"] == "finished":
            return Outcome(True, event["step"], event["best_step"], event["best_perplexity"])
        if event["event"] == "stopped":
            return Outcome(False, event["step"], None, None)
    return None


def follow(
    launcher: Launcher,
    handle: str,
    folder: Path,
    seen: Callable[[list[Event]], None],
    *,
    waits: Callable[[str], None] = lambda detail: None,
    every_s: float = 1.0,
    stop_s: float = 600.0,
) -> Outcome:
    """Follow a job to its end. Whatever interrupts this (Ctrl-C, a cancelled flow run) asks the job to stop.

    A `seen` that fails (a server that is away for a while) does not end the training: it is told again at the next
    look, and its error is raised if it fails after the end, too.

    Args:
        seen: told of all events from the job's first on, as they come, with those of earlier attempts first.
        waits: told why a job that has not begun waits, whenever that changes.
        every_s: seconds between two looks.
        stop_s: seconds an interrupted job has for its last step and checkpoint before it is ended hard.

    Raises:
        TrainingError: it failed.
        LostError: the queue has not answered for minutes; the same call follows the job again.
    """
    tail = _Tail(folder, seen)
    before = int(_noted(folder).get("events", 0))
    try:
        state, detail = _await_end(launcher, handle, tail, every_s, deadline=None, waits=waits)
    except LostError:
        raise
    except BaseException:
        try:
            _stop(launcher, handle, tail, every_s, stop_s)
        except LaunchError as exc:
            _log.warning("the job could not be ended: %s", exc)
        raise
    told = outcome_of(tail.events[before:])
    if told is None and state is JobState.SUCCEEDED:  # its last words may not be visible here yet
        until = time.monotonic() + _LAST_WORDS_S
        while told is None and time.monotonic() < until:
            time.sleep(every_s)
            tail.look()
            told = outcome_of(tail.events[before:])
    if told is None:
        raise _failure(folder, state, detail)  # whether or not anybody could be told of what came before
    tail.tell()
    return told  # by its own word, whatever the exit code: libraries sometimes abort after the work is done


def stop(
    launcher: Launcher,
    folder: Path,
    seen: Callable[[list[Event]], None],
    *,
    every_s: float = 1.0,
    stop_s: float = 600.0,
) -> bool:
    """Ask the folder's job to stop, and wait until it has; return whether it ran. For whom `follow` was killed.

    Args:
        seen, every_s, stop_s: see `follow`.

    Raises:
        LaunchError: nobody can tell how the job stands, or it cannot be ended.
    """
    try:
        handle = running(launcher, folder)
    except LostError:
        (folder / STOP_FILE).touch()
        raise
    if handle is not None:
        _stop(launcher, handle, _Tail(folder, seen), every_s, stop_s)
    elif _unanswered(_noted(folder)):
        (folder / STOP_FILE).touch()  # it may be running, and reads this
    return handle is not None


def _stop(launcher: Launcher, handle: str, tail: _Tail, every_s: float, stop_s: float) -> None:
    (tail.folder / STOP_FILE).touch()  # first: whoever waits here may be killed, the job reads it all the same
    try:
        _await_end(launcher, handle, tail, every_s, deadline=time.monotonic() + stop_s)
    except LostError as exc:
        _log.warning("%s", exc)  # it is to end all the same
    finally:
        if (tail.folder / STOP_FILE).exists():  # gone: somebody has launched the job again, and wants it to go on
            launcher.cancel(handle)


class _Tail:
    """The events read so far, and those of them that `seen` has not taken yet."""

    def __init__(self, folder: Path, seen: Callable[[list[Event]], None]) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self._seen = seen
        self._offset = 0
        self._untold: list[Event] = []

    def look(self) -> None:
        """Read what is new and tell it; what cannot be read or told now is at the next look."""
        try:
            new, self._offset = read_events(self.folder, self._offset)
            self.events += new
            self._untold += new
            self.tell()
        except Exception as exc:  # noqa: BLE001  # whatever a server, a disk or a display does is no reason to end a training
            _log.warning("the training goes on; what it says could not be passed on yet: %s", exc)

    def tell(self) -> None:
        if self._untold:
            self._seen(self._untold)
            self._untold = []


def _await_end(
    launcher: Launcher,
    handle: str,
    tail: _Tail,
    every_s: float,
    deadline: float | None,
    waits: Callable[[str], None] = lambda detail: None,
) -> tuple[JobState, str]:
    heard = time.monotonic()  # when the queue last answered
    asked = -math.inf
    waited_for: str | None = None
    state, detail = JobState.RUNNING, ""
    while True:
        if time.monotonic() - asked >= launcher.poll_s:
            asked = time.monotonic()
            try:
                state, detail = launcher.state(handle)
                heard = time.monotonic()
            except LostError:
                if time.monotonic() - heard > _UNSURE_S:
                    raise
                state, detail = JobState.RUNNING, ""
        tail.look()
        if state is JobState.PENDING and detail != waited_for:
            waits(detail)
            waited_for = detail
        if state not in (JobState.PENDING, JobState.RUNNING, JobState.ENDING):
            return state, detail
        if deadline is not None and not (tail.folder / STOP_FILE).exists():
            return state, detail  # see `_stop`
        if deadline is not None and (state is JobState.PENDING or time.monotonic() > deadline):
            return state, detail  # what still waits in a queue has nothing to save
        time.sleep(every_s)


def _failure(folder: Path, state: JobState, detail: str) -> TrainingError:
    tail = read_tail(folder / "log.txt")
    try:
        told = json.loads((folder / FAILURE_FILE).read_text(encoding="utf-8"))
        return TrainingError(told["reason"], told["message"], tail)
    except (OSError, ValueError, KeyError):
        pass
    if (folder / FAILURE_FILE).is_file() and not (folder / FAILURE_FILE).stat().st_size:
        return TrainingError("disk_full", "there was no room to say why it failed; make some, and run it again", tail)
    killed = re.search(r"\boom(killed)?\b|oom.kill|out_of_memory", detail, re.IGNORECASE)
    reason = "out_of_memory" if killed else "gone"
    return TrainingError(reason, f"the job ended without a word ({state}{': ' + detail if detail else ''})", tail)
