"""Other thresholds as a query on stored scores: filled in from the current C*, with notes on what stays unknown."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tasks.specs.rating_filter import RatingFilter
from toolformer_core.annotate.call_filter import CallFilter
from toolformer_core.errors import UnknownNameError, UsageError
from warehouse.queries import rows_of
from warehouse.queries.builds import coverage
from warehouse.what_if import StoredScores, stored_scores

_UNRANKED = 'SELECT count(*) AS calls FROM facts.gains WHERE "rank" IS NULL'
_RATING_OPTIONS = {"rejected": "--ratings not-rejected", "not_accepted": "--ratings accepted"}

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class WhatIfQuery:
    """The current thresholds, the other ones, and notes on what stored scores cannot answer."""

    stored: StoredScores
    before: CallFilter
    after: CallFilter
    notes: tuple[str, ...]
    rating_filter: RatingFilter | None = None  # which calls take part afterwards by what people say of them; None: all


def ask(
    snapshot: str | Path,
    tau_f: Mapping[str, float],
    top_k: int | Mapping[str, int] | None = None,
    tau_s: float | Mapping[str, float] | None = None,
    keep_repeats: bool | None = None,
    rating_filter: RatingFilter | None = None,
) -> WhatIfQuery:
    """Return the thresholds of the current C* and the other ones, filled in from the current scores.

    Args:
        tau_f: other filtering thresholds in nats, by tool; the rest stay as they are.
        top_k: positions per document, for every tool or by tool; None, or a tool not named: as sampled.
        tau_s: sampling threshold, for every tool or by tool; None, or a tool not named: as sampled.
        keep_repeats: whether calls that are repeated nearby are kept; None: as C* was assembled.
        rating_filter: which calls take part afterwards by what people say of them; None: all.

    Raises:
        UsageError: a tool has no scores, or stored scores cannot answer any of the query.
        SnapshotError: there is no snapshot.
    """
    scores = stored_scores(snapshot)
    if not scores.sampled:
        raise UsageError("no scores are stored yet: run toolformer build to its end first")
    ks, least_p = _by_tool(top_k, scores.sampled), _by_tool(tau_s, scores.sampled)
    for tool in (*tau_f, *ks, *least_p):
        if tool not in scores.sampled:
            raise UnknownNameError("tool", tool, scores.sampled)
    for tool in tau_f:
        if tau_f[tool] < scores.floors.get(tool, -math.inf):
            raise UsageError(
                f"{tool} was scored to the end only where the gain can reach {scores.floors[tool]:g}: what "
                f"--tau {tool}={tau_f[tool]:g} would add cannot be known from the stored scores; "
                "toolformer build with that --tau-f finds out"
            )
    before = CallFilter.of_build(scores.sampled, scores.assembled)
    notes: list[str] = []
    after_top_k = _narrowed(before.top_k, ks, scores.sampled, "top_k", notes)
    after_tau_s = _narrowed(before.tau_s, least_p, scores.sampled, "tau_s", notes)
    same_positions = (after_top_k, after_tau_s) == (dict(before.top_k), dict(before.tau_s))
    same_calls = keep_repeats is None and rating_filter is None
    if notes and not tau_f and same_calls and same_positions:
        raise UsageError(notes[0])
    if after_top_k and (unranked := rows_of(snapshot, _UNRANKED)[0]["calls"]):
        notes.append(
            f"{unranked:,} calls take no part under --top-k: the samples they came from are gone, and their ranks with "
            "them"
        )
    notes += map(str, coverage(snapshot))
    repeats = before.keep_repeats if keep_repeats is None else frozenset(scores.sampled if keep_repeats else ())
    notes += [_ratings_note(scores.rated_out)] if scores.rated_out else []
    if scores.elsewhere:
        dropped = ", ".join(f"{reason} {calls:,}" for reason, calls in scores.elsewhere.items())
        notes.append(
            f"of the calls that pass, other texts keep some out of C* ({dropped}); the figures here count them"
        )
    after = replace(before, tau_f={**before.tau_f, **tau_f}, top_k=after_top_k, tau_s=after_tau_s, keep_repeats=repeats)
    return WhatIfQuery(scores, before, after, tuple(notes), rating_filter)


def _ratings_note(rated_out: Mapping[str, int]) -> str:
    options = " and ".join(_RATING_OPTIONS[reason] for reason in rated_out)
    return (
        f"the current C* was assembled with {options}, which left out {sum(rated_out.values()):,} scored calls by "
        f"people's ratings: they are counted here, on the other side too unless {options} is given"
    )


def _narrowed(
    before: Mapping[str, Any], given: Mapping[str, Any], sampled: Mapping[str, Any], name: str, notes: list[str]
) -> dict[str, Any]:
    """Return limits by tool with the given ones; one that excludes no sampled position is none, and may get a note."""
    limits = {**before, **given}
    for tool, limit in given.items():
        was = sampled[tool][name]
        if limit == was or (limit > was) == (name == "top_k"):
            del limits[tool]
            if limit != was:
                option = f"--{name.replace('_', '-')} {limit:g}"
                notes.append(
                    f"{tool} was sampled with {name.removeprefix('top_')} = {was:g}: what {option} would add cannot be "
                    f"known from the stored scores; toolformer build {option} finds out"
                )
    return limits


def _by_tool(value: Number | Mapping[str, Number] | None, tools: Collection[str]) -> dict[str, Number]:
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else dict.fromkeys(tools, value)
