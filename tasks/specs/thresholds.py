"""The thresholds by which a build assembles C*: given ones, and ones found for a promised rate of false discoveries.

Where a rate is promised, they are known when all calls are scored, from the stored gains of calls and their decoys.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tasks.shards import arrow
from tasks.shards.run_shard import ShardResult
from tasks.specs.build_spec import BuildSpec
from toolformer_core.annotate.decoys import FoundThreshold, GainCollector, GainsOfTool, find_threshold
from toolformer_core.config import AssembleConfig, tau_f_for
from warehouse.store import Store


@dataclass(frozen=True, slots=True)
class Decided:
    """How C* is assembled, and what was found out for it."""

    config: AssembleConfig
    found: tuple[FoundThreshold, ...] = ()


def is_decided_late(spec: BuildSpec) -> bool:
    """Return whether the thresholds are known only when all calls are scored."""
    return bool(spec.rates)


def decide_thresholds(spec: BuildSpec, scored: Mapping[str, Sequence[ShardResult]]) -> Decided:
    """Return how a build assembles C* once all of its calls are scored."""
    config = spec.assemble
    if not spec.rates:
        return Decided(config)
    gains = gains_by_tool(spec.store(), scored, spec.rates)
    floors = dict.fromkeys(spec.rates, spec.score.floor or 0.0)
    found = tuple(find_thresholds(gains, spec.rates, config.tau_f, floors))
    return Decided(replace(config, tau_f={**config.tau_f, **{one.tool: one.tau_f for one in found}}), found)


def gains_by_tool(
    store: Store, scored: Mapping[str, Sequence[ShardResult]], tools: Iterable[str]
) -> dict[str, GainsOfTool]:
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
        rates: tool -> the rate, in (0, 1).
        own: tool -> its own threshold in nats, where it is not the paper's.
        floors: tool -> the gain below which its calls were not scored to the end, in nats; default 0.
    """
    return [
        find_threshold(tool, gains[tool], rate, tau_f_for(tool, own), floors.get(tool, 0.0))
        for tool, rate in rates.items()
    ]
