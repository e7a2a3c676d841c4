"""Compares calls with gold calls: is a call right, or as good as a right one?

It uses the gold calls and the tool's responses, and knows nothing about the model.

    right      a call at a gold position with a gold input, ignoring spaces and case
    as good    right, or at a gold position with the same response as the gold call there, or with a response that holds
               (as whole words) the value that follows in the text: "born in Velden" where "Velden" follows
    elsewhere  a call that would be as good at another position of its document; usually a word too early or too late
"""

from __future__ import annotations

import re

from toolformer_core.diagnose.gold import GoldCall, normalised
from toolformer_core.diagnose.observe import Observed


class CallJudge:
    """Compares the calls of one tool with its gold calls."""

    def __init__(self, observed: Observed) -> None:
        self.tool = observed.tool
        self.observed = observed
        self.gold: dict[tuple[str, int], list[GoldCall]] = {}
        for call in observed.gold:
            self.gold.setdefault((call.doc_id, call.position), []).append(call)

    def at_gold(self, doc_id: str, position: int) -> bool:
        """Return whether a gold call is at this position."""
        return (doc_id, position) in self.gold

    def exact(self, doc_id: str, position: int, input_: str) -> bool:
        """Return whether a gold call at this position has exactly this input."""
        return any(call.input == input_ for call in self.gold.get((doc_id, position), ()))

    def right(self, doc_id: str, position: int, input_: str) -> bool:
        """Return whether a gold call at this position has this input, ignoring spaces and case."""
        normal_input = normalised(self.tool, input_)
        return any(normalised(self.tool, call.input) == normal_input for call in self.gold.get((doc_id, position), ()))

    def as_good(self, doc_id: str, position: int, input_: str) -> bool:
        """Return whether the call is as good as a gold call at this position."""
        response = self.observed.response(doc_id, input_)
        gold = self.gold.get((doc_id, position), ())
        equivalent = any(
            response == self.observed.response(doc_id, call.input) or holds(response, call.value) for call in gold
        )
        return self.right(doc_id, position, input_) or bool(response and equivalent)

    def as_good_anywhere(self, doc_id: str, input_: str) -> bool:
        """Return whether the call would be as good at some position of its document."""
        return any(self.as_good(*place, input_) for place in self.gold if place[0] == doc_id)


def holds(response: str | None, value: str) -> bool:
    """Return whether a response holds a value as whole words; 0.5 and 5.5 do not hold 5."""
    whole = rf"(?<![\w.,]){re.escape(value)}(?!\w|[.,]\d)"
    return bool(response and value and re.search(whole, response))
