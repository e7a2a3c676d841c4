"""The results of an evaluation: figures per arm and k with their uncertainty, and comparisons between arms.

They are plain records, computed from the predictions of finished shards with `toolformer_core.evaluate.statistics`.
Nothing is printed or tracked here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.evaluation_spec import Evaluation
from tasks.run_shard import ShardResult
from toolformer_core.evaluate.statistics import Comparison, ItemOutcome, accuracy, call_rates, call_split, compare
from warehouse.store import Store

__all__ = ["ArmFigures", "ArmPerplexity", "EvaluateResult", "arm_figures", "arm_perplexity", "row_of"]

_COLUMNS = ["item_id", "correct", "called", "tool", "parameters", "problem"]


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One arm at one k; shares are in [0, 1], nan where the denominator is 0."""

    evaluation: str
    arm: str
    k: int
    model: str
    parameters: int
    items: int
    right: int
    accuracy: float
    low: float  # 95 % bootstrap interval
    high: float
    call_rate: float
    accuracy_called: float
    accuracy_uncalled: float
    rates: dict[str, float] = field(default_factory=dict)  # tool -> share of items on which it was called
    failed: int = 0  # items that could not be asked; they count as wrong
    versus_base: Comparison | None = None
    versus_disabled: Comparison | None = None  # for arms with tools: against the same model without


@dataclass(frozen=True, slots=True)
class ArmPerplexity:
    """The perplexity of one arm on texts, tools disabled."""

    evaluation: str
    arm: str
    model: str
    parameters: int
    texts: int
    tokens: int
    perplexity: float  # nan without tokens
    failed: int = 0


@dataclass(frozen=True, slots=True)
class EvaluateResult:
    """The result of an evaluation flow."""

    run_id: str
    task: str
    title: str
    source: str
    items: int
    rejected: dict[str, int]  # reason -> rows of the benchmark that are not valid items
    arms: tuple[ArmFigures, ...]
    perplexities: tuple[ArmPerplexity, ...]
    paper: dict[str, float]  # the paper's figures, percent or perplexity, by model
    snapshot: str
    tracking: str
    mlflow_run: str
    done: int  # shards worked on
    skipped: int  # ... and done already
    seconds: float


def arm_figures(
    store: Store, done: Mapping[Evaluation, Sequence[ShardResult]], names: Mapping[Evaluation, str]
) -> list[ArmFigures]:
    """Return the figures of every evaluation, in the order given.

    Args:
        done: the finished shards of each.
        names: the evaluations' names.
    """
    outcomes: dict[Evaluation, list[ItemOutcome]] = {}
    sizes: dict[Evaluation, tuple[int, int]] = {}  # the model's parameters, failed items
    for evaluation, shards in done.items():
        rows = [row for d in shards for f in d.files for row in store.read(f, columns=_COLUMNS).to_pylist()]
        outcomes[evaluation] = [
            ItemOutcome(r["item_id"], r["correct"], (r["tool"],) if r["called"] else ()) for r in rows
        ]
        sizes[evaluation] = (rows[0]["parameters"] if rows else 0, sum(bool(r["problem"]) for r in rows))
    right = {e: {o.item_id: o.right for o in items} for e, items in outcomes.items()}

    def comparison(one: Evaluation, arms: Sequence[str]) -> Comparison | None:
        other = next((e for e in right if e.arm in arms), None)
        return None if other is None or other is one or not right[one] else compare(right[one], right[other])

    out = []
    for e, items in outcomes.items():
        split, overall = call_split(items), accuracy(o.right for o in items)
        out.append(
            ArmFigures(
                evaluation=names[e],
                arm=e.arm,
                k=e.k,
                model=e.model,
                parameters=sizes[e][0],
                items=overall.items,
                right=overall.right,
                accuracy=overall.value,
                low=overall.low,
                high=overall.high,
                call_rate=split.rate,
                accuracy_called=split.called.value,
                accuracy_uncalled=split.uncalled.value,
                rates=call_rates(items),
                failed=sizes[e][1],
                versus_base=comparison(e, ("base",)),
                versus_disabled=comparison(e, ("toolformer-disabled",)) if e.arm == "toolformer" else None,
            )
        )
    return out


def arm_perplexity(store: Store, evaluation: Evaluation, name: str, done: Sequence[ShardResult]) -> ArmPerplexity:
    """Return the perplexity over all tokens of all texts."""
    columns = ["nll", "tokens", "parameters", "problem"]
    rows = [row for d in done for f in d.files for row in store.read(f, columns=columns).to_pylist()]
    tokens = sum(r["tokens"] for r in rows)
    nll = sum(r["nll"] for r in rows)
    return ArmPerplexity(
        evaluation=name,
        arm=evaluation.arm,
        model=evaluation.model,
        parameters=rows[0]["parameters"] if rows else 0,
        texts=len(rows),
        tokens=tokens,
        perplexity=math.exp(nll / tokens) if tokens else math.nan,
        failed=sum(bool(r["problem"]) for r in rows),
    )


def row_of(one: ArmFigures | ArmPerplexity) -> dict[str, Any]:
    """Return figures as one flat row of a table."""
    if isinstance(one, ArmPerplexity):
        return {"arm": one.arm, "model": one.model, "parameters": one.parameters, "texts": one.texts,
                "tokens": one.tokens, "perplexity": one.perplexity}  # fmt: skip
    return {
        "arm": one.arm,
        "k": one.k,
        "model": one.model,
        "parameters": one.parameters,
        "items": one.items,
        "right": one.right,
        "accuracy": one.accuracy,
        "low": one.low,
        "high": one.high,
        "call_rate": one.call_rate,
        "accuracy_called": one.accuracy_called,
        "accuracy_uncalled": one.accuracy_uncalled,
        "failed": one.failed,
        "p_versus_base": one.versus_base.p if one.versus_base else None,
        "p_versus_disabled": one.versus_disabled.p if one.versus_disabled else None,
        **{f"calls_{tool}": rate for tool, rate in one.rates.items()},
    }
