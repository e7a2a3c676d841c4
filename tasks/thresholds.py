"""The thresholds by which a build assembles C*: given ones, and ones found for a promised rate.

Where a rate is promised, they are known when all calls are scored. How a rate is estimated is in `false_discovery`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tasks.build_spec import BuildSpec
from tasks.false_discovery import find_thresholds, gains_by_tool
from tasks.run_shard import ShardResult
from toolformer_core.annotate.false_discovery import FoundThreshold
from toolformer_core.config import AssembleConfig


@dataclass(frozen=True, slots=True)
class Decided:
    """How C* is assembled, and what was found out for it."""

    config: AssembleConfig
    found: tuple[FoundThreshold, ...] = ()


def is_decided_late(spec: BuildSpec) -> bool:
    """Return whether the thresholds are known only when all calls are scored."""
    return bool(spec.rates)


def decide_thresholds(spec: BuildSpec, scored: Mapping[str, Sequence[ShardResult]]) -> Decided:
    """Return how a build assembles C* once all of its calls are scored.

    Args:
        spec: the build.
        scored: shard -> the losses, of every tool.

    Raises:
        StoreError: scores cannot be read.
    """
    config = spec.assemble
    if not spec.rates:
        return Decided(config)
    gains = gains_by_tool(spec.store(), scored, spec.rates)
    floors = dict.fromkeys(spec.rates, spec.score.floor or 0.0)
    found = tuple(find_thresholds(gains, spec.rates, config.tau_f, floors))
    return Decided(replace(config, tau_f={**config.tau_f, **{one.tool: one.tau_f for one in found}}), found)
