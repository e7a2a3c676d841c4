"""Cancel in Prefect's page, for a run that a command of this machine has started: no worker is there to end it.

So the run looks at its own state from time to time, and the command stops as on Ctrl-C. A worker ends its own runs.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from httpx import HTTPError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.runtime import flow_run as this_run
from prefect.states import Cancelled

from flows.runtime.background import in_background
from flows.runtime.stopping import Stopped, handles_stop, stop_command

_EVERY_S = 10.0  # between two looks
_AGAIN = "run the same command again to continue"

_stopped: list[UUID] = []  # runs of this process that were cancelled


@contextmanager
def stopping_if_cancelled(every_s: float = _EVERY_S) -> Iterator[None]:
    """Inside a flow: stop the command of this process, if there is one, when the flow's run is cancelled or deleted."""
    if not handles_stop():
        yield
        return
    run = UUID(str(this_run.id))

    def look(ended: threading.Event) -> None:
        with get_client(sync_client=True) as client:
            while not ended.wait(every_s):
                if how := _how_cancelled(client, run):
                    _stopped.append(run)
                    _mark(client, run)  # before the process may end
                    stop_command(f"the run was {how} in Prefect; {_AGAIN}")
                    return

    with in_background("cancelling", look):
        yield


@contextmanager
def ending_as_cancelled() -> Iterator[None]:
    """Around the call of a flow: show a run as cancelled that was, however it ended.

    Raises:
        Stopped: the run was deleted.
    """
    try:
        yield
    except ObjectNotFound as exc:
        raise Stopped(f"the run was deleted in Prefect; {_AGAIN}") from exc
    finally:
        if _stopped:
            with get_client(sync_client=True) as client:
                while _stopped:
                    _mark(client, _stopped.pop())


def _how_cancelled(client: SyncPrefectClient, run: UUID) -> str:
    """Return "cancelled", "deleted", or "" if the run is neither, or the server does not answer."""
    try:
        state = client.read_flow_run(run).state
    except ObjectNotFound:
        return "deleted"
    except (HTTPError, PrefectException):
        return ""
    return "cancelled" if state is not None and (state.is_cancelling() or state.is_cancelled()) else ""


def _mark(client: SyncPrefectClient, run: UUID) -> None:
    with suppress(HTTPError, PrefectException):  # it may be deleted
        client.set_flow_run_state(run, Cancelled(), force=True)
