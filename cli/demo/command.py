"""The command `demo`, which runs the commands of the whole loop one after another. `cli.main` registers it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from cli.build import run_with_progress
from cli.evaluate import run_evaluations
from cli.finetune import run_trainings
from cli.options import AsJson, Data
from cli.terminal import print_json
from tasks.environment import prepare_environment
from tasks.settings import data_folder

__all__ = ["demo"]


def demo(
    data: Data = None,
    model: Annotated[str, typer.Option(help="'embedded', or a folder or hub name of your own")] = "embedded",
    as_json: AsJson = False,
) -> None:
    """Run the whole loop once, small, on the embedded model and corpus. Needs no network and no server.

    Example: toolformer demo --data /tmp/demo
    """
    from flows.server import start_server

    folder = data_folder(data)
    prepare_environment(folder)
    start_server()  # before Prefect is imported below
    from cli.demo.parameters import demo_evaluations, demo_parameters, demo_table, demo_trainings
    from cli.render.progress import print_demo, print_summary

    build = run_with_progress(demo_parameters(folder, model), "threads", quiet=as_json)
    if not as_json:
        print_summary(build)
    trainings = run_trainings(demo_trainings(folder, model), quiet=as_json)
    tool_items, plain_items, perplexity = run_evaluations(demo_evaluations(folder, trainings, model), quiet=as_json)
    table = demo_table(tool_items, plain_items, perplexity)
    if as_json:
        print_json({"table": [asdict(row) for row in table], "trainings": [asdict(result) for result in trainings]})
    else:
        toolformer = next(result.model for result in trainings if result.arm == "toolformer")
        print_demo(table, folder, tool_items.tracking, toolformer)
