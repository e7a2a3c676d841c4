"""Prefect artifacts of a flow run: progress per stage while it runs, and a summary and links at its end.

If Prefect does not answer, that is logged and the work goes on.
"""

from __future__ import annotations

import base64
import io
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID

from httpx import HTTPError
from prefect import artifacts
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run as this_run

from flows.runtime.context import repeating
from flows.runtime.progress import LINE_S, Pulse, StageProgress, passes_quarter
from toolformer_core.errors import first_line

if TYPE_CHECKING:
    from flows.runtime.ledger import Ledger
    from tasks.shards.run_shard import ShardResult

_log = logging.getLogger(__name__)

EVERY_S = 10.0  # seconds between two updates of a stage's artifact
_WORK_EVERY_S = 2.0  # ... and of work that is one piece
_NO_ANSWER = (HTTPError, PrefectException)


@dataclass(slots=True)
class ProgressArtifacts:
    """The progress artifacts of one flow run, one for each stage; the log gets a line when one is due."""

    flow: str  # its name; an artifact's key is `<flow>-<number>-<stage>`, so that keys sort as the stages follow
    totals: Mapping[str, int]  # stage -> expected shards; it may grow
    client: SyncPrefectClient | None  # None: Prefect has not answered
    flow_run: UUID
    logger: logging.Logger | logging.LoggerAdapter[Any]
    clock: Callable[[], float] = time.monotonic
    pulse: Callable[[], str] = lambda: ""  # returns a line on the work under way, for the log
    _stages: dict[str, StageProgress] = field(default_factory=dict)
    _begun: dict[str, float] = field(default_factory=dict)  # by `clock`
    _made: dict[str, UUID] = field(default_factory=dict)
    _shown: dict[str, str] = field(default_factory=dict)
    _logged: dict[str, tuple[int, float]] = field(default_factory=dict)  # shards finished, and when by `clock`
    _last: float = field(init=False)  # when the log had its last line
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._last = self.clock()

    def note(self, result: ShardResult) -> None:
        with self._turn:
            self._stages.setdefault(result.key.stage, StageProgress()).note(result)

    def update(self) -> float:
        """Create or update the artifacts of stages that changed; return the seconds until the next update."""
        now = self.clock()
        with self._turn:
            stages = []
            for name, shards in dict(self.totals).items():
                stage = self._stages.setdefault(name, StageProgress())
                line = stage.line(shards, now - self._begun.setdefault(name, now))
                stages.append((name, line, stage.finished, shards))
        for name, line, finished, shards in stages:
            self._log(name, line, finished, shards, now)
            if line != self._shown.get(name):
                self._shown[name] = line
                self._send(name, line, 100.0 * finished / max(1, shards))
        if now - self._last >= LINE_S and (line := self.pulse()):
            self._last = now
            self.logger.info("%s", line)
        return EVERY_S

    def _log(self, name: str, line: str, finished: int, shards: int, now: float) -> None:
        before, then = self._logged.get(name, (-1, -math.inf))
        if finished != before and (now - then >= LINE_S or passes_quarter(before, finished, shards)):
            self._logged[name], self._last = (finished, now), now
            self.logger.info("%s: %s", name, line)

    def _send(self, name: str, line: str, percent: float) -> None:
        if self.client is None:
            return
        try:
            if name in self._made:
                self.client.update_artifact(self._made[name], ArtifactUpdate(data=percent, description=line))
                return
            key = f"{self.flow}-{list(self.totals).index(name) + 1:02d}-{name}".replace("_", "-")  # which it forbids
            made = ArtifactCreate(key=key, type="progress", description=line, data=percent, flow_run_id=self.flow_run)
            self._made[name] = self.client.create_artifact(made).id
        except _NO_ANSWER as exc:
            self.logger.warning("Prefect shows no progress from here on, the work goes on: %s", first_line(exc))
            self.client = None


@contextmanager
def report_progress(ledger: Ledger, logger: logging.Logger | logging.LoggerAdapter[Any]) -> Iterator[None]:
    """Show the progress of a flow run's stages while this block runs."""
    with get_client(sync_client=True) as client:
        run = UUID(str(this_run.id))
        shown = ProgressArtifacts(ledger.run.flow, ledger.totals, client, run, logger, pulse=Pulse().line)
        ledger.watchers.append(shown.note)
        try:
            with repeating("artifacts", shown.update):
                yield
        finally:
            ledger.watchers.remove(shown.note)
            shown.update()


class WorkProgress:
    """The progress artifact of a flow run whose work has no stages; if Prefect does not answer, the work goes on."""

    def __init__(self, key: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown = -math.inf
        self._id: UUID | None = None
        with _logging_failures():
            made = artifacts.create_progress_artifact(0.0, key=key, description="starting")
            self._id = made  # type: ignore[assignment]

    def show(self, percent: float, line: str) -> None:
        """Show how far the work is, unless that was done less than two seconds ago and it is not done yet."""
        if self._id is not None and (percent == 100 or self._clock() - self._shown > _WORK_EVERY_S):
            self._shown = self._clock()
            with _logging_failures():
                artifacts.update_progress_artifact(self._id, percent, description=line)


def publish_summary(markdown: str, key: str, description: str) -> None:
    """Attach a Markdown artifact to the flow run; if Prefect does not answer, only log it."""
    with _logging_failures():
        artifacts.create_markdown_artifact(markdown, key=key, description=description)


def embedded_picture(figure: Any, caption: str) -> str:
    """Return a figure of `tasks.tracking` as Markdown that holds the picture itself."""
    return f"![{caption}](data:image/png;base64,{base64.b64encode(png(figure)).decode()})"


def png(figure: Any) -> bytes:
    """Return a figure as a PNG file; of equal figures the bytes are equal."""
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def publish_link(address: str | None, key: str, text: str) -> None:
    """Attach a link to the flow run; do nothing without an address."""
    if address is not None:
        with _logging_failures():
            artifacts.create_link_artifact(address, link_text=text, key=key, description=text)


@contextmanager
def _logging_failures() -> Iterator[None]:
    try:
        yield
    except _NO_ANSWER as exc:
        _log.warning("Prefect did not take an artifact, the work is done all the same: %s", first_line(exc))


def run_name_from(pattern: str) -> Callable[[], str]:
    """Return a function that names a flow run by a pattern of its parameters, e.g. `build {dataset} from {corpus}`."""

    def name() -> str:
        given = this_run.parameters["parameters"]
        fields = given if isinstance(given, dict) else given.model_dump()
        if fields.get("tool"):  # a user's own, besides the paper's
            fields = {**fields, "tools": [*(fields.get("tools") or ()), *fields["tool"]]}
        return pattern.format_map({key: short(value) for key, value in fields.items()})

    return name


def short(value: Any) -> str:
    """Return a value as it appears in a name: the last part of a path or URL, the length of a list."""
    if isinstance(value, list):
        return str(len(value))
    text = str(value)
    return (PurePath(text.rstrip("/")).name or text) if "/" in text else text
