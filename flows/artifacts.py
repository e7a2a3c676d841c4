"""What Prefect's pages show of a flow run while it goes on, and at its end: progress per stage, a summary, links.

Every stage has one progress artifact: shards, rows in and kept by unit (documents, draws, calls), and how long it will
still take. A thread updates those that have news, at most every `EVERY_S` seconds, and logs the same line; a shard that
finishes costs no request. Where Prefect does not answer, that is said once and the work goes on. What a summary says is
made in `summaries`; this module knows no figures of the method.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from httpx import HTTPError
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run as this_run

if TYPE_CHECKING:
    from flows.ledger import Ledger
    from tasks.shards import Done

__all__ = ["EVERY_S", "Board", "Stage", "named", "publish_link", "publish_summary", "short", "showing", "time_left"]

_log = logging.getLogger(__name__)

EVERY_S = 10.0  # seconds between two updates of a stage's artifact
_NO_ANSWER = (HTTPError, PrefectException)


@dataclass(slots=True)
class Stage:
    """How far a stage is."""

    finished: int = 0  # shards
    skipped: int = 0  # of these, found done
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)  # unit -> in, kept

    def note(self, done: Done) -> None:
        """Count one more shard."""
        self.finished += 1
        self.skipped += done.skipped
        for balance in done.balances:
            rows_in, kept = self.rows.get(balance.unit, (0, 0))
            self.rows[balance.unit] = (rows_in + balance.rows_in, kept + balance.kept)

    def told(self, shards: int, elapsed_s: float) -> str:
        """Return what a person is told: shards, rows, and the time left.

        Args:
            shards: in all.
            elapsed_s: seconds since the stage began.
        """
        parts = [
            f"{self.finished:,} of {shards:,} shards" + (f" ({self.skipped:,} found done)" if self.skipped else "")
        ]
        parts += [f"{rows_in:,} {unit}, {kept:,} kept" for unit, (rows_in, kept) in self.rows.items()]
        worked = self.finished - self.skipped
        if worked and elapsed_s and self.finished < shards:
            parts.append(f"{time_left(elapsed_s / worked * (shards - self.finished))} left")
        return "; ".join(parts)


def time_left(seconds: float) -> str:
    """Return a time as a person says it: 40 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Client(Protocol):
    """What is asked of Prefect's client."""

    def create_artifact(self, artifact: ArtifactCreate) -> Any: ...

    def update_artifact(self, artifact_id: UUID, artifact: ArtifactUpdate) -> None: ...


class Board:
    """The progress artifacts of one flow run.

    Args:
        flow: the flow's name; an artifact's key is `<flow>-<stage>`.
        totals: stage -> shards expected, as it grows.
        client: of the server that runs the flow.
        flow_run: its id.
        logger: told the same lines.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        flow: str,
        totals: Mapping[str, int],
        client: Client,
        flow_run: UUID,
        logger: logging.Logger | logging.LoggerAdapter[Any] = _log,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flow = flow
        self._totals = totals
        self._client: Client | None = client
        self._flow_run = flow_run
        self._logger = logger
        self._clock = clock
        self._stages: dict[str, Stage] = {}
        self._begun: dict[str, float] = {}  # by `clock`
        self._made: dict[str, UUID] = {}
        self._shown: dict[str, str] = {}
        self._turn = threading.Lock()

    def note(self, done: Done) -> None:
        """Count a shard; nothing is sent."""
        with self._turn:
            self._stages.setdefault(done.key.stage, Stage()).note(done)

    def update(self) -> None:
        """Make or renew the artifacts of the stages that have news. A stage begins when it is first seen here."""
        now = self._clock()
        with self._turn:
            news = {}
            for name, shards in dict(self._totals).items():
                stage = self._stages.setdefault(name, Stage())
                told = stage.told(shards, now - self._begun.setdefault(name, now))
                if told != self._shown.get(name):
                    news[name] = (told, 100.0 * stage.finished / max(1, shards))
        for name, (told, percent) in news.items():
            self._shown[name] = told
            self._logger.info("%s: %s", name, told)
            self._send(name, told, percent)

    def _send(self, name: str, told: str, percent: float) -> None:
        if self._client is None:
            return
        try:
            if name in self._made:
                self._client.update_artifact(self._made[name], ArtifactUpdate(data=percent, description=told))
                return
            request = ArtifactCreate(
                key=f"{self._flow}-{name}",
                type="progress",
                description=told,
                data=percent,
                flow_run_id=self._flow_run,
            )
            self._made[name] = self._client.create_artifact(request).id
        except _NO_ANSWER as exc:
            self._logger.warning("Prefect shows no progress from here on, the work goes on: %s", _line(exc))
            self._client = None


@contextmanager
def showing(
    ledger: Ledger, logger: logging.Logger | logging.LoggerAdapter[Any], every_s: float = EVERY_S
) -> Iterator[Board]:
    """Show the progress of a flow run's stages while this block runs.

    Args:
        ledger: of the run; it tells of every shard.
        logger: the run's.
        every_s: seconds between two updates.
    """
    with get_client(sync_client=True) as client:
        board = Board(ledger.run.flow, ledger.totals, client, UUID(str(this_run.id)), logger)
        ledger.watchers.append(board.note)
        ended = threading.Event()

        def keep() -> None:
            while not ended.wait(every_s):
                board.update()

        board.update()
        thread = threading.Thread(target=contextvars.copy_context().run, args=[keep], name="artifacts", daemon=True)
        thread.start()
        try:
            yield board
        finally:
            ended.set()
            thread.join()
            ledger.watchers.remove(board.note)
            board.update()


def publish_summary(markdown: str, key: str, description: str = "") -> None:
    """Keep a Markdown artifact with the flow run; where Prefect does not answer, say so."""
    with _forgiving():
        create_markdown_artifact(markdown, key=key, description=description)


def publish_link(address: str | None, key: str, text: str) -> None:
    """Keep a link with the flow run; none where there is no address."""
    if address is not None:
        with _forgiving():
            create_link_artifact(address, link_text=text, key=key)


@contextmanager
def _forgiving() -> Iterator[None]:
    try:
        yield
    except _NO_ANSWER as exc:
        _log.warning("Prefect did not take an artifact, the work is done all the same: %s", _line(exc))


def _line(exc: BaseException) -> str:
    return next(iter(str(exc).strip().splitlines()), type(exc).__name__)


def named(pattern: str) -> Callable[[], str]:
    """Return what names a flow run by its parameters, paths and URLs by their last part.

    Args:
        pattern: as `str.format` takes it, with fields of the form, e.g. `build {dataset} from {corpus}`.
    """

    def name() -> str:
        given = this_run.parameters["parameters"]
        fields = given if isinstance(given, dict) else given.model_dump()
        return pattern.format_map({key: short(value) for key, value in fields.items()})

    return name


def short(value: Any) -> str:
    """Return a value for a name: of a path or URL its last part, of a list how many."""
    if isinstance(value, list):
        return str(len(value))
    text = str(value)
    return (PurePath(text.rstrip("/")).name or text) if "/" in text else text
