"""Which shards a tool is annotated on where a build stops when it has enough examples (`--stop-when-full`).

Shards are taken in a seeded order, the same for all tools. A tool is annotated on the shortest prefix of that order in
which it has enough examples, or on all shards. What counts is what C* would hold: a shard's examples by the rules of
`assemble`, among the calls of those tools that are annotated on it; the limit then drops what a tool's last shard has
too many. So the prefixes follow from the data alone, not from who did which shard first. No task is known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tasks import translate
from tasks.shards import Done
from tasks.works import Assembly, Shard
from toolformer_core.annotate.assemble import survivors
from toolformer_core.records import digest_of

__all__ = ["Filling", "examples_of", "shard_order"]


def shard_order(shards: Iterable[Shard], seed: int) -> list[Shard]:
    """Return shards in the order in which they are taken: by a digest of the seed and the shard's name."""
    return sorted(shards, key=lambda shard: digest_of("stop-when-full", str(seed), shard.name))


class Filling:
    """The tools that have not enough examples yet, one shard after another.

    Args:
        tools: in the order in which `open` is to name them.
        enough: examples of a tool.
    """

    def __init__(self, tools: Sequence[str], enough: int) -> None:
        self._enough = enough
        self._examples = Counter[str]()
        self._tools = tuple(tools)

    @property
    def open(self) -> tuple[str, ...]:
        """The tools that are annotated on the next shard."""
        return tuple(tool for tool in self._tools if self._examples[tool] < self._enough)

    def add(self, examples: Mapping[str, int]) -> tuple[str, ...]:
        """Count a shard's examples of the open tools; return the tools that have enough now."""
        before = self.open
        for tool in before:
            self._examples[tool] += examples.get(tool, 0)
        return tuple(tool for tool in before if tool not in self.open)


def examples_of(assembly: Assembly, scored: Iterable[Done]) -> Counter[str]:
    """Return how many documents of a shard would be examples of each tool, before the limit.

    Args:
        scored: the losses, of every tool that is annotated on the shard.
    """
    calls = [call for done in scored for f in done.files for call in translate.scored_of(assembly.store.read(f))]
    kept, _ = survivors(calls, assembly.config.tau_f, keep_repeats=assembly.config.keep_repeats)
    return Counter(tool for tool, _ in {(call.tool, call.doc_id) for call in kept})
