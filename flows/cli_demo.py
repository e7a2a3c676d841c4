"""The command `demo`: the commands of the whole loop, one after another. `cli` puts it into the one command line."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli_build import run_with_progress
from flows.cli_evaluate import run_evaluations
from flows.cli_teach import run_trainings
from flows.terminal import print_json
from tasks.settings import data_folder, prepare

__all__ = ["demo"]

Data = Annotated[
    str | None, typer.Option("--data", help="Data folder or URL (default: $TOOLFORMER_DATA, else ./toolformer-data)")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines")]


def demo(
    data: Data = None,
    model: Annotated[str, typer.Option(help="'embedded', or a folder or hub name of your own")] = "embedded",
    as_json: AsJson = False,
) -> None:
    """Run the whole loop once, small, on the embedded model and corpus. Needs no network and no server.

    Example: toolformer demo --data /tmp/demo
    """
    from flows.server import begin_server

    folder = data_folder(data)
    prepare(folder)
    begin_server()  # what follows imports Prefect
    from flows.demo import demo_evaluations, demo_parameters, demo_table, demo_trainings
    from flows.display import print_demo, print_summary

    built = run_with_progress(demo_parameters(folder, model), "threads", quiet=as_json)
    if not as_json:
        print_summary(built)
    trained = run_trainings(demo_trainings(folder, model), quiet=as_json)
    asked, plain, measured = run_evaluations(demo_evaluations(folder, trained, model), quiet=as_json)
    table = demo_table(asked, plain, measured)
    if as_json:
        print_json({"table": [asdict(row) for row in table], "trainings": [asdict(one) for one in trained]})
    else:
        print_demo(table, asked.tracking, next(one.model for one in trained if one.arm == "toolformer"))
