"""Shows progress while a flow runs, and prints summaries of its results."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import progress as bars
from rich.markup import escape

from cli.render.answers import print_calls, print_plan, print_stats
from cli.render.console import Console, Display, narrow_table, shards_line
from flows.report.commands import sql_command
from flows.report.tables import counted
from flows.runtime.progress import LINE_S, Pulse, StageProgress, duration, passes_quarter
from toolformer_core.config import TOOL_NAMES
from warehouse.queries import builds, calls

if TYPE_CHECKING:
    from cli.commands.recipe import DemoRow
    from flows.build_dataset.flow import BuildResult
    from flows.finetune.flow import FinetuneResult
    from flows.recipe.flow import RecipeResult
    from flows.recipe.plan import RecipePlan
    from tasks.shards.run_shard import ShardResult
    from toolformer_core.tools.search.index_writer import IndexProgress

_SHOW_S = 0.1  # seconds between two changes of the bar


def _columns() -> tuple[bars.ProgressColumn, ...]:
    note = bars.TextColumn("{task.fields[note]}")
    return bars.TextColumn("{task.description:<10}"), bars.BarColumn(), bars.MofNCompleteColumn(), note


class BuildDisplay(Display):
    """Shows the progress of each stage: bars on a terminal, elsewhere the lines of `flows.runtime.progress`."""

    def __init__(
        self, quiet: bool = False, clock: Callable[[], float] = time.monotonic, pulse: Pulse | None = None
    ) -> None:
        super().__init__(*_columns(), bars.TimeElapsedColumn(), quiet=quiet, clock=clock)
        self.rows: dict[str, bars.TaskID] = {}
        self.stages: dict[str, StageProgress] = {}
        self.started: dict[str, float] = {}  # by `clock`
        self.totals: dict[str, int] = {}  # stage -> all its shards; the stage that finished a shard last is last
        self.last_change = clock()  # when a shard finished, or a stage began
        self.pulse = pulse or Pulse()

    def __call__(self, stage: str, finished: int, total: int, result: ShardResult) -> None:
        """Show that one more shard of a stage is finished."""
        with self.lock:
            self.last_change = self.clock()
            progress = self.stages.setdefault(stage, StageProgress())
            if finished <= progress.finished:  # the stage begins anew in another flow, e.g. the next round's
                progress = self.stages[stage] = StageProgress()
                self.started.pop(stage, None)
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
                self.say(self._stage_line(stage))

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
        with self.lock:
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
                self.say(f"{name}{weights}, {texts}, {devices}{resumed}")
                self.status[index] = "started"
            case "step":
                time_left = f"{event['eta_s']:,.0f} s left"
                note = f"loss {event['loss']:.3f}  {event['tokens_per_second']:,.0f} tokens/s  {time_left}"
                self.bars.update(self.rows[index], completed=event["step"], note=note)
                self.status[index] = f"step {event['step']:>6,} of {self.steps:,}  {note}"
            case "evaluated":
                self.say(f"{name}step {event['step']:>6,}  dev perplexity {event['perplexity']:.3f}")
            case "damaged":
                self.say(f"[yellow]{name}the checkpoint at step {event['step']:,} is damaged, see log.txt[/]")
            case "waiting":
                self.status[index] = f"queued: {escape(event['reason'] or 'no reason given')}"
                self.say(f"{name}{self.status[index]}")
            case "retried":
                self.say(f"[yellow]{name}another attempt begins: {escape(event['message'])}[/]")
            case "failed":
                self.say(f"[red]{name}attempt failed ({event['reason']}): {escape(event['message'])}[/red]")
            case "finished" | "stopped":
                self.status.pop(index, None)

    def _due_lines(self, due: bool) -> list[str]:
        """Return, if a line is due, each running training's status, and how long it has sent no event."""
        if not due:
            return []
        silence_s = {index: self.clock() - self.last_event[index] for index in self.status}
        notes = {index: f"; nothing new for {duration(s)}" if s >= LINE_S else "" for index, s in silence_s.items()}
        return [f"{self._name_column(index)}{status}{notes[index]}" for index, status in self.status.items()]


