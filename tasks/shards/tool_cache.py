"""A cache of tool responses, shared by runs and hosts: the rows of all commits of `execute` of one tool and config.

It holds 16 bytes of every distinct question: where its answer is. Responses, and failures that are the tool's own, are
reused; of a tool that asks others (`ttl_s`) only responses are, while they last. Where nothing may be asked, all are.
"""

import datetime as dt
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.shards import arrow
from toolformer_core.annotate.execute import is_transient
from toolformer_core.records import Execution, digest_of
from warehouse.commits import Commit, DataFile
from warehouse.errors import StoreError
from warehouse.store import Store

_log = logging.getLogger(__name__)

OLDEST_ANSWER = "answered"  # the counter of a commit: when the oldest answer in it was given, seconds since 1970
_SAME = ("code", "config", "answers")  # the parts of a fingerprint that must agree: stage, its config, the tool
_STAGES = ("execute",)
_LISTED_PER_RECALL = 16  # names of commits, on average; a folder with fewer is listed at every recall
_LARGEST_MERGED = 1 << 20  # answers in a piece of an index that may still be merged with another

Question = tuple[str, str]  # input, context


@dataclass(frozen=True, slots=True)
class Recalled:
    known: dict[Question, Execution]
    answered: float  # time of the oldest of them, seconds since 1970; infinity if there are none


class _Piece(NamedTuple):
    """Locations of answers, sorted by question; 16 bytes each."""

    questions: NDArray[np.uint64]  # digests
    files: NDArray[np.uint32]
    rows: NDArray[np.uint32]

    @classmethod
    def of(cls, *pieces: Self) -> Self:
        """Return the locations of some pieces in one; of equal questions those of the first piece come first."""
        questions, files, rows = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
        order = np.argsort(questions, kind="stable")
        return cls(questions[order], files[order], rows[order])


@dataclass(slots=True)
class _Index:
    """Locations of answers, a question's digest -> file and row; each piece is more than twice as long as the next."""

    pieces: list[_Piece] = field(default_factory=list)

    def add(self, questions: NDArray[np.uint64], rows: NDArray[np.uint32], file: int) -> None:
        if len(questions) == 0:
            return
        piece = _Piece.of(_Piece(questions, np.full(len(questions), file, dtype=np.uint32), rows))
        while self.pieces and len(self.pieces[-1].questions) <= min(2 * len(piece.questions), _LARGEST_MERGED):
            piece = _Piece.of(self.pieces.pop(), piece)
        self.pieces.append(piece)

    def unseen(self, questions: NDArray[np.uint64]) -> NDArray[np.bool_]:
        out = np.ones(len(questions), dtype=np.bool_)
        for piece in self.pieces:
            at = np.minimum(np.searchsorted(piece.questions, questions), len(piece.questions) - 1)
            out &= piece.questions[at] != questions
        return out

    def places(self, questions: NDArray[np.uint64]) -> Iterator[tuple[int, int, int]]:
        for piece in self.pieces:
            first = np.searchsorted(piece.questions, questions, "left")
            last = np.searchsorted(piece.questions, questions, "right")
            for number in np.flatnonzero(first < last).tolist():
                found = slice(first[number], last[number])
                for file, row in zip(piece.files[found].tolist(), piece.rows[found].tolist(), strict=True):
                    yield number, file, row


