"""Shows progress while a flow runs, and prints summaries of its results.

It only prints: figures come from the warehouse's queries, as plain records.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.render.console import Console, Display, counted, narrow_table, shards_line
from flows.report.commands import sql_command
from flows.runtime.progress import LINE_S, Pulse, StageProgress, duration, passes_quarter
from toolformer_core.config import TOOL_NAMES
from toolformer_core.syntax import written_calls
from warehouse.queries import builds, calls

if TYPE_CHECKING:
    from cli.commands.recipe import DemoRow
    from flows.build_dataset.flow import BuildResult
    from flows.finetune.flow import FinetuneResult
    from tasks.shards.run_shard import ShardResult


def _columns() -> Iterable[ProgressColumn]:
    note = TextColumn("{task.fields[note]}")
    return TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), note


class BuildDisplay(Display):
    """Shows the progress of each stage: bars on a terminal, elsewhere the lines of `flows.runtime.progress`."""

    def __init__(
        self, quiet: bool = False, clock: Callable[[], float] = time.monotonic, pulse: Pulse | None = None
    ) -> None:
        super().__init__(*_columns(), TimeElapsedColumn(), quiet=quiet, clock=clock)
        self.rows: dict[str, TaskID] = {}
        self.stages: dict[str, StageProgress] = {}
        self.started: dict[str, float] = {}  # by `clock`
        self.finished: dict[str, int] = {}  # stage -> its finished shards, when one was last reported
        self.totals: dict[str, int] = {}  # stage -> all its shards; the stage that finished a shard last is last
        self.last_change = clock()  # when a shard finished, or a stage began
        self.pulse = pulse or Pulse()

    def __call__(self, stage: str, finished: int, total: int, result: ShardResult) -> None:
        """Show that one more shard of a stage is finished."""
        with self.lines.lock:
            self.last_change = self.clock()
            if finished <= self.finished.get(stage, 0):  # the stage begins anew in another flow, e.g. the next round's
                for of_stage in (self.stages, self.started, self.totals):
                    of_stage.pop(stage, None)
            self.finished[stage] = finished
            progress = self.stages.setdefault(stage, StageProgress())
            progress.note(result)
            if self.console.is_terminal:
                note = f"{progress.skipped} found done" if progress.skipped else ""
                if stage not in self.rows:
                    self.rows[stage] = self.bars.add_task(stage, total=total, note="")
                self.bars.update(self.rows[stage], completed=finished, total=total, note=note)
                return
            first = stage not in self.started
            self.started.setdefault(stage, self.last_change - (0.0 if result.skipped else result.seconds))
            self.totals.pop(stage, None)
            self.totals[stage] = total
            if first or passes_quarter(finished - 1, finished, total):
                self.lines.say(self._stage_line(stage))

    def _stage_line(self, stage: str) -> str:
        elapsed = self.clock() - self.started[stage]
        return f"{stage:<10} {self.stages[stage].line(self.totals[stage], elapsed)}; {duration(elapsed)} so far"

    def _due_lines(self, due: bool) -> list[str]:
        """Return a line per newly begun stage; else, if one is due, a line on the last stage and the work under way."""
        new_shards = [shard for shard in self.pulse.stages() if shard.stage not in self.started]
        for shard in new_shards:
            self.started[shard.stage] = self.last_change = shard.started
        if new_shards or not due:
            return [
                f"{shard.stage:<10} begun with {' '.join(filter(None, (shard.tool, shard.shard)))}"
                for shard in new_shards
            ]
        unfinished = [stage for stage, total in self.totals.items() if self.stages[stage].finished < total]
        idle_s = self.clock() - self.last_change
        activity = self.pulse.line() or (f"no shard has finished for {duration(idle_s)}" if idle_s >= LINE_S else "")
        line = "; ".join(filter(None, (*map(self._stage_line, unfinished[-1:]), activity)))
        return [line] if line else []


class TrainingDisplay(Display):
    """Shows trainings' progress from their events: a bar each on a terminal; else a line a minute and an evaluation."""

    def __init__(
        self, names: Sequence[str], steps: int, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(*_columns(), quiet=quiet, clock=clock)
        self.names = names
        self.rows = [self.bars.add_task(name or "training", total=steps, note="starting") for name in names]
        self.steps = steps
        self.status = dict.fromkeys(range(len(names)), "starting")  # of each running training
        self.last_event = [clock()] * len(names)  # the time of each training's last event

    def _print(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)

    def __call__(self, index: int, event: Mapping[str, Any]) -> None:
        """Show one event of one training."""
        with self.lines.lock:
            self.last_event[index] = self.clock()
            self._show(index, event)

    def _name_column(self, index: int) -> str:
        return f"{self.names[index]:<10} " if self.names[index] else ""

    def _show(self, index: int, event: Mapping[str, Any]) -> None:
        name = self._name_column(index)
        match event["event"]:
            case "started":
                weights = f"{event['trainable']:,} of {event['parameters']:,} weights"
                texts = f"{event['train_examples']:,} texts of {event['train_tokens']:,} tokens"
                devices = f"{event['world_size']} x {event['device']}, {event['engine']}"
                resumed = f", from step {event['from_step']}" if event["from_step"] else ""
                self.lines.say(f"{name}{weights}, {texts}, {devices}{resumed}")
                self.status[index] = "started"
            case "step":
                time_left = f"{event['eta_s']:,.0f} s left"
                note = f"loss {event['loss']:.3f}  {event['tokens_per_second']:,.0f} tokens/s  {time_left}"
                self.bars.update(self.rows[index], completed=event["step"], note=note)
                self.status[index] = f"step {event['step']:>6,} of {self.steps:,}  {note}"
            case "evaluated":
                self.lines.say(f"{name}step {event['step']:>6,}  dev perplexity {event['perplexity']:.3f}")
            case "damaged":
                self.lines.say(f"[yellow]{name}the checkpoint at step {event['step']:,} is damaged, see log.txt[/]")
            case "waiting":
                self.status[index] = f"queued: {escape(event['reason'] or 'no reason given')}"
                self.lines.say(f"{name}{self.status[index]}")
            case "retried":
                self.lines.say(f"[yellow]{name}another attempt begins: {escape(event['message'])}[/]")
            case "failed":
                self.lines.say(f"[red]{name}attempt failed ({event['reason']}): {escape(event['message'])}[/red]")
            case "finished" | "stopped":
                self.status.pop(index, None)

    def _due_lines(self, due: bool) -> list[str]:
        """Return, if a line is due, each running training's status, and how long it has sent no event."""
        if not due:
            return []
        silence_s = {index: self.clock() - self.last_event[index] for index in self.status}
        notes = {index: f"; nothing new for {duration(s)}" if s >= LINE_S else "" for index, s in silence_s.items()}
        return [f"{self._name_column(index)}{status}{notes[index]}" for index, status in self.status.items()]


def print_finetune_result(result: FinetuneResult) -> None:
    """Print the result of a training."""
    from flows.finetune.flow import training_rows

    console = Console()
    table = Table(show_header=False)
    for name, value in training_rows(result):
        table.add_row(name, escape(value))
    console.print(table)
    if result.skipped:
        console.print("Nothing was left to do: this training was found finished.")
    console.say(f"Model: {result.model}")
    console.say(f"Compare the runs: {result.runs_view}")


_BEST_CALLS = 3  # printed after a build
_SHORT_NAMES = {"calculator": "calc", "calendar": "cal", "wikisearch": "wiki"}  # make the table fit into 80 columns


def print_demo(rows: Sequence[DemoRow], data: str, runs_view: str, model: str, verdict: str) -> None:
    """Print the table that ends the demo, how to look at C* and to try the finetuned model, and what it came to."""
    console = Console()
    tools = [tool for tool in TOOL_NAMES if any(tool in row.right for row in rows)]
    title = "Held-out items answered right, percent, by the tool they ask for"
    headers = (*(_SHORT_NAMES.get(tool, tool) for tool in tools), "all", "called", "false", "dev ppl")
    table = narrow_table(title, ["arm"], headers, no_wrap=True, gap=0)
    for row in rows:
        name = f"{row.arm}, k = {row.k}" if row.k else row.arm
        figures = [f"{row.right[tool]:.1f}" if tool in row.right else "-" for tool in (*tools, "all")]
        perplexity = "" if row.perplexity is None else f"{row.perplexity:.2f}"
        needless = "" if row.needless is None else f"{row.needless:.1f}"
        table.add_row(name, *figures, f"{row.called:.1f}", needless, perplexity)
    console.print()
    console.print(table)
    console.print(
        "cc is M + CC: trained on the same documents without their calls. called: percent of items with a call;\n"
        "false: the same of items that ask for no tool, the false call rate. dev ppl: perplexity of the development "
        "documents, calls disabled."
    )
    command = shlex.join(["toolformer", "generate", "The sum of 27 and 8 is", "--stop", ".", "--model", model])
    print_view_command(data)
    console.say(f"Compare the runs: {runs_view}")
    console.say(f"Try the model: {command}")
    console.print(verdict, style="bold")


def print_view_command(data: str) -> None:
    """Print the command that shows C* in a browser."""
    Console().say(f"Look at C*, and judge its calls: {shlex.join(['toolformer', 'view', '--data', data])}")


def print_summary(result: BuildResult) -> None:
    """Print the result of a build: row counts, the yield at three thresholds, three calls, and where to find more."""
    console = Console()
    current = builds.current_build(result.snapshot)
    if current is not None and current.run_id == result.run_id:
        print_stats(builds.stats(result.snapshot))
        print_best_calls(result)
    else:  # another run began later, or has ended since
        console.print(escape(f"The snapshot now shows {current}; for this build see toolformer datasets."))
    for line in result.nothing_kept:
        console.say(line)
    console.print(
        f"\nC* is dataset [bold]{escape(result.dataset)}@{result.version}-{result.made}[/bold]: "
        f"{result.examples:,} documents with calls ({counted(result.counts)})"
    )
    if result.done == 0:
        console.print(f"Nothing was left to do: all {result.skipped} shards were found done, no model was loaded.")
    else:
        console.print(shards_line(result))
    console.say(f"Ask it anything: {sql_command(result.snapshot, 'FROM yield_by_threshold')}")
    if result.runs_view:
        console.say(f"Compare the runs: {result.runs_view}")


def print_best_calls(result: BuildResult) -> None:
    """Print the most helpful kept calls; if none was kept, the best of all. The snapshot must show this build."""
    console = Console()
    samples = calls.samples(result.snapshot, _BEST_CALLS, kept=bool(result.examples))
    if samples:
        title = "The most helpful of its calls" if result.examples else "The best calls, none of which was kept"
        console.print(f"\n[bold]{title}[/bold] (with L- - L+ in nats)")
    names = {**TOOL_NAMES, **calls.tool_names(result.snapshot)}
    for sample in samples:
        before, after = escape(sample.before.replace("\n", " ")), escape(sample.after.replace("\n", " "))
        call = escape(written_calls(sample.links, names))
        console.print(f"  {sample.gain:+.2f}  …{before}[bold cyan]{call}[/bold cyan]{after}…", soft_wrap=True)


def print_stats(
    stats: builds.Stats, build: builds.CurrentBuild | None = None, kept: Sequence[builds.KeptCalls] = ()
) -> None:
    """Print the run, the rows of every stage by what became of them, and the yield per tool and threshold."""
    console = Console()
    if build is not None:
        console.say(str(build))
    table = narrow_table("Rows: in = kept + dropped + failed", ("stage", "tool", "unit"), ("in", "kept"), no_wrap=True)
    table.add_column("dropped and failed, by reason")
    for counts in stats.balances:
        reasons = ", ".join(filter(None, map(counted, (counts.dropped, counts.failed))))
        warning = "" if counts.conserved else "  [red]does not add up[/red]"
        figures = (f"{counts.rows_in:,}", f"{counts.kept:,}", reasons + warning)
        table.add_row(counts.stage, counts.tool, counts.unit, *figures)
    console.print(table)
    for one in stats.benchmarks:
        documents = f"{one.documents:,} documents dropped, not annotated"
        dropped = documents if one.calls is None else f"{one.calls:,} kept calls dropped"
        items = f"{one.found:,} of {one.items:,} items stood in the corpus"
        console.print(f"{escape(one.benchmark)}: {items}, {dropped}")
    if kept:
        title = "Calls kept, and how many of their inputs and responses are distinct"
        distinct = narrow_table(title, ["tool"], ["calls", "inputs", "responses"])
        for tool in kept:
            distinct.add_row(tool.tool, f"{tool.calls:,}", f"{tool.inputs:,}", f"{tool.responses:,}")
        console.print(distinct)
    if any(tool.calls for tool in stats.tools):
        console.print(_tools_table(stats.tools))
    if not stats.yields:  # nothing was scored
        return
    examples = {(y.tool, y.tau_f): f"{y.examples:,}" for y in stats.yields}
    console.print(_by_threshold("Examples with calls, by filtering threshold", examples))
    if stats.rates:
        rates = {(r.tool, r.tau_f): "-" if r.rate is None else f"{r.rate:.3f}" for r in stats.rates}
        console.print(_by_threshold("Estimated rate of false discoveries", rates))
    for coverage in stats.coverage:
        console.say(str(coverage), "yellow")


def _by_threshold(title: str, values: Mapping[tuple[str, float], str]) -> Table:
    thresholds = sorted({tau for _, tau in values})
    table = Table(title=title)
    table.add_column("tool")
    for tau in thresholds:
        table.add_column(f"tau_f {tau:.1f}", justify="right")
    for tool in dict.fromkeys(tool for tool, _ in values):
        table.add_row(tool, *(values.get((tool, tau), "") for tau in thresholds))
    return table


def _tools_table(tools: Iterable[builds.ToolCosts]) -> Table:
    headers = ("questions", "known", "calls", "retries", "p50", "p95", "p99", "cost")
    table = narrow_table("Calls of tools, in milliseconds", ["tool"], headers)
    for tool in tools:
        if tool.calls:
            counts = (tool.questions, tool.from_cache or 0, tool.calls, tool.retries or 0)
            durations = (tool.p50_ms or 0.0, tool.p95_ms or 0.0, tool.p99_ms or 0.0)
            cost = f"{tool.cost:,.6g}" if tool.cost else ""
            table.add_row(tool.tool, *(f"{n:,}" for n in counts), *(f"{ms:,.3g}" for ms in durations), cost)
    return table
