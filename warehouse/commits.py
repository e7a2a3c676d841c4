"""The records of what was done: a commit per shard, a manifest per run, a card per dataset.

A commit is written last: a commit on disk means data on disk. A run lists the commits that it made or reused; of these
the newest completed run's are current. A dataset is one way in which a version of C* was made, named by its content.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from warehouse.errors import ConservationError, StoreError
from warehouse.schema import CALL_OUTCOMES

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,150}")
_MADE_DIGITS = 12
_MADE = re.compile(rf"(.+)-([0-9a-f]{{{_MADE_DIGITS}}})")
_NO_TOOL = "_"  # the folder of stages that run once for all tools


def digest(data: bytes) -> str:
    """Return the hex BLAKE2b-128 digest of bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def canonical_json(value: Any) -> bytes:
    """Return JSON with sorted keys and no spaces: equal values give equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def fingerprint(parts: Mapping[str, str]) -> str:
    """Return the digest of what a result depends on, by part name; a missing part and one that is "" differ."""
    return digest(canonical_json(dict(parts)))


def changed_parts(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the parts that differ, sorted: the reasons why a shard is stale."""
    return tuple(sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name)))


def check_name(kind: str, name: str) -> str:
    """Return the name; raise `StoreError` unless it is of 1 to 150 letters, digits, `.`, `_` and `-`."""
    if not _NAME.fullmatch(name):
        raise StoreError(f"{kind} {name!r} may contain only letters, digits, '.', '_' and '-' (at most 150)")
    return name


@dataclass(frozen=True, slots=True)
class DataFile:
    """One immutable Parquet file."""

    path: str  # relative to the data root, forward slashes
    digest: str  # BLAKE2b-128 of the file's bytes, hex
    rows: int
    bytes: int

    @property
    def is_result(self) -> bool:
        """Whether later stages and versions of C* read it; rejected rows and outcomes of calls are for people."""
        return not self.path.startswith(("rejects/", f"shards/{CALL_OUTCOMES}/"))


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Where the rows of one unit went: in = kept + dropped + failed."""

    unit: str  # documents, positions, samples, calls, ...
    rows_in: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> rows that the stage decided against
    failed: dict[str, int] = field(default_factory=dict)  # reason -> rows where something went wrong

    def check(self) -> None:
        """Raise `ConservationError` if in != kept + dropped + failed, or a count is negative."""
        counts = (self.kept, *self.dropped.values(), *self.failed.values())
        if min(counts) < 0 or self.rows_in != sum(counts):
            sums = f"{self.rows_in} in, {self.kept} kept, {self.dropped} dropped, {self.failed} failed"
            raise ConservationError(f"{self.unit}: rows are missing or surplus ({sums})")


@dataclass(frozen=True, slots=True, order=True)
class CommitKey:
    stage: str
    tool: str  # "" where the stage runs once for all tools
    shard: str
    fingerprint: str

    @property
    def id(self) -> str:
        """The commit's short name, unique within a store; `commits/<id>.json` is its file."""
        return f"{self.stage}/{self.tool or _NO_TOOL}/{self.shard}-{self.fingerprint[:16]}"


@dataclass(frozen=True, slots=True)
class Commit:
    """One finished shard of one stage."""

    stage: str
    stage_version: str
    tool: str  # "" where the stage runs once for all tools
    shard: str
    fingerprint: str  # `fingerprint(parts)`
    parts: dict[str, str]  # the fingerprint's named parts, each a digest or a version
    config: dict[str, Any]  # the stage's config, as plain values
    files: tuple[DataFile, ...]
    inputs: tuple[str, ...]  # digests of the data files that were read
    balances: tuple[RowCounts, ...]  # what the stage counted; the stored name of `StageOutput.counts`
    seconds: float
    counters: dict[str, int | float]  # lm_tokens, cache_hits, ...
    host: str
    versions: dict[str, str]  # package -> version
    created: str  # ISO UTC
    run_id: str  # the run that made it

    @property
    def key(self) -> CommitKey:
        return CommitKey(self.stage, self.tool, self.shard, self.fingerprint)

    @property
    def id(self) -> str:
        return self.key.id

    @property
    def rows(self) -> int:
        """Rows in all data files, rejects and outcomes of calls included."""
        return sum(file.rows for file in self.files)

    @property
    def content_digest(self) -> str:
        """The digest of the data alone: two runs that did the same work agree on it, whenever and wherever they ran."""
        files = [(file.digest, file.rows) for file in self.files]
        balances = [dataclasses.asdict(balance) for balance in self.balances]
        return digest(canonical_json([self.stage, self.tool, self.shard, files, balances]))

    def check(self) -> None:
        """Raise `ConservationError` if a balance does not close.

        `StoreError`: a name is unsafe, a unit occurs twice, or the fingerprint is not that of the parts.
        """
        check_name("stage", self.stage)
        check_name("tool", self.tool or _NO_TOOL)
        check_name("shard", self.shard)
        if self.fingerprint != fingerprint(self.parts):
            raise StoreError(f"{self.id}: the fingerprint is not that of the parts {sorted(self.parts)}")
        units = [balance.unit for balance in self.balances]
        if len(set(units)) < len(units):
            raise StoreError(f"{self.id}: a unit has two balances: {units}")
        for balance in self.balances:
            try:
                balance.check()
            except ConservationError as exc:
                raise ConservationError(f"{self.id}: {exc}") from exc

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the commit of `to_json`'s values; KeyError, TypeError or ValueError: it is not one."""
        files = tuple(DataFile(**file) for file in value["files"])
        balances = tuple(RowCounts(**balance) for balance in value["balances"])
        return cls(**{**value, "files": files, "inputs": tuple(value["inputs"]), "balances": balances})


