"""The paper's Tables 2 to 10 and the data of Figure 4, from the snapshot, beside the paper's own figures.

Figures come from completed evaluations alone, the newest of each arm and k; a cell that nobody has measured is None
("-" in print), and its table says which commands would measure it. Figures of other items are never set side by side:
of a task, a column (and a group of rows in Table 9) is of one file's items, so many of them. Nothing is computed here
that a view does not hold, but for means over tasks in Figure 4.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolformer_core.config import TOOL_NAMES
from toolformer_core.evaluate.figures import (
    DECODING,
    EXAMPLES_BY_THRESHOLD,
    GAINS,
    MODEL_SIZES,
    PERPLEXITY,
    TABLES,
    measured_text,
)
from toolformer_core.evaluate.tasks import EMBEDDED, task_named
from warehouse.errors import SnapshotError
from warehouse.queries import accuracies, evaluation_limits, nearest_call, perplexities, yield_by_threshold

__all__ = ["PaperTable", "paper_tables"]

Cell = str | int | float | None
_Asked = tuple[str, int]  # the items that were asked: the file's name ("": the task's own), and how many of it

_TITLES = {
    2: "Examples with calls in C*, by filtering threshold",
    3: "LAMA, percent right",
    4: "Math word problems, percent right",
    5: "Question answering, percent right",
    6: "MLQA, percent right",
    7: "Temporal, percent right",
    8: "Perplexity, tools disabled",
    9: "Decoding with k: percent right of all, with a call (AC), without (NC), and percent with a call",
    10: "Calls by L- - L+ (nats): for each of the paper's, ours of the same tool that is nearest",
}
_FIGURE_4 = "Mean percent right by model size: Toolformer with tools on and off; the base"
# Arm of ours at k = 10, or 0 where tools are off -> the paper's model.
_ROWS = {
    ("base", 0): "gpt-j",
    ("cc", 0): "gpt-j + cc",
    ("toolformer-disabled", 0): "toolformer (disabled)",
    ("base+tools", 10): "",
    ("toolformer", 10): "toolformer",
}
_OTHERS = ("opt 66b", "gpt-3 175b", "gpt-j, all english", "gpt-3, all english")
_K = 10
_GROUPS = {"LAMA": 3, "math": 4, "QA": 5}  # Figure 4: the tasks of which tables


@dataclass(frozen=True, slots=True)
class PaperTable:
    """One table; the first columns name a row, then figures come in pairs: ours, the paper's."""

    name: str  # "Table 3"
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    missing: tuple[str, ...] = ()  # commands that would fill the cells nobody has measured
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class _Measured:
    """What the snapshot holds of one base model."""

    base: str
    data: str
    accuracy: dict[tuple[str, str, int], dict[str, Any]]  # task, arm, k -> row of the view, of the items asked last
    items: dict[tuple[str, _Asked], dict[tuple[str, int], dict[str, Any]]]  # task and items -> arm, k -> row
    perplexity: list[dict[str, Any]]
    sizes: list[dict[str, Any]]  # rows of `accuracy` of all base models
    limits: dict[str, int | None]  # on the items of an evaluation, by its name

    def command(self, task: str, *more: str) -> str:
        """Return the command that measures a task: on the items that were asked last, so that figures compare."""
        rows = (*self.accuracy.values(), *reversed(self.perplexity))
        last = next((row for row in rows if row["task"] == task), None)
        path = [] if task in ("dateset", *EMBEDDED) else ["--path", (last["path"] if last else "") or "PATH"]
        limit = self.limits.get(last["evaluation"]) if last else None
        cut = [] if limit is None else ["--limit", str(limit)]
        asked = ["--task", task, *path, *cut]
        return shlex.join(["toolformer", "evaluate", *asked, "--model", self.base, *more, "--data", self.data])


