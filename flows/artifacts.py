"""What Prefect's pages show of a flow run while it goes on, and at its end: progress per stage, a summary, links.

Every stage has one progress artifact: shards, rows in and kept by unit (documents, draws, calls), and how long it will
still take. A thread updates those that have news, at most every `EVERY_S` seconds; a shard that finishes costs no
request. The run's log has the same lines, when `progress` says that one is due, and what is at work where there is no
news. Where Prefect does not answer, that is said once and the work goes on. What a summary says is made in `summaries`;
this module knows no figures of the method.
"""

from __future__ import annotations

import contextvars
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from httpx import HTTPError
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run as this_run

from flows.progress import LINE_S, Pulse, Stage, passes_quarter

if TYPE_CHECKING:
    from flows.ledger import Ledger
    from tasks.shards import Done

__all__ = ["EVERY_S", "Board", "named", "publish_link", "publish_summary", "short", "showing"]

_log = logging.getLogger(__name__)

EVERY_S = 10.0  # seconds between two updates of a stage's artifact
_NO_ANSWER = (HTTPError, PrefectException)


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
        logger: gets a stage's line when it begins, when a quarter is finished, and after a minute, if there is news.
        clock: seconds that only grow.
        pulse: returns a line on the work under way, for the log; default: none.
    """

    def __init__(
        self,
        flow: str,
        totals: Mapping[str, int],
        client: Client,
        flow_run: UUID,
        logger: logging.Logger | logging.LoggerAdapter[Any] = _log,
        clock: Callable[[], float] = time.monotonic,
        pulse: Callable[[], str] = lambda: "",
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
        self._pulse = pulse
        self._logged: dict[str, tuple[int, float]] = {}  # shards finished, and when by `clock`
        self._last = clock()  # when the log had its last line
        self._turn = threading.Lock()

    def note(self, done: Done) -> None:
        """Count a shard; nothing is sent."""
        with self._turn:
            self._stages.setdefault(done.key.stage, Stage()).note(done)

    def update(self) -> None:
        """Make or renew the artifacts of the stages that have news. A stage begins when it is first seen here."""
        now = self._clock()
        with self._turn:
            stages = []
            for name, shards in dict(self._totals).items():
                stage = self._stages.setdefault(name, Stage())
                told = stage.told(shards, now - self._begun.setdefault(name, now))
                stages.append((name, told, stage.finished, shards))
        for name, told, finished, shards in stages:
            self._log(name, told, finished, shards, now)
            if told != self._shown.get(name):
                self._shown[name] = told
                self._send(name, told, 100.0 * finished / max(1, shards))
        if now - self._last >= LINE_S and (told := self._pulse()):
            self._last = now
            self._logger.info("%s", told)

    def _log(self, name: str, told: str, finished: int, shards: int, now: float) -> None:
        before, then = self._logged.get(name, (-1, -math.inf))
        if finished != before and (now - then >= LINE_S or passes_quarter(before, finished, shards)):
            self._logged[name], self._last = (finished, now), now
            self._logger.info("%s: %s", name, told)

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
        board = Board(ledger.run.flow, ledger.totals, client, UUID(str(this_run.id)), logger, pulse=Pulse().told)
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
