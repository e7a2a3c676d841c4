"""The command `fit-trigger`: thresholds on p(" [") for a finetuned model. `cli.main` registers it.

It prints the result of `flows.finetune.fit_trigger` and decides nothing. It imports what it needs when it runs.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from cli.options import AsJson, with_options
from cli.terminal import print_json
from flows.finetune.parameters import FitTriggerParameters
from tasks.environment import prepare_environment

if TYPE_CHECKING:
    from flows.finetune.fit_trigger import TriggerResult

_BOUNDS = {
    "needless": "",
    "lost": "more needless openings remain than asked for, because fewer would lose too many calls",
    "few_calls": "few calls to learn from, so theta is at most a tenth of the least p(' [') among them",
    "too_few_calls": "too few calls for a threshold",
}


@with_options(FitTriggerParameters)
def fit_trigger(parameters: FitTriggerParameters, as_json: AsJson = False) -> None:
    """Fit when a finetuned model calls: for each tool the smallest p(' [') of a call, on held-out documents of C*.

    The result is stored with the training. generate, chat, serve and evaluate use it with --trigger fitted.

    Example: toolformer fit-trigger --data toolformer-data
    """
    prepare_environment(parameters.data)
    from flows.finetune.fit_trigger import fit_trigger as run

    def show(done: int, total: int) -> None:
        if not as_json and sys.stderr.isatty():
            print(f"\r{done} of {total} windows read", end="" if done < total else "\n", file=sys.stderr, flush=True)

    result = run(parameters, show)
    if as_json:
        print_json({**asdict(result), "thresholds": result.fitted.thresholds})
    else:
        _print_result(result)


def _print_result(result: TriggerResult) -> None:
    """Print a row per tool, and what to do with the thresholds."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from cli.render.console import Console
    from flows.finetune.fit_trigger import rows_of_fits

    console, fitted = Console(), result.fitted
    title = f"held-out documents of {escape(fitted.dataset)}: {fitted.documents:,}; k = {fitted.top_k}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("tool", no_wrap=True)
    for name in ("theta", "calls", "opened", "kept", "needless", "left"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = rows_of_fits(fitted)
    for row in rows:
        theta = "-" if row["theta"] is None else f"{row['theta']:.3g}"
        counts = (f"{row[name]:,}" for name in ("calls", "opened", "kept", "needless", "needless_left"))
        table.add_row(escape(row["tool"]), theta, *counts)
    console.print(table)
    for row in rows:
        if note := _BOUNDS[row["bound"]]:
            console.print(f"{escape(row['tool'])}: {note}", highlight=False)
    console.print(
        "opened: calls of C* at which ' [' is among the k most likely tokens and the model names the tool; needless: "
        "such openings where C* has no call; kept, left: what remains of the two at theta.",
        highlight=False,
    )
    console.print(f"stored in {escape(result.file)}; use it with --trigger fitted", soft_wrap=True, highlight=False)
