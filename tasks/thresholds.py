"""The thresholds by which a build assembles C*: given ones, ones found for a promised rate, and prices on top.

Where a rate is promised or a price is measured, they are known when all calls are scored. How a rate is estimated is in
`false_discovery`, what a call costs in `call_prices`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tasks.build_spec import BuildSpec
from tasks.call_prices import MeasuredPrice, measured_prices
from tasks.false_discovery import find_thresholds, gains_by_tool
from tasks.run_shard import ShardResult
from toolformer_core.annotate.false_discovery import FoundThreshold
from toolformer_core.config import AssembleConfig, tau_f_for

__all__ = ["FOUND_THRESHOLDS", "MEASURED_PRICES", "Decided", "decide_thresholds", "given_thresholds", "is_decided_late"]

FOUND_THRESHOLDS, MEASURED_PRICES = "found_thresholds", "measured_prices"  # parameters of the run that hold them


@dataclass(frozen=True, slots=True)
class Decided:
    """How C* is assembled, and what was found out for it."""

    config: AssembleConfig
    found: tuple[FoundThreshold, ...] = ()  # without the price
    prices: tuple[MeasuredPrice, ...] = ()

    def as_parameters(self) -> dict[str, Any]:
        """Return what the run's parameters say of it; nothing where nothing was found out."""
        told: dict[str, tuple[Any, ...]] = {FOUND_THRESHOLDS: self.found, MEASURED_PRICES: self.prices}
        return {name: [asdict(one) for one in values] for name, values in told.items() if values}


def is_decided_late(spec: BuildSpec) -> bool:
    """Return whether the thresholds are known only when all calls are scored."""
    return bool(spec.rates or spec.price_rates)


def given_thresholds(spec: BuildSpec) -> AssembleConfig:
    """Return how C* is assembled as far as it is known beforehand: with the prices that are given in nats."""
    return _with_prices(spec.assemble, spec.prices)


def decide_thresholds(
    spec: BuildSpec, scored: Mapping[str, Sequence[ShardResult]], executed: Mapping[str, Sequence[ShardResult]]
) -> Decided:
    """Return how a build assembles C* once all of its calls are scored.

    Args:
        spec: the build.
        scored: shard -> the losses, of every tool.
        executed: tool -> the responses, of every shard; read where prices are measured.

    Raises:
        StoreError: scores or responses cannot be read.
    """
    config = spec.assemble
    found: tuple[FoundThreshold, ...] = ()
    measured: tuple[MeasuredPrice, ...] = ()
    if spec.rates:
        gains = gains_by_tool(spec.store(), scored, spec.rates)
        floors = dict.fromkeys(spec.rates, spec.score.floor or 0.0)
        found = tuple(find_thresholds(gains, spec.rates, config.tau_f, floors))
        config = replace(config, tau_f={**config.tau_f, **{one.tool: one.tau_f for one in found}})
    if spec.price_rates:
        measured = tuple(measured_prices(spec.store(), spec.price_rates, executed))
    prices = {one.tool: one.nats for one in measured}
    for tool, nats in spec.prices.items():
        prices[tool] = prices.get(tool, 0.0) + nats
    return Decided(_with_prices(config, prices), found, measured)


def _with_prices(config: AssembleConfig, prices: Mapping[str, float]) -> AssembleConfig:
    raised = {tool: tau_f_for(tool, config.tau_f) + nats for tool, nats in prices.items()}
    return replace(config, tau_f={**config.tau_f, **raised}) if raised else config
