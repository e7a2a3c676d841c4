"""How a run says what happens, and how it is asked to stop: files in the job's folder, beside no other protocol.

    events.jsonl   one JSON object a line, from the first process alone (a failure: from the process that failed first):
                   damaged, started, step, evaluated, saved, stopped, finished, failed; each with `t`, seconds since
                   1970
    failure.json   why the run failed: reason, message, rank; from whichever process said so first
    stop           there: stop after the step at hand, with a checkpoint

Whoever follows a run reads these wherever the folder is shared. Nothing here knows torch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["EVENTS_FILE", "FAILURE_FILE", "STOP_FILE", "Emit", "events_to", "read_events", "record_failure"]

EVENTS_FILE = "events.jsonl"
FAILURE_FILE = "failure.json"
STOP_FILE = "stop"

Emit = Callable[..., None]


def events_to(path: Path | None) -> Emit:
    """Return a function that appends an event to a file; None swallows it (every process but the first)."""

    def emit(event: str, **facts: Any) -> None:
        if path is not None:
            with path.open("ab+") as stream:
                end = stream.seek(0, 2)
                stream.seek(max(end - 1, 0))
                whole = stream.read(1) in (b"", b"\n")  # else a kill or a full disk has cut the last line off
                line = json.dumps({"t": time.time(), "event": event, **facts})
                stream.write((("" if whole else "\n") + line + "\n").encode("utf-8"))

    return emit


def record_failure(folder: Path, rank: int, reason: str, error: BaseException) -> None:
    """Say why, for whoever follows; of several processes that fail, the first to say so counts."""
    facts = {"reason": reason, "message": str(error).strip() or type(error).__name__, "rank": rank}
    try:
        with (folder / FAILURE_FILE).open("x", encoding="utf-8") as stream:
            stream.write(json.dumps(facts) + "\n")
        step = max((e["step"] for e in read_events(folder)[0] if e["event"] == "step"), default=0)
        events_to(folder / EVENTS_FILE)("failed", step=step, **facts)
    except OSError:
        return  # another process was first, or the disk is full: an empty file says that, too


def read_events(folder: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the events behind a byte offset, and the offset behind the last whole line."""
    try:
        with (folder / EVENTS_FILE).open("rb") as stream:
            stream.seek(offset)
            data = stream.read()
    except FileNotFoundError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    found = []
    for line in whole.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # a line cut off by a kill or a full disk
    return found, offset + len(whole)
