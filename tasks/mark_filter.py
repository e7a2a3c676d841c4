"""Which of the scored calls take part in C* by what people have said of them.

What several people's marks on one call come to is decided elsewhere (`flows.judging`); here are only calls' digests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from toolformer_core.records import ScoredCall
from warehouse.marks import CallIdentity

Keep = Literal["not-rejected", "only-accepted"]


@dataclass(frozen=True, slots=True)
class MarkFilter:
    """All calls but those that are rejected, or only those that are accepted."""

    keep: Keep
    until: str  # the time up to which marks were read, ISO UTC
    calls: frozenset[str]  # digests of the calls that are rejected, or accepted

    @property
    def reason(self) -> str:
        """Why a call is left out."""
        return "rejected" if self.keep == "not-rejected" else "not_accepted"

    def split(self, calls: Iterable[ScoredCall]) -> tuple[list[ScoredCall], dict[str, ScoredCall]]:
        """Return the calls that take part, and by digest those that do not.

        A chain is left out if any of its calls is rejected, or not all of them are accepted.
        """
        taking_part: list[ScoredCall] = []
        left_out: dict[str, ScoredCall] = {}
        for call in calls:
            digests = [
                CallIdentity(call.doc_id, one.tool, call.position, one.input, one.response).digest for one in call.chain
            ]
            if all((digest in self.calls) == (self.keep == "only-accepted") for digest in digests):
                taking_part.append(call)
            else:
                left_out["/".join(digests)] = call
        return taking_part, left_out
