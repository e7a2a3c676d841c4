"""Files in the job's folder by which a run reports what happens and is requested to stop; there is no other protocol.

events.jsonl   one JSON object per line: damaged, started, step, evaluated, saved, stopped, finished, failed; each with
               `t`, seconds since 1970; written by the first process only (a failure: by that which failed first)
failure.json   why the run failed: reason, message, rank
stop           if it exists, the run stops after the current step, with a checkpoint
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EVENTS_FILE = "events.jsonl"
FAILURE_FILE = "failure.json"
STOP_FILE = "stop"

Emit = Callable[..., None]


def event_writer(path: Path | None) -> Emit:
    """Return a function that appends events to a file; with None (all processes but the first) it drops them."""

    def emit(event: str, **facts: Any) -> None:
        if path is not None:
            with path.open("ab+") as stream:
                end = stream.seek(0, 2)
                stream.seek(max(end - 1, 0))
                complete = stream.read(1) in (b"", b"\n")  # else a kill or a full disk has truncated the last line
                line = json.dumps({"t": time.time(), "event": event, **facts})
                stream.write((("" if complete else "\n") + line + "\n").encode("utf-8"))

    return emit


def record_failure(folder: Path, rank: int, reason: str, error: BaseException) -> None:
    """Record why a run failed; if several processes fail, the first one to record it counts."""
    facts = {"reason": reason, "message": str(error).strip() or type(error).__name__, "rank": rank}
    try:
        with (folder / FAILURE_FILE).open("x", encoding="utf-8") as stream:
            stream.write(json.dumps(facts) + "\n")
        step = max((e["step"] for e in read_events(folder)[0] if e["event"] == "step"), default=0)
        event_writer(folder / EVENTS_FILE)("failed", step=step, **facts)
    except OSError:
        return  # another process was first, or the disk is full; then an empty file records the failure


def read_events(folder: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the events after a byte offset, and the offset after the last complete line."""
    try:
        with (folder / EVENTS_FILE).open("rb") as stream:
            stream.seek(offset)
            data = stream.read()
    except FileNotFoundError:
        return [], offset
    lines = data[: data.rfind(b"\n") + 1]
    events = []
    for line in lines.splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue  # a line truncated by a kill or a full disk
    return events, offset + len(lines)
