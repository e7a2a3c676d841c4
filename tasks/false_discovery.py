"""Thresholds for a promised rate of false discoveries, from the stored gains of a run's calls and their decoys.

Shards are read one after another; what is held of a call is its gain and those of its decoys. How a rate is estimated
is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tasks import arrow
from tasks.run_shard import ShardResult
from toolformer_core.annotate.false_discovery import FoundThreshold, GainCollector, GainsOfTool, find_threshold
from toolformer_core.config import tau_f_for
from warehouse.store import Store


def gains_by_tool(
    store: Store, scored: Mapping[str, Sequence[ShardResult]], tools: Iterable[str]
) -> dict[str, GainsOfTool]:
    """Read the gains of the tools' calls and decoys.

    Args:
        store: holds the scores.
        scored: shard -> the losses, of every tool.
        tools: whose gains are wanted.
    """
    collected = {tool: GainCollector() for tool in tools}
    for results in scored.values():
        for result in results:
            if result.key.tool in collected:
                for file in result.files:
                    collected[result.key.tool].add(arrow.scored_of(store.read(file), decoys=True))
    return {tool: one.gains() for tool, one in collected.items()}


def find_thresholds(
    gains: Mapping[str, GainsOfTool], rates: Mapping[str, float], own: Mapping[str, float], floors: Mapping[str, float]
) -> list[FoundThreshold]:
    """Return the thresholds of tools for promised rates.

    Args:
        gains: of the tools, as `gains_by_tool` returns them.
        rates: tool -> the rate, in (0, 1).
        own: the tools' own thresholds in nats, where they are not the paper's.
        floors: tool -> the gain below which its calls were not scored to the end, in nats; without one, 0.
    """
    return [
        find_threshold(tool, gains[tool], rate, tau_f_for(tool, own), floors.get(tool, 0.0))
        for tool, rate in rates.items()
    ]
