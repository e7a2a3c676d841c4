"""The model of a process that runs shards, its only one: a single thread loads and uses it, for one shard at a time.

On a CPU, every thread that computes gets a permanent team of OpenMP threads. With more of these than cores, small
models take twice as long.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.settings import model_credentials
from tasks.shards.cpu_time import add_model_cpu
from toolformer_core.lm import base
from toolformer_core.lm.base import Draw, DrawRequest, Insertion, LanguageModel, Scan, ScanWrapper, ScoreRequest
from toolformer_core.records import Prompt

Result = TypeVar("Result")
OnWait = Callable[[float], None]  # called with the seconds spent waiting for others


@dataclass(slots=True, eq=False)
class _Job(Generic[Result]):
    """A piece of work, and the lease that takes the model when it starts; None: it is taken for this job alone."""

    work: Callable[[], Result]
    hold: ModelLease | None = None
    future: Future[Result] = field(default_factory=Future)
    submitted: float = field(default_factory=time.perf_counter)
    waited: float = 0.0  # seconds
    cpu: float = 0.0  # seconds of the model's thread

    def run(self) -> None:
        self.waited = time.perf_counter() - self.submitted
        begin = time.thread_time()
        try:
            try:
                result = self.work()
            finally:  # before the caller goes on
                self.cpu = time.thread_time() - begin
                del self.work  # so that a kept result does not keep the work's data alive
        except BaseException as exc:  # noqa: BLE001 - raised again in the caller
            self.future.set_exception(exc)
        else:
            self.future.set_result(result)


class _ModelThread:
    """Runs one job after another: only the lease holder's jobs while there is one, else jobs that finish a shard first.

    Otherwise all active shards would reach scoring together, and the model would wait for each between two passes.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._finishing: deque[_Job[Any]] = deque()
        self._beginning: deque[_Job[Any]] = deque()
        self.holder: ModelLease | None = None  # who has the model
        self._thread: threading.Thread | None = None

    def result(
        self, job: _Job[Result], *, finishing: bool, waited: OnWait | None = None, counted: bool = True
    ) -> Result:
        """Run a job and return its result, at once for the model's thread; `counted`: its CPU time is the shard's."""
        if threading.current_thread() is self._thread:
            job.run()
            return job.future.result()
        with self.changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="model", daemon=True)
                self._thread.start()
            queue = self._finishing if finishing else self._beginning
            if job.hold is not None and job.hold is self.holder:
                queue = job.hold.jobs
            queue.append(job)
            self.changed.notify()
        try:
            return job.future.result()
        except BaseException:
            with self.changed:
                if job in queue:  # the caller was interrupted
                    queue.remove(job)
            raise
        finally:
            if counted:
                add_model_cpu(job.cpu)
            if waited is not None:
                waited(job.waited)

    def _run(self) -> None:
        while True:
            with self.changed:
                while (job := self._next()) is None:
                    self.changed.wait()
            job.run()
            del job

    def _next(self) -> _Job[Any] | None:
        queue = self.holder.jobs if self.holder is not None else self._finishing or self._beginning
        if not queue:
            return None
        job = queue.popleft()
        self.holder = job.hold
        return job


_THREAD = _ModelThread()


@dataclass(slots=True, eq=False)
class ModelLease:
    """Exclusive use of the model, from the first job submitted through the lease until `release`."""

    waited: OnWait | None = None
    jobs: deque[_Job[Any]] = field(default_factory=deque)

    def do(self, work: Callable[[], Result]) -> Result:
        waited, self.waited = self.waited, None
        return _THREAD.result(_Job(work, self), finishing=False, waited=waited)

    @property
    def held(self) -> bool:
        """Whether the first job has started and the model is not released yet."""
        return _THREAD.holder is self

    def release(self) -> None:
        with _THREAD.changed:
            if self.held:
                _THREAD.holder = None
                _THREAD.changed.notify()


