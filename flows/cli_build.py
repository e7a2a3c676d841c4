"""The command `build`, and the options that `build` and `plan` share; it imports what it needs when it runs.

`cli` puts it into the one command line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.terminal import parse_tau_f, print_json, stopping_at_once, tell_failures_once, validated
from tasks.settings import data_folder, prepare, runner_named, shared_catalog
from toolformer_core.errors import UsageError

if TYPE_CHECKING:
    from flows.build_dataset import BuildResult
    from flows.parameters import BuildParameters

__all__ = [
    "DaskWorkers",
    "Gpus",
    "Runner",
    "build",
    "check",
    "run_with_progress",
    "runner_options",
    "with_build_options",
]

Data = Annotated[
    str | None, typer.Option("--data", help="Data folder or URL (default: $TOOLFORMER_DATA, else ./toolformer-data)")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines")]


Runner = Annotated[
    str | None,
    typer.Option(help="threads, dask, or a Dask scheduler's address (default: $TOOLFORMER_RUNNER, else threads)"),
]
DaskWorkers = Annotated[
    int | None, typer.Option(min=1, help="So many Dask workers on this machine: --runner dask --workers N")
]
Gpus = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Dask workers on this machine that have a GPU of their own, e.g. --runner dask --gpus 4; the model works "
        "there, and the other workers see no GPU (default: a worker for each GPU, as far as --workers goes)",
    ),
]


def runner_options(
    runner: str | None, workers: int, dask_workers: int | None, gpus: int | None = None
) -> tuple[str, int]:
    """Return the runner, and how many tasks it is to run at a time.

    Raises:
        UsageError: there is no such runner, two are asked for, or more GPUs than there are.
    """
    if dask_workers is not None:
        if runner not in (None, "dask"):
            raise UsageError(
                f"--dask-workers starts workers on this machine, and --runner says {runner}: give one of them"
            )
        runner, workers = "dask", dask_workers
    name = runner_named(runner)
    if gpus is not None:
        from flows.gpu_workers import gpus_of_workers
        from tasks.settings import visible_gpus

        gpus_of_workers(name, workers, gpus, visible_gpus())
    return name, workers


def build_options(
    corpus: Annotated[
        str, typer.Option(help="File or folder: JSONL, JSON array (.gz, .zst), Parquet, saved HF dataset")
    ],
    data: Data = None,
    model: Annotated[
        str, typer.Option(help="'embedded', a folder written by save_pretrained, or a hub name")
    ] = "embedded",
    tools: Annotated[str, typer.Option(help="Comma-separated")] = "calculator,calendar,wikisearch,qa,mt",
    dataset: Annotated[str, typer.Option(help="Name under which C* is kept")] = "cstar",
    limit: Annotated[
        int | None,
        typer.Option(help="Read at most this many documents; multiples of --shard-documents redo nothing when raised"),
    ] = None,
    tau_s: Annotated[
        float | None, typer.Option(help="Sampling threshold on p(' [') (paper: 0.05; calculator, mt 0)")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Positions per document (paper: 5; calculator, mt 20)")] = None,
    draws: Annotated[int | None, typer.Option(help="Calls drawn per position (paper: 5; calculator, mt 10)")] = None,
    tau_f: Annotated[
        str, typer.Option(help="Filtering thresholds, e.g. calculator=0.5,qa=1.2 (paper: 1.0; calculator, mt 0.5)")
    ] = "",
    inside_words: Annotated[
        bool,
        typer.Option(
            "--inside-words",
            help="Let a call split a word or a number, as the paper's letter allows (default: none does)",
        ),
    ] = False,
    keep_repeats: Annotated[
        bool,
        typer.Option(
            "--keep-repeats",
            help="Keep all calls of one tool with the same input within five tokens of each other, as the paper does "
            "(default: the one with the largest gain)",
        ),
    ] = False,
    max_examples: Annotated[int, typer.Option(help="Examples per tool at most")] = 25_000,
    stop_when_full: Annotated[
        bool,
        typer.Option(
            "--stop-when-full",
            help="Stop a tool's stages once --max-examples of it are certain: shards are taken in an order that --seed "
            "decides, and stored yields then speak of the annotated part only",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of every random choice")] = 0,
    shard_documents: Annotated[int, typer.Option(help="Documents per shard, the unit of work and of restart")] = 256,
    temperature: Annotated[float, typer.Option(help="Temperature of the draws")] = 1.0,
    max_call_tokens: Annotated[int, typer.Option(help="Tokens a call may take before it is given up")] = 64,
    mt_chunk_tokens: Annotated[int, typer.Option(help="Words a foreign passage must have for mt (paper: 10)")] = 10,
    latest_date: Annotated[
        str, typer.Option(help="Later dates in URLs are none to the calendar's prefilter: YYYY-MM-DD")
    ] = "2026-12-31",
    max_chars: Annotated[int, typer.Option(help="Longer texts are rejected as too_long")] = 200_000,
    text_column: Annotated[str | None, typer.Option(help="Column of the text, if not recognised")] = None,
    url_column: Annotated[str | None, typer.Option(help="Column of the URL, if not recognised")] = None,
    date_column: Annotated[str | None, typer.Option(help="Column of the date, if not recognised")] = None,
    prompts: Annotated[str | None, typer.Option(help="Folder of your own prompts, <tool>.txt")] = None,
    passages: Annotated[str | None, typer.Option(help="JSONL of title, section, text for wikisearch and qa")] = None,
    phrases: Annotated[str | None, typer.Option(help="Phrase table for mt, tab-separated")] = None,
    licence: Annotated[str, typer.Option(help="The corpus's licence, for the dataset's card")] = "",
    runner: Runner = None,
    workers: Annotated[int, typer.Option(help="Tasks at a time, or Dask workers")] = 4,
    dask_workers: DaskWorkers = None,
    gpus: Gpus = None,
    catalog: Annotated[
        str | None,
        typer.Option(help="PostgreSQL that several machines share, postgresql+psycopg://host/db ($TOOLFORMER_CATALOG)"),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no tool: use what tools answered before, and stop where that lacks")
    ] = False,
    as_json: AsJson = False,
) -> tuple[Any, str, bool]:
    """Take the options of a build; return its parameters, the runner, and whether to print JSON.

    Raises:
        UsageError: a value is wrong.
    """
    runner, workers = runner_options(runner, workers, dask_workers, gpus)
    shared_catalog(catalog)
    prepare()
    from flows.parameters import BuildParameters

    asked = validated(
        BuildParameters,
        corpus=corpus,
        data=data_folder(data),
        model=model,
        tools=[t for t in tools.split(",") if t.strip()],
        dataset=dataset,
        limit=limit,
        tau_s=tau_s,
        top_k=top_k,
        draws=draws,
        tau_f=parse_tau_f(tau_f),
        inside_words=inside_words,
        keep_repeats=keep_repeats,
        max_examples=max_examples,
        stop_when_full=stop_when_full,
        seed=seed,
        shard_documents=shard_documents,
        temperature=temperature,
        max_call_tokens=max_call_tokens,
        mt_chunk_tokens=mt_chunk_tokens,
        latest_date=latest_date,
        max_chars=max_chars,
        text_column=text_column,
        url_column=url_column,
        date_column=date_column,
        prompts=prompts,
        passages=passages,
        phrases=phrases,
        workers=workers,
        gpus=gpus,
        licence=licence,
        offline=offline,
    )
    return asked, runner, as_json


def with_build_options(command: Callable[[BuildParameters, str, bool], None]) -> Callable[..., None]:
    """Make a command that takes the options of a build and hands on what they come to."""

    @functools.wraps(build_options)
    def taking(**options: Any) -> None:
        command(*build_options(**options))

    taking.__name__, taking.__doc__ = command.__name__, command.__doc__
    return taking


def run_with_progress(parameters: BuildParameters, runner: str, *, quiet: bool) -> BuildResult:
    """Run a build with its progress shown."""
    from flows.disk import naming_full_disk
    from flows.server import await_server, begin_server

    check(parameters)
    prepare(parameters.data)
    with naming_full_disk(parameters.data):
        begin_server()
        from flows.build_dataset import run_build
        from flows.display import BuildDisplay
        from flows.ledger import reporting_to

        await_server()
        tell_failures_once()
        with BuildDisplay(quiet=quiet) as display, reporting_to(display), stopping_at_once(display):
            return run_build(parameters, runner)


def check(parameters: Any) -> None:
    """Answer a mistake before any server starts or any folder is made.

    Raises:
        UsageError: a path, name or value is wrong.
    """
    from flows.parameters import resolve

    resolve(parameters, run_id="check")


@with_build_options
def build(parameters: BuildParameters, runner: str, as_json: bool) -> None:
    """Corpus to C*: prefilter, sample, execute, score, filter, assemble. Stop it at any time; run it again to go on.

    Example: toolformer build --corpus c4.jsonl --data runs/c4 --model EleutherAI/gpt-j-6b --tools calculator,qa
    """
    result = run_with_progress(parameters, runner, quiet=as_json)
    if as_json:
        print_json(asdict(result))
    else:
        from flows.display import print_summary

        print_summary(result)
