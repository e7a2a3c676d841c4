"""Marks: what people say of calls. They are only ever added, so nothing that somebody said is overwritten.

In a local folder a mark is a line of `marks/<user>.jsonl`; on a URL, where objects cannot grow, each batch is an
object, `marks/<user>/<time>-<random>.jsonl`. A batch is on the disk when `add_marks` returns; if the process dies
before, at most its last line is torn, and the next batch begins on a line of its own.
"""

import datetime as dt
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import quote

import filelock

from warehouse.errors import StoreError, error_line
from warehouse.files.folders import fsync_folder, make_folder
from warehouse.store import Store

Verdict = Literal["accept", "reject", "unsure", "none"]

MARK_REASONS = ("rejected", "not_accepted")  # why calls that marks leave out are not in C*

_FOLDER = "marks"
_MOST_BYTES = 200  # of a file's name


@dataclass(frozen=True, slots=True, order=True)
class CallIdentity:
    """What makes a call the same one in every version."""

    doc_id: str
    tool: str  # its key
    position: int  # in the document's text, in characters
    input: str
    response: str

    @property
    def digest(self) -> str:
        """A name for the call, of 32 hexadecimal digits."""
        return blake2b(json.dumps(astuple(self)).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Mark:
    call: CallIdentity
    verdict: Verdict
    user: str
    at: str  # ISO UTC text that sorts; later than that of every mark known before, also where a clock was set back


def add_marks(store: Store, user: str, verdicts: Iterable[tuple[CallIdentity, Verdict]]) -> list[Mark]:
    """Add a batch of a user's marks; return them.

    A StoreError: the name or a verdict is none, or the marks could not be written; then none of them counts.
    """
    name = quote(user.strip(), safe="", errors="replace").replace(".", "%2E")
    if not name or len(name) > _MOST_BYTES:
        raise StoreError(f"{user!r} is no user's name: give one of 1 to about {_MOST_BYTES // 6} characters")
    known = [dt.datetime.fromisoformat(mark.at) + dt.timedelta(microseconds=1) for mark in read_marks(store)[0][-1:]]
    at = max([dt.datetime.now(dt.UTC), *known]).isoformat(timespec="microseconds")
    marks = [Mark(call, verdict, user.strip(), at) for call, verdict in verdicts]
    for mark in marks:
        if mark.verdict not in get_args(Verdict):
            raise StoreError(f"{mark.verdict!r} is no verdict: say {', '.join(get_args(Verdict))}")
    if not marks:
        return []
    rows = ({**asdict(mark.call), "verdict": mark.verdict, "user": mark.user, "at": mark.at} for mark in marks)
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if not store.is_local:
        store.files.put(f"{_FOLDER}/{name}/{at.replace(':', '')}-{uuid.uuid4().hex[:8]}.jsonl", lines)
        return marks
    path = Path(store.root, _FOLDER, f"{name}.jsonl")
    try:
        _append(path, lines)
    except OSError as exc:
        raise StoreError(f"cannot write marks to {path}: {error_line(exc)}") from exc
    return marks


def _append(path: Path, lines: bytes) -> None:
    """Add whole lines to a file, on which other processes wait meanwhile; if that fails, leave it as it was."""
    make_folder(path.parent)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        filelock.lock_descriptor(handle, blocking=True)  # until the handle is closed
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            lines = b"\n" + lines  # a writer died within a line
        try:
            written = 0
            while written < len(lines):
                written += os.write(handle, lines[written:])
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)
    if not size:  # it is new
        fsync_folder(path.parent)


def read_marks(store: Store, until: str | None = None) -> tuple[list[Mark], int]:
    """Return all users' marks, or those until a time in ISO UTC text, by time, and how many lines are none."""
    texts = (store.files.get(path) or b"" for path in store.files.walk(_FOLDER, ".jsonl"))
    lines = [line for text in texts for line in text.split(b"\n")[:-1] if line]  # without an end: never acknowledged
    marks = [mark for mark in map(_mark, lines) if mark is not None]
    counted = (mark for mark in marks if until is None or mark.at <= until)
    return sorted(counted, key=lambda mark: mark.at), len(lines) - len(marks)


def _mark(line: bytes) -> Mark | None:
    try:
        row = json.loads(line)
        call = CallIdentity(*(row[name] for name in CallIdentity.__dataclass_fields__))
        mark = Mark(call, row["verdict"], row["user"], row["at"])
        dt.datetime.fromisoformat(mark.at)
    except (ValueError, KeyError, TypeError):
        return None
    texts = (call.doc_id, call.tool, call.input, call.response, mark.user)
    is_sound = all(isinstance(text, str) for text in texts) and isinstance(call.position, int)
    return mark if is_sound and mark.verdict in get_args(Verdict) else None


def standing(marks: Iterable[Mark]) -> Mapping[CallIdentity, Mapping[str, Verdict]]:
    """Return each user's last verdict, call -> user -> verdict, from marks by time; a `none` is left out."""
    found: dict[CallIdentity, dict[str, Verdict]] = {}
    for mark in marks:
        users = found.setdefault(mark.call, {})
        users.pop(mark.user, None)
        if mark.verdict != "none":
            users[mark.user] = mark.verdict
    return {call: users for call, users in found.items() if users}
