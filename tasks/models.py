"""The model in a process that does shards: one thread works with it, for one shard at a time.

On a CPU every thread that computes, and be it once, gets a team of threads of its own from OpenMP for good. With more
threads in teams than cores none waits awake any more, but sleeps and wakes at every operation: small models then take
twice as long. Loading computes as well. Here stands, too, which model the process
keeps loaded: one at a time. What a shard asks of it is not known here.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolformer_core.lm.base import Draw, DrawRequest, LanguageModel, Scan, ScanAround, ScoreRequest, tokens_passed
from toolformer_core.records import Prompt

__all__ = ["Hold", "InTurn", "in_model_thread", "resident_model", "tokens_of_resident", "when_dropped"]

Result = TypeVar("Result")
Waited = Callable[[float], None]  # is told for how many seconds others were before


class _Job:
    """A piece of work, and who holds the model from it on."""

    def __init__(self, work: Callable[[], Any], hold: Hold | None = None) -> None:
        self.hold = hold
        self.future: Future[Any] = Future()
        self._work: Callable[[], Any] | None = work
        self._asked = time.perf_counter()
        self.waited = 0.0  # seconds

    def run(self) -> None:
        self.waited = time.perf_counter() - self._asked
        work, self._work = self._work, None  # what it rests on is not kept by whoever keeps its result
        try:
            if work is None:
                raise RuntimeError("a piece of work is done once")
            self.future.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - whoever asked is told
            self.future.set_exception(exc)


class _ModelThread:
    """Does one piece of work after the other: the holder's alone while there is one, else what finishes a shard first.

    Who begins goes last: else all shards that are under way would come to be scored at the same time, and the model
    would wait for each of them between two passes.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._finishing: deque[_Job] = deque()
        self._beginning: deque[_Job] = deque()
        self._holder: Hold | None = None
        self._thread: threading.Thread | None = None

    @property
    def holder(self) -> Hold | None:
        """Who holds the model."""
        return self._holder

    def result(self, job: _Job, finishing: bool, waited: Waited | None = None) -> Any:
        """Have a job done and return what it gives; the thread's own jobs are done at once."""
        if threading.current_thread() is self._thread:
            job.run()
            return job.future.result()
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="model", daemon=True)
                self._thread.start()
            queue = self._queue(job, finishing)
            queue.append(job)
            self._changed.notify()
        try:
            return job.future.result()
        except BaseException:
            with self._changed:
                if job in queue:  # whoever asked was interrupted
                    queue.remove(job)
            raise
        finally:
            if waited is not None:
                waited(job.waited)

    def _queue(self, job: _Job, finishing: bool) -> deque[_Job]:
        if job.hold is not None and job.hold is self._holder:
            return job.hold.jobs
        return self._finishing if finishing else self._beginning

    def let_go(self, hold: Hold) -> None:
        """Take the model from its holder, if it is this one."""
        with self._changed:
            if self._holder is hold:
                self._holder = None
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while (job := self._next()) is None:
                    self._changed.wait()
            job.run()
            del job

    def _next(self) -> _Job | None:
        if self._holder is not None:
            return self._holder.jobs.popleft() if self._holder.jobs else None
        queue = self._finishing or self._beginning
        if not queue:
            return None
        job = queue.popleft()
        self._holder = job.hold
        return job


_THREAD = _ModelThread()


class Hold:
    """A claim on the model: from the first piece of work on that is asked for nobody else's is done, until let go.

    Args:
        waited: told for how long others were before.
    """

    def __init__(self, waited: Waited | None = None) -> None:
        self.jobs: deque[_Job] = deque()
        self._waited = waited

    def do(self, work: Callable[[], Result]) -> Result:
        """Have a piece of work done by the model's thread and return what it gives."""
        waited, self._waited = self._waited, None
        return _THREAD.result(_Job(work, self), False, waited)  # type: ignore[no-any-return]

    @property
    def held(self) -> bool:
        """Whether the first piece of work was begun, and the model not let go."""
        return _THREAD.holder is self

    def let_go(self) -> None:
        """Let others have the model; nothing happens if this does not hold it."""
        _THREAD.let_go(self)


def in_model_thread(work: Callable[[], Result], *, finishing: bool = False, waited: Waited | None = None) -> Result:
    """Do a piece of work in the one thread of this process that works with its model, and return what it gives.

    Args:
        work: must not wait for another shard.
        finishing: it finishes something that was begun: it goes before what begins something.
        waited: told for how long others were before.
    """
    return _THREAD.result(_Job(work), finishing, waited)  # type: ignore[no-any-return]


