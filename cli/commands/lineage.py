"""`toolformer lineage`: data lineage, printed, or sent as OpenLineage events."""

import json
from typing import Annotated

from typer import Option

from cli.commands.warehouse import built_store
from cli.options import AsJson, Data
from cli.terminal import print_json, say
from flows.lineage.steps import Data as Dataset
from toolformer_core.errors import UsageError


def lineage(
    run: Annotated[str, Option(help="Of this run alone: a build, an evaluation, a training's job, ...")] = "",
    dataset: Annotated[str, Option(help="Of NAME or NAME@VERSION: the run that made it, and what is made of it")] = "",
    to: Annotated[str, Option(help="File or server to send OpenLineage events to, e.g. http://localhost:5000")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show data lineage: corpus, stages, C*, checkpoints, exports. With --to, send it as OpenLineage events.

    Events are made from the stored commits. The same commits give the same events, so sending them again does no harm.

    Example: toolformer lineage --dataset cstar --data runs/c4

    To Marquez: toolformer lineage --data runs/c4 --to http://localhost:5000
    """
    from flows.lineage.events import as_json as event_as_json
    from flows.lineage.events import events_of
    from flows.lineage.select import steps_of
    from flows.lineage.send import send

    if run and dataset:
        raise UsageError("give --run or --dataset, not both")
    steps = steps_of(built_store(data), run=run, dataset=dataset)
    if to:
        events = events_of(steps)
        sent = send(events, to)
        if as_json:
            print_json({"events": len(events), "sent": sent, "to": to})
        else:
            say(f"{len(events):,} events of {len(steps):,} runs of jobs, {sent:,} sent to {to}")
        return
    if as_json:
        print_json([json.loads(event_as_json(event)) for event in events_of(steps)])
        return
    if not steps:
        say("no run has committed anything yet")
    for step in steps:
        state = "" if step.state == "completed" else f", {step.state}"
        say(f"{step.job}  ({step.run}{state})")
        for sign, datasets in (("<-", step.inputs), ("->", step.outputs)):
            for one in datasets:
                say(f"    {sign} {_described(one)}")


def _described(one: Dataset) -> str:
    rows = "" if one.rows is None else f"  {one.rows:,} rows"
    place = one.name if one.namespace == "file" else f"{one.namespace} {one.name}"
    return f"{place}{f'  @{one.version}' if one.version else ''}{rows}"
