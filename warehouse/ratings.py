"""Ratings: what people say of calls. They are only ever added, so nothing that somebody said is overwritten.

In a local folder a rating is a line of `ratings/<user>.jsonl`; on a URL, where objects cannot grow, each batch is an
object, `ratings/<user>/<time>-<random>.jsonl`. A batch is on the disk when `add_ratings` returns; if the process dies
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

RATING_REASONS = ("rejected", "not_accepted")  # why calls that ratings leave out are not in C*

_FOLDER = "ratings"
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
class Rating:
    call: CallIdentity
    verdict: Verdict
    user: str
    at: str  # ISO UTC text that sorts; later than that of every rating known before, also where a clock was set back


def add_ratings(store: Store, user: str, verdicts: Iterable[tuple[CallIdentity, Verdict]]) -> list[Rating]:
    """Add a batch of a user's ratings; return them.

    A StoreError: the name or a verdict is none, or the ratings could not be written; then none of them counts.
    """
    name = quote(user.strip(), safe="", errors="replace").replace(".", "%2E")
    if not name or len(name) > _MOST_BYTES:
        raise StoreError(f"{user!r} is no user's name: give one of 1 to about {_MOST_BYTES // 6} characters")
    known = [dt.datetime.fromisoformat(last.at) + dt.timedelta(microseconds=1) for last in read_ratings(store)[0][-1:]]
    at = max([dt.datetime.now(dt.UTC), *known]).isoformat(timespec="microseconds")
    ratings = [Rating(call, verdict, user.strip(), at) for call, verdict in verdicts]
    for rating in ratings:
        if rating.verdict not in get_args(Verdict):
            raise StoreError(f"{rating.verdict!r} is no verdict: say {', '.join(get_args(Verdict))}")
    if not ratings:
        return []
    rows = ({**asdict(one.call), "verdict": one.verdict, "user": one.user, "at": one.at} for one in ratings)
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if not store.is_local:
        store.files.put(f"{_FOLDER}/{name}/{at.replace(':', '')}-{uuid.uuid4().hex[:8]}.jsonl", lines)
        return ratings
    path = Path(store.root, _FOLDER, f"{name}.jsonl")
    try:
        _append(path, lines)
    except OSError as exc:
        raise StoreError(f"cannot write ratings to {path}: {error_line(exc)}") from exc
    return ratings


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


def read_ratings(store: Store, until: str | None = None) -> tuple[list[Rating], int]:
    """Return all users' ratings, or those until a time in ISO UTC text, by time, and how many lines are none."""
    texts = (store.files.get(path) or b"" for path in store.files.walk(_FOLDER, ".jsonl"))
    lines = [line for text in texts for line in text.split(b"\n")[:-1] if line]  # without an end: never acknowledged
    ratings = [rating for rating in map(_rating, lines) if rating is not None]
    counted = (rating for rating in ratings if until is None or rating.at <= until)
    return sorted(counted, key=lambda rating: rating.at), len(lines) - len(ratings)


def _rating(line: bytes) -> Rating | None:
    try:
        row = json.loads(line)
        call = CallIdentity(*(row[name] for name in CallIdentity.__dataclass_fields__))
        rating = Rating(call, row["verdict"], row["user"], row["at"])
        dt.datetime.fromisoformat(rating.at)
    except (ValueError, KeyError, TypeError):
        return None
    texts = (call.doc_id, call.tool, call.input, call.response, rating.user)
    is_sound = all(isinstance(text, str) for text in texts) and isinstance(call.position, int)
    return rating if is_sound and rating.verdict in get_args(Verdict) else None


def standing(ratings: Iterable[Rating]) -> Mapping[CallIdentity, Mapping[str, Verdict]]:
    """Return each user's last verdict, call -> user -> verdict, from ratings by time; a `none` is left out."""
    found: dict[CallIdentity, dict[str, Verdict]] = {}
    for rating in ratings:
        users = found.setdefault(rating.call, {})
        users.pop(rating.user, None)
        if rating.verdict != "none":
            users[rating.user] = rating.verdict
    return {call: users for call, users in found.items() if users}
