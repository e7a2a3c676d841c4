"""What a person sees: progress while a build runs, its summary, and the answers of the commands as tables.

It prints and knows nothing else: figures come from the warehouse's queries, as plain records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from toolformer_core.config import TOOL_NAMES
from toolformer_core.records import Call
from toolformer_core.syntax import linearize
from toolformer_core.tools.base import Tool
from warehouse import queries
from warehouse.commits import Dataset

if TYPE_CHECKING:
    from flows.build_dataset import BuildResult
    from tasks.shards import Done

__all__ = [
    "BuildDisplay",
    "print_datasets",
    "print_explanation",
    "print_stats",
    "print_summary",
    "print_tools",
]


class BuildDisplay:
    """Progress per stage: bars on a terminal, a line per finished stage elsewhere.

    Args:
        quiet: show nothing (for `--json`).
    """

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self.bars = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.rows: dict[str, TaskID] = {}
        self.skipped: dict[str, int] = {}
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> BuildDisplay:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was."""
        self.bars.stop()

    def __call__(self, stage: str, finished: int, total: int, done: Done) -> None:
        """Show that one more shard of a stage is finished."""
        self.skipped[stage] = self.skipped.get(stage, 0) + done.skipped
        self.seconds[stage] = self.seconds.get(stage, 0.0) + (0.0 if done.skipped else done.seconds)
        note = f"{self.skipped[stage]} found done" if self.skipped[stage] else ""
        if self.console.is_terminal:
            if stage not in self.rows:
                self.rows[stage] = self.bars.add_task(stage, total=total, note="")
            self.bars.update(self.rows[stage], completed=finished, total=total, note=note)
        elif finished == total or finished * 4 // total > (finished - 1) * 4 // total:
            note = f" ({note})" if note else ""
            self.console.print(f"{stage:<10} {finished:>4}/{total:<4} {self.seconds[stage]:7.1f} s of work{note}")


def print_summary(result: BuildResult) -> None:
    """Print what a build gave: balances, the yield at three thresholds, three calls and where things are."""
    console = Console()
    print_stats(queries.stats(result.snapshot))
    shown = queries.samples(result.snapshot, 3)
    if shown:
        console.print("\n[bold]Three of its calls[/bold] (the most helpful ones, with L- - L+ in nats)")
    for s in shown:
        before, after = escape(s.before.replace("\n", " ")), escape(s.after.replace("\n", " "))
        call = escape(linearize(Call(TOOL_NAMES.get(s.tool, s.tool), s.input), s.response))
        console.print(
            f"  {s.gain:+.2f}  …{before}[bold cyan]{call}[/bold cyan]{after}…", soft_wrap=True, highlight=False
        )
    kept = ", ".join(f"{tool} {n:,}" for tool, n in result.counts.items())
    console.print(
        f"\nC* is dataset [bold]{escape(result.dataset)}@{result.version}[/bold]: "
        f"{result.examples:,} documents with calls ({kept})",
        highlight=False,
    )
    if result.done == 0:
        console.print(f"Nothing was left to do: all {result.skipped} shards were found done, no model was loaded.")
    else:
        found = f", {result.skipped} found done" if result.skipped else ""
        console.print(f"{result.done} shards worked on{found}, {result.seconds:.0f} s.")
    console.print(f'Ask it anything: duckdb {result.snapshot} "SELECT * FROM yield_by_threshold"', soft_wrap=True)


def print_stats(found: queries.Stats) -> None:
    """Print where the rows of every stage went, and the yield per tool and threshold."""
    console = Console()
    table = Table(title="Rows: in = kept + dropped + failed")
    for name in ("stage", "tool", "unit"):
        table.add_column(name)
    table.add_column("in", justify="right")
    table.add_column("kept", justify="right")
    table.add_column("dropped and failed, by reason")
    for b in found.balances:
        reasons = [f"{reason} {n:,}" for reason, n in (*b.dropped.items(), *b.failed.items())]
        flag = "" if b.conserved else "  [red]does not add up[/red]"
        table.add_row(b.stage, b.tool, b.unit, f"{b.rows_in:,}", f"{b.kept:,}", ", ".join(reasons) + flag)
    console.print(table)
    thresholds = sorted({y.tau_f for y in found.yields})
    table = Table(title="Examples with calls, by filtering threshold")
    table.add_column("tool")
    for tau in thresholds:
        table.add_column(f"tau_f {tau:.1f}", justify="right")
    by_tool: dict[str, dict[float, int]] = {}
    for y in found.yields:
        by_tool.setdefault(y.tool, {})[y.tau_f] = y.examples
    for tool, row in by_tool.items():
        table.add_row(tool, *(f"{row.get(tau, 0):,}" for tau in thresholds))
    console.print(table)


def print_explanation(found: queries.Explanation) -> None:
    """Print one document's path through the stages."""
    console = Console()
    if found.document is not None:
        console.print(f"[bold]{found.document['doc_id']}[/bold]  {escape(str(found.document['url'] or ''))}")
        console.print(escape(found.document["text"]), highlight=False)
    for title, rows in (
        ("prefilter", found.prefiltered),
        ("sampled", found.sampled),
        ("executed", found.executed),
        ("scored", found.scored),
    ):
        _print_rows(console, title, rows)
    for example in found.examples:
        console.print("\n[bold]in C*[/bold]")
        console.print(escape(example["text"]), highlight=False)


def _print_rows(console: Console, title: str, rows: Sequence[dict[str, object]]) -> None:
    if not rows:
        console.print(f"\n[bold]{title}[/bold]: nothing")
        return
    columns = [name for name in rows[0] if name != "doc_id"]
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name)
    for row in rows:
        cells = (row[name] for name in columns)
        table.add_row(*(f"{c:.3f}" if isinstance(c, float) else escape(str(c)) for c in cells))
    console.print(table)


def print_datasets(found: Iterable[Dataset]) -> None:
    """Print the cards of dataset versions, newest last; what `export` is to be given stands on a line of its own."""
    console = Console()
    for d in found:
        console.print(f"[bold]{escape(d.name)}@{d.version}[/bold]  {d.created[:19]}", highlight=False, soft_wrap=True)
        kept = ", ".join(f"{tool} {n:,} (tau_f {d.thresholds.get(tool, 0):g})" for tool, n in d.counts.items())
        card = {"examples": kept, "model": d.model, "corpus": d.corpus, "licence": d.licence, "run": d.run_id}
        for name, value in card.items():
            if value:
                console.print(f"  {name:<9} {escape(value)}", highlight=False, soft_wrap=True)


def print_tools(tools: Iterable[Tool]) -> None:
    """Print the tools by name."""
    table = Table()
    for name in ("name", "in a call", "what it does"):
        table.add_column(name)
    for tool in tools:
        table.add_row(tool.key, tool.name, escape(tool.description))
    Console().print(table)
