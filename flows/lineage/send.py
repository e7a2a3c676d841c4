"""OpenLineage events to a file, a line for each that it lacks, or to a server, a request for each."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flows.lineage.events import as_json, events_of
from flows.lineage.select import steps_of
from tasks.settings import lineage_key, lineage_target, shown_url
from toolformer_core.errors import ToolformerError, UsageError
from warehouse.errors import WarehouseError
from warehouse.files.lock import FileLock
from warehouse.store import Store

__all__ = ["LineageError", "send", "send_run"]

_log = logging.getLogger(__name__)
_ENDPOINT = "api/v1/lineage"  # of Marquez, and of the client
_TIMEOUT_S = 10.0
_TRIES = {"total": 2, "connect": 2, "read": 2}  # further ones, after 0 and 0.6 s: a flow waits for them
_WAIT_S = 60.0  # for another run that writes to the same file


class LineageError(ToolformerError):
    """Events could not be written, or the server did not take them."""


def send(events: Sequence[Any], to: str) -> int:
    """Send events to a file or a server's address; return how many were sent: of a file, those that it lacked.

    Raises:
        UsageError: the address holds credentials, or is none.
        LineageError: they could not be written or sent; those before stay sent.
    """
    return _to_server(events, to) if "://" in to else _to_file(events, Path(to).expanduser())


def _to_file(events: Sequence[Any], path: Path) -> int:
    from openlineage.client import OpenLineageClient
    from openlineage.client.transport.file import FileConfig, FileTransport

    transport = FileTransport(FileConfig(log_file_path=str(path), append=True))
    client = OpenLineageClient(transport=transport)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f"{path.name}.lock"), wait_s=_WAIT_S):
            held = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()
            # The client adds its version as a tag, which adding twice does not change.
            missing = [event for event in events if as_json(client.update_event_tags_facets(event)) not in held]
            for event in missing:
                client.emit(event)
    except (OSError, RuntimeError, WarehouseError) as exc:
        raise LineageError(f"the events cannot be written to {path}: {_line(exc)}") from exc
    return len(missing)


def _to_server(events: Sequence[Any], address: str) -> int:
    from openlineage.client import OpenLineageClient
    from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider
    from openlineage.client.transport.http_common import DEFAULT_RETRY_CONFIG
    from requests import RequestException

    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--to takes a file, or the address of a server, e.g. http://localhost:5000; got {address!r}")
    if "@" in parts.netloc or shown_url(address) != address:
        raise UsageError(f"{shown_url(address)} holds credentials: leave them out, and set OPENLINEAGE_API_KEY instead")
    key = lineage_key()
    config = HttpConfig(
        url=f"{parts.scheme}://{parts.netloc}",
        endpoint=parts.path.strip("/") or _ENDPOINT,
        timeout=_TIMEOUT_S,
        retry={**DEFAULT_RETRY_CONFIG, **_TRIES},
        auth=ApiKeyTokenProvider({"apiKey": key}) if key else TokenProvider({}),
    )
    client = OpenLineageClient(transport=HttpTransport(config))
    try:
        for event in events:
            client.emit(event)
    except RequestException as exc:
        response = exc.response
        why = _line(exc) if response is None else f"it answered {response.status_code}: {_line(response.text)}"
        raise LineageError(f"the events were not sent to {address}: {why}") from exc
    finally:
        client.close()
    return len(events)


def _line(about: object) -> str:
    return next(iter(str(about).strip().splitlines()), type(about).__name__)[:300]


def send_run(store: Store, run: str) -> None:
    """Send the events of a run to where $TOOLFORMER_LINEAGE says, if it does; a failure is only logged."""
    to = lineage_target()
    if not to:
        return
    try:
        sent = send(events_of(steps_of(store, run=run)), to)
    except (ToolformerError, WarehouseError) as exc:
        _log.warning("the run's lineage was not sent, the run is not affected: %s", exc)
    else:
        _log.info("%d OpenLineage events sent to %s", sent, shown_url(to))
