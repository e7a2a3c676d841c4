"""What a stage is: a declaration from which fingerprint, tasks, plan, progress and lineage follow."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar

import pyarrow as pa

from tasks.shards.arrow import with_masked_texts
from tasks.shards.retry import last_inputs
from tasks.shards.run_shard import ShardResult, ShardSpec, ShardWriter, StageOutput, run_shard
from tasks.specs.build_spec import leases_of
from toolformer_core.annotate import pii
from toolformer_core.config import config_digest
from toolformer_core.records import digest_of
from warehouse.commits import Commit, DataFile, RowCounts
from warehouse.store import Store

LM_TOKENS = "lm_tokens"  # the counter of a commit: tokens passed through the model, padding included
_DOCUMENTS = "ingest"  # the stage whose texts a build may mask (`--mask-pii`) for those that read them
PII = "pii"  # the part of a fingerprint that says by which rules

Record = TypeVar("Record")


class RunSpec(Protocol):
    """A run's parameters, resolved to plain values that travel to workers."""

    @property
    def run_id(self) -> str: ...

    def store(self) -> Store: ...


Spec = TypeVar("Spec", bound=RunSpec)


@dataclass(frozen=True, slots=True)
class Shard:
    """A named slice of a source: one file of documents, or of a benchmark's items."""

    name: str
    documents: DataFile


def shards_of(source: ShardResult) -> list[Shard]:
    """Return the shards that a source stage wrote, in order: the order alone names them, as damage may move a file."""
    return [Shard(shard_name(number), file) for number, file in enumerate(source.files)]


def shard_name(number: int) -> str:
    """Return a shard's name. It says nothing of the corpus: a shard of the same documents is the same shard."""
    return f"part-{number:05d}"


@dataclass(frozen=True, slots=True)
class Inputs(Generic[Spec]):
    """What one shard of one stage is made from."""

    spec: Spec
    shard: str  # the name of its commit
    tool: str = ""  # "" where the stage runs once for all tools
    files: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)  # stage that is read -> its files
    follows: Commit | None = None  # the shard's commit that the present one is to follow, see `tasks.shards.retry`

    def tables(self, stage: str) -> list[pa.Table]:
        """Return the tables that a stage left for this shard, with masked texts if the build masks them."""
        store = self.spec.store()
        tables = [store.read(file) for file in self.files.get(stage, ())]
        return list(map(with_masked_texts, tables)) if stage == _DOCUMENTS and pii_part(self.spec) else tables

    def records(self, stage: str, reader: Callable[[pa.Table], Iterable[Record]]) -> list[Record]:
        """Return the rows of those tables as records, by one of the readers in `tasks.shards.arrow`."""
        return [record for table in self.tables(stage) for record in reader(table)]


def pii_part(spec: RunSpec) -> dict[str, str]:
    """Return the part of a fingerprint for texts in which e-mail addresses and telephone numbers are masked."""
    return {PII: pii.NAME} if getattr(spec, "mask_pii", False) else {}


@dataclass(frozen=True, slots=True)
class Stage(Generic[Spec]):
    """One step from corpus to C*, or of an evaluation."""

    name: str  # as it stands in commits, tables and task names
    version: str  # raised when its code changes what it writes for the same inputs; older commits are then stale
    unit: str  # what the rows are that it reads and counts first, e.g. `documents`
    # what one commit covers: a whole `source` that it cuts into shards, a shard for one `tool`, or a `shard`
    per: Literal["source", "tool", "shard"]
    # from inputs to a table and row counts. A stage per source writes its tables by the writer instead.
    run: Callable[[Inputs[Spec], ShardWriter], StageOutput]
    needs: Literal["model", "tool", ""] = ""  # what it asks. Only `model` takes the GPU of a Dask worker.
    reads: tuple[str, ...] = ()  # stages whose files it reads, in the order in which digests enter the fingerprint
    across: tuple[str, ...] = ()  # of these, the ones of which a stage per tool reads the files of all tools
    config: Callable[[Inputs[Spec]], Any] | None = None  # the settings that enter the fingerprint, a dataclass
    digests: Callable[[Inputs[Spec]], Mapping[str, str]] = lambda _: {}  # further named parts: model, prompt, tool
    config_notes: Callable[[Inputs[Spec]], Mapping[str, Any]] = lambda _: {}  # what people read besides the settings
    # called with a result that this process has just committed
    committed: Callable[[Inputs[Spec], ShardResult], None] = lambda _, __: None
    wanted: Callable[[Spec], bool] = lambda _: True  # whether a run has the stage at all; one it lacks is not read
    # whether a commit of the stage is to be followed by another one (see `tasks.shards.retry`); None: none ever is
    follow: Callable[[Inputs[Spec], Commit], bool] | None = None

    def is_read_for(self, tool: str, stage: str, other: str) -> bool:
        """Return whether, run for one tool, it reads what a stage made for one; "" is all tools at once."""
        return stage in self.reads and (not tool or other in ("", tool) or stage in self.across)

    def shard_spec(self, inputs: Inputs[Spec]) -> ShardSpec:
        files = tuple(file for name in self.reads for file in inputs.files.get(name, ()))
        parts: dict[str, str] = {}
        settings: dict[str, Any] = {}
        if self.config is not None:
            config = self.config(inputs)
            parts["config"] = config_digest(config)
            settings = asdict(config)
        if self.reads:
            parts["inputs"] = digest_of(*(file.digest for file in files))
        if _DOCUMENTS in self.reads:
            parts |= pii_part(inputs.spec)
        parts |= self.digests(inputs)
        if inputs.follows is not None:
            parts["follows"] = inputs.follows.fingerprint
            files = (*files, *inputs.follows.files)
        settings |= self.config_notes(inputs)
        return ShardSpec(self.name, self.version, inputs.tool, inputs.shard, settings, parts, files)


def run_stage(stage: Stage[Spec], inputs: Inputs[Spec]) -> ShardResult:
    """Return a shard's committed result, running the stage if it is not there; see `run_shard` for what it raises."""
    store, inputs = inputs.spec.store(), last_inputs(stage, inputs)
    run = partial(stage.run, inputs)
    result = run_shard(store, stage.shard_spec(inputs), inputs.spec.run_id, run, leases_of(store))
    if not result.skipped:
        stage.committed(inputs, result)
    return result


def at_depth(stage: str, depth: int) -> str:
    """Return the name of a stage of calls for the n-th calls of chains, e.g. `sample_2`; `sample` for the first."""
    return stage if depth == 1 else f"{stage}_{depth}"


def count_rows(unit: str, outcomes: Iterable[str], kept: str) -> RowCounts:
    """Count rows by what became of each: `kept`, or the reason why it was dropped."""
    counts = Counter(outcomes)
    return RowCounts(unit, counts.total(), counts.pop(kept, 0), dropped=nonzero(counts))


def count_failed(unit: str, problems: Iterable[str]) -> RowCounts:
    """Count rows by what failed with each; "" is kept."""
    counts = Counter(problems)
    return RowCounts(unit, counts.total(), counts.pop("", 0), failed=nonzero(counts))


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    return {reason: n for reason, n in sorted(counts.items()) if n}


def files_by_stage(results: Iterable[ShardResult]) -> dict[str, tuple[DataFile, ...]]:
    files: dict[str, tuple[DataFile, ...]] = {}
    for result in results:
        files[result.key.stage] = (*files.get(result.key.stage, ()), *result.files)
    return files


def files_of(results: Sequence[ShardResult]) -> tuple[DataFile, ...]:
    return tuple(file for result in results for file in result.files)
