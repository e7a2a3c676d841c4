"""The paper's Tables 2 to 10, §4.2's shares of calls and the data of Figure 4, from the snapshot, beside the paper's.

Figures are those of the newest completed evaluation of each arm and k, in a task's column (in Table 9, a group of rows)
on the same number of items of the same file alone. A cell that nobody has measured is None.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.report.judging import judge
from flows.report.tables import Cell, ResultTable, percent
from toolformer_core.config import TOOL_NAMES
from toolformer_core.evaluate import figures
from toolformer_core.evaluate.tasks import EMBEDDED, task_named
from warehouse.errors import SnapshotError
from warehouse.queries import yield_by_threshold
from warehouse.queries.calls import nearest_call
from warehouse.queries.evaluations import accuracies, call_counts, evaluation_limits, perplexities
from warehouse.ratings import CallIdentity, Rating, standing

_ItemSet = tuple[str, int]  # name of the file of items ("": the task has its own items), and how many of its items

_TITLES = {
    2: "Examples with calls in C*, by filtering threshold",
    3: "LAMA, percent right",
    4: "Math word problems, percent right",
    5: "Question answering, percent right",
    6: "MLQA, percent right",
    7: "Temporal, percent right",
    8: "Perplexity, tools disabled",
    9: "Decoding with k: percent right of all, with a call (AC), without (NC), and percent with a call",
    10: "Calls by L- - L+ (nats): for each of the paper's, our call of the same tool with the nearest gain",
}
_CALLS = "Percent of items for which Toolformer calls each tool, k = 10"
_FIGURE_4 = "Mean percent right by model size: Toolformer with tools on and off; the base"
# (our arm, its k: 10, or 0 where tools are off) -> the paper's model; "" if the paper has none.
_ROWS = {
    ("base", 0): "gpt-j",
    ("cc", 0): "gpt-j + cc",
    ("toolformer-disabled", 0): "toolformer (disabled)",
    ("base+tools", 10): "",
    ("toolformer", 10): "toolformer",
}
_OTHER_MODELS = ("opt 66b", "gpt-3 175b")
_K = 10
_WORDING = (
    "the prompts of LAMA, TempLAMA and MLQA say what those of App. C say in words of our own, since no sentence of the "
    "paper is copied; results depend on the wording"
)
_REWORDED = (3, 6, 7)  # tables to which this applies
_THREE_TOOLS = (
    "the paper's models learnt and had QA, Calculator and WikiSearch alone; ours have the tools of their C* and "
    "evaluations, since the figure reads those of the tables: to compare, build and evaluate with "
    "--tools qa,calculator,wikisearch"
)
_JUDGED = "judged: what people's ratings say of our call; - is a call that nobody has rated (toolformer view)"


@dataclass(frozen=True, slots=True)
class _Measured:
    base: str
    data: str
    accuracy: dict[tuple[str, str, int], dict[str, Any]]  # (task, arm, k) -> row of the view, on the latest item set
    item_sets: dict[tuple[str, _ItemSet], dict[tuple[str, int], dict[str, Any]]]  # (task, items) -> (arm, k) -> row
    perplexity: list[dict[str, Any]]
    sizes: list[dict[str, Any]]  # rows of `accuracy` for all base models
    limits: dict[str, tuple[int | None, int | None]]  # evaluation -> limit and seed of its items

    def command(self, task: str, *options: str) -> str:
        """Return the command that measures a task on the items evaluated last, so that figures can be compared."""
        rows = (*self.accuracy.values(), *reversed(self.perplexity))
        last = next((row for row in rows if row["task"] == task), None)
        path = [] if task in ("dateset", *EMBEDDED) else ["--path", (last["path"] if last else "") or "PATH"]
        chosen = self.limits.get(last["evaluation"], (None, None)) if last else (None, None)
        named = zip(("--limit", "--seed"), chosen, strict=True)
        items = ["--task", task, *path, *(part for name, n in named if n is not None for part in (name, str(n)))]
        return shlex.join(["toolformer", "evaluate", *items, "--model", self.base, *options, "--data", self.data])


def paper_tables(
    snapshot: Path, data: str, model: str | None = None, ratings: Iterable[Rating] = ()
) -> list[ResultTable]:
    """Return all tables for one base model.

    Args:
        snapshot: path of the data folder's published snapshot; it need not exist.
        model: as it was named to `evaluate`, or its absolute path; default: the one evaluated last.
    """
    published = snapshot if snapshot.is_file() else None
    # as in the paper, of one call per item
    accuracy = [r for r in accuracies(published) if r["max_calls"] == 1] if published else []
    perplexity = perplexities(published) if published else []
    last = _last_of_model(model, [*accuracy, *perplexity])
    base, digest = (last["base"], last["base_digest"]) if last else (model or "embedded", "")
    model_accuracy = [r for r in accuracy if r["base_digest"] == digest]
    item_sets: dict[tuple[str, _ItemSet], dict[tuple[str, int], dict[str, Any]]] = {}
    for r in model_accuracy:
        item_sets.setdefault((r["task"], _item_set(r)), {})[r["arm"], r["k"]] = r  # the newest stays
    measured = _Measured(
        base=base,
        data=data,
        accuracy={(r["task"], r["arm"], r["k"]): r for r in _on_latest_item_sets(model_accuracy)},
        item_sets=item_sets,
        perplexity=[r for r in perplexity if r["base_digest"] == digest],
        sizes=accuracy,
        limits=evaluation_limits(published) if published else {},
    )
    return [
        _table_2(published, measured),
        *(_accuracy_table(number, measured) for number in sorted(figures.TABLES)),
        _call_rates(published, measured),
        _table_8(measured),
        _table_9(measured),
        _table_10(published, measured, ratings),
        _figure_4(measured),
    ]


def _item_set(row: Mapping[str, Any]) -> _ItemSet:
    return row["source"] or "", row["items"]


def _on_latest_item_sets(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each base model and task, the rows on the item set that was evaluated last; rows are oldest first."""
    latest = {(r["base_digest"], r["task"]): _item_set(r) for r in rows}
    return [r for r in rows if _item_set(r) == latest[r["base_digest"], r["task"]]]