class IndexDisplay(Display):
    """Shows on standard error how far a source is indexed; call it with each progress."""

    def __init__(
        self, size: int, limit: int | None, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        columns = (bars.TextColumn("indexing"), bars.BarColumn(), bars.TaskProgressColumn(), *_columns()[-1:])
        times = (bars.TimeElapsedColumn(), bars.TimeRemainingColumn())
        super().__init__(*columns, *times, quiet=quiet, clock=clock)
        self.size, self.limit = size, limit
        self.bar = self.bars.add_task("", total=1.0, note="")
        self.shown_at = -_SHOW_S
        self.first: tuple[float, float] | None = None  # when this run's first progress came, and the share then
        self.last: IndexProgress | None = None

    def __call__(self, progress: IndexProgress) -> None:
        """Show that one more record is indexed."""
        now = self.clock()
        self.last = progress
        if self.first is None:
            self.first = (now, self._share(progress))
            if progress.position.records > 1:
                self.say(f"going on after record {progress.position.records - 1:,}; {self._line()}")
        if self.console.is_terminal and now - self.shown_at >= _SHOW_S:
            self.shown_at = now
            self.bars.update(self.bar, completed=self._share(progress), note=f"{progress.passages:,} passages")

    def _share(self, progress: IndexProgress) -> float:
        read = progress.read / self.size if self.size else 1.0
        return min(1.0, max(read, progress.passages / self.limit if self.limit else 0.0))

    def _line(self) -> str:
        progress = self.last
        if progress is None or self.first is None:
            return ""
        share, (began, from_share) = self._share(progress), self.first
        line = f"{progress.passages:,} passages indexed, {share:.0%} of the work"
        if share > from_share and (elapsed := self.clock() - began) > 0:
            line += f"; {duration(elapsed / (share - from_share) * (1 - share))} left"
        return line

    def _due_lines(self, due: bool) -> list[str]:
        return [line] if due and (line := self._line()) else []


def print_finetune_result(result: FinetuneResult) -> None:
    """Print the result of a training."""
    from flows.finetune.flow import training_rows

    console = Console()
    for name, value in training_rows(result):
        console.say(f"{name:<24} {value}")
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
    lines = []
    for row in rows:
        name = f"{row.arm}, k = {row.k}" if row.k else row.arm
        figures = [f"{row.right[tool]:.1f}" if tool in row.right else "-" for tool in (*tools, "all")]
        perplexity = "" if row.perplexity is None else f"{row.perplexity:.2f}"
        needless = "" if row.needless is None else f"{row.needless:.1f}"
        lines.append((name, *figures, f"{row.called:.1f}", needless, perplexity))
    console.print("", narrow_table(title, ["arm"], headers, lines, no_wrap=True, gap=0), sep="\n")
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


def print_recipe_plan(plan: RecipePlan) -> None:
    """Print what running a recipe would do, and what of it is not on this machine."""
    console = Console()
    table = narrow_table(f"What {escape(plan.name)} would do in {escape(plan.data)}")
    for name in ("step", "state", ""):
        table.add_column(name, no_wrap=bool(name), overflow="fold")
    needed: dict[str, list[str]] = {}
    for step in plan.steps:
        waits = f"after {', '.join(step.waits_for)}" if step.waits_for else ""
        note = "; ".join(filter(None, (step.note, waits)))
        table.add_row(escape(step.step), "done" if step.done else "to do", escape(note))
        for missing in step.missing:
            needed.setdefault(missing, []).append(step.step)
    console.print(table)
    for missing, steps in needed.items():
        console.say(f"not on this machine: {missing} (needed by {', '.join(steps)})")
    for step in plan.steps:
        if step.build is not None:
            console.print(f"\n[bold]{escape(step.step)}[/bold]")
            print_plan(step.build)


def print_recipe(result: RecipeResult, data: str) -> None:
    """Print what came of a recipe, and where to find more."""
    from flows.build_dataset.flow import BuildResult

    console = Console()
    for step, one in result.results.items():
        if not isinstance(one, BuildResult):
            continue
        for line in one.nothing_kept:
            console.say(f"{step}: {line}")
        current = builds.current_build(one.snapshot)
        if current is not None and current.run_id == one.run_id:  # the snapshot shows one build
            print_best_calls(one)
            print_view_command(data)
    steps = f"{len(result.results)} step{'s' * (len(result.results) != 1)}"
    console.print(f"{escape(result.name)}: {steps}, {result.seconds:.0f} s.")
    if result.left_out:
        console.say(f"Left out, as they need what is missing: {', '.join(result.left_out)}")
    console.say(f"Results: {result.page} and {result.page.removesuffix('.md')}.html")
    console.say(f"MLflow run {result.mlflow_run}, with those of the steps below it: {result.runs_view}")


def print_best_calls(result: BuildResult) -> None:
    """Print the most helpful kept calls; if none was kept, the best of all. The snapshot must show this build."""
    console = Console()
    shown = calls.best_calls(result.snapshot, _BEST_CALLS, kept=bool(result.examples))
    if shown:
        title = "The most helpful of its calls" if result.examples else "The best calls, none of which was kept"
        console.print(f"\n[bold]{title}[/bold] (with L- - L+ in nats)")
    names = {**TOOL_NAMES, **calls.tool_names(result.snapshot)}
    print_calls(console, shown, names)
