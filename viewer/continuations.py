"""A model's text in pieces: plain text, and the calls in it with their tools, so that a page can colour them."""

from __future__ import annotations

from collections.abc import Mapping

from toolformer_core.syntax import find_calls
from viewer.pages.document import Piece


def pieces_with_calls(text: str, names: Mapping[str, str]) -> list[Piece]:
    """Return the pieces of a text that a model wrote with tools.

    Args:
        text: with its calls. Brackets without an arrow are text: such a call was never made.
        names: the tools' names in calls, by key; a call of a tool that is not among them keeps its name as its key.
    """
    keys = {name: key for key, name in names.items()}
    out, at = [], 0
    for found in find_calls(text):
        if found.response is None:
            continue
        out += [
            Piece(text[at : found.start]),
            Piece(text[found.start : found.end], keys.get(found.call.tool, found.call.tool)),
        ]
        at = found.end
    return [piece for piece in (*out, Piece(text[at:])) if piece.text]
