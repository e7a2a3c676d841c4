"""Assemble C*: inserts the calls that are kept into documents, and limits the examples of a tool. (§2, interleaving)

Which calls are kept is known in `call_filter`; one more reason is `over_limit`: the tool has enough examples (25,000 in
the paper, App. B).
"""

from collections.abc import Iterable, Mapping

from toolformer_core.config import TOOL_NAMES
from toolformer_core.records import Call, Document, Example, InsertedCall, ScoredCall, digest_of
from toolformer_core.syntax import interleave, linearize

OVER_LIMIT = "over_limit"


def assemble(document: Document, calls: Iterable[ScoredCall], names: Mapping[str, str] = TOOL_NAMES) -> Example | None:
    """Return x*: the document with its surviving calls inserted, or None if there are none.

    Removing the recorded spans from the example's text restores the document's text, whatever brackets it holds. The
    calls of a chain stand one after another, and each has the position and the gain of the chain. `names` has the name
    in calls of each tool key; for a missing key it is the key.

    A ValueError if a call lies outside the text, or shares its position with another one.
    """
    ordered = sorted(calls, key=lambda c: c.position)
    if not ordered:
        return None
    if len({call.position for call in ordered}) < len(ordered):
        raise ValueError(f"two calls share a position of document {document.doc_id}; select calls with a `CallFilter`")
    links = [(call, link) for call in ordered for link in call.chain]
    written = (linearize(Call(names.get(link.tool, link.tool), link.input), link.response) for _, link in links)
    text, spans = interleave(document.text, zip((call.position for call, _ in links), written, strict=True))
    inserted = tuple(
        InsertedCall(link.tool, call.position, start, end, link.input, link.response, call.gain)
        for (call, link), (start, end) in zip(links, spans, strict=True)
    )
    return Example(document.doc_id, text, inserted)


class ExampleCap:
    """Finds which documents stay if a tool may have no more than a maximum: those of the lowest `cap_rank`.

    So their order and the shards do not matter. Only ranks of documents that may still stay are held, so memory does
    not grow with the corpus. A document that is dropped for one tool keeps the calls of its other tools.
    """

    def __init__(self, max_examples: int, seed: int) -> None:
        self._most = max_examples
        self._seed = seed
        self._ranks: dict[str, set[str]] = {}
        self._last: dict[str, str] = {}  # tool with too many documents -> the highest rank that may still stay

    def add(self, tool: str, doc_ids: Iterable[str]) -> None:
        """Add documents with a surviving call of a tool; adding one twice changes nothing."""
        ranks = self._ranks.setdefault(tool, set())
        last = self._last.get(tool)
        for doc_id in doc_ids:
            rank = cap_rank(self._seed, tool, doc_id)
            if last is None or rank <= last:
                ranks.add(rank)
        if len(ranks) > 2 * self._most:
            self._cut(tool)

    def _cut(self, tool: str) -> None:
        lowest = sorted(self._ranks[tool])[: self._most]
        self._ranks[tool], self._last[tool] = set(lowest), lowest[-1]

    def last_ranks(self) -> dict[str, str]:
        """Return, for every tool that has too many documents, the rank of the last one that stays; see `cap_rank`."""
        for tool, ranks in self._ranks.items():
            if len(ranks) > self._most:
                self._cut(tool)
        return dict(self._last)


def cap_rank(seed: int, tool: str, doc_id: str) -> str:
    """Return the rank of a document among those with a call of a tool, as text that sorts."""
    return digest_of("cap", str(seed), tool, doc_id)


def over_cap(pairs: Iterable[tuple[str, str]], last_ranks: Mapping[str, str], seed: int) -> set[tuple[str, str]]:
    """Return those (tool, document id) pairs that are beyond the limit, by `ExampleCap.last_ranks` of the same seed."""
    return {
        (tool, doc_id)
        for tool, doc_id in pairs
        if tool in last_ranks and cap_rank(seed, tool, doc_id) > last_ranks[tool]
    }
