"""Examples as segments, the form that axolotl reads with `type: input_output`.

    {"segments": [{"label": true, "text": "... so [Calculator(587 - 58) -> "}, {"label": false, "text": "529"}, ...]}

Neighbouring pieces with the same label are one segment, so the texts of the segments, one after the other, are x*.
axolotl tokenizes segments one by one, each as a whole, and adds no end of text: its tokens may merge " [" with the
tool's name, and at the borders of a response they are others than those that decoding writes. `tokens` has those.
"""

from __future__ import annotations

from itertools import groupby
from typing import TypedDict

from toolformer_core.export.pieces import pieces_of
from toolformer_core.records import Example

__all__ = ["Segment", "SegmentRow", "segment_row"]


class Segment(TypedDict):
    """A part of x*."""

    label: bool  # whether it is trained
    text: str


class SegmentRow(TypedDict):
    """The row of an example."""

    segments: list[Segment]


def segment_row(example: Example) -> SegmentRow:
    """Return the row of an example.

    Raises:
        CallSyntaxError: the example's spans are not those of its calls.
    """
    groups = groupby(pieces_of(example), key=lambda piece: piece.trained)
    return {
        "segments": [{"label": trained, "text": "".join(piece.text for piece in pieces)} for trained, pieces in groups]
    }
