"""One thread decodes for all requests; the event loop hands sequences in and gets their events back.

    loading --> ready --> draining --> stopped
       |          ^  |       no new requests; open ones end, or are ended when the time of grace is up
       v          +--+ the engine failed: its sequences end as "stopped", a new engine goes on
     failed

Places are counted here: a request takes one for each of its sequences, of as many as there are rows and places in the
queue, and gives it back when its sequence has ended and its answer is out. So no client, however many of them and
however slowly they read, makes the server hold more. It knows tickets and events, no HTTP.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from serving.errors import busy, unavailable
from serving.metrics import Metrics
from toolformer_core.decode.engine import Engine, Handle
from toolformer_core.decode.records import CallFinished, Event, Finished, Settings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import ToolformerError, UsageError
from toolformer_core.tools.base import Tool

__all__ = ["Driver", "Ticket"]

_RETRY_AFTER_S = 1
_log = logging.getLogger(__name__)


class Ticket:
    """A request's sequences and what they say. Used in the event loop."""

    def __init__(self, sequences: int) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.sequences = sequences
        self.open = sequences  # of them, those that have not ended
        self.held = sequences  # places
        self.closed = False  # nobody wants the answer any more, or it is out
        self.handles: list[tuple[Engine, Handle]] = []


class Driver:
    """Loads the model, drives the engine, and counts places. Start it in a running event loop.

    Args:
        load: returns the model with its tools; called in the driving thread.
        max_rows: sequences decoded together; that of what `load` returns.
        queue: further sequences that may wait.
        on_failed: called in the event loop if the model cannot be loaded.
    """

    def __init__(
        self,
        load: Callable[[], Toolformer],
        *,
        max_rows: int,
        queue: int,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.places = max_rows + queue
        self.taken = 0
        self.tools: Mapping[str, Tool] = {}  # by their names in calls
        self.failure: BaseException | None = None
        self.metrics = Metrics(lambda: self._waiting(), lambda: self._running(), lambda: self.taken)
        self._load = load
        self._on_failed = on_failed
        self._toolformer: Toolformer | None = None
        self._engine: Engine | None = None
        self._draining = self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._outbox: collections.deque[tuple[Ticket, Event]] = collections.deque()
        self._woken = False
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)

    @property
    def state(self) -> str:
        """One of loading, ready, draining, failed."""
        if self.failure is not None:
            return "failed"
        if self._draining:
            return "draining"
        return "loading" if self._engine is None else "ready"

    @property
    def toolformer(self) -> Toolformer:
        """The model with its tools.

        Raises:
            RequestError: 503: it is not ready.
        """
        if self._toolformer is None or self.state != "ready":
            raise unavailable(f"the model is {self.state}; try again", "not_ready")
        return self._toolformer

    def start(self) -> None:
        """Begin to load."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def drain(self, grace_s: float) -> None:
        """Let nobody in any more; end what is still open after `grace_s` seconds."""
        self._draining = True
        if self._loop is not None:
            self._loop.call_later(grace_s, self._stop)

    def _stop(self) -> None:
        self._draining = self._stopping = True
        if self._engine is not None:
            self._engine.stop()

    async def close(self) -> None:
        """End everything and wait for the thread; a model that is still loading is not waited for."""
        self._stop()
        if self._engine is not None:
            await asyncio.to_thread(self._thread.join, 10)
        if self._toolformer is not None:
            self._toolformer.close()

    async def submit(self, prompts: Sequence[str], settings: Sequence[Settings]) -> Ticket:
        """Hand in a request's sequences; `close_ticket` must follow.

        Args:
            prompts: one for each sequence.
            settings: one for each sequence.

        Raises:
            RequestError: 429 if there are not so many places, 503 if there is no model.
            ToolformerError: a prompt or settings that do not fit the model.
        """
        engine = self._engine
        if engine is None or self.state != "ready":
            raise unavailable(f"the model is {self.state}; try again", "not_ready")
        if self.taken + len(prompts) > self.places:
            raise busy(self.places, _RETRY_AFTER_S)
        ticket = Ticket(len(prompts))
        self.taken += len(prompts)
        work = asyncio.ensure_future(asyncio.to_thread(self._hand_in, engine, ticket, prompts, settings))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            ticket.closed = True
            work.add_done_callback(lambda _: self._give_up(ticket))
            raise
        except BaseException as exc:
            self._give_up(ticket)
            if isinstance(exc, UsageError) and (self._engine is not engine or self.state != "ready"):
                raise unavailable("the engine has just stopped; try again", "stopped") from exc
            raise
        return ticket

    def _hand_in(self, engine: Engine, ticket: Ticket, prompts: Sequence[str], settings: Sequence[Settings]) -> None:
        """In a thread of its own, as tokenising takes time."""

        def tell(event: Event) -> None:
            self._outbox.append((ticket, event))
            if not self._woken:
                self._woken = True
                self._in_loop(self._deliver)

        for i, (prompt, of) in enumerate(zip(prompts, settings, strict=True)):
            if ticket.closed:
                return
            ticket.handles.append((engine, engine.submit(prompt, of, index=i, on_event=tell, owner=ticket)))

    def _give_up(self, ticket: Ticket) -> None:
        """End the sequences that came in; the others never will."""
        ticket.open -= ticket.sequences - len(ticket.handles)
        ticket.closed = False
        self.close_ticket(ticket)

    def close_ticket(self, ticket: Ticket) -> None:
        """The answer is out, or nobody wants it: what still runs is cancelled, and the places are free once it has."""
        if ticket.closed:
            return
        ticket.closed = True
        self._settle(ticket)
        if ticket.open:
            for engine, handle in ticket.handles:
                engine.cancel(handle)

    def _settle(self, ticket: Ticket) -> None:
        """A closed ticket holds places for those of its sequences alone that have not ended."""
        if ticket.closed:
            self.taken -= ticket.held - ticket.open
            ticket.held = ticket.open

    def _deliver(self) -> None:
        """In the event loop: hand out what the engine has said since."""
        self._woken = False  # first: what is said from now on wakes the loop again
        while self._outbox:
            ticket, event = self._outbox.popleft()
            if isinstance(event, CallFinished):
                self.metrics.called(event.call)
            if isinstance(event, Finished):
                self.metrics.finished(event.generation)
                ticket.open -= 1
                self._settle(ticket)
            if not ticket.closed:
                ticket.events.put_nowait(event)

    def _in_loop(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                self._loop.call_soon_threadsafe(call)

    def _run(self) -> None:
        try:
            self._toolformer = self._load()
            while not self._stopping:
                self._drive(self._toolformer.engine())
        except (ToolformerError, OSError, RuntimeError, ValueError, MemoryError) as exc:
            self.failure = exc
        except BaseException as exc:
            self.failure = exc
            raise
        finally:
            if self.failure is not None:
                self._in_loop(self._on_failed)

    def _drive(self, engine: Engine) -> None:
        self.tools = engine.pool.tools
        self.metrics.know_tools(self.tools)
        self._engine = engine
        if self._stopping:
            engine.stop()
        try:
            engine.run()
        except (RuntimeError, ValueError, IndexError, MemoryError):  # e.g. a GPU's memory is full
            _log.exception("the engine failed; its sequences have ended, and a new one goes on")
            self.metrics.restarts.inc()

    def _waiting(self) -> int:
        return 0 if self._engine is None else self._engine.waiting

    def _running(self) -> int:
        return 0 if self._engine is None else self._engine.running
