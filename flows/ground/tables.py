"""The tables of GEAR's paper from a grounding's result, beside the paper's figures; and confusion and cost."""

from collections.abc import Mapping, Sequence

from flows.ground.metrics import GroundResult, mean
from flows.report.tables import Cell, ResultTable, percent
from toolformer_core.evaluate.figures import ANSWERS_GPT3, ANSWERS_GPT_J, GROUNDING, GROUNDING_BY_DEMONSTRATIONS
from toolformer_core.evaluate.queries import NO_TOOL
from toolformer_core.evaluate.statistics import Accuracy
from toolformer_core.tools.library import DISTRACTOR_PREFIX

# name, our figure of each benchmark, their mean, and the paper's figures by benchmark, if it has any
_Column = tuple[str, Sequence[Accuracy | None], float | None, Mapping[str, float] | None]


def grounding_tables(result: GroundResult) -> list[ResultTable]:
    """Return the paper's tables, a row per benchmark; those of answers if queries were answered."""
    tables = [_table_4(result)]
    if any(one.answered for one in result.tasks):
        setting = "the paper: chosen by GPT-Neo, answered by GPT-J"
        tables.append(_answers("GEAR Table 2", setting, result, ANSWERS_GPT_J, ("oracle",)))
        setting = "the paper: answered by GPT-3, Toolformer by GPT-J"
        tables.append(_answers("GEAR Table 3", setting, result, ANSWERS_GPT3, ()))
    return tables


def _table_4(result: GroundResult) -> ResultTable:
    own = {task: figures[task] for task, figures in GROUNDING_BY_DEMONSTRATIONS.items()}
    columns: list[_Column] = []
    for method, overall in result.mean.items():
        by_paper = [one.by_paper[method] for one in result.tasks]
        columns.append((method, by_paper, mean(by_paper), {"gear": GROUNDING, "cosine": own}.get(method)))
        columns.append((f"{method}, lenient", [one.chosen[method] for one in result.tasks], overall, None))
    title = "Right tool chosen, percent of queries"
    return _paper_table("GEAR Table 4", title, result, columns, _notes(result))


def _notes(result: GroundResult) -> tuple[str, ...]:
    notes = [
        _setting(result),
        "right by the paper's rule: WikiSearch for open questions, MultilingualQA for MLQA (- where the library lacks "
        "it); lenient: any tool that helps, also QA and MT",
    ]
    ranges = []
    for task in (one.task for one in result.tasks if one.task in GROUNDING_BY_DEMONSTRATIONS):
        others = [row[task] for name, row in GROUNDING_BY_DEMONSTRATIONS.items() if name != task]
        ranges.append(f"{task} {min(others):g} to {max(others):g}")
    if ranges:
        notes.append(
            "the paper's cosine is ART_cs with demonstrations of the same benchmark; with those of another: "
            + ", ".join(ranges)
        )
    return (*notes, *(_intervals(method, result) for method in result.mean))


def _setting(result: GroundResult) -> str:
    tools = f"of {len(result.tools)} tools, patterns {result.patterns}"
    return f"gear: gamma {result.gamma:g}, lambda {result.smoothing:g}, {tools}"


def _answers(
    name: str, setting: str, result: GroundResult, paper: Mapping[str, Mapping[str, float]], further: Sequence[str]
) -> ResultTable:
    means = {method: result.mean_answered[method] for method in (*paper, *further) if method in result.mean_answered}
    columns = [
        (method, [one.answered.get(method) for one in result.tasks], overall, paper.get(method))
        for method, overall in means.items()
    ]
    rule = "right by each benchmark's own rule; the paper's count every answer that holds a word of a gold answer"
    return _paper_table(name, f"Right answers, percent; {setting}", result, columns, (_setting(result), rule))


def _paper_table(
    name: str, title: str, result: GroundResult, columns: Sequence[_Column], notes: tuple[str, ...]
) -> ResultTable:
    tasks = [one.task for one in result.tasks]
    names = ["benchmark"]
    cells: list[list[Cell]] = [[*tasks, "mean"]]
    for column, ours, overall, paper in columns:
        names.append(column)
        cells.append([*(None if one is None else percent(one.value) for one in ours), percent(overall)])
        if paper is not None:
            names.append("paper")
            cells.append([*map(paper.get, tasks), None])
    return ResultTable(name, title, tuple(names), tuple(zip(*cells, strict=True)), notes=notes)


def _intervals(method: str, result: GroundResult) -> str:
    shares = ((one.task, one.by_paper[method]) for one in result.tasks)
    spans = (
        f"{task} {100 * one.low:.1f} to {100 * one.high:.1f}" if one.items else f"{task} -" for task, one in shares
    )
    return f"{method}, 95 %: {', '.join(spans)}"


def confusion_table(result: GroundResult) -> ResultTable:
    """Return how often each tool was chosen, by benchmark; all distractors are one row."""
    matrix = result.confusion["gear"]
    names = {tool: "distractors" if tool.startswith(DISTRACTOR_PREFIX) else tool for tool in (*result.tools, NO_TOOL)}
    counts = {name: dict.fromkeys(matrix, 0) for name in names.values()}
    for task, chosen in matrix.items():
        for tool, n in chosen.items():
            counts[names[tool]][task] += n
    rows: list[tuple[Cell, ...]] = [
        (name, *by_task.values()) for name, by_task in counts.items() if any(by_task.values())
    ]
    return ResultTable("Confusion", "Queries by the tool that gear chose", ("chosen tool", *matrix), tuple(rows))


def size_table(result: GroundResult) -> ResultTable:
    """Return the accuracy of choices among the first tools of the library, on queries that one of these fits."""
    methods = tuple(result.sizes[0].chosen) if result.sizes else ()
    rows = tuple((one.tools, one.queries, *(percent(one.chosen[m].value) for m in methods)) for one in result.sizes)
    title = "Right tool chosen by size of the library, percent"
    return ResultTable("Size", title, ("tools", "queries", *methods), rows)


def cost_table(result: GroundResult) -> ResultTable:
    """Return LM calls, tokens, tool calls and milliseconds per query, by step, over all benchmarks."""
    rows: list[tuple[Cell, ...]] = []
    for step in dict.fromkeys(step for one in result.tasks for step in one.cost):
        costs = [one.cost[step] for one in result.tasks if step in one.cost]
        n = sum(one.queries for one in costs) or 1
        names = ("small_calls", "large_calls", "lm_tokens", "tool_calls")
        counts = (sum(getattr(one, name) for one in costs) / n for name in names)
        rows.append((step, *counts, 1000 * sum(one.seconds for one in costs) / n))
    columns = ("step", "small calls", "large calls", "LM tokens", "tool calls", "ms")
    return ResultTable("Cost", "Cost per query", columns, tuple(rows))


def summary(result: GroundResult, *, costs: bool = True) -> str:
    """Return the tables of a grounding in Markdown."""
    tables = [*grounding_tables(result), confusion_table(result), *([cost_table(result)] if costs else ())]
    return "\n\n".join(f"## {table.title}\n{table.markdown()}" for table in tables)
