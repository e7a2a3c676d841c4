"""The records that the stages exchange, as frozen dataclasses.

A *position* is always a character offset into the document's text (in Python code points): the call is inserted in
front of the character at that offset. Texts never change.
"""

import datetime
import hashlib
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field


def digest_of(*parts: str | bytes) -> str:
    """Return the hex BLAKE2b-128 digest of the parts; boundaries matter, so ("ab",) and ("a", "b") differ."""
    return hashlib.blake2b(_framed(parts), digest_size=16).hexdigest()


def document_id(text: str, url: str | None) -> str:
    """Return the id of a document: a digest of its text and URL, so it is the same in every run."""
    return digest_of("document", text, url or "")


def numbers_of(*parts: str | bytes, count: int) -> list[int]:
    """Return 64-bit numbers determined by the parts (SHAKE-128); the first n do not depend on the count."""
    return list(struct.unpack(f"<{count}Q", hashlib.shake_128(_framed(parts)).digest(8 * count)))


def _framed(parts: Iterable[str | bytes]) -> bytes:
    pieces: list[bytes] = []
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        pieces += (len(data).to_bytes(8, "little"), data)
    return b"".join(pieces)


def storable(text: str) -> str:
    """Return a text that UTF-8 can hold: lone surrogates are escaped (`\\udcff`), so different texts stay different."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def unencodable(text: str) -> str | None:
    """Return what UTF-8 cannot hold in a text, e.g. `lone surrogate U+D800 at character 2`; else None."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as exc:
        return f"lone surrogate U+{ord(text[exc.start]):04X} at character {exc.start + 1}"
    return None


def day_of(text: str) -> datetime.date:
    """Return the date written as `YYYY-MM-DD`, the only form that the calendar reads; a ValueError for any other."""
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise ValueError(f"{text[:40]!r} is not a date like 2023-01-30")
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as exc:
        raise ValueError(f"{text!r} is not a date: {exc}") from exc


@dataclass(frozen=True, slots=True)
class Document:
    """One text x of the corpus C."""

    doc_id: str  # see `document_id`
    text: str
    url: str | None
    created: str | None  # ISO date given by the corpus, if any; the calendar reads the URL first
    source: str  # file name within the corpus
    line: int  # 1-based line (JSONL) or row (Parquet, dataset) in the source


@dataclass(frozen=True, slots=True)
class Rejection:
    """A corpus row that is not a document: counted by reason and stored, so that it can be inspected."""

    source: str
    line: int
    reason: str  # see `annotate.ingest`
    detail: str
    raw: str  # the start of the row, at most 2,000 characters, with undecodable bytes escaped
    doc_id: str | None = None  # of a document that is dropped because of other texts:
    like_doc_id: str | None = None  # a near-duplicate of this one
    likeness: float | None = None  # estimated share of common n-grams
    benchmark: str | None = None  # it holds words of this benchmark's item
    item_id: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """An annotation prompt P_t(x) = head + x + tail, after which the model writes x again, with calls.

    The head (instruction, call syntax, demonstrations, `Input: `) is the same for every document. The tail is the text
    between the two copies of x (`\\nOutput:`). The second x follows a space; the start token stands in front of the
    head.
    """

    tool: str
    head: str
    tail: str

    @property
    def digest(self) -> str:
        return digest_of("prompt", self.tool, self.head, self.tail)


@dataclass(frozen=True, slots=True)
class PrefilterResult:
    """The result of the prefilter for one document and one tool."""

    doc_id: str
    tool: str
    kept: bool
    reason: str  # why kept (`equation`, `url_date`, ...) or why dropped (`no_numbers`, `no_url_date`, ...)
    context: str = ""  # what the tool needs to know of the document, e.g. the calendar's ISO date
    spans: tuple[tuple[int, int], ...] = ()  # the parts to annotate, [start, end); empty: the whole text


