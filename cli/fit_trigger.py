"""The command `fit-trigger`: thresholds on p(" [") for a finetuned model. `cli.main` registers it.

It prints the result of `flows.finetune.fit_trigger` and decides nothing. It imports what it needs when it runs.
"""

from __future__ import annotations

import sys
from dataclasses import asdict

from cli.options import AsJson, with_options
from cli.terminal import print_json, say
from flows.finetune.parameters import FitTriggerParameters
from tasks.environment import prepare_environment


@with_options(FitTriggerParameters)
def fit_trigger(parameters: FitTriggerParameters, as_json: AsJson = False) -> None:
    """Fit when a finetuned model calls: for each tool the smallest p(' [') of a call, on held-out documents of C*.

    The result is stored with the training. generate, chat, serve and evaluate use it with --trigger fitted.

    Example: toolformer fit-trigger --data toolformer-data
    """
    prepare_environment(parameters.data)
    from flows.finetune.fit_trigger import fit_trigger as run
    from flows.finetune.fit_trigger import fits_table

    def show(done: int, total: int) -> None:
        if not as_json and sys.stderr.isatty():
            print(f"\r{done} of {total} windows read", end="" if done < total else "\n", file=sys.stderr, flush=True)

    result = run(parameters, show)
    if as_json:
        print_json({**asdict(result), "thresholds": result.fitted.thresholds})
        return
    from cli.render.tables import print_tables

    print_tables([fits_table(result.fitted)])
    say(f"stored in {result.file}; use it with --trigger fitted")
