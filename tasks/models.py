"""The model in a process that does shards: one thread works with it, and one shard at a time holds it.

It does not know which model that is, nor what a shard asks of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from toolformer_core.lm.base import Draw, DrawRequest, LanguageModel, Scan, ScanAround, ScoreRequest, tokens_passed
from toolformer_core.records import Prompt

__all__ = ["InTurn", "in_model_thread", "model_turn"]

Result = TypeVar("Result")


class _Turns:
    """A lock that those who finish something get before those who begin something."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._finishing, self._beginning = threading.Condition(self._lock), threading.Condition(self._lock)
        self._finishers = 0  # waiting
        self._held = False

    @contextmanager
    def turn(self, finishing: bool) -> Iterator[None]:
        """Hold the lock, as one who finishes something or as one who begins."""
        with self._lock:
            self._finishers += finishing
            try:
                if finishing:
                    self._finishing.wait_for(lambda: not self._held)
                else:
                    self._beginning.wait_for(lambda: not self._held and not self._finishers)
            except BaseException:
                self._finishers -= finishing
                self._wake()  # the word that it is free may have come to this one
                raise
            self._finishers -= finishing
            self._held = True
        try:
            yield
        finally:
            with self._lock:
                self._held = False
                self._wake()

    def _wake(self) -> None:
        (self._finishing if self._finishers else self._beginning).notify()


_TURNS = _Turns()


def model_turn(finishing: bool = False) -> AbstractContextManager[None]:
    """Return the lock under which a process uses its model: two shards at once would only share the same cores.

    Args:
        finishing: to score calls that were drawn, before others draw more. Who begins goes last: else all shards that
            are under way come to be scored at the same time, and between two passes the model waits for all of them.
    """
    return _TURNS.turn(finishing)


def in_model_thread(work: Callable[[], Result]) -> Result:
    """Do a piece of the model's work in the one thread of this process that does it, and return what it gives.

    On a CPU every thread that computes, and be it once, gets a team of threads of its own from OpenMP for good. With
    more threads in teams than cores none waits awake any more, but sleeps and wakes at every operation: small models
    then take twice as long. Loading computes as well.
    """
    return _model_thread().submit(work).result()


@lru_cache(maxsize=1)
def _model_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="model")


class _ThreadScan(ScanAround[Scan]):
    """A scan whose draws are made in the model's thread."""

    def draw(self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float) -> list[Draw]:
        return in_model_thread(lambda: self.inner.draw(requests, max_tokens=max_tokens, temperature=temperature))


class InTurn:
    """A language model for one shard, held only while it works: for as long as a scan lasts, or one call.

    What a shard does with the model's answers does not keep other shards from asking it. Used as a context manager, so
    that a scan which an error cut short is given up as well.

    Args:
        lm: the process's model.
        turn: holds a lock, e.g. `Writer.turn`.
    """

    def __init__(
        self, lm: LanguageModel, turn: Callable[[AbstractContextManager[None]], AbstractContextManager[None]]
    ) -> None:
        self._lm = lm
        self._turn = turn
        self._scan: Generator[Scan, None, None] | None = None
        self.tokens = 0  # passed through the model for this shard, as far as it counts them

    @property
    def name(self) -> str:
        return self._lm.name

    @property
    def digest(self) -> str:
        """See `LanguageModel`."""
        return self._lm.digest

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        """See `LanguageModel`; the model is held until the last scan has been used."""
        self._scan = self._scanned(prompt, texts)
        return self._scan

    def _scanned(self, prompt: Prompt, texts: Sequence[str]) -> Generator[Scan, None, None]:
        with self._turn(model_turn()), self._counted():
            scans = self._lm.scan(prompt, texts)
            try:
                while (scan := in_model_thread(lambda: next(scans, None))) is not None:
                    yield _ThreadScan(scan)
            finally:
                if isinstance(scans, Generator):
                    in_model_thread(scans.close)

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """See `LanguageModel`."""
        with self._turn(model_turn(finishing=True)), self._counted():
            return in_model_thread(lambda: self._lm.log_probs(requests))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        begin = tokens_passed(self._lm)
        try:
            yield
        finally:
            self.tokens += tokens_passed(self._lm) - begin

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        if self._scan is not None:
            self._scan.close()
