"""The nouns of the method, as frozen records that travel between stages.

Records know nothing of files, tables or models. A *position* is always a character offset into the document's
text (Python code points): the call is inserted in front of the character at that offset. Texts never change.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

__all__ = [
    "Call",
    "Document",
    "DrawnCall",
    "Example",
    "Execution",
    "InsertedCall",
    "Prompt",
    "Rejection",
    "ScoredCall",
    "ToolFailure",
    "ToolResponse",
    "ToolResult",
    "Verdict",
    "day_of",
    "digest_of",
    "numbers_of",
    "storable",
    "unencodable",
]


def digest_of(*parts: str | bytes) -> str:
    """Return the hex BLAKE2b-128 digest of the parts; part boundaries count, so ("ab",) and ("a", "b") differ."""
    h = hashlib.blake2b(digest_size=16)
    _feed(h.update, parts)
    return h.hexdigest()


def numbers_of(*parts: str | bytes, count: int) -> list[int]:
    """Return 64-bit numbers that the parts determine (SHAKE-128); the first n are the same whatever the count."""
    stream = hashlib.shake_128()
    _feed(stream.update, parts)
    return list(struct.unpack(f"<{count}Q", stream.digest(8 * count)))


def _feed(update: Callable[[bytes], object], parts: Iterable[str | bytes]) -> None:
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        update(len(data).to_bytes(8, "little"))
        update(data)


def storable(text: str) -> str:
    """Return a text as UTF-8 can hold it: a lone surrogate is escaped (`\\udcff`), so that texts stay different."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def unencodable(text: str) -> str | None:
    """Return what of a text UTF-8 cannot hold, e.g. `lone surrogate U+D800 at character 2`; None if there is nothing.

    They come out of `"\\ud800"` in JSON, and for bytes that are no UTF-8 on a command line.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as exc:
        return f"lone surrogate U+{ord(text[exc.start]):04X} at character {exc.start + 1}"
    return None


def day_of(text: str) -> datetime.date:
    """Return the date that a text names as `YYYY-MM-DD`, the only form that the calendar reads.

    Raises:
        ValueError: it is written otherwise (`20230130`, `2023-W05-1`), or there is no such day.
    """
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise ValueError(f"{text[:40]!r} is not a date like 2023-01-30")
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as exc:
        raise ValueError(f"{text!r} is not a date: {exc}") from exc


@dataclass(frozen=True, slots=True)
class Document:
    """One text x of the corpus C."""

    doc_id: str  # digest of text and url: the same document has the same id in every run
    text: str
    url: str | None
    created: str | None  # ISO date the corpus itself gives, if any; the calendar reads the URL first
    source: str  # file name within the corpus
    line: int  # 1-based line (JSONL) or row (Parquet, dataset) in the source


@dataclass(frozen=True, slots=True)
class Rejection:
    """A corpus row that is not a document: counted by reason and kept, so that it can be looked at."""

    source: str
    line: int
    reason: str  # blank | broken_json | not_an_object | no_text | empty_text | not_utf8 | too_long | duplicate |
    #              truncated
    detail: str
    raw: str  # the start of the row, at most 2,000 characters, undecodable bytes escaped


@dataclass(frozen=True, slots=True)
class Prompt:
    """An annotation prompt P_t(x) = head + x + tail, after which the model writes x again, with calls.

    The head (instruction, call syntax, demonstrations, `Input: `) is the same for every document, so its keys and
    values are computed once per tool. The tail is what stands between the two copies of x (`\\nOutput:`).
    """

    tool: str
    head: str
    tail: str

    @property
    def digest(self) -> str:
        return digest_of("prompt", self.tool, self.head, self.tail)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a prefilter said about one document for one tool."""

    doc_id: str
    tool: str
    kept: bool
    reason: str  # why kept (`equation`, `url_date`, ...) or why dropped (`no_numbers`, `no_url_date`, ...)
    context: str = ""  # what the tool must know of the document, e.g. the calendar's ISO date
    spans: tuple[tuple[int, int], ...] = ()  # the parts to annotate, [start, end); empty: the whole text


@dataclass(frozen=True, slots=True)
class Call:
    """c = (a, i): a tool's name as it stands in text (`Calculator`) and its input text."""

    tool: str
    input: str


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """One draw of the model at one position, parsed or not. Identical draws at a position are one row, counted."""

    doc_id: str
    tool: str
    position: int
    log_p: float  # log p(" [" | P(x), x_1:i-1), natural log
    rank: int  # 0 for the most likely position of this document
    raw: str  # the text drawn after " ["
    outcome: str  # ok | unterminated | wrong_tool | unparsable
    input: str  # the call's input; "" unless the outcome is ok
    count: int  # how many of the m draws gave exactly this text
    window_end: int | None = None  # offset behind the five tokens that a call here is judged by; None: not noted


@dataclass(frozen=True, slots=True)
class ToolResponse:
    """What a tool answered: one text, never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """Why a tool gave nothing. The call is dropped for this reason."""

    reason: str  # a short stable word: invalid_expression, no_result, timeout, crashed, ...
    detail: str = ""
    retryable: bool = False


ToolResult = ToolResponse | ToolFailure


@dataclass(frozen=True, slots=True)
class Execution:
    """One distinct (tool, input, context) of a shard and what came of it."""

    tool: str
    input: str
    context: str
    response: str  # "" if failed
    failure: str  # "" if it answered
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ScoredCall:
    """An executed call with the three losses of the filtering criterion (§2), kept or not."""

    doc_id: str
    tool: str
    position: int
    input: str
    response: str
    log_p: float
    count: int
    loss_plain: float  # L_i(eps), nats
    loss_call: float  # L_i(e(c, eps)), nats
    loss_response: float  # L+ = L_i(e(c, r)), nats
    seen_before: bool  # the input text stands in x before the position
    seen_after: bool  # ... and after it (MT drops calls seen only after)
    window_end: int | None = None  # as the draw's

    @property
    def gain(self) -> float:
        """L- - L+: by how much the response helps, in nats."""
        return min(self.loss_plain, self.loss_call) - self.loss_response


@dataclass(frozen=True, slots=True)
class InsertedCall:
    """A call as it stands in an example: where its linearised text lies in x*."""

    tool: str
    position: int  # in x
    start: int  # in x*, [start, end)
    end: int
    input: str
    response: str
    gain: float


@dataclass(frozen=True, slots=True)
class Example:
    """One document of C*: x* and the spans that were inserted, by which x is recovered exactly."""

    doc_id: str
    text: str
    calls: tuple[InsertedCall, ...] = field(default=())