@dataclass(slots=True, eq=False)
class ToolCache:
    """The answers of one tool under one config in one store. Threads may share it."""

    store: Store
    tool: str
    parts: Mapping[str, str]  # those of `execute`'s fingerprint; `code`, `config` and `answers` must agree
    lifetime_s: float | None  # seconds for which an answer may be used again; None: as long as the fingerprint stays
    clock: Callable[[], float] = time.time  # seconds since 1970
    stages: Sequence[str] = _STAGES  # whose commits hold the answers; but for their names, their `code` is the same
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _seen: set[str] = field(default_factory=set)  # ids of commits looked at
    _own: deque[str] = field(default_factory=deque)  # ids of commits made by this process and not looked at yet
    _until_listing: int = 0  # recalls
    _files: list[tuple[DataFile, float]] = field(default_factory=list)  # and when the oldest answer in each was given
    _lasting: _Index = field(default_factory=_Index)
    _passing: _Index = field(default_factory=_Index)  # what only a run that may ask nothing uses

    def recall(self, questions: Iterable[Question], *, offline: bool = False) -> Recalled:
        """Return the known answers to these questions, of several the newest; `offline`: no tool may be called."""
        with self._lock:
            self._look(at_once=offline)  # offline, an answer that is not found cannot be had
            wanted = {question: _digest(*question) for question in questions}
            known: dict[Question, Execution] = {}
            answered = self._from(self._lasting, wanted, known, offline)
            if offline:
                answered = min(answered, self._from(self._passing, wanted, known, offline))
            return Recalled(known, answered)

    def committed(self, commit_id: str) -> None:
        """Add a commit that this process has made, so that it need not be found by listing."""
        self._own.append(commit_id)

    def _look(self, *, at_once: bool) -> None:
        self._take([self._own.popleft() for _ in range(len(self._own))])
        self._until_listing -= 1
        if self._until_listing > 0 and not at_once:
            return
        ids = [
            path[len("commits/") : -len(".json")]
            for stage in self.stages
            for path in self.store.files.walk(f"commits/{stage}/{self.tool}", ".json")
        ]
        self._until_listing = math.ceil(len(ids) / _LISTED_PER_RECALL)
        self._take(ids)

    def _take(self, ids: Sequence[str]) -> None:
        _, _, version = self.parts["code"].partition("/")
        for commit in self.store.commits_by_id(own for own in ids if own not in self._seen):
            self._seen.add(commit.id)
            parts = {**self.parts, "code": f"{commit.stage}/{version}"}
            if all(commit.parts.get(name) == parts[name] for name in _SAME):
                for file in commit.files:
                    self._note(file, answered_of(commit))
        self._seen.update(ids)  # including those that could not be read

    def _note(self, file: DataFile, answered: float) -> None:
        executions = self._read(file)
        digests = np.array([_digest(e.input, e.context) for e in executions], dtype=np.uint64)
        failed = np.array([bool(e.failure) for e in executions], dtype=np.bool_)
        transient = np.array([is_transient(e.failure, e.transient) for e in executions], dtype=np.bool_)
        lasts = ~(transient if self.lifetime_s is None else failed)
        self._files.append((file, answered))
        for index, chosen in ((self._lasting, lasts), (self._passing, ~lasts)):
            if self.lifetime_s is None:  # one answer is as good as another: the first is enough
                chosen = chosen & index.unseen(digests)
            at = np.flatnonzero(chosen).astype(np.uint32)
            index.add(digests[chosen], at, len(self._files) - 1)

    def _from(
        self, index: _Index, wanted: Mapping[Question, int], known: dict[Question, Execution], offline: bool
    ) -> float:
        """Fill `known` from an index; return when the oldest answer used was given."""
        since = -np.inf if offline or self.lifetime_s is None else self.clock() - self.lifetime_s
        by_file: dict[int, dict[int, Question]] = {}
        missing = [question for question in wanted if question not in known]
        for number, file, row in index.places(np.array([wanted[question] for question in missing], dtype=np.uint64)):
            if self._files[file][1] >= since:
                by_file.setdefault(file, {})[row] = missing[number]
        oldest = np.inf
        for file in sorted(by_file, key=lambda n: (-self._files[n][1], self._files[n][0].path)):
            rows = [row for row, question in by_file[file].items() if question not in known]
            for execution in self._read(self._files[file][0], rows) if rows else ():
                question = (execution.input, execution.context)
                if question in wanted and question not in known:
                    known[question] = execution
                    oldest = min(oldest, self._files[file][1])
        return float(oldest)

    def _read(self, file: DataFile, rows: Sequence[int] | None = None) -> list[Execution]:
        try:
            table = self.store.read(file)
        except StoreError as exc:
            _log.warning("the answers in it are not used: %s", exc)
            return []
        return arrow.executions_of(table if rows is None else table.take(pa.array(rows, pa.int64())))


def _digest(input_: str, context: str) -> int:
    return int(digest_of("question", input_, context)[:16], 16)


def answered_of(commit: Commit) -> float:
    """Return the time of a commit's oldest answer; if the commit does not record it, the time of the commit."""
    noted = commit.counters.get(OLDEST_ANSWER)
    return float(noted) if noted is not None else dt.datetime.fromisoformat(commit.created).timestamp()


_MAKING = threading.Lock()


@lru_cache(maxsize=16)
def _cache(
    data: str, tool: str, parts: tuple[tuple[str, str], ...], lifetime_s: float | None, stages: tuple[str, ...]
) -> ToolCache:
    return ToolCache(Store(data), tool, dict(parts), lifetime_s, stages=stages)


def cache_of(
    data: str, tool: str, parts: Mapping[str, str], lifetime_s: float | None, stages: tuple[str, ...] = _STAGES
) -> ToolCache:
    """Return this process's cache of a tool in a data folder or URL; see `ToolCache`."""
    with _MAKING:  # or threads that begin together would each read all commits
        return _cache(data, tool, tuple((name, parts[name]) for name in _SAME), lifetime_s, stages)
