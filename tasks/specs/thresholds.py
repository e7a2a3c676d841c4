"""The thresholds by which C* is assembled: given ones, and ones for a promised rate, found when all is scored."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, starmap

from tasks.shards import arrow
from tasks.shards.run_shard import ShardResult
from tasks.specs.build_spec import BuildSpec
from toolformer_core.annotate.decoys import FoundThreshold, GainCollector, GainsOfTool, find_threshold
from toolformer_core.config import AssembleConfig, tau_f_for
from warehouse.store import Store


@dataclass(frozen=True, slots=True)
class Decided:
    config: AssembleConfig
    found: tuple[FoundThreshold, ...] = ()


def is_decided_late(spec: BuildSpec) -> bool:
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
    for result in chain.from_iterable(scored.values()):
        if (collector := collected.get(result.key.tool)) is not None:
            for file in result.files:
                collector.add(arrow.scored_of(store.read(file), decoys=True))
    return {tool: one.gains() for tool, one in collected.items()}


def find_thresholds(
    gains: Mapping[str, GainsOfTool], rates: Mapping[str, float], own: Mapping[str, float], floors: Mapping[str, float]
) -> list[FoundThreshold]:
    """Return the thresholds of tools for promised rates, in (0, 1).

    By tool, in nats: its `own` threshold, if not the paper's, and the gain that its calls were scored for (`floors`).
    """
    numbers = ((tool, gains[tool], rate, tau_f_for(tool, own), floors.get(tool, 0.0)) for tool, rate in rates.items())
    return list(starmap(find_threshold, numbers))
