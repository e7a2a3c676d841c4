"""How a flow begins, how the run of one whose work is stages is opened and spread over workers, and how it ends.

Where a command of this machine has started the run, no worker cancels it: it looks at its own state from time to time.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

from httpx import HTTPError
from prefect import get_run_logger
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.runtime import flow_run as this_run
from prefect.states import Cancelled

from flows.runtime.artifacts import report_progress
from flows.runtime.context import repeating
from flows.runtime.ledger import Ledger, now, open_run
from flows.runtime.runners import use_runner
from flows.runtime.server import record_server
from flows.runtime.stopping import Stopped, handles_stop, restore_stop_handler, stop_command
from tasks.environment import prepare_environment
from warehouse.commits import Run
from warehouse.store import Store

_EVERY_S = 10.0  # between two looks at the run's state
_AGAIN = "run the same command again to continue"

_stopped: list[UUID] = []  # runs of this process that were cancelled


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

    `corpus`: what the run reads; `recorded`: the manifest's parameters, where they are not the form's.
    """
    parameters = dict(form.model_dump(mode="json") if recorded is None else recorded)
    run = Run(run_id, flow, now(), None, "running", parameters, corpus, form.model)
    with (
        open_run(store, run) as ledger,
        report_progress(ledger, get_run_logger()),
        stopping_if_cancelled(),
        use_runner(form.workers, form.gpus),
    ):
        yield ledger


@contextmanager
def stopping_if_cancelled(every_s: float = _EVERY_S) -> Iterator[None]:
    """Inside a flow: stop the command of this process, if there is one, when the flow's run is cancelled or deleted."""
    if not handles_stop():
        yield
        return
    run = UUID(str(this_run.id))
    with get_client(sync_client=True) as client:

        def look() -> float | None:
            if not (how := _how_cancelled(client, run)):
                return every_s
            _stopped.append(run)
            _mark_cancelled(client, run)  # before the process may end
            stop_command(f"the run was {how} in Prefect; {_AGAIN}")
            return None

        with repeating("cancelling", look):
            yield


@contextmanager
def ending_as_cancelled() -> Iterator[None]:
    """Around the call of a flow: show a cancelled run as such, however it ended; of a deleted one, raise `Stopped`."""
    try:
        yield
    except ObjectNotFound as exc:
        raise Stopped(f"the run was deleted in Prefect; {_AGAIN}") from exc
    finally:
        if _stopped:
            with get_client(sync_client=True) as client:
                while _stopped:
                    _mark_cancelled(client, _stopped.pop())


def _how_cancelled(client: SyncPrefectClient, run: UUID) -> str:
    try:
        state = client.read_flow_run(run).state
    except ObjectNotFound:
        return "deleted"
    except (HTTPError, PrefectException):
        return ""
    return "cancelled" if state is not None and (state.is_cancelling() or state.is_cancelled()) else ""


def _mark_cancelled(client: SyncPrefectClient, run: UUID) -> None:
    with suppress(HTTPError, PrefectException):  # it may be deleted
        client.set_flow_run_state(run, Cancelled(), force=True)
