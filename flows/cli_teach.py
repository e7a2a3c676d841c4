"""The commands of the group "teach": `finetune`. `cli` puts them into the one command line.

They import what they need when they run, and answer a mistake before anything is started.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli_warehouse import built_store
from flows.terminal import print_json, tell_failures_once, validated
from tasks.settings import data_folder, prepare

if TYPE_CHECKING:
    from flows.display import TrainingDisplay
    from flows.finetune import FinetuneResult
    from flows.finetune_plan import FinetuneParameters, FinetunePlan

__all__ = ["finetune", "run_trainings"]

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
    tell_failures_once()
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
    from flows.server import await_server, begin_server

    begin_server()
    from flows.display import TrainingDisplay
    from flows.finetune import Stopped, reporting_to, run_finetune
    from flows.finetune_plan import plan_finetune

    plans = [plan_finetune(parameters) for parameters in asked]
    await_server()
    display = TrainingDisplay([p.arm if len(asked) > 1 else "" for p in asked], asked[0].steps, quiet=quiet)

    def run(index: int, report: Report) -> FinetuneResult:
        with reporting_to(lambda event: report(index, event)):
            return run_finetune(asked[index])

    try:
        with display, _stopping_politely(display, plans) as report:
            if len(asked) == 1:
                return [run(0, report)]
            with ThreadPoolExecutor(len(asked)) as threads:
                return list(threads.map(run, range(len(asked)), [report] * len(asked)))
    except Stopped as exc:
        print(exc, file=sys.stderr)
        raise typer.Exit(130) from exc


@contextmanager
def _stopping_politely(display: TrainingDisplay, plans: Sequence[FinetunePlan]) -> Iterator[Report]:
    """The first Ctrl-C asks the trainings to stop with a checkpoint; the second ends them where they stand.

    Yields what is to be told of every event: a stop asked for before a job was started is asked for again.
    """
    from flows.server import end_children
    from tasks.following import running
    from toolformer_core.errors import ToolformerError
    from toolformer_core.finetune.events import STOP_FILE

    asked = False

    def stop(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            display.close()
            for plan in plans:
                with suppress(ToolformerError):
                    if handle := running(plan.launcher, plan.spec.folder):
                        plan.launcher.cancel(handle)
            end_children()
            os._exit(128 + number)
        asked = True
        print("\nstopping after this step, with a checkpoint; once more to end it now", file=sys.stderr, flush=True)
        for plan in plans:
            ask(plan)

    def ask(plan: FinetunePlan) -> None:
        with suppress(OSError):
            (plan.spec.folder / STOP_FILE).touch()

    def report(index: int, event: Mapping[str, Any]) -> None:
        display(index, event)
        if asked:
            ask(plans[index])

    before = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield report
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
