"""The commands of the group "teach": `finetune`. `cli` puts them into the one command line.

They import what they need when they run, and answer a mistake before anything is started.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli_warehouse import built_store
from flows.stopping import STOPPED, TERMINATED, handling_stop, leave_at_once, leave_later
from flows.terminal import print_json, tell_failures_once, validated
from tasks.settings import data_folder, prepare

if TYPE_CHECKING:
    from flows.display import TrainingDisplay
    from flows.finetune import FinetuneResult
    from flows.finetune_plan import FinetuneParameters, FinetunePlan

__all__ = ["finetune", "run_trainings"]

_CHECKPOINT_S = 15.0  # from SIGTERM, for the step at hand and its checkpoint

Report = Callable[[int, Mapping[str, Any]], None]  # which training, and an event of it

Data = Annotated[
    str | None, typer.Option("--data", help="Data folder (default: $TOOLFORMER_DATA, else ./toolformer-data)")
]


class Arm(StrEnum):
    """What is learned of a document of C*."""

    toolformer = "toolformer"
    cc = "cc"


def finetune(
    dataset: Annotated[str, typer.Option(help="Name, or name@version; the newest version by default")] = "cstar",
    data: Data = None,
    model: Annotated[
        str, typer.Option(help="'embedded', a folder written by save_pretrained, or a hub name")
    ] = "embedded",
    arm: Annotated[
        Arm, typer.Option(help="toolformer: C*; cc: the same documents without their calls (M + CC)")
    ] = Arm.toolformer,
    profile: Annotated[str, typer.Option(help="Where to train: auto, cpu, core, gpu, lora, or a JSON file")] = "auto",
    processes: Annotated[int, typer.Option(min=0, help="Processes per node (default: as the profile says)")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps (paper: up to 2,000)")] = 2000,
    batch: Annotated[int, typer.Option(min=1, help="Texts in a step, over all processes (paper: 128)")] = 128,
    learning_rate: Annotated[float, typer.Option(help="Behind the warmup (paper: 1e-5)")] = 1e-5,
    warmup: Annotated[float, typer.Option(min=0, max=1, help="Share of the steps with a rising rate")] = 0.1,
    sequence_length: Annotated[int, typer.Option(min=2, help="Tokens; longer texts are cut (paper: 1,024)")] = 1024,
    evaluate_every: Annotated[
        int, typer.Option(min=1, help="Steps between dev perplexities and checkpoints (paper: 500)")
    ] = 500,
    dev_documents: Annotated[
        int, typer.Option(min=0, help="Documents kept from training, at most a tenth of the corpus (paper: 1,000)")
    ] = 1000,
    keep: Annotated[int, typer.Option(min=1, help="Resumable checkpoints kept, besides the best model")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the order of texts and of the dev documents")] = 0,
    retries: Annotated[int, typer.Option(min=0, help="Further attempts if a process or node dies")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be run, and stop")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines")] = False,
) -> None:
    """C* to a checkpoint. Stop it at any time (Ctrl-C); run it again to go on. Runs are compared in MLflow.

    Example: toolformer finetune --dataset cstar --model EleutherAI/gpt-j-6b --profile gpu
    """
    folder = data_folder(data)
    prepare()
    from flows.export import find_dataset
    from flows.finetune_plan import FinetuneParameters, plan_finetune

    find_dataset(built_store(data), dataset)  # before anything is written beside it

    parameters = validated(
        FinetuneParameters,
        dataset=dataset,
        data=folder,
        model=model,
        arm=arm.value,
        profile=profile,
        processes=processes,
        steps=steps,
        batch=batch,
        learning_rate=learning_rate,
        warmup=warmup,
        sequence_length=sequence_length,
        evaluate_every=evaluate_every,
        dev_documents=dev_documents,
        keep=keep,
        seed=seed,
        retries=retries,
    )
    if dry_run:
        print(plan_finetune(parameters).preview())
        return
    prepare(folder)
    (result,) = run_trainings([parameters], quiet=as_json)
    if as_json:
        print_json(asdict(result))
    else:
        from flows.display import print_finetuned

        print_finetuned(result)


def run_trainings(asked: Sequence[FinetuneParameters], *, quiet: bool) -> list[FinetuneResult]:
    """Run trainings side by side with their progress shown; of several, each is named by its arm.

    Raises:
        typer.Exit: they stopped because asked to.
        ToolformerError: see `run_finetune`.
    """
    from flows.disk import naming_full_disk
    from flows.finetune_plan import check_machine, plan_finetune
    from flows.server import begin_server

    plans = [plan_finetune(parameters) for parameters in asked]
    for plan in plans:
        check_machine(plan)  # before any server knows of it
    with naming_full_disk(asked[0].data):
        begin_server()
        return _run(asked, plans, quiet=quiet)


def _run(asked: Sequence[FinetuneParameters], plans: Sequence[FinetunePlan], *, quiet: bool) -> list[FinetuneResult]:
    from flows.display import TrainingDisplay
    from flows.finetune import Stopped, reporting_to, run_finetune
    from flows.server import await_server

    await_server()
    tell_failures_once()
    display = TrainingDisplay([p.arm if len(asked) > 1 else "" for p in asked], asked[0].steps, quiet=quiet)

    def run(index: int, report: Report) -> FinetuneResult:
        with reporting_to(lambda event: report(index, event)):
            return run_finetune(asked[index])

    stopping = _Stopping(display, plans)
    try:
        with display, handling_stop(stopping.stop):
            if len(asked) == 1:
                return [run(0, stopping.report)]
            with ThreadPoolExecutor(len(asked)) as threads:
                return list(threads.map(run, range(len(asked)), [stopping.report] * len(asked)))
    except Stopped as exc:
        print(exc, file=sys.stderr)
        raise typer.Exit(stopping.code) from exc


class _Stopping:
    """Ctrl-C and SIGTERM: the first asks trainings to stop with a checkpoint, the second ends them, the third leaves.

    Whoever sends SIGTERM kills soon after. So the command then waits for the checkpoint for a limited time only; the
    training saves it all the same, and ends.
    """

    def __init__(self, display: TrainingDisplay, plans: Sequence[FinetunePlan]) -> None:
        self.code = 0  # 130 or 143 once a signal has come
        self._signals = 0
        self._display = display
        self._plans = plans

    def report(self, index: int, event: Mapping[str, Any]) -> None:
        """Show an event. If a signal came before this training was started, tell the training now."""
        self._display(index, event)
        if self.code:
            self._ask(self._plans[index])

    def stop(self, number: int, frame: object) -> None:
        """Handle a signal."""
        self._signals += 1
        if number == signal.SIGTERM and self.code != TERMINATED:
            leave_later(_CHECKPOINT_S, self._leave)
        self.code = 128 + number
        if self._signals > 2:
            self._leave()
        if self._signals == 2:
            self._end()
        if number == signal.SIGINT:
            told = "\nstopping after this step, with a checkpoint; once more to end it now"
            print(told, file=sys.stderr, flush=True)
        for plan in self._plans:
            self._ask(plan)

    def _leave(self) -> None:
        for plan in self._plans:
            self._ask(plan)  # it may have been started since
        told = (
            "stopped; a training under way ends after its step, with a checkpoint; run the same command again to go on"
        )
        leave_at_once(self.code, told, self._display.close)

    def _end(self) -> None:
        from tasks.following import running
        from toolformer_core.errors import ToolformerError

        for plan in self._plans:
            with suppress(ToolformerError):
                if handle := running(plan.launcher, plan.spec.folder):
                    plan.launcher.cancel(handle)
        leave_at_once(self.code, STOPPED, self._display.close)

    @staticmethod
    def _ask(plan: FinetunePlan) -> None:
        from toolformer_core.finetune.events import STOP_FILE

        with suppress(OSError):
            (plan.spec.folder / STOP_FILE).touch()
