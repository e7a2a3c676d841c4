"""The command `build`, and the options and progress display that it shares with commands of other flows."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

from typer import Option

from cli.options import AsJson, with_options
from cli.terminal import exit_on_signal, keep_run_logs_off_the_terminal, print_json
from flows.build_dataset.parameters import BuildParameters
from tasks.environment import prepare_environment
from tasks.settings import runner_named

_WHERE = "threads, dask, or a Dask scheduler's address (default: $TOOLFORMER_RUNNER, else threads)"
Runner = Annotated[str | None, Option(help=_WHERE, rich_help_panel="Running")]


def checked_runner(runner: str | None, workers: int, gpus: int | None = None) -> str:
    """Return the runner; a UsageError says that there is no such one, or that there are too few GPUs."""
    name = runner_named(runner)
    if gpus is not None:
        from flows.runtime.gpu_workers import gpus_of_workers
        from tasks.settings import visible_gpus

        gpus_of_workers(name, workers, gpus, visible_gpus())
    return name


@contextmanager
def flow_module(name: str, parameters: Any, spec: Any) -> Iterator[Any]:
    """Start a Prefect server if none is named, import the module of a flow meanwhile, and yield it."""
    from flows.forms.resolved import use_resolved
    from flows.runtime.disk import explain_full_disk
    from flows.runtime.server import start_server, wait_for_server

    with explain_full_disk(parameters.data), use_resolved((parameters, spec)):
        start_server()
        module = import_module(name)
        wait_for_server()
        keep_run_logs_off_the_terminal()
        from prefect import tags

        from flows.runtime.running import ending_as_cancelled  # it imports Prefect, which reads where its server is

        with ending_as_cancelled(), tags("toolformer", "terminal"):
            yield module


@contextmanager
def showing_shards(*, quiet: bool) -> Iterator[None]:
    """Show the progress of the stages of flows that run inside the block; Ctrl-C and SIGTERM end the process."""
    from cli.render.progress import BuildDisplay
    from flows.runtime.ledger import reporting_to

    with BuildDisplay(quiet=quiet) as display, reporting_to(display), exit_on_signal(display):
        yield


def run_flow(package: str, function: str, parameters: Any, runner: str | None, *, quiet: bool) -> Any:
    """Run a flow that works on shards, with its progress shown, and return what the function of its package returns.

    Mistakes are reported before any server is started or folder made.
    """
    prepare_environment()
    runner = checked_runner(runner, parameters.workers, parameters.gpus)
    spec = import_module(f"{package}.resolve").resolve(parameters)
    prepare_environment(parameters.data)
    with flow_module(f"{package}.flow", parameters, spec) as module, showing_shards(quiet=quiet):
        return getattr(module, function)(parameters, runner)


# What a first build needs; --help-all shows every option.
_SHOWN = "corpus data model tools tool limit dataset replace tau_f top_k samples workers".split()


@with_options(BuildParameters, shown=_SHOWN)
def build(parameters: BuildParameters, runner: Runner = None, as_json: AsJson = False) -> None:
    """Build C* from a corpus: prefilter, sample, execute, score, filter, assemble. Run it again to resume.

    Example: toolformer build --corpus c4.jsonl --data runs/c4 --model EleutherAI/gpt-j-6b --tools calculator,qa
    """
    result = run_flow("flows.build_dataset", "run_build", parameters, runner, quiet=as_json)
    from cli.render.progress import print_summary

    print_json(result) if as_json else print_summary(result)
