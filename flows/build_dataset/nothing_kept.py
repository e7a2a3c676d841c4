"""Explains why a build kept nothing and which command to run next, from its stages' row counts and its best calls.

It works on what it is given; it opens no snapshot and prints nothing.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.build_dataset.parameters import BuildParameters
from warehouse.queries import Sample, StageBalance

_REASONS = 2  # reasons listed for the step that kept no rows
# `diagnose` takes them as `build` does.
_OPTIONS = ("tau_s", "top_k", "draws", "prompts", "passages", "qa_reader", "translator")


@dataclass(frozen=True, slots=True)
class NothingKept:
    """The message about a C* without examples."""

    summary: str
    reason: str
    command: str  # ready to paste

    def lines(self) -> list[str]:
        """Return the lines to print, without the best calls."""
        return [self.summary, *filter(None, [self.reason]), f"Next: {self.command}"]


def nothing_kept(
    balances: Sequence[StageBalance],
    best: Sequence[Sample],
    thresholds: Mapping[str, float],
    parameters: BuildParameters,
    data: str,
) -> NothingKept:
    """Return why nothing was kept.

    Args:
        balances: of every stage, in the order of the stages.
        best: the calls with the largest gains, largest first.
        thresholds: tool -> tau_f, in nats.
        parameters: of the build.
        data: its data folder or URL.
    """
    scored = sum(b.kept for b in balances if (b.stage, b.unit) == ("score", "calls"))
    below = sum(b.dropped.get("below_threshold", 0) for b in balances if (b.stage, b.unit) == ("assemble", "calls"))
    listed = ", ".join(f"{tool} {tau_f:g}" for tool, tau_f in thresholds.items())
    if not scored:
        summary = "C* is empty: no call was scored."
    elif below == scored:
        summary = f"C* is empty: no call reached its tool's tau_f ({listed}; in nats)."
    else:
        summary = f"C* is empty: no call that reached its tool's tau_f ({listed}; in nats) may be kept."
    return NothingKept(summary, _reason(balances), _command(best, thresholds, parameters, data))


def _reason(balances: Sequence[StageBalance]) -> str:
    """Name the main reasons at the step that kept no rows, and an earlier reason that cost more rows, if any."""
    rows_in, kept = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    reasons: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    for b in balances:
        step = (b.stage, b.unit)
        rows_in[step] += b.rows_in
        kept[step] += b.kept
        counts = reasons.setdefault(step, Counter())
        for reason, n in (*b.dropped.items(), *b.failed.items()):
            counts[reason, b.tool] += n
    last = next((step for step in reasons if rows_in[step] and not kept[step] and reasons[step]), None)
    if last is None:
        return ""
    main = " and ".join(_reason_text(last, *one) for one in reasons[last].most_common(_REASONS))
    text = f"Main reason: {main}, of {rows_in[last]:,} {last[1]}."
    earlier = [
        (n, step, why) for step in list(reasons)[: list(reasons).index(last)] for why, n in reasons[step].items()
    ]
    most = max(earlier, default=None, key=lambda one: one[0])
    if most is not None and most[0] > reasons[last].most_common(1)[0][1]:
        n, step, why = most
        text += f" Most rows were lost before: {_reason_text(step, why, n)}, of {rows_in[step]:,} {step[1]}."
    return text


def _reason_text(step: tuple[str, str], why: tuple[str, str], n: int) -> str:
    reason, tool = why
    return f"{reason} {n:,} ({' '.join(filter(None, (step[0], tool)))})"


def _command(best: Sequence[Sample], thresholds: Mapping[str, float], p: BuildParameters, data: str) -> str:
    """Return `what-if` where a lower threshold would keep calls that help, else `diagnose`."""
    reachable = {s.tool: s.gain for s in reversed(best) if _floor(s.gain) > 0 and s.gain < thresholds.get(s.tool, 0.0)}
    if reachable:
        tau = ",".join(f"{tool}={_floor(gain):g}" for tool, gain in sorted(reachable.items()))
        return shlex.join(["toolformer", "what-if", "--tau", tau, "--data", data])
    parts = ["toolformer", "diagnose", "--model", p.model]
    parts += ["--tools", ",".join(p.tools)] if p.tools else []
    parts += [word for reference in p.tool for word in ("--tool", reference)]
    for name in _OPTIONS:
        if (value := getattr(p, name)) is not None:
            parts += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(parts)


def _floor(gain: float) -> float:
    """Round down to hundredths of a nat, so that a threshold there keeps the call."""
    return math.floor(gain * 100) / 100
