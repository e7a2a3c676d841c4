"""The command `ground`: GEAR's choice of tools for the queries of benchmarks. `cli.main` registers it.

It imports what it needs when it runs, and reports mistakes before anything is started.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from cli.build import DaskWorkers, Runner, runner_options
from cli.options import AsJson, with_options
from cli.terminal import exit_on_signal, hide_logged_failures, print_json, without_nan
from flows.ground.parameters import GroundParameters
from tasks.settings import prepare_environment

if TYPE_CHECKING:
    from flows.ground.metrics import GroundResult

__all__ = ["ground", "run_grounding"]


@with_options(GroundParameters)
def ground(
    parameters: GroundParameters, runner: Runner = None, dask_workers: DaskWorkers = None, as_json: AsJson = False
) -> None:
    """Choose tools for the queries of benchmarks by GEAR, and answer them. Stop it at any time; run it again to go on.

    Example: toolformer ground --task svamp=SVAMP.json --task nq=NQ.jsonl --limit 200 --model EleutherAI/gpt-neo-1.3B
    """
    prepare_environment()
    runner, workers = runner_options(runner, parameters.workers, dask_workers, parameters.gpus)
    parameters = parameters.model_copy(update={"workers": workers})
    from flows.ground.resolve import resolve

    resolve(parameters)
    prepare_environment(parameters.data)
    result = run_grounding(parameters, runner, quiet=as_json)
    if as_json:
        from flows.ground.tables import grounding_tables

        print_json(without_nan({**asdict(result), "tables": [asdict(table) for table in grounding_tables(result)]}))
    else:
        from cli.render.grounding import print_grounding

        print_grounding(result)


def run_grounding(parameters: GroundParameters, runner: str | None = None, *, quiet: bool) -> GroundResult:
    """Run a grounding and show its progress."""
    from flows.disk import explain_full_disk
    from flows.server import start_server, wait_for_server

    with explain_full_disk(parameters.data):
        start_server()
        from cli.render.progress import BuildDisplay
        from flows.ground.flow import run_ground
        from flows.ledger import reporting_to

        wait_for_server()
        hide_logged_failures()
        with BuildDisplay(quiet=quiet) as display, reporting_to(display), exit_on_signal(display):
            return run_ground(parameters, runner)