def _last_of_model(model: str | None, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    names = {r["base"] for r in rows} if model is None else {model, str(Path(model).expanduser().absolute())}
    last = max((r for r in rows if r["base"] in names), key=lambda r: (r["run_number"], r["evaluated"]), default=None)
    if last is None and rows:
        known = ", ".join(sorted({r["base"] for r in rows}))
        raise SnapshotError(f"nothing has been evaluated for the base model {model!r}; there is: {known}")
    return last


def _has_gaps(rows: Sequence[Sequence[Cell]], columns: Iterable[int]) -> bool:
    return any(row[column] is None for row in rows for column in columns)


def _build_command(measured: _Measured) -> str:
    return shlex.join(["toolformer", "build", "--corpus", "PATH", "--model", measured.base, "--data", measured.data])


def _table_2(snapshot: Path | None, measured: _Measured) -> ResultTable:
    taus = (0.5, 1.0, 2.0)
    examples = {(y.tool, y.tau_f): y.examples for y in yield_by_threshold(snapshot)} if snapshot else {}
    columns = ("tool", *(name for tau in taus for name in (f"tau_f {tau}", "paper")))
    rows = tuple(
        (tool, *(cell for tau in taus for cell in (examples.get((tool, tau)), paper[tau])))
        for tool, paper in figures.EXAMPLES_BY_THRESHOLD.items()
    )
    missing = (_build_command(measured),) if _has_gaps(rows, (1, 3, 5)) else ()
    return ResultTable("Table 2", _TITLES[2], columns, rows, missing)


def _accuracy_table(number: int, measured: _Measured) -> ResultTable:
    paper = figures.TABLES[number]

    def row(name: str, ours: Mapping[str, Mapping[str, Any] | None], model: str) -> tuple[Cell, ...]:
        pairs = ((ours.get(task), paper[task].get(model)) for task in paper)
        return name, *(cell for own, figure in pairs for cell in (percent(own["accuracy"]) if own else None, figure))

    rows = [
        row(f"{arm}, k={k}" if k else arm, {task: measured.accuracy.get((task, arm, k)) for task in paper}, name)
        for (arm, k), name in _ROWS.items()
    ]
    rows += [row(name, {}, name) for name in _OTHER_MODELS if any(name in models for models in paper.values())]
    missing = []
    for task in paper:
        if arms := [arm for arm, k in _ROWS if (task, arm, k) not in measured.accuracy]:
            missing.append(measured.command(task, *(["--arms", ",".join(arms)] if len(arms) < len(_ROWS) else [])))
    # without the words that the table's title holds
    titles = [task_named(task).title.removeprefix("LAMA ").removeprefix("MLQA ") for task in paper]
    shown = ((task, arm, k) for task, arm, k in measured.accuracy if task in paper and (arm, k) in _ROWS)
    notes = [_describe_items(measured.accuracy[key]) for key in shown]
    sets = {(task, _item_set(r)) for (task, _, _), r in measured.accuracy.items()}
    notes += [
        f"{_describe_items(r)}, measured before: not shown"
        for (task, item_set), rows_by_arm in measured.item_sets.items()
        for key, r in rows_by_arm.items()
        if task in paper and key in _ROWS and (task, item_set) not in sets
    ]
    notes += [_WORDING] if number in _REWORDED else []
    columns = ("arm", *(name for title in titles for name in (title, "paper")))
    return ResultTable(
        f"Table {number}", _TITLES[number], columns, tuple(rows), tuple(missing), tuple(dict.fromkeys(notes))
    )


def _describe_items(row: Mapping[str, Any]) -> str:
    return f"{task_named(row['task']).title}: {row['items']:,} items of {row['source'] or 'its own'}"


def _call_rates(snapshot: Path | None, measured: _Measured) -> ResultTable:
    counts = call_counts(snapshot) if snapshot else {}
    rows: list[tuple[Cell, ...]] = []
    for name, paper in figures.CALL_RATES.items():
        tasks = list(figures.TABLES[figures.GROUPS[name]]) if name in figures.GROUPS else [name]
        ours = [r for task in tasks if (r := measured.accuracy.get((task, "toolformer", _K)))]
        items, called = sum(r["items"] for r in ours), sum(r["called"] for r in ours)
        number = {tool: sum(counts.get((r["evaluation"], tool), 0) for r in ours) for tool in TOOL_NAMES}
        number |= {"other": called - sum(number[tool] for tool in paper if tool in number), "none": items - called}
        title = name if name in figures.GROUPS else task_named(name).title
        measured_all = len(ours) == len(tasks)
        rows += [(title, tool, percent(number[tool] / items) if measured_all else None, paper[tool]) for tool in paper]
    missing = ("run the arm toolformer of the missing tasks of Tables 3 to 7",) if _has_gaps(rows, (2,)) else ()
    return ResultTable("§4.2", _CALLS, ("tasks", "tool", "calls", "paper"), tuple(rows), missing, (_WORDING,))


def _table_8(measured: _Measured) -> ResultTable:
    """Return Table 8: one row per text. `measured_text` says which of our texts is one of the paper's."""
    arms = {"base": "gpt-j", "cc": "gpt-j + cc", "toolformer-disabled": "toolformer (disabled)"}
    ours: dict[str, dict[str, float]] = {}  # name of a row -> arm -> perplexity
    texts: dict[str, str] = {}  # name of a row -> the paper's text that it is, or ""
    for r in measured.perplexity:
        name = r["source"] or "the hub's"
        ours.setdefault(name, {})[r["arm"]] = r["perplexity"]
        texts[name] = texts.get(name) or figures.measured_text(r["task"], r["source"] or "")
    for text in figures.PERPLEXITY:
        if text not in texts.values():
            ours[text], texts[text] = {}, text
    rows: list[tuple[Cell, ...]] = []
    for row_name, by_arm in ours.items():
        paper = figures.PERPLEXITY.get(texts[row_name], {})
        rows.append((row_name, *(cell for arm, name in arms.items() for cell in (by_arm.get(arm), paper.get(name)))))
    missing = (measured.command("wikitext"),) if _has_gaps(rows, (1, 3, 5)) else ()
    columns = ("text", *(name for arm in arms for name in (arm, "paper")))
    return ResultTable("Table 8", _TITLES[8], columns, tuple(rows), missing)


def _table_9(measured: _Measured) -> ResultTable:
    """Return Table 9: the arm toolformer by k, a group of rows for each item set; k = 0 is the same model disabled."""
    tasks = dict.fromkeys([*figures.DECODING, *(task for task, _ in measured.item_sets)])
    by_task = {task: _rows_by_k(measured, task) for task in tasks}
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for task, groups in by_task.items():
        for by_k in groups or ([{}] if task in figures.DECODING else []):
            items = next((_describe_items(r) for r in by_k.values()), "")
            name = task_named(task).title if len(groups) < 2 else items
            notes += [items] if items else []
            rows += _decoding_rows(name, by_k, figures.DECODING.get(task, {}))
    missing = [
        measured.command(task, "--k", "0,1,3,10", "--arms", "toolformer")
        for task in figures.DECODING
        if not any(by_k.keys() >= {0, 1, 3, 10} for by_k in by_task[task])
    ]
    columns = ("task", "k", "all", "paper", "AC", "paper", "NC", "paper", "calls", "paper")
    return ResultTable("Table 9", _TITLES[9], columns, tuple(rows), tuple(missing), (*notes, _WORDING))


def _rows_by_k(measured: _Measured, task: str) -> list[dict[int, dict[str, Any]]]:
    """Return k -> row for each item set; of the paper's tasks, an evaluation with tools disabled is enough."""
    groups = [by_arm for (group_task, _), by_arm in measured.item_sets.items() if group_task == task]
    return [
        {k: row for (arm, k), row in by_arm.items() if arm == ("toolformer" if k else "toolformer-disabled")}
        for by_arm in groups
        if any(arm == "toolformer" or (arm == "toolformer-disabled" and task in figures.DECODING) for arm, _ in by_arm)
    ]


def _decoding_rows(
    name: str, by_k: Mapping[int, Mapping[str, Any]], paper: Mapping[int, tuple[float | None, ...]]
) -> list[tuple[Cell, ...]]:
    shares = ("accuracy", "accuracy_called", "accuracy_uncalled", "call_rate")
    rows: list[tuple[Cell, ...]] = []
    for k in sorted({0, 1, 3, 10, *by_k}):
        ours = (percent(by_k.get(k, {}).get(share)) for share in shares)
        pairs = zip(ours, paper.get(k, (None,) * 4), strict=True)
        rows.append((name, k, *(cell for pair in pairs for cell in pair)))
    return rows


def _table_10(snapshot: Path | None, measured: _Measured, ratings: Iterable[Rating]) -> ResultTable:
    verdicts = standing(ratings)
    rows: list[tuple[Cell, ...]] = []
    for tool, gain in figures.GAINS:
        nearest = nearest_call(snapshot, tool, gain) if snapshot else None
        ours: tuple[Cell, ...] = (None, None, None)
        if nearest is not None:
            call = f"[{TOOL_NAMES[tool]}({nearest.input}) -> {nearest.response}]"
            identity = CallIdentity(nearest.doc_id, tool, nearest.position, nearest.input, nearest.response)
            judged = judge(verdicts[identity].values()) if identity in verdicts else None
            ours = (nearest.gain, judged, " ".join(f"…{nearest.before.rstrip()} {call}{nearest.after}…".split()))
        rows.append((tool, gain, *ours))
    columns = ("tool", "paper", "ours", "judged", "our call")
    missing = (_build_command(measured),) if _has_gaps(rows, (2,)) else ()
    return ResultTable("Table 10", _TITLES[10], columns, tuple(rows), missing, (_JUDGED,))


def _figure_4(measured: _Measured) -> ResultTable:
    newest = {(r["parameters"], r["task"], r["arm"], r["k"]): r for r in _on_latest_item_sets(measured.sizes)}

    def mean(size: int, number: int, arm: str, k: int) -> Cell:
        tasks = figures.TABLES[number]
        right: list[float] = [newest[key]["accuracy"] for task in tasks if (key := (size, task, arm, k)) in newest]
        return 100 * sum(right) / len(right) if len(right) == len(tasks) else None

    sizes = sorted({r["parameters"] for r in measured.sizes})
    arms = (("toolformer", _K), ("toolformer-disabled", 0), ("base", 0))
    rows = tuple((size, *(mean(size, n, *arm) for n in figures.GROUPS.values() for arm in arms)) for size in sizes)
    columns = ("parameters", *(f"{group} {name}" for group in figures.GROUPS for name in ("on", "off", "base")))
    paper_sizes = ", ".join(f"{n / 1e6:,.0f} M" for n in figures.MODEL_SIZES)
    note = (
        f"the paper's sizes: {paper_sizes}; it gives its points in a picture only, and says that tools start to help "
        f"at about {figures.TOOLS_PAY_FROM / 1e6:,.0f} M"
    )
    has_gaps = _has_gaps(rows or [(None,) * len(columns)], range(1, len(columns)))
    missing = ("run the missing tasks of Tables 3 to 5 with models of several sizes",) if has_gaps else ()
    return ResultTable("Figure 4", _FIGURE_4, columns, rows, missing, (note, _THREE_TOOLS, _WORDING))
