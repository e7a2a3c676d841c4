"""An example of C* as pieces, and which of them a model is trained to write.

    text      `Of 587 books 58 are lent, so`
    call      ` [Calculator(587 - 58) -> `
    response  `529`
    call      `]`
    text      ` 529 remain.`

A *response* is the characters from after ` -> ` up to before `]`; all else is trained. `segment_row` is the form that
axolotl reads with `type: input_output`. Its tokens may merge " [" with the tool's name, and at the borders of a
response they are others than those that decoding writes. `tokens` has those.
"""

from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Literal

from toolformer_core.errors import CallSyntaxError
from toolformer_core.records import Call, Example, InsertedCall
from toolformer_core.syntax import CLOSE, OPEN, linearize


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of x*; the pieces of an example, one after the other, are x*."""

    kind: Literal["text", "call", "response"]
    text: str  # never empty

    @property
    def trained(self) -> bool:
        """Whether a model is trained to write it."""
        return self.kind != "response"


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as it stands in x*; all offsets are characters of x*."""

    call: Call  # with the tool's name in calls
    response: str  # as the tool gave it; x* holds it with round brackets in place of square ones
    start: int  # [start, end): the call, with the space in front of it
    end: int
    response_start: int  # [response_start, response_end): the response
    response_end: int


def written_calls(example: Example) -> list[WrittenCall]:
    """Return the calls of an example as they stand in x*, in text order.

    A CallSyntaxError if a span holds something else than the call that is recorded for it, or spans overlap.
    """
    calls = sorted(example.calls, key=lambda call: call.start)
    if any(before.end > call.start for before, call in pairwise(calls)):
        raise CallSyntaxError(f"calls of document {example.doc_id} overlap")
    return [_written(example, call) for call in calls]


def _written(example: Example, inserted: InsertedCall) -> WrittenCall:
    text = example.text[inserted.start : inserted.end]
    call = Call(text.removeprefix(OPEN).partition("(")[0], inserted.input)
    if text != linearize(call, inserted.response):
        raise CallSyntaxError(
            f"document {example.doc_id} holds {text[:80]!r} where a call of {inserted.tool} with the input "
            f"{inserted.input[:80]!r} is recorded"
        )
    response_end = inserted.end - len(CLOSE)
    response_start = response_end - len(inserted.response)  # escaping keeps the length
    return WrittenCall(call, inserted.response, inserted.start, inserted.end, response_start, response_end)


def pieces_of(example: Example) -> list[Piece]:
    """Return the pieces of x*: a call up to after ` -> `, the response, the piece `]`; errors of `written_calls`."""
    ends: list[tuple[Literal["text", "call", "response"], int]] = []
    for call in written_calls(example):
        ends += [("text", call.start), ("call", call.response_start), ("response", call.response_end)]
        ends += [("call", call.end)]
    ends += [("text", len(example.text))]
    starts = [0, *(end for _, end in ends)]
    return [Piece(kind, example.text[at:end]) for at, (kind, end) in zip(starts, ends, strict=False) if at < end]


def segment_row(example: Example) -> dict[str, list[dict[str, Any]]]:
    """Return the row of an example; neighbouring pieces with the same label, whether they are trained, are a segment.

    {"segments": [{"label": true, "text": "... so [Calculator(587 - 58) -> "}, {"label": false, "text": "529"}, ...]}

    A CallSyntaxError as in `written_calls`.
    """
    groups = groupby(pieces_of(example), key=lambda piece: piece.trained)
    return {
        "segments": [{"label": trained, "text": "".join(piece.text for piece in pieces)} for trained, pieces in groups]
    }