@dataclass(frozen=True, slots=True)
class Run:
    """The manifest of one run: its parameters and the commits that it used."""

    run_id: str
    flow: str
    started: str  # ISO UTC
    finished: str | None  # ISO UTC; None while the run goes on
    state: str  # running | completed | failed | cancelled
    parameters: dict[str, Any]
    corpus: str
    model: str
    commits: tuple[CommitKey, ...] = ()  # made or reused
    dataset: str = ""  # key of the record of C* that it made or found (see `Dataset.key`); "" if it made none
    number: int = 0  # larger than that of every run known when it began: the order, whatever clocks say

    def to_json(self) -> dict[str, Any]:
        """Return plain values; a commit key is a list of its four fields."""
        keys = [[key.stage, key.tool, key.shard, key.fingerprint] for key in self.commits]
        return {**dataclasses.asdict(dataclasses.replace(self, commits=())), "commits": keys}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**{**value, "commits": tuple(CommitKey(*key) for key in value["commits"])})


@dataclass(frozen=True, slots=True)
class Dataset:
    """One way in which a version of a named C* was made: its files, and what its card says about this way.

    Versions are named by their content; if several ways gave the same, each has a record, distinguished by `made`.
    """

    name: str
    version: str  # `dataset_version(files)`
    files: tuple[DataFile, ...]
    counts: dict[str, int]  # tool -> examples with at least one of its calls
    thresholds: dict[str, float]  # tool -> tau_f
    run_id: str
    model: str  # the model that annotated and scored
    corpus: str
    created: str  # ISO UTC
    licence: str = ""  # the corpus's licence, as its owner states it
    notes: str = ""
    made: str = ""  # see `made_id`
    yields: tuple[tuple[str, float, int], ...] = ()  # tool, tau_f in nats applied to all tools, examples
    sources: tuple[tuple[str, int], ...] = ()  # the largest files of the corpus, with their number of documents
    more_sources: int = 0  # number of files that `sources` leaves out
    number: int = 0  # of the run that made it
    texts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # what is counted of them -> texts by name

    @property
    def id(self) -> str:
        """The record's id among the records of its name: `version`, or `version-made`."""
        return f"{self.version}-{self.made}" if self.made else self.version

    @property
    def key(self) -> str:
        """The record's path below `datasets/`, without the suffix; `split_dataset_key` splits it."""
        return f"{self.name}/{self.id}"

    @property
    def label(self) -> str:
        """The record's name for users: `name@version-made`."""
        return f"{self.name}@{self.id}"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        rows = {name: tuple(tuple(row) for row in value[name]) for name in ("yields", "sources")}
        return cls(**{**value, **rows, "files": tuple(DataFile(**file) for file in value["files"])})


def split_dataset_key(key: str) -> tuple[str, str, str]:
    name, _, record_id = key.partition("/")
    match = _MADE.fullmatch(record_id)
    return (name, match[1], match[2]) if match else (name, record_id, "")


def made_id(dataset: Dataset, run: Run) -> str:
    """Return an id of the way in which a version was made, 12 hex digits: the same way gives the same id.

    It covers the record's values (except the run and the time) and every commit that the run used: their fingerprints
    distinguish corpora, models, prompts, tools and settings even if all files are empty.
    """
    values = {name: getattr(dataset, name) for name in ("thresholds", "model", "corpus", "licence", "notes")}
    files = [(file.path, file.digest) for file in dataset.files]
    commits = sorted({key.id for key in run.commits})
    return digest(canonical_json({**values, "flow": run.flow, "files": files, "commits": commits}))[:_MADE_DIGITS]


def dataset_version(files: Iterable[DataFile]) -> str:
    """Return a dataset's version, 16 hex digits: the same files in the same order give the same version."""
    return digest(canonical_json([file.digest for file in files]))[:16]