def paper_tables(snapshot: Path, data: str, model: str | None = None) -> list[PaperTable]:
    """Return all tables for one base model.

    Args:
        snapshot: published in the data folder; there need not be one.
        data: the data folder, for the commands.
        model: the base model as `evaluate` was told it, or its whole path; default: the one evaluated last.

    Raises:
        SnapshotError: it cannot be read, or nothing of this model was evaluated.
    """
    there = snapshot.is_file()
    accuracy = accuracies(snapshot) if there else []
    perplexity = perplexities(snapshot) if there else []
    own = _named(model, [*accuracy, *perplexity])
    base = own[-1]["base"] if own else (model or "embedded")
    digest = own[-1]["base_digest"] if own else ""
    mine = [r for r in accuracy if r["base_digest"] == digest]
    items: dict[tuple[str, _Asked], dict[tuple[str, int], dict[str, Any]]] = {}
    for r in mine:
        items.setdefault((r["task"], _asked(r)), {})[r["arm"], r["k"]] = r  # the newest stays
    measured = _Measured(
        base=base,
        data=data,
        accuracy={(r["task"], r["arm"], r["k"]): r for r in _of_last_items(mine)},
        items=items,
        perplexity=[r for r in perplexity if r["base_digest"] == digest],
        sizes=accuracy,
        limits=evaluation_limits(snapshot) if there else {},
    )
    return [
        _table_2(snapshot if there else None, measured),
        *(_accuracies(number, measured) for number in sorted(TABLES)),
        _table_8(measured),
        _table_9(measured),
        _table_10(snapshot if there else None, measured),
        _figure_4(measured),
    ]


def _asked(row: Mapping[str, Any]) -> _Asked:
    return row["source"] or "", row["items"]


