"""Runs the decoding engine in one thread; the event loop submits sequences and receives their events.

    loading --> ready --> draining
       |          ^  |       no new requests; open ones finish, or are ended after the grace period
       v          |  v
     failed    restarting    the engine failed: its sequences end as "stopped", and a new engine takes over

The first new engine is there at once. If no sequence ends well before that one fails too, the next comes after a pause,
which doubles with each further failure; from the third failure in a row on, an engine is ready only after it has
written a token.

A request takes a place for each of its sequences, out of as many as there are rows and queue places, and returns it
when the sequence has ended and the response has been sent: so the memory that clients occupy is bounded.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

from serving.errors import RequestError, unavailable
from serving.metrics import Metrics
from toolformer_core.decode.engine import DecodeEngine, Handle
from toolformer_core.decode.records import CallFinished, DecodeEvent, Finished, GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import EngineStoppedError, ToolformerError
from toolformer_core.records import ToolResult
from toolformer_core.tools.base import Tool

_FAILURES = 3  # in a row, from which on a new engine has to write a token before it is ready
_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0  # before the second new engine in a row; at most
_log = logging.getLogger(__name__)

Result = TypeVar("Result")


class PendingRequest:
    """The sequences of a request and their events. Used in the event loop only."""

    def __init__(self, sequences: int) -> None:
        self.events: asyncio.Queue[DecodeEvent] = asyncio.Queue()
        self.sequences = sequences
        self.open = sequences  # how many of them have not ended
        self.places = sequences  # how many places the request occupies
        self.released = False  # the response has been sent, or is no longer needed
        self.handles: list[tuple[DecodeEngine, Handle]] = []


class EngineThread:
    """Loads the model, drives the engine, and counts places. Start it in a running event loop.

    `load`, which returns the model with its tools, is called in the engine's thread; `queue` are the sequences that may
    wait besides `max_rows`; `on_failed` is called in the event loop if the model cannot be loaded.
    """

    def __init__(
        self, load: Callable[[], Toolformer], *, max_rows: int, queue: int, on_failed: Callable[[], None] = lambda: None
    ) -> None:
        self.places = max_rows + queue
        self.taken = 0
        self.tools: Mapping[str, Tool] = {}  # by their names in calls
        self.failure: BaseException | None = None
        self.metrics = Metrics(
            waiting=lambda: 0 if self._engine is None else self._engine.waiting,
            running=lambda: 0 if self._engine is None else self._engine.running,
            places=lambda: self.taken,
        )
        self._load = load
        self._on_failed = on_failed
        self._toolformer: Toolformer | None = None
        self._engine: DecodeEngine | None = None
        self._draining = self._stopping = False
        self._ended = threading.Event()  # set when `_stopping` is
        self._restarting = False
        self._failures = 0  # of engines in a row
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)

    @property
    def state(self) -> Literal["loading", "ready", "restarting", "draining", "failed"]:
        if self.failure is not None:
            return "failed"
        if self._draining:
            return "draining"
        if self._restarting:
            return "restarting"
        return "loading" if self._engine is None else "ready"

    @property
    def toolformer(self) -> Toolformer:
        """The model with its tools; a `RequestError` (503) if it is not ready."""
        return self._ready(accepted=False)[0]

    @property
    def loaded(self) -> Toolformer:
        """The same, also for requests that were accepted before the server began to end."""
        return self._ready()[0]

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def fail(self, failure: BaseException) -> None:
        """Regard the server as failed, because something it cannot do without has failed; called in the event loop."""
        self.failure = self.failure or failure
        self._on_failed()

    def drain(self, grace_s: float) -> None:
        """Accept no more requests, and end those still open after `grace_s` seconds."""
        self._draining = True
        if self._loop is not None:
            self._loop.call_later(grace_s, self._stop)

    def _stop(self) -> None:
        self._draining = self._stopping = True
        self._ended.set()
        if self._engine is not None:
            self._engine.stop()

    async def close(self) -> None:
        """End everything and wait for the thread, unless the model is still loading."""
        self._stop()
        if self._engine is not None:
            await asyncio.to_thread(self._thread.join, 10)
        if self._toolformer is not None:
            self._toolformer.close()

    async def submit(self, prompts: Sequence[str], settings: Sequence[GenerationSettings]) -> PendingRequest:
        """Submit the sequences of a request that has seen `toolformer`; `release` must follow.

        A `RequestError` (429, 503) without enough places or a model; a `ToolformerError` if a prompt does not suit it.
        """
        _, engine = self._ready()
        if self.taken + len(prompts) > self.places:
            message = f"all {self.places} places of this server (rows and queue) are taken; try again in 1 s"
            raise RequestError(429, message, kind="rate_limit_error", code="queue_full", retry_after_s=1)
        pending = PendingRequest(len(prompts))
        self.taken += len(prompts)
        work = asyncio.ensure_future(asyncio.to_thread(self._submit_all, engine, pending, prompts, settings))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            pending.released = True
            work.add_done_callback(lambda _: self._release_submitted(pending))
            raise
        except BaseException as exc:
            self._release_submitted(pending)
            if isinstance(exc, EngineStoppedError):
                raise unavailable("the engine has just stopped; try again", "stopped") from exc
            raise
        return pending

    async def between_rounds(self, work: Callable[[], Result]) -> Result:
        """Work in the engine's thread between two rounds; return what comes of it; without a model a `RequestError`."""
        _, engine = self._ready()
        done: concurrent.futures.Future[Result] = concurrent.futures.Future()

        def run() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(work())
                except Exception as exc:  # noqa: BLE001 - the caller gets it; the engine goes on
                    done.set_exception(exc)

        try:
            engine.between_rounds(run)
        except EngineStoppedError as exc:
            raise unavailable("the engine has just stopped; try again", "stopped") from exc
        return await asyncio.wrap_future(done)

    async def ask(self, tool: str, input_: str, context: str) -> tuple[ToolResult | ToolformerError, float]:
        """Ask a tool by its name in calls; return the result and the seconds; without a model a `RequestError`."""
        pool = self._ready()[1].pool
        done: asyncio.Future[tuple[ToolResult | ToolformerError, float]] = asyncio.get_running_loop().create_future()

        def answered(result: ToolResult | ToolformerError, seconds: float) -> None:
            if not done.done():
                done.set_result((result, seconds))

        forget = pool.ask(tool, input_, context, self._in_loop, answered, done)
        try:
            while not done.done():
                due = pool.expire()  # the engine does the same only while it has something to do
                await asyncio.wait((done,), timeout=due)
            return done.result()
        finally:
            forget()

    def _ready(self, accepted: bool = True) -> tuple[Toolformer, DecodeEngine]:
        """Return the model and its engine, for a request that is new or was `accepted` before; else raise a 503."""
        takes = self.state == "ready" or (accepted and self.state == "draining" and not self._stopping)
        if self._toolformer is None or self._engine is None or not takes:
            raise unavailable(f"the model is {self.state}; try again", "not_ready")
        return self._toolformer, self._engine

    def _submit_all(
        self,
        engine: DecodeEngine,
        pending: PendingRequest,
        prompts: Sequence[str],
        settings: Sequence[GenerationSettings],
    ) -> None:
        """Called in a worker thread, because tokenising takes time."""

        def deliver(event: DecodeEvent) -> None:
            self._in_loop(lambda: self._deliver(pending, event))

        for i, (prompt, own) in enumerate(zip(prompts, settings, strict=True)):
            if pending.released:
                return
            pending.handles.append((engine, engine.submit(prompt, own, index=i, on_event=deliver, owner=pending)))

    def _release_submitted(self, pending: PendingRequest) -> None:
        """End the sequences that were submitted; the others will not be."""
        pending.open -= pending.sequences - len(pending.handles)
        pending.released = False
        self.release(pending)

    def release(self, pending: PendingRequest) -> None:
        """Cancel what still runs of a request; its places are free as soon as its sequences have ended."""
        if pending.released:
            return
        pending.released = True
        self._free_places(pending)
        if pending.open:
            for engine, handle in pending.handles:
                engine.cancel(handle)

    def _free_places(self, pending: PendingRequest) -> None:
        """Let a released request occupy places only for its sequences that have not ended."""
        if pending.released:
            self.taken -= pending.places - pending.open
            pending.places = pending.open

    def _deliver(self, pending: PendingRequest, event: DecodeEvent) -> None:
        """Deliver an event of the engine's; called in the event loop."""
        if isinstance(event, CallFinished):
            self.metrics.called(event.call)
        if isinstance(event, Finished):
            self.metrics.finished(event.generation)
            if not self._restarting:
                self._note_end(event)
            pending.open -= 1
            self._free_places(pending)
        if not pending.released:
            pending.events.put_nowait(event)

    def _in_loop(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so there is no receiver
                self._loop.call_soon_threadsafe(call)

    def _run(self) -> None:
        try:
            self._toolformer = self._load()
            while not self._stopping:
                self._drive(self._toolformer.engine())
        except BaseException as exc:
            self.failure = exc
            self._in_loop(self._on_failed)
            if not isinstance(exc, ToolformerError | OSError | RuntimeError | ValueError | MemoryError):
                raise

    def _drive(self, engine: DecodeEngine) -> None:
        self.tools = engine.pool.tools
        self.metrics.set_tools(self.tools)
        self._engine = engine
        if self._stopping:
            engine.stop()
        elif self._failures >= _FAILURES:
            engine.submit(".", GenerationSettings(max_new_tokens=1, max_calls=0), on_event=self._note_end)
        else:
            self._restarting = False
        try:
            engine.run()
        except (RuntimeError, ValueError, IndexError, MemoryError):  # e.g. the GPU's memory is full
            self._restarting = True
            self._failures += 1
            pause_s = min(_PAUSE_S * 2 ** (self._failures - 2), _LONGEST_PAUSE_S) if self._failures > 1 else 0.0
            _log.exception("the engine failed; its sequences have ended, and a new engine takes over in %g s", pause_s)
            self.metrics.restarts.inc()
            self._ended.wait(pause_s)

    def _note_end(self, event: DecodeEvent) -> None:
        """Note that the engine works, if the event is the end of a sequence that it has written."""
        if isinstance(event, Finished) and event.generation.finish in ("stop", "length"):
            self._failures, self._restarting = 0, False