class _Resident:
    """The one model that a process keeps loaded: a second one does not always fit beside it."""

    def __init__(self) -> None:
        self.held: tuple[tuple[str, str], LanguageModel] | None = None
        self.users: list[Callable[[], None]] = []


_RESIDENT = _Resident()


def when_dropped(let_go: Callable[[], None]) -> None:
    """Have a function called, in the model's thread, whenever the resident model makes room for another.

    Args:
        let_go: drops whatever its module built on that model.
    """
    _RESIDENT.users.append(let_go)


def resident_model(name: str, digest: str, load: Callable[[], LanguageModel]) -> LanguageModel:
    """Return a model, loaded once as long as no other is asked for; the one before it is dropped first.

    Args:
        name: what the user calls it.
        digest: its digest.
        load: loads it; is called in the model's thread.
    """
    key = (name, digest)
    held = _RESIDENT.held
    if held is not None and held[0] == key:
        return held[1]
    del held  # else this frame would keep the model that is to make room

    def replaced() -> LanguageModel:
        if _RESIDENT.held is None or _RESIDENT.held[0] != key:
            _RESIDENT.held = None
            for let_go in _RESIDENT.users:
                let_go()
            gc.collect()  # a flow has Python look for cycles rarely, and a model may be part of one
            _RESIDENT.held = (key, load())
        return _RESIDENT.held[1]

    return in_model_thread(replaced, finishing=True)


def tokens_of_resident() -> int:
    """Return how many tokens have passed through this process's model, as far as it counts them; 0 without one."""
    held = _RESIDENT.held
    return 0 if held is None else tokens_passed(held[1])


class _HeldScan(ScanAround[Scan]):
    """A scan whose draws are made in the model's thread."""

    def __init__(self, inner: Scan, do: Callable[[Callable[[], list[Draw]]], list[Draw]]) -> None:
        super().__init__(inner)
        self._do = do

    def draw(self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float) -> list[Draw]:
        return self._do(lambda: self.inner.draw(requests, max_tokens=max_tokens, temperature=temperature))


class InTurn:
    """A language model for one shard, held only while it works: for as long as a scan lasts, or one call.

    What a shard does with the model's answers does not keep other shards from asking it. Used as a context manager, so
    that a scan which an error cut short is given up as well.

    Args:
        lm: the process's model.
        waited: told for how long other shards were before, e.g. `Writer.waits`.
    """

    def __init__(self, lm: LanguageModel, waited: Waited | None = None) -> None:
        self._lm = lm
        self._waited = waited
        self._scan: Generator[Scan, None, None] | None = None
        self._hold: Hold | None = None  # of the last scan
        self.tokens = 0  # passed through the model for this shard, as far as it counts them

    @property
    def name(self) -> str:
        return self._lm.name

    @property
    def digest(self) -> str:
        """See `LanguageModel`."""
        return self._lm.digest

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        """See `LanguageModel`; the model is held until the last scan has been used.

        Raises:
            RuntimeError: when it is asked for its first scan, while another scan of this shard holds the model.
        """
        self._scan = self._scanned(prompt, texts)
        return self._scan

    def _scanned(self, prompt: Prompt, texts: Sequence[str]) -> Generator[Scan, None, None]:
        self._check_free()
        hold = self._hold = Hold(self._waited)
        scans = self._lm.scan(prompt, texts)

        def do(work: Callable[[], Result]) -> Result:
            return hold.do(lambda: self._counted(work))

        try:
            while (scan := do(lambda: next(scans, None))) is not None:
                yield _HeldScan(scan, do)
        finally:
            try:
                if hold.held and isinstance(scans, Generator):
                    do(scans.close)
            finally:
                hold.let_go()

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """See `LanguageModel`.

        Raises:
            RuntimeError: a scan of this shard holds the model.
        """
        self._check_free()

        def scored() -> list[NDArray[np.float32]]:
            return self._counted(lambda: self._lm.log_probs(requests))

        return in_model_thread(scored, finishing=True, waited=self._waited)

    def _check_free(self) -> None:
        """See that no scan of this shard holds the model: what is asked besides would wait for its end for ever."""
        if self._hold is not None and self._hold.held:
            raise RuntimeError(
                "a scan of this shard still holds the model: go on to its end, or close it, then ask something else"
            )

    def _counted(self, work: Callable[[], Result]) -> Result:
        begin = tokens_passed(self._lm)
        try:
            return work()
        finally:
            self.tokens += tokens_passed(self._lm) - begin

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        if self._scan is not None:
            self._scan.close()