def _of_last_items(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return of every base model's rows on a task, oldest first, those of the items that it was asked last."""
    last = {(r["base_digest"], r["task"]): _asked(r) for r in rows}
    return [r for r in rows if _asked(r) == last[r["base_digest"], r["task"]]]


def _named(model: str | None, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a base model, oldest first."""
    rows = sorted(rows, key=lambda r: r["evaluated"])
    if model is None:
        return rows
    wanted = {model, str(Path(model).expanduser().absolute())}
    own = [r for r in rows if r["base"] in wanted]
    if not own and rows:
        known = ", ".join(sorted({r["base"] for r in rows}))
        raise SnapshotError(f"nothing has been evaluated for the base model {model!r}; there is: {known}")
    return own


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _lacking(rows: Sequence[Sequence[Cell]], ours: Iterable[int]) -> bool:
    return any(row[at] is None for row in rows for at in ours)


def _table_2(snapshot: Path | None, measured: _Measured) -> PaperTable:
    taus = (0.5, 1.0, 2.0)
    found = {(y.tool, y.tau_f): y.examples for y in yield_by_threshold(snapshot, taus)} if snapshot else {}
    columns = ("tool", *(name for tau in taus for name in (f"tau_f {tau}", "paper")))
    rows = tuple(
        (tool, *(cell for tau in taus for cell in (found.get((tool, tau)), paper[tau])))
        for tool, paper in EXAMPLES_BY_THRESHOLD.items()
    )
    build = shlex.join(["toolformer", "build", "--corpus", "PATH", "--model", measured.base, "--data", measured.data])
    return PaperTable("Table 2", _TITLES[2], columns, rows, (build,) if _lacking(rows, (1, 3, 5)) else ())


def _accuracies(number: int, measured: _Measured) -> PaperTable:
    """Tables 3 to 7: a row per arm, a pair of columns per task."""
    paper = TABLES[number]

    def row(arm: str, k: int, name: str) -> tuple[Cell, ...]:
        pairs = ((measured.accuracy.get((task, arm, k)), paper[task].get(name)) for task in paper)
        return (
            f"{arm}, k={k}" if k else arm,
            *(c for r, told in pairs for c in (_percent(r["accuracy"]) if r else None, told)),
        )

    rows = [row(arm, k, name) for (arm, k), name in _ROWS.items()]
    rows += [
        (name, *(cell for task in paper for cell in (None, paper[task].get(name))))
        for name in _OTHERS
        if any(name in models for models in paper.values())
    ]
    missing = [
        measured.command(task, *_finetuned(measured, lacking))
        for task in paper
        if (lacking := [arm for arm, k in _ROWS if (task, arm, k) not in measured.accuracy])
    ]
    columns = ("arm", *(name for task in paper for name in (_short(task), "paper")))
    notes = [_about(r) for r in measured.accuracy.values() if r["task"] in paper and (r["arm"], r["k"]) in _ROWS]
    notes += [
        f"{_about(r)}, asked before: not shown"
        for (task, asked), own in measured.items.items()
        for key, r in own.items()
        if task in paper and key in _ROWS and asked not in _shown_items(measured, task)
    ]
    return PaperTable(
        f"Table {number}", _TITLES[number], columns, tuple(rows), tuple(missing), tuple(dict.fromkeys(notes))
    )


def _shown_items(measured: _Measured, task: str) -> set[_Asked]:
    return {_asked(r) for (own, _, _), r in measured.accuracy.items() if own == task}


def _short(task: str) -> str:
    """A title without what the table's own says already."""
    return task_named(task).title.removeprefix("LAMA ").removeprefix("MLQA ")


def _finetuned(measured: _Measured, lacking: Sequence[str]) -> list[str]:
    """Arms need not be named where their models are there; where the base stands, only others are lacking."""
    return ["--arms", ",".join(lacking)] if len(lacking) < len(_ROWS) else []


def _about(row: Mapping[str, Any]) -> str:
    return f"{task_named(row['task']).title}: {row['items']:,} items of {row['source'] or 'its own'}"


def _table_8(measured: _Measured) -> PaperTable:
    """One row per text; which of them are the paper's, `measured_text` tells."""
    arms = {"base": "gpt-j", "cc": "gpt-j + cc", "toolformer-disabled": "toolformer (disabled)"}
    found: dict[str, dict[str, float]] = {}
    texts: dict[str, str] = {}  # what a row is called -> the paper's text that it is, or ""
    for r in measured.perplexity:
        name = r["source"] or "the hub's"
        found.setdefault(name, {})[r["arm"]] = r["perplexity"]
        texts[name] = texts.get(name) or measured_text(r["task"], r["source"] or "")
    rows: list[tuple[Cell, ...]] = []
    for source, own in found.items():
        paper = PERPLEXITY.get(texts[source], {})
        rows.append((source, *(c for arm, name in arms.items() for c in (own.get(arm), paper.get(name)))))
    for text, figures in PERPLEXITY.items():
        if text not in texts.values():
            rows.append((text, *(c for name in arms.values() for c in (None, figures[name]))))
    missing = (measured.command("wikitext"),) if _lacking(rows, (1, 3, 5)) else ()
    columns = ("text", *(name for arm in arms for name in (arm, "paper")))
    return PaperTable("Table 8", _TITLES[8], columns, tuple(rows), missing)


def _table_9(measured: _Measured) -> PaperTable:
    """The arm toolformer; k = 0 is the same model disabled. Behind the paper's two tasks, all others that were run.

    A task has a group of rows for each set of items it was asked; where there are several, each names its own.
    """
    run = {task: _decoded(measured, task) for task in dict.fromkeys([*DECODING, *(task for task, _ in measured.items)])}
    run = {task: groups for task, groups in run.items() if groups or task in DECODING}
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for task, groups in run.items():
        for own in groups or [{}]:
            about = next((_about(r) for r in own.values()), "")
            name = task_named(task).title if len(groups) < 2 else about
            notes += [about] if about else []
            rows += _decoding_rows(name, own, DECODING.get(task, {}))
    missing = [
        measured.command(task, "--k", "0,1,3,10", "--arms", "toolformer")
        for task in DECODING
        if not any(own.keys() >= {0, 1, 3, 10} for own in run[task])
    ]
    columns = ("task", "k", "all", "paper", "AC", "paper", "NC", "paper", "calls", "paper")
    return PaperTable("Table 9", _TITLES[9], columns, tuple(rows), tuple(missing), tuple(notes))


def _decoded(measured: _Measured, task: str) -> list[dict[int, dict[str, Any]]]:
    """Return k -> row for each set of items that Toolformer was asked; of the paper's tasks, if only disabled, too."""
    groups = [own for (name, _), own in measured.items.items() if name == task]
    return [
        {k: row for (arm, k), row in own.items() if arm == ("toolformer" if k else "toolformer-disabled")}
        for own in groups
        if any(arm == "toolformer" or (arm == "toolformer-disabled" and task in DECODING) for arm, _ in own)
    ]


def _decoding_rows(
    name: str, own: Mapping[int, Mapping[str, Any]], paper: Mapping[int, tuple[float | None, ...]]
) -> list[tuple[Cell, ...]]:
    figures = ("accuracy", "accuracy_called", "accuracy_uncalled", "call_rate")
    out: list[tuple[Cell, ...]] = []
    for k in sorted({0, 1, 3, 10, *own}):
        ours = (_percent(own.get(k, {}).get(figure)) for figure in figures)
        pairs = zip(ours, paper.get(k, (None,) * 4), strict=True)
        out.append((name, k, *(cell for pair in pairs for cell in pair)))
    return out


def _table_10(snapshot: Path | None, measured: _Measured) -> PaperTable:
    rows: list[tuple[Cell, ...]] = []
    for tool, gain in GAINS:
        near = nearest_call(snapshot, tool, gain) if snapshot else None
        shown: tuple[Cell, ...] = (None, None)
        if near is not None:
            call = f"[{TOOL_NAMES[tool]}({near.input}) -> {near.response}]"
            shown = (near.gain, " ".join(f"…{near.before.rstrip()} {call}{near.after}…".split()))
        rows.append((tool, gain, *shown))
    build = shlex.join(["toolformer", "build", "--corpus", "PATH", "--model", measured.base, "--data", measured.data])
    columns = ("tool", "paper", "ours", "our call")
    return PaperTable("Table 10", _TITLES[10], columns, tuple(rows), (build,) if _lacking(rows, (2,)) else ())


def _figure_4(measured: _Measured) -> PaperTable:
    """Per model size and group of tasks, the mean accuracy of Toolformer with tools and without."""
    newest = {(r["parameters"], r["task"], r["arm"], r["k"]): r for r in _of_last_items(measured.sizes)}

    def mean(size: int, number: int, arm: str, k: int) -> Cell:
        found = [newest.get((size, task, arm, k)) for task in TABLES[number]]
        known = [r["accuracy"] for r in found if r is not None]
        return 100 * sum(known) / len(known) if len(known) == len(found) else None  # of all tasks, or none

    sizes = sorted({r["parameters"] for r in measured.sizes})
    arms = (("toolformer", _K), ("toolformer-disabled", 0), ("base", 0))
    rows = tuple((size, *(mean(size, n, *arm) for n in _GROUPS.values() for arm in arms)) for size in sizes)
    names = ("on", "off", "base")
    columns = ("parameters", *(f"{group} {name}" for group in _GROUPS for name in names))
    listed = ", ".join(f"{n / 1e6:,.0f} M" for n in MODEL_SIZES)
    note = f"the paper's sizes: {listed}; its points stand in a picture alone"
    missing = ("run the missing tasks of Tables 3 to 5 with models of several sizes",) if _lacking(
        rows or [(None,) * len(columns)], range(1, len(columns))
    ) else ()  # fmt: skip
    return PaperTable("Figure 4", _FIGURE_4, columns, rows, missing, (note,))