def in_model_thread(work: Callable[[], Result], *, finishing: bool = False, waited: OnWait | None = None) -> Result:
    """Run a job, which must not wait for another shard, in the thread that uses the model; return its result."""
    return _THREAD.result(_Job(work), finishing=finishing, waited=waited)


_RESIDENT: dict[tuple[str, str], LanguageModel] = {}  # by name and digest; one: two would not always fit into memory
_ON_DROP: list[Callable[[], None]] = []


def on_model_dropped(release: Callable[[], None]) -> None:
    """Register a function to call, in the model's thread, whenever the resident model is dropped for another."""
    _ON_DROP.append(release)


def resident_model(name: str, digest: str, load: Callable[[], LanguageModel]) -> LanguageModel:
    """Return a model, loading it if it is not resident; the one that is resident is dropped first."""
    key = (name, digest)

    def replaced() -> LanguageModel:
        if key not in _RESIDENT:
            _RESIDENT.clear()
            for release in _ON_DROP:
                release()
            gc.collect()  # flows make automatic collection rare, and a model may be part of a cycle
            _RESIDENT[key] = load()
        return _RESIDENT[key]

    if (held := _RESIDENT.get(key)) is not None:
        return held
    return _THREAD.result(_Job(replaced), finishing=True, counted=False)  # no shard's work


def named_model(name: str, digest: str) -> LanguageModel:
    """Return a model by its name, see `resident_model`, or raise a ModelError if it cannot be loaded."""
    from toolformer_core.lm.load import load_model

    return resident_model(name, digest, lambda: load_model(name, digest=digest, credentials=model_credentials(name)))


def tokens_of_resident() -> int:
    """Return how many tokens have passed through this process's model, if it counts them; 0 without a model."""
    return sum(map(base.tokens_passed, list(_RESIDENT.values())))


class _HeldScan(ScanWrapper[Scan]):
    def __init__(self, inner: Scan, do: Callable[[Callable[[], list[Draw]]], list[Draw]]) -> None:
        super().__init__(inner)
        self._do = do

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        draw = partial(self.inner.draw, requests, max_tokens=max_tokens, temperature=temperature)
        return self._do(partial(draw, name=name, begin=begin))


@dataclass(slots=True, eq=False)
class QueuedLM:
    """A language model for one shard, which takes the model only during a scan, or one call; a context manager."""

    lm: LanguageModel
    waited: OnWait | None = None
    tokens: int = 0  # passed through the model for this shard, if it counts them
    _scan: Generator[Scan, None, None] | None = None
    _hold: ModelLease | None = None  # of the last scan

    @property
    def name(self) -> str:
        return self.lm.name

    @property
    def digest(self) -> str:
        return self.lm.digest

    def scan(self, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[Scan]:
        """See `LanguageModel`; the model is held until the last scan is used; another scan before: RuntimeError."""
        self._scan = self._scanned(prompt, texts)
        return self._scan

    def _scanned(self, prompt: Prompt, texts: Sequence[str | Insertion]) -> Generator[Scan, None, None]:
        self._check_free()
        hold = self._hold = ModelLease(self.waited)
        scans = self.lm.scan(prompt, texts)

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
                hold.release()

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """See `LanguageModel`; it is a RuntimeError while a scan of this shard holds the model."""
        self._check_free()
        scored = partial(self._counted, partial(self.lm.log_probs, requests))
        return in_model_thread(scored, finishing=True, waited=self.waited)

    def _check_free(self) -> None:
        if self._hold is not None and self._hold.held:
            raise RuntimeError("a scan of this shard still holds the model: go on to its end, or close it")

    def _counted(self, work: Callable[[], Result]) -> Result:
        begin = base.tokens_passed(self.lm)
        try:
            return work()
        finally:
            self.tokens += base.tokens_passed(self.lm) - begin

    def __enter__(self) -> QueuedLM:
        return self

    def __exit__(self, *_: object) -> None:
        if self._scan is not None:
            self._scan.close()
