"""The results of an evaluation as plain records: figures per arm and k, their uncertainty, comparisons between arms."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.evaluate.certificate import KnownItems, certificate_of, certificate_text
from flows.report.tables import Cell, ResultTable, percent
from tasks.shards.run_shard import ShardResult
from tasks.specs.evaluation_spec import TRIGGER_ARM, Evaluation
from toolformer_core.evaluate.operands import RandomOperands, WordProblem, random_operands, right_calls
from toolformer_core.evaluate.statistics import Comparison, ItemOutcome, call_rates, call_split, compare
from warehouse.records import Certificate
from warehouse.store import Store

_COLUMNS = ["item_id", "correct", "called", "tool", "parameters", "problem"]
_PROBLEM = ["prompt", "answers", "input", "response"]  # what the random-operand baseline is made of
_ARM_ROW = (  # figures of a table's row
    "arm k model parameters items right accuracy low high call_rate accuracy_called accuracy_uncalled failed".split()
)
_PERPLEXITY_ROW = ("arm", "model", "parameters", "texts", "tokens", "perplexity")


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
    calls_per_item: float | None = None  # None where an item has one call at most: it is the call rate
    failed: int = 0  # items that the model could not process, e.g. too long ones; they count as wrong
    versus_base: Comparison | None = None
    versus_disabled: Comparison | None = None  # for arms with tools: against the same model without
    operands: RandomOperands | None = None  # of word problems with calls: the random-operand baseline
    right_calls: float | None = None  # of word problems: the share of items with a call of which one gives the answer
    certificate: Certificate | None = None  # of a finetuned model whose training texts are stored


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
    done: int  # shards that this run computed
    skipped: int  # shards that were finished before this run
    mlflow_run: str = ""
    runs_view: str = ""  # how to open the table of runs in MLflow
    seconds: float = math.nan


def arm_figures(
    store: Store,
    finished: Mapping[Evaluation, Sequence[ShardResult]],
    names: Mapping[Evaluation, str],
    *,
    word_problems: bool = False,
    known: Mapping[Evaluation, KnownItems],
) -> list[ArmFigures]:
    """Return the figures of every evaluation, in the order given."""
    columns = [*_COLUMNS, *(_PROBLEM if word_problems else [])]
    rows_of = {one: _rows(store, shards, [*columns, *_of_several(one)]) for one, shards in finished.items()}
    right = {evaluation: {row["item_id"]: row["correct"] for row in rows} for evaluation, rows in rows_of.items()}

    def comparison(evaluation: Evaluation, arm: str) -> Comparison | None:
        other = next((right[one] for one in right if one.arm == arm and one != evaluation), None)
        return compare(right[evaluation], other) if right[evaluation] and other is not None else None

    out = []
    for evaluation, rows in rows_of.items():
        calls = [_calls(row) for row in rows]
        items = [
            ItemOutcome(row["item_id"], row["correct"], tuple(dict.fromkeys(call["tool"] for call in own)))
            for row, own in zip(rows, calls, strict=True)
        ]
        problems = [
            WordProblem(
                row["prompt"],
                row["answers"][0],
                tuple((call["input"], call["response"] or "") for call in own if call["tool"] == "calculator"),
            )
            for row, own in zip(rows, calls, strict=True)
            if word_problems
        ]
        split = call_split(items)
        overall, with_calls = split.all, evaluation.arm in ("toolformer", TRIGGER_ARM)
        per_item = sum(map(len, calls)) / len(rows) if rows else math.nan
        one = known.get(evaluation)
        certificate = None if one is None else certificate_of(names[evaluation], evaluation, right[evaluation], one)
        out.append(
            ArmFigures(
                evaluation=names[evaluation],
                arm=evaluation.arm,
                k=evaluation.k,
                model=evaluation.model,
                parameters=rows[0]["parameters"] if rows else 0,
                items=overall.items,
                right=overall.right,
                accuracy=overall.value,
                low=overall.low,
                high=overall.high,
                call_rate=split.rate,
                accuracy_called=split.called.value,
                accuracy_uncalled=split.uncalled.value,
                rates=call_rates(items),
                calls_per_item=per_item if _of_several(evaluation) else None,
                failed=sum(bool(row["problem"]) for row in rows),
                versus_base=comparison(evaluation, "base"),
                versus_disabled=comparison(evaluation, "toolformer-disabled") if with_calls else None,
                operands=random_operands(problems),
                right_calls=right_calls(problems),
                certificate=certificate,
            )
        )
    return out


def _of_several(evaluation: Evaluation) -> list[str]:
    return ["calls"] if evaluation.max_calls > 1 else []


def _calls(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = row["calls"] if "calls" in row else [{**row, "requested": row["called"]}]
    return [call for call in calls if call["requested"]]


def arm_perplexity(store: Store, evaluation: Evaluation, name: str, shards: Sequence[ShardResult]) -> ArmPerplexity:
    """Return the perplexity over all tokens of all texts."""
    rows = _rows(store, shards, ["nll", "tokens", "parameters", "problem"])
    tokens = sum(row["tokens"] for row in rows)
    return ArmPerplexity(
        evaluation=name,
        arm=evaluation.arm,
        model=evaluation.model,
        parameters=rows[0]["parameters"] if rows else 0,
        texts=len(rows),
        tokens=tokens,
        perplexity=math.exp(sum(row["nll"] for row in rows) / tokens) if tokens else math.nan,
        failed=sum(bool(row["problem"]) for row in rows),
    )


def _rows(store: Store, shards: Sequence[ShardResult], columns: list[str]) -> list[dict[str, Any]]:
    return [row for shard in shards for file in shard.files for row in store.read(file, columns=columns).to_pylist()]


def row_of(figures: ArmFigures | ArmPerplexity) -> dict[str, Any]:
    """Return figures as one flat row of a table."""
    if isinstance(figures, ArmPerplexity):
        return {name: getattr(figures, name) for name in _PERPLEXITY_ROW}
    row = {name: getattr(figures, name) for name in _ARM_ROW}
    row["p_versus_base"] = figures.versus_base.p if figures.versus_base else None
    row["p_versus_disabled"] = figures.versus_disabled.p if figures.versus_disabled else None
    random = figures.operands.value if figures.operands is not None else None
    of_some = {"calls_per_item": figures.calls_per_item, "random_operands": random, "right_calls": figures.right_calls}
    row |= {name: value for name, value in of_some.items() if value is not None}
    if (one := figures.certificate) is not None:
        row |= {"known": len(one.known), "accuracy_unknown": one.accuracy_unknown}
    return row | {f"calls_{tool}": rate for tool, rate in figures.rates.items()}


def table_of(result: EvaluateResult) -> ResultTable:
    """Return the figures of the arms, or their perplexities, as pages and the terminal show them."""
    title = f"{result.title} {result.source}".strip()
    if result.perplexities:
        texts = tuple((one.arm, one.texts, one.tokens, f"{one.perplexity:.3f}") for one in result.perplexities)
        return ResultTable("", f"{title}, tools disabled", ("arm", "texts", "tokens", "perplexity"), texts)
    several = any(arm.calls_per_item is not None for arm in result.arms)
    columns = ("arm", "right", "95 %", "calls", *(("per item",) if several else ()), "with", "without", "p", "p (off)")
    per_item = "per item: calls of an item, on average; " if several else ""
    notes = [
        f"calls: percent of items with a call; {per_item}right with one, and without; p: McNemar's exact test against "
        "the base, and against the same model with tools off."
    ]
    for arm in result.arms:
        if arm.rates:
            rates = ", ".join(f"{tool} {100 * rate:.1f}" for tool, rate in arm.rates.items())
            notes.append(f"{_label(arm)} called, percent of items: {rates}")
        if arm.operands is not None:
            notes.append(
                f"{_label(arm)}: random pairs of the problems' numbers with its operators would be right in "
                f"{100 * arm.operands.value:.1f} % ({100 * arm.operands.low:.1f}-{100 * arm.operands.high:.1f}); its "
                f"calls give the answer in {100 * (arm.right_calls or 0):.1f} % of the items with one"
            )
        if arm.certificate is not None:
            notes.append(f"{_label(arm)}: {certificate_text(arm.certificate)}")
    if failed := max((arm.failed for arm in result.arms), default=0):
        notes.append(f"{failed} items do not fit into the model's context; they count as wrong.")
    rows = tuple(_arm_row(arm, several) for arm in result.arms)
    return ResultTable("", f"{title}: percent right of {result.items:,} items", columns, rows, notes=tuple(notes))


def _label(arm: ArmFigures) -> str:
    return f"{arm.arm}, k={arm.k}" if arm.k else arm.arm


def _arm_row(arm: ArmFigures, several: bool) -> tuple[Cell, ...]:
    shares = (arm.call_rate, arm.accuracy_called, arm.accuracy_uncalled)
    calls, with_one, without = ("-" if share != share else f"{100 * share:.1f}" for share in shares)
    tests = (None if test is None else f"{test.p:.2g}" for test in (arm.versus_base, arm.versus_disabled))
    interval = f"{100 * arm.low:.1f}-{100 * arm.high:.1f}"
    per_item = (arm.calls_per_item,) if several else ()
    return (_label(arm), percent(arm.accuracy), interval, calls, *per_item, with_one, without, *tests)