@dataclass(frozen=True, slots=True)
class Call:
    """c = (a, i): a tool's name as written in text (`Calculator`) and its input text."""

    tool: str
    input: str


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call with its response, after which a chain goes on."""

    tool: str  # key
    input: str
    response: str


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """A sample of the model at one position, parsed or not; equal samples at a position are one record with a count."""

    doc_id: str
    tool: str
    position: int
    log_p: float  # log p(" [" | P(x), x_1:i-1), natural log
    rank: int  # 0 for the document's best position, by what its positions are chosen by
    raw: str  # the text drawn after " ["
    outcome: str  # ok | unterminated | wrong_tool | unparsable
    input: str  # the call's input; "" unless the outcome is ok
    count: int  # how many of the m samples gave exactly this text
    window_end: int | None = None  # offset of the end of the five tokens that judge a call here; None: not recorded
    log_p_form: float | None = None  # log p(begins with "Name(" | P(x), x_1:i-1, " ["), if requested; None: a free draw
    preceding_calls: tuple[AnsweredCall, ...] = ()  # in a chain: those that it was drawn after


@dataclass(frozen=True, slots=True)
class ToolResponse:
    """A tool's response: one text, never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """The reason why a tool gave no response; the call is dropped for it."""

    reason: str  # a short stable word: invalid_expression, no_result, timeout, crashed, ...
    detail: str = ""
    retryable: bool = False


ToolResult = ToolResponse | ToolFailure


@dataclass(frozen=True, slots=True)
class Execution:
    """One distinct (tool, input, context) of a shard, with its response or failure."""

    tool: str
    input: str
    context: str
    response: str  # "" if the tool failed
    failure: str  # "" if the tool answered
    detail: str = ""
    transient: bool | None = None  # whether the failure need not come again; None: not recorded, or no failure


@dataclass(frozen=True, slots=True)
class ScoredCall:
    """An executed call with the three losses of the filtering criterion (§2), kept or not.

    The last call of a chain stands for the whole chain z: L+ is L_i(z), and z must also beat the chains it begins with.
    """

    doc_id: str
    tool: str
    position: int
    input: str
    response: str
    log_p: float
    count: int
    loss_plain: float  # L_i(eps), nats
    loss_call: float | None  # L_i(e(c, eps)), nats; None: not computed, see `bound`
    loss_response: float  # L+ = L_i(e(c, r)), nats
    seen_before: bool  # x holds the input text before the position
    seen_after: bool  # ... and after it (MT drops calls seen only after)
    window_end: int | None = None  # as in `DrawnCall`
    # log p of the tokens from the position on, which the losses are made of; None: not read
    log_p_plain: tuple[float, ...] | None = None
    log_p_call: tuple[float, ...] | None = None  # None as well where `loss_call` is
    log_p_response: tuple[float, ...] | None = None
    decoy_gains: tuple[float, ...] | None = None  # of the call with other documents' responses; None: not requested
    preceding_calls: tuple[AnsweredCall, ...] = ()  # as in `DrawnCall`
    loss_shorter: float | None = None  # in a chain: the least loss of e(c_1, r_1), e(c_1, r_1) e(c_2, r_2), ...

    @property
    def gain(self) -> float:
        """L- - L+: how much the response helps, in nats; where L_i(e(c, eps)) was not computed, its upper bound.

        Of a chain: min(L(eps), L(e(c_1, r_1)), ..., L(e(c_1, r_1) ... e(c_n, eps))) - L(z).
        """
        least = self.loss_plain if self.loss_shorter is None else min(self.loss_plain, self.loss_shorter)
        return (least if self.loss_call is None else min(least, self.loss_call)) - self.loss_response

    @property
    def chain(self) -> tuple[AnsweredCall, ...]:
        """The calls of the chain in order, the last one being this; a single call is alone in it."""
        return (*self.preceding_calls, AnsweredCall(self.tool, self.input, self.response))

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools of the calls of the chain, in order."""
        return (*(one.tool for one in self.preceding_calls), self.tool)

    @property
    def links(self) -> int:
        """How many calls the chain has; 1: it is a single call."""
        return 1 + len(self.preceding_calls)

    @property
    def bound(self) -> float | None:
        """L(eps) - L+, which the gain cannot exceed, where `loss_call` was not computed for it; else None."""
        return self.gain if self.loss_call is None else None


@dataclass(frozen=True, slots=True)
class InsertedCall:
    """A call in an example, with the span of its linearised text in x*."""

    tool: str
    position: int  # in x
    start: int  # in x*, [start, end)
    end: int
    input: str
    response: str
    gain: float


@dataclass(frozen=True, slots=True)
class Example:
    """One document of C*: x*, and the inserted spans, from which x can be recovered exactly."""

    doc_id: str
    text: str
    calls: tuple[InsertedCall, ...] = field(default=())
