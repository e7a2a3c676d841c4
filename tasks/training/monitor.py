"""Follows a training job to its end, and stops it. It knows no Prefect, no MLflow, and not what is trained."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tasks.launch.base import JobState, Launcher, LaunchError, LostError
from tasks.training.outcome import TrainingEvent, TrainingOutcome, failure_of, outcome_of
from tasks.training.starting import is_unanswered, launch_record, running_handle
from toolformer_core.finetune.events import STOP_FILE, read_events

_NO_ANSWER_S = 600.0  # how long a queue may fail to answer
_LAST_EVENTS_S = 10.0  # shared file systems show the last lines of a finished job late

_log = logging.getLogger(__name__)

OnEvents = Callable[[list[TrainingEvent]], None]


def follow(
    launcher: Launcher,
    handle: str,
    folder: Path,
    on_events: OnEvents,
    *,
    on_wait: Callable[[str], None] = lambda detail: None,
    every_s: float = 1.0,
    stop_s: float = 600.0,
) -> TrainingOutcome:
    """Follow a job to its end. Whatever interrupts this (Ctrl-C, a cancelled flow run) asks the job to stop.

    A queued job that is asked to stop, by its stop file, is withdrawn; one that somebody else cancels has stopped, too.
    If `on_events` raises, it gets the same events at the next poll; its error is raised only after the job's end.

    Args:
        on_events: called with new events, beginning with the job's first one, including those of earlier attempts.
        on_wait: called with the reason why a queued job waits, whenever that reason changes.
        stop_s: seconds that an interrupted job has for its last step and checkpoint before it is killed.

    A TrainingError: it failed. A LostError: the queue has not answered for minutes; call again to follow it again.
    """
    events = _EventReader(folder, on_events)
    before = int(launch_record(folder).get("events", 0))  # of earlier attempts
    try:
        state, detail = _await_end(launcher, handle, events, every_s, deadline=None, on_wait=on_wait)
    except LostError:
        raise
    except BaseException:
        try:
            _stop(launcher, handle, events, every_s, stop_s)
        except LaunchError as exc:
            _log.warning("the job could not be ended: %s", exc)
        raise
    deadline = time.monotonic() + (_LAST_EVENTS_S if state is JobState.SUCCEEDED else 0.0)
    while (outcome := outcome_of(events.all[before:])) is None and time.monotonic() < deadline:
        time.sleep(every_s)  # its last events may not be visible here yet
        events.poll()
    if state is JobState.PENDING:
        launcher.cancel(handle)
        state, detail = JobState.CANCELLED, "withdrawn from the queue"
    if outcome is None and state is JobState.CANCELLED:
        step = max((event["step"] for event in events.all if event["event"] == "step"), default=0)
        outcome = TrainingOutcome(False, step, None, None, f"its job was {detail}")
    if outcome is None:
        raise failure_of(folder, state, detail)  # even if earlier events could not be reported
    events.notify()
    return outcome  # as the job reports it, whatever the exit code: libraries sometimes abort after the work is done


def stop(launcher: Launcher, folder: Path, on_events: OnEvents, *, every_s: float = 1.0, stop_s: float = 600.0) -> bool:
    """Ask the folder's job to stop, and wait for that; return whether it ran. A LaunchError: its state is unknown."""
    try:
        handle = running_handle(launcher, folder)
    except LostError:
        (folder / STOP_FILE).touch()
        raise
    if handle is not None:
        _stop(launcher, handle, _EventReader(folder, on_events), every_s, stop_s)
    elif is_unanswered(launch_record(folder)):
        (folder / STOP_FILE).touch()  # the job may be running, and reads this
    return handle is not None


def _stop(launcher: Launcher, handle: str, events: _EventReader, every_s: float, stop_s: float) -> None:
    (events.folder / STOP_FILE).touch()  # first: this process may be killed while it waits, and the job still reads it
    try:
        _await_end(launcher, handle, events, every_s, deadline=time.monotonic() + stop_s)
    except LostError as exc:
        _log.warning("%s", exc)  # the job is cancelled below all the same
    finally:
        if (events.folder / STOP_FILE).exists():  # else the job was launched again, and must go on
            launcher.cancel(handle)


@dataclass(slots=True)
class _EventReader:
    """The events read so far, and those of them that `on_events` has not accepted yet."""

    folder: Path
    on_events: OnEvents
    all: list[TrainingEvent] = field(default_factory=list)
    _offset: int = 0
    _pending: list[TrainingEvent] = field(default_factory=list)

    def poll(self) -> None:
        """Read new events and report them; whatever fails now is tried again at the next poll."""
        try:
            new, self._offset = read_events(self.folder, self._offset)
            self.all += new
            self._pending += new
            self.notify()
        except Exception as exc:  # noqa: BLE001  # a failing server, disk or display must not end a training
            _log.warning("the training goes on; what it says could not be passed on yet: %s", exc)

    def notify(self) -> None:
        if self._pending:
            self.on_events(self._pending)
            self._pending = []


def _await_end(
    launcher: Launcher,
    handle: str,
    events: _EventReader,
    every_s: float,
    deadline: float | None,
    on_wait: Callable[[str], None] = lambda detail: None,
) -> tuple[JobState, str]:
    last_answer, last_query = time.monotonic(), -math.inf
    wait_reason: str | None = None
    state, detail = JobState.RUNNING, ""
    stop_file = events.folder / STOP_FILE
    while True:
        if time.monotonic() - last_query >= launcher.poll_s:
            last_query = time.monotonic()
            try:
                state, detail = launcher.state(handle)
                last_answer = time.monotonic()
            except LostError:
                if time.monotonic() - last_answer > _NO_ANSWER_S:
                    raise
                state, detail = JobState.RUNNING, ""
        events.poll()
        if state is JobState.PENDING and detail != wait_reason:
            on_wait(detail)
            wait_reason = detail
        if (
            state not in (JobState.PENDING, JobState.RUNNING, JobState.ENDING)
            or (state is JobState.PENDING and stop_file.exists())  # it has nothing to save
            or (deadline is not None and (time.monotonic() > deadline or not stop_file.exists()))  # see `_stop`
        ):
            return state, detail
        time.sleep(every_s)
