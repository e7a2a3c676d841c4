"""Thresholds for a promised rate of false discoveries, from the stored gains of a run's calls and their decoys.

Shards are read one after another; what is held of a call is its gain and those of its decoys. How a rate is estimated
is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tasks import arrow
from tasks.build_spec import BuildSpec
from tasks.run_shard import ShardResult
from toolformer_core.annotate.false_discovery import FoundThreshold, GainCollector, GainsOfTool, find_threshold
from toolformer_core.config import AssembleConfig, tau_f_for
from warehouse.store import Store

__all__ = ["find_thresholds", "gains_by_tool", "with_found_thresholds"]


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


def with_found_thresholds(
    spec: BuildSpec, scored: Mapping[str, Sequence[ShardResult]]
) -> tuple[AssembleConfig, tuple[FoundThreshold, ...]]:
    """Return how a build assembles C* once all of its calls are scored, and the thresholds that were found for it.

    Args:
        spec: the build; without promised rates its config is returned as it is.
        scored: shard -> the losses, of every tool.

    Raises:
        StoreError: scores cannot be read.
    """
    if not spec.rates:
        return spec.assemble, ()
    gains = gains_by_tool(spec.store(), scored, spec.rates)
    floor = spec.score.floor
    floors = dict.fromkeys(spec.rates, 0.0 if floor is None else floor)
    found = find_thresholds(gains, spec.rates, spec.assemble.tau_f, floors)
    return replace(spec.assemble, tau_f={**spec.assemble.tau_f, **{one.tool: one.tau_f for one in found}}), tuple(found)
