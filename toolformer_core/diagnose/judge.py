"""Whether a call is a gold one, or as good.

Knows the gold calls and the tool's answers, and nothing of the model.

    right      a call at a gold position whose input is a gold one there, blanks and case aside
    as good    right, or at a gold position with the same response as the gold call there, or one that tells the value
               that the text goes on with (as whole words), as "born in Velden" does where "Velden" follows
    elsewhere  a call that would be as good at another position of its document: mostly a word too early or too late
"""

from __future__ import annotations

import re

from toolformer_core.diagnose.gold import GoldCall, normalised
from toolformer_core.diagnose.observe import Observed

__all__ = ["Judge"]


class Judge:
    """Judges the calls of one tool by what was observed of it."""

    def __init__(self, seen: Observed) -> None:
        self.tool = seen.tool
        self.seen = seen
        self.gold: dict[tuple[str, int], list[GoldCall]] = {}
        for call in seen.gold:
            self.gold.setdefault((call.doc_id, call.position), []).append(call)

    def at_gold(self, doc_id: str, position: int) -> bool:
        """Say whether a gold call stands there."""
        return (doc_id, position) in self.gold

    def exact(self, doc_id: str, position: int, input_: str) -> bool:
        """Say whether the input is a gold one there, to the letter."""
        return any(call.input == input_ for call in self.gold.get((doc_id, position), ()))

    def right(self, doc_id: str, position: int, input_: str) -> bool:
        """Say whether the input is a gold one there, blanks and case aside."""
        asked = normalised(self.tool, input_)
        return any(normalised(self.tool, call.input) == asked for call in self.gold.get((doc_id, position), ()))

    def as_good(self, doc_id: str, position: int, input_: str) -> bool:
        """Say whether the call serves as well as a gold one there."""
        got = self.seen.response(doc_id, input_)
        gold = self.gold.get((doc_id, position), ())
        serves = any(got == self.seen.response(doc_id, call.input) or _tells(got, call.value) for call in gold)
        return self.right(doc_id, position, input_) or bool(got and serves)

    def as_good_anywhere(self, doc_id: str, input_: str) -> bool:
        """Say whether it would, at some position of its document."""
        return any(self.as_good(*place, input_) for place in self.gold if place[0] == doc_id)


def _tells(response: str | None, value: str) -> bool:
    """Return whether a response holds a value as whole words; 5 is none of 0.5 or 5.5."""
    whole = rf"(?<![\w.,]){re.escape(value)}(?!\w|[.,]\d)"
    return bool(response and value and re.search(whole, response))
