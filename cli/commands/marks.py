"""The command `marks`: what people say of calls, the precision that follows from it, and their verdicts as a file.

`cli.main` registers it. Marks are made in the viewer.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.warehouse import built_store, published_snapshot
from cli.options import AsJson, Data
from cli.terminal import only_finite, print_json
from toolformer_core.errors import UsageError

if TYPE_CHECKING:
    from flows.report.judging import JudgedCall


def marks(
    tau: Annotated[
        str, typer.Option("--tau", help="Thresholds in nats at which to tell the precision, besides each tool's own")
    ] = "0.5,1,2",
    export: Annotated[
        Path | None,
        typer.Option(metavar="OUT.jsonl", help="Write every marked call there: call, gain, verdicts, judgement"),
    ] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Summarise people's ratings of calls: precision by tool with its interval, and agreement between raters.

    A call is right if more people accept than reject it, wrong if more reject it, else open. The precision is that of
    the judged calls; it speaks for all of a tool's calls if those were drawn at random. `toolformer build` and
    `what-if` heed marks with --ratings.

    Example: toolformer marks --data runs/c4
    Example: toolformer marks --export judged.jsonl --data runs/c4
    """
    from flows.report.judging import judgements

    try:
        thresholds = [float(part) for part in tau.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"--tau: {tau!r} is no list of numbers; write e.g. 0.5,1,2") from None
    if export is not None and export.exists():
        raise UsageError(f"{export} exists already; name another, or remove it first")
    found = judgements(built_store(data), published_snapshot(data), thresholds)
    if export is not None:
        export.write_text("".join(json.dumps(only_finite(_row(call))) + "\n" for call in found.calls), encoding="utf-8")
    if as_json:
        print_json({**asdict(found), "calls": len(found.calls), "users": found.users})
        return
    from cli.render.marks import print_judgements

    print_judgements(found)
    if export is not None:
        print(f"{export}: {len(found.calls):,} marked calls")


def _row(call: JudgedCall) -> dict[str, Any]:
    return {**asdict(call.call), "gain": call.gain, "verdicts": dict(call.verdicts), "judgement": call.judgement}
