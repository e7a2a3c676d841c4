"""What a build is asked for, in plain values that travel to workers, and the resources those name.

A worker gets names and digests, never a model or a table; it loads what
they name once a process. It does not know who started it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.settings import seconds, shared_catalog
from toolformer_core.config import (
    AssembleConfig,
    ExecuteConfig,
    IngestConfig,
    PrefilterConfig,
    SampleConfig,
    ScoreConfig,
)
from toolformer_core.errors import ToolformerError
from toolformer_core.lm.base import Draw, DrawRequest, LanguageModel, Scan, ScoreRequest, tokens_passed
from toolformer_core.records import Prompt
from toolformer_core.tools.base import Tool
from toolformer_core.tools.build import ToolSettings
from warehouse.claims import Claims
from warehouse.files import Files
from warehouse.rehearsal import Rehearsal
from warehouse.store import Store

__all__ = [
    "BuildSpec",
    "InTurn",
    "NotInRehearsalError",
    "claims_of",
    "in_model_thread",
    "model_of",
    "model_turn",
    "tool_of",
]

Result = TypeVar("Result")


class NotInRehearsalError(ToolformerError):
    """Work that is only tried out came to what is not asked there: a model, a tool."""


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """One build, resolved: names looked up, digests taken, configs complete."""

    run_id: str
    data: str  # folder or URL
    corpus: str
    corpus_digest: str
    model: str
    model_digest: str
    tools: tuple[str, ...]  # keys
    tool_names: Mapping[str, str]  # key -> name in calls
    tool_digests: Mapping[str, str]
    prompts: Mapping[str, Prompt]
    tool_settings: ToolSettings
    ingest: IngestConfig
    prefilter: PrefilterConfig
    sample: Mapping[str, SampleConfig]
    execute: ExecuteConfig
    score: ScoreConfig
    assemble: AssembleConfig
    offline: bool = False  # tools are asked nothing: only what they answered before is used
    weights_digest: str = ""  # of the model's files but its tokenizer's; "": they are not told apart
    tokenizer_digest: str = ""  # of its tokenizer's files
    rehearsal: Files | None = None  # stands before the data where work is only tried out: no model, no tool is asked

    def store(self) -> Store:
        return Store(self.data, files=self.rehearsal)


_LOADING = threading.Lock()  # two threads asking for one model must not load it twice
_PASSES = threading.Lock()


_claims: dict[tuple[str, str], Claims] = {}  # by URL of the database and root of the store


def claims_of(store: Store) -> Claims | None:
    """Return who is at work on what in a store that several machines share, connected once a process; else None.

    Who only tries work out claims nothing.

    Raises:
        CatalogError: the database cannot be reached.
    """
    url = shared_catalog()
    if url is None or isinstance(store.files, Rehearsal):
        return None
    with _LOADING:
        if (url, store.root) not in _claims:
            _claims[url, store.root] = Claims(url, store, lease_s=seconds("lease"))
        return _claims[url, store.root]


def model_turn() -> threading.Lock:
    """Return the lock under which a process uses its model: two shards at once would only share the same cores."""
    return _PASSES


def in_model_thread(work: Callable[[], Result]) -> Result:
    """Do a piece of the model's work in the one thread of this process that does it, and return what it gives.

    On a CPU every thread that computes gets a team of threads of its own from OpenMP, and with more teams than cores
    they sleep and wake at every operation: small models then take three times as long.
    """
    return _model_thread().submit(work).result()


@lru_cache(maxsize=1)
def _model_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="model")


class _ThreadScan:
    """A scan whose draws are made in the model's thread."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    @property
    def texts(self) -> Sequence[int]:
        return self._scan.texts

    @property
    def positions(self) -> Sequence[NDArray[np.int64]]:
        return self._scan.positions

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32]]:
        return self._scan.log_probs

    def draw(self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float) -> list[Draw]:
        return in_model_thread(lambda: self._scan.draw(requests, max_tokens=max_tokens, temperature=temperature))


class InTurn:
    """A language model for one shard, held only while it works: for as long as a scan lasts, or one call.

    What a shard does with the model's answers does not keep other shards from asking it. Used as a context manager, so
    that a scan which an error cut short is given up as well.

    Args:
        lm: the process's model.
        turn: holds a lock, e.g. `Writer.turn`.
    """

    def __init__(self, lm: LanguageModel, turn: Callable[[threading.Lock], AbstractContextManager[None]]) -> None:
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
        with self._turn(_PASSES), self._counted():
            scans = self._lm.scan(prompt, texts)
            try:
                while (scan := in_model_thread(lambda: next(scans, None))) is not None:
                    yield _ThreadScan(scan)
            finally:
                if isinstance(scans, Generator):
                    in_model_thread(scans.close)

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """See `LanguageModel`."""
        with self._turn(_PASSES), self._counted():
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


@lru_cache(maxsize=2)
def _load_model(name: str, digest: str) -> LanguageModel:
    from toolformer_core.lm.load import load_model

    return load_model(name, digest=digest)


@lru_cache(maxsize=16)
def _build_tool(key: str, settings: ToolSettings, digest: str) -> Tool:
    from toolformer_core.tools.build import build_tools

    return build_tools([key], settings)[key]


def model_of(spec: BuildSpec) -> LanguageModel:
    """Return the model that annotates and scores, loaded once a process.

    Raises:
        ModelError: it cannot be loaded.
    """
    if spec.rehearsal is not None:
        raise NotInRehearsalError(f"the model {spec.model}")
    with _LOADING:
        return _load_model(spec.model, spec.model_digest)


def tool_of(spec: BuildSpec, key: str) -> Tool:
    """Return a tool, built once a process.

    Raises:
        UsageError: something it reads is not there.
    """
    if spec.rehearsal is not None:
        raise NotInRehearsalError(f"the tool {key}")
    with _LOADING:
        return _build_tool(key, spec.tool_settings, spec.tool_digests[key])
