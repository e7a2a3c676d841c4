"""Which of the scored calls take part in C* by what people have said of them: of calls there are only digests here."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from toolformer_core.records import ScoredCall
from warehouse.ratings import RATING_REASONS, CallIdentity

Keep = Literal["not-rejected", "accepted"]


@dataclass(frozen=True, slots=True)
class RatingFilter:
    """All calls but those that are rejected, or only those that are accepted."""

    keep: Keep
    until: str  # the time up to which ratings were read, ISO UTC
    calls: frozenset[str]  # digests of the calls that are rejected, or accepted

    @property
    def reason(self) -> str:
        return RATING_REASONS[self.keep == "accepted"]

    def reasons(self, calls: Iterable[ScoredCall]) -> list[str]:
        """Return for each call why it is left out, or "": one of its calls is rejected, or not all are accepted."""
        accepting = self.keep == "accepted"
        taken = (all((one in self.calls) is accepting for one in digests_of(call)) for call in calls)
        return ["" if own else self.reason for own in taken]


def digests_of(call: ScoredCall) -> list[str]:
    """Return the digests of a call, or of the calls of a chain, by which ratings name them."""
    return [CallIdentity(call.doc_id, one.tool, call.position, one.input, one.response).digest for one in call.chain]
