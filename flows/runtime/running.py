"""How a flow begins, and how the run of one whose work is stages is opened, shown and spread over workers.

Which stages these are is not known here.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prefect import get_run_logger

from flows.runtime.artifacts import report_progress
from flows.runtime.cancelling import stopping_if_cancelled
from flows.runtime.ledger import Ledger, now, open_run
from flows.runtime.runners import use_runner
from flows.runtime.server import record_server
from flows.runtime.stopping import restore_stop_handler
from tasks.environment import prepare_environment
from warehouse.commits import Run
from warehouse.store import Store


def begin_flow() -> None:
    """Prepare this process for a flow; call it first in the flow."""
    prepare_environment()
    record_server()
    restore_stop_handler()


@contextmanager
def running(
    flow: str, run_id: str, store: Store, form: Any, corpus: str, recorded: Mapping[str, Any] | None = None
) -> Iterator[Ledger]:
    """Inside a flow: open its run, show its progress, and run the tasks submitted in this block as the form says.

    Args:
        form: the flow's parameters, with `model`, `workers` and `gpus`.
        corpus: what the run reads, as its manifest names it.
        recorded: the parameters in the manifest; None: the form's.

    Raises:
        UsageError, RunnerError: see `use_runner`.
        LockHeldError, WarehouseError: see `open_run`.
    """
    run = Run(
        run_id=run_id,
        flow=flow,
        started=now(),
        finished=None,
        state="running",
        parameters=dict(form.model_dump(mode="json") if recorded is None else recorded),
        corpus=corpus,
        model=form.model,
    )
    with (
        open_run(store, run) as ledger,
        report_progress(ledger, get_run_logger()),
        stopping_if_cancelled(),
        use_runner(form.workers, form.gpus),
    ):
        yield ledger
