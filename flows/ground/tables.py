"""The tables of GEAR's paper from a grounding's result, beside the paper's figures; and its confusion matrix and cost.

    Table 4  how often the right tool is chosen, by method and benchmark
    Table 2  how often the answer is right, by method and benchmark, beside GPT-J's
    Table 3  the same beside GPT-3's and Toolformer's

A cell that the run did not measure is None. All figures are those of the result; nothing is computed here but percent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flows.evaluate.tables import Cell, PaperTable
from flows.ground.metrics import GroundResult, TaskFigures
from toolformer_core.evaluate.gear_figures import ANSWERS_GPT3, ANSWERS_GPT_J, GROUNDING, GROUNDING_BY_DEMONSTRATIONS
from toolformer_core.evaluate.grounding_figures import NO_TOOL
from toolformer_core.evaluate.statistics import Accuracy
from toolformer_core.evaluate.tasks import task_named

__all__ = ["confusion_table", "cost_table", "grounding_tables", "size_table"]


def grounding_tables(result: GroundResult) -> list[PaperTable]:
    """Return the paper's tables 4, 2 and 3: those of answers if queries were answered, Table 3 if it has one of the
    benchmarks."""
    tables = [_table_4(result)]
    if any(one.answered for one in result.tasks):
        title = "Answers, percent right; the paper: chosen by GPT-Neo, answered by GPT-J"
        tables.append(_answers("GEAR Table 2", title, result, ANSWERS_GPT_J))
        if any(one.task in paper for one in result.tasks for paper in ANSWERS_GPT3.values()):
            title = "Answers, percent right; the paper: answered by GPT-3, Toolformer by GPT-J"
            tables.append(_answers("GEAR Table 3", title, result, ANSWERS_GPT3))
    return tables


def _table_4(result: GroundResult) -> PaperTable:
    tasks = result.tasks
    rows: list[tuple[Cell, ...]] = []
    for method, mean in result.mean.items():
        paper = GROUNDING if method == "gear" else {}
        rows.append(_row(method, tasks, [one.chosen[method] for one in tasks], paper, mean))
        if method == "gear" and result.best is not None:
            best = [one.best for one in tasks]
            known = [one.value for one in best if one is not None and one.items]
            label = f"gear, gamma {result.best.gamma:g}, lambda {result.best.smoothing:g}"
            rows.append(_row(label, tasks, best, {}, sum(known) / len(known) if known else None))
    for demonstrations, paper in GROUNDING_BY_DEMONSTRATIONS.items():
        if any(one.task in paper for one in tasks):
            label = f"ART_cs shown {task_named(demonstrations).title}"
            rows.append(_row(label, tasks, [None] * len(tasks), paper, None))
    notes = [f"gear: gamma {result.gamma:g}, lambda {result.smoothing:g}, of {len(result.tools)} tools"]
    if result.best is not None:
        notes.append(
            "the second row's weights chose best on the development half of the queries; it is measured on the other"
        )
    notes += [_intervals(method, result) for method in result.mean]
    title = "Right tool chosen, percent of queries"
    return PaperTable("GEAR Table 4", title, _columns(tasks), tuple(rows), notes=tuple(notes))


def _answers(name: str, title: str, result: GroundResult, paper: Mapping[str, Mapping[str, float]]) -> PaperTable:
    tasks = result.tasks
    rows = [
        _row(method, tasks, [one.answered.get(method) for one in tasks], paper.get(method, {}), mean)
        for method, mean in result.mean_answered.items()
    ]
    return PaperTable(name, title, _columns(tasks), tuple(rows))


def _columns(tasks: Sequence[TaskFigures]) -> tuple[str, ...]:
    return ("method", *(name for one in tasks for name in (one.task, "paper")), "mean")


def _row(
    label: str,
    tasks: Sequence[TaskFigures],
    ours: Iterable[Accuracy | None],
    paper: Mapping[str, float],
    mean: float | None,
) -> tuple[Cell, ...]:
    cells: list[Cell] = [label]
    for task, one in zip(tasks, ours, strict=True):
        cells += [_percent(one.value if one is not None else None), paper.get(task.task)]
    return (*cells, _percent(mean))


def _percent(share: float | None) -> float | None:
    return None if share is None or share != share else 100 * share


def _intervals(method: str, result: GroundResult) -> str:
    spans = (
        f"{one.task} {100 * one.chosen[method].low:.1f} to {100 * one.chosen[method].high:.1f}" for one in result.tasks
    )
    return f"{method}, 95 %: {', '.join(spans)}"


def confusion_table(result: GroundResult, method: str = "gear") -> PaperTable:
    """Return how often each tool was chosen for each benchmark's queries."""
    matrix = result.confusion[method]
    named = {tool for counts in matrix.values() for tool in counts}
    chosen = [tool for tool in (*result.tools, NO_TOOL) if tool in named]
    rows: list[tuple[Cell, ...]] = [
        (task, *(counts.get(tool, 0) for tool in chosen)) for task, counts in matrix.items()
    ]
    return PaperTable("Confusion", f"Queries by the tool that {method} chose", ("benchmark", *chosen), tuple(rows))


def size_table(result: GroundResult) -> PaperTable:
    """Return the accuracy of choices among the first tools of the library, on queries that one of these fits."""
    methods = tuple(result.sizes[0].chosen) if result.sizes else ()
    rows = tuple(
        (size.tools, size.queries, *(_percent(size.chosen[method].value) for method in methods))
        for size in result.sizes
    )
    return PaperTable("Size", "Right tool chosen by size of the library, percent", ("tools", "queries", *methods), rows)


def cost_table(result: GroundResult) -> PaperTable:
    """Return LM calls, tokens, tool calls and milliseconds per query, by step, over all benchmarks."""
    steps = dict.fromkeys(step for one in result.tasks for step in one.cost)
    rows: list[tuple[Cell, ...]] = []
    for step in steps:
        costs = [one.cost[step] for one in result.tasks if step in one.cost]
        n = sum(one.queries for one in costs) or 1
        small, large = sum(one.small_calls for one in costs) / n, sum(one.large_calls for one in costs) / n
        tokens, tools = sum(one.lm_tokens for one in costs) / n, sum(one.tool_calls for one in costs) / n
        rows.append((step, small, large, tokens, tools, 1000 * sum(one.seconds for one in costs) / n))
    columns = ("step", "small calls", "large calls", "LM tokens", "tool calls", "ms")
    return PaperTable("Cost", "Cost per query", columns, tuple(rows))
