"""The commands `finetune` and `fit-trigger`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option

from cli.commands.build import flow_module
from cli.commands.warehouse import built_store
from cli.options import AsJson, with_options
from cli.terminal import print_json, say
from flows.finetune.parameters import FinetuneParameters, FitTriggerParameters
from flows.runtime.stopping import STOPPED, TERMINATED, Stopped, exit_later, exit_now, handle_stop, how_stopped
from tasks.environment import prepare_environment
from toolformer_core.errors import ToolformerError

if TYPE_CHECKING:
    from cli.render.progress import TrainingDisplay
    from flows.finetune.resolve import FinetunePlan

_CHECKPOINT_S = 15.0  # how long the command waits for a checkpoint after SIGTERM, which SIGKILL usually follows

Report = Callable[[int, Mapping[str, Any]], None]  # takes the index of a training and one of its events


@with_options(FinetuneParameters)
def finetune(
    parameters: FinetuneParameters,
    dry_run: Annotated[bool, Option("--dry-run", help="Print what would be run, and stop")] = False,
    as_json: AsJson = False,
) -> None:
    """Finetune a model on C*. Run it again to resume. Runs are compared in MLflow.

    Example: toolformer finetune --dataset cstar --model EleutherAI/gpt-j-6b --profile gpu
    """
    prepare_environment()
    from flows.export.find import find_dataset
    from flows.finetune.resolve import check_machine, resolve

    find_dataset(built_store(parameters.data), parameters.dataset)  # before anything is written beside it
    if dry_run:
        plan = resolve(parameters)
        run = {"folder": str(plan.spec.folder), "launcher": plan.profile.launcher, "processes": plan.processes}
        print_json({**run, "preview": plan.preview()}) if as_json else print(plan.preview())
        return
    prepare_environment(parameters.data)
    plan = resolve(parameters)
    check_machine(plan)  # before a server is started
    with (
        flow_module("flows.finetune.flow", parameters, plan) as module,
        showing_trainings([plan], quiet=as_json) as report,
        module.reporting_events_to(partial(report, 0)),
    ):
        result = module.run_finetune(parameters)
    from cli.render.progress import print_finetune_result

    print_json(result) if as_json else print_finetune_result(result)


@contextmanager
def showing_trainings(plans: Sequence[FinetunePlan], *, quiet: bool) -> Iterator[Report]:
    """Show the progress of trainings that run side by side, labelled with their arms, and stop them on a signal."""
    from cli.render.progress import TrainingDisplay

    names = [plan.spec.arm if len(plans) > 1 else "" for plan in plans]
    display = TrainingDisplay(names, plans[0].spec.recipe.steps, quiet=quiet)
    stopping = _Stopping(display, plans)
    try:
        with display, handle_stop(stopping.stop):
            yield stopping.report
    except Stopped as exc:
        if not stopping.code:
            raise
        print(exc, file=sys.stderr)
        raise Exit(stopping.code) from exc


class _Stopping:
    """Ctrl-C and SIGTERM: the first asks trainings to stop with a checkpoint, the second kills, the third exits."""

    def __init__(self, display: TrainingDisplay, plans: Sequence[FinetunePlan]) -> None:
        self.code = 0  # that of the command, once a signal has come
        self._signals = 0
        self._display = display
        self._plans = plans

    def report(self, index: int, event: Mapping[str, Any]) -> None:
        """Show an event. If a signal came before this training started, ask it to stop now."""
        self._display(index, event)
        if self.code:
            self._write_stop_file(self._plans[index])

    def stop(self, number: int, frame: object) -> None:
        """Handle a signal."""
        self._signals += 1
        if number == signal.SIGTERM and self.code != TERMINATED:
            exit_later(_CHECKPOINT_S, self._leave)
        self.code = how_stopped(number)[0]
        if self._signals > 2:
            self._leave()
        if self._signals == 2:
            self._kill_trainings()
        if number == signal.SIGINT:
            message = "\nstopping after this step, with a checkpoint, or withdrawing it; once more to end it now"
            print(message, file=sys.stderr, flush=True)
        for plan in self._plans:
            self._write_stop_file(plan)

    def _leave(self) -> None:
        for plan in self._plans:
            self._write_stop_file(plan)  # it may have been started since
        message = "stopped; a training ends after its step, with a checkpoint; run the same command again to go on"
        exit_now(self.code, message, self._display.close)

    def _kill_trainings(self) -> None:
        from tasks.training.starting import running_handle

        for plan in self._plans:
            with suppress(ToolformerError):
                if handle := running_handle(plan.launcher, plan.spec.folder):
                    plan.launcher.cancel(handle)
        exit_now(self.code, STOPPED, self._display.close)

    @staticmethod
    def _write_stop_file(plan: FinetunePlan) -> None:
        from toolformer_core.finetune.events import STOP_FILE

        with suppress(OSError):
            (plan.spec.folder / STOP_FILE).touch()


@with_options(FitTriggerParameters)
def fit_trigger(parameters: FitTriggerParameters, as_json: AsJson = False) -> None:
    """Fit when a finetuned model calls: for each tool the smallest p(' [') of a call, on held-out documents of C*.

    The result is stored with the training. generate, chat, serve and evaluate use it with --trigger fitted.

    Example: toolformer fit-trigger --data toolformer-data
    """
    prepare_environment(parameters.data)
    from flows.finetune.fit_trigger import fit_trigger as run
    from flows.finetune.fit_trigger import fits_table

    def show(done: int, total: int) -> None:
        if not as_json and sys.stderr.isatty():
            print(f"\r{done} of {total} windows read", end="" if done < total else "\n", file=sys.stderr, flush=True)

    result = run(parameters, show)
    if as_json:
        print_json({**asdict(result), "thresholds": result.fitted.thresholds})
        return
    from cli.render.tables import print_tables

    print_tables([fits_table(result.fitted)])
    say(f"stored in {result.file}; use it with --trigger fitted")
