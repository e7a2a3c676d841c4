"""An evaluation as Prefect tasks, one shard of a benchmark each, over the shape of `shards.run_shard`.

    benchmark    a benchmark's file     -> items, cut into shards
    evaluate     a shard, an arm, a k   -> predictions
    perplexity   a shard, an arm        -> likelihoods, tools disabled

An *arm* is a model with or without tools:

    | arm                  | model               | tools | k     |
    |----------------------|---------------------|-------|-------|
    | base                 | M                   | off   | 0     |
    | base+tools           | M                   | on    | asked |
    | cc                   | M + CC              | off   | 0     |
    | toolformer           | M finetuned on C*   | on    | asked |
    | toolformer-disabled  | M finetuned on C*   | off   | 0     |

What a shard's result depends on stands here; which evaluations are made, and what comes of them, the flow decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import task as prefect_task

from tasks import translate
from tasks.models import in_model_thread, resident_model, when_dropped
from tasks.settings import model_credentials
from tasks.shards import Done, Outcome, Work, Writer, run_shard
from tasks.spec import claims_of
from tasks.stages import Shard
from toolformer_core.annotate.ingest import file_digest
from toolformer_core.config import canonical_json
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.answer import Likelihood, Prediction, answer, likelihoods, parameters_of
from toolformer_core.evaluate.files import benchmark_files
from toolformer_core.evaluate.items import Item, Rejected, Task
from toolformer_core.evaluate.tasks import EMBEDDED, read, task_named
from toolformer_core.records import digest_of
from toolformer_core.tools.build import ToolSettings, build_tools
from warehouse.commits import Balance
from warehouse.store import Store

if TYPE_CHECKING:
    from toolformer_core.decode.toolformer import Toolformer

__all__ = [
    "ARMS",
    "VERSIONS",
    "Benchmark",
    "Evaluation",
    "evaluate_shard",
    "perplexity_shard",
    "read_benchmark",
    "shards_of",
    "source_digest",
]

# Raised when the same inputs would give other rows: a reader or prompt, a scoring rule or the decoding, a likelihood.
VERSIONS = {"benchmark": "2", "evaluate": "2", "perplexity": "1"}

# Arm -> (which model, tools on)
ARMS: Mapping[str, tuple[str, bool]] = {
    "base": ("base", False),
    "base+tools": ("base", True),
    "cc": ("cc", False),
    "toolformer": ("toolformer", True),
    "toolformer-disabled": ("toolformer", False),
}

_SAME_FACT = "same_fact"  # a further wording of an example: left out, not broken


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What is asked: a benchmark and where it is read from, in plain values."""

    run_id: str
    data: str  # folder or URL
    task: str
    path: str | None  # None: generated, embedded, or from the hub
    digest: str  # see `source_digest`
    limit: int | None
    shard_items: int

    def store(self) -> Store:
        return Store(self.data)

    @property
    def in_turn(self) -> bool:
        """True if only some items are asked, and a folder's files give them in turn."""
        return self.limit is not None and self.path is not None and Path(self.path).is_dir()

    @property
    def source(self) -> str:
        """What the items are of: the file's or folder's name, and that its files are taken in turn; "" without one."""
        name = Path(self.path).name if self.path else ""
        return f"{name} (its files in turn)" if self.in_turn else name


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One arm at one k: who is asked, and with which tools."""

    arm: str
    k: int  # 0: tools disabled
    model: str
    model_digest: str
    base: str  # the model that was finetuned; the same as `model` where none was
    base_digest: str
    offered: tuple[str, ...]  # keys of the tools offered; none where k is 0
    tool_digests: tuple[tuple[str, str], ...]  # key and fingerprint of those offered
    tool_settings: ToolSettings
    max_new_tokens: int  # 0 for perplexity
    max_calls: int = 1

    def name(self, benchmark: Benchmark) -> str:
        """Return the evaluation's name: the same for the same arm, k, model, tools, settings and source of items."""
        parts = (*self.parts().values(), VERSIONS["evaluate"], VERSIONS["perplexity"], benchmark.source)
        return f"{benchmark.task}-{self.arm.replace('+', '-')}-k{self.k}-{digest_of('evaluation', *parts)[:12]}"

    def parts(self) -> dict[str, str]:
        """Return the named parts of a shard's fingerprint that are the evaluation's own."""
        settings = {
            "arm": self.arm,
            "k": self.k,
            "max_new_tokens": self.max_new_tokens,
            "max_calls": self.max_calls if self.k else 0,
        }
        tools = digest_of("tools", *(part for pair in sorted(self.tool_digests) for part in pair))
        return {
            "model": self.model_digest,
            "base": self.base_digest,
            "settings": canonical_json(settings),
            "tools": tools,
        }


def source_digest(task: Task, path: Path | None) -> str:
    """Return the digest of all that a benchmark is read from.

    What comes from the hub is known by its name alone; it is not looked at again once it has been read.

    Raises:
        CorpusError: no such file or folder, or nothing in it can be read.
    """
    if path is None:
        if (items := EMBEDDED.get(task.name)) is not None:
            return file_digest(items) if items.is_file() else ""
        return digest_of("hub", task.hub.repository, task.hub.config or "", task.hub.split) if task.hub else ""
    if not path.exists():
        raise CorpusError(f"no such benchmark file or folder: {path}")
    if task.reader is None:  # texts, of any kind
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    else:
        files = benchmark_files(path, task.files)
    return digest_of(
        "files", *(part for f in files for part in (f.relative_to(path.parent).as_posix(), file_digest(f)))
    )


# --- the tasks --------------------------------------------------------------------------------------------------------


@prefect_task(name="benchmark", task_run_name="benchmark {benchmark.task}")
def read_benchmark(benchmark: Benchmark) -> Done:
    """Read a benchmark once; write its items in shards and its rejected rows, with their lines, beside them."""
    store, task = benchmark.store(), task_named(benchmark.task)
    told = {"task": task.name, "path": benchmark.path or "", "limit": benchmark.limit, "shard": benchmark.shard_items}
    parts = {"source": benchmark.digest, "task": task.name, "cut": canonical_json([told["limit"], told["shard"]])}
    parts |= {"order": "files in turn"} if benchmark.in_turn else {}
    config = {**told, "evaluation": f"items/{task.name}/{benchmark.source}"}
    work = Work("benchmark", VERSIONS["benchmark"], "", task.name, config, parts)

    def do(write: Writer) -> Outcome:
        kept = 0
        batch: list[Item] = []
        rejected: list[Rejected] = []
        for found in read(task, Path(benchmark.path) if benchmark.path else None, benchmark.limit):
            if isinstance(found, Rejected):
                rejected.append(found)
                continue
            batch.append(found)
            kept += 1
            if len(batch) == benchmark.shard_items:
                write.table(translate.items_table(batch), _part(task.name, kept - len(batch), benchmark.shard_items))
                batch = []
        if batch:
            write.table(translate.items_table(batch), _part(task.name, kept - len(batch), benchmark.shard_items))
        if rejected:
            write.rejects(translate.rejected_table(rejected))
        reasons = Counter(r.reason for r in rejected)
        same = reasons.pop(_SAME_FACT, 0)
        dropped = {_SAME_FACT: same} if same else {}
        return Outcome((Balance("rows", kept + len(rejected), kept, dropped, dict(sorted(reasons.items()))),))

    return run_shard(store, work, benchmark.run_id, do, claims_of(store))


def _part(task: str, first: int, size: int) -> str:
    return f"{task}-{first // size:05d}"


def shards_of(done: Done) -> list[Shard]:
    """Return the shards of a benchmark, in order."""
    return [Shard(f"{number:05d}", file) for number, file in enumerate(done.files)]


@prefect_task(name="evaluate", task_run_name="evaluate {benchmark.task} {evaluation.arm} k={evaluation.k} {shard.name}")
def evaluate_shard(benchmark: Benchmark, evaluation: Evaluation, shard: Shard) -> Done:
    """Let an arm answer the items of a shard."""
    store, task = benchmark.store(), task_named(benchmark.task)
    work, about = _work("evaluate", benchmark, evaluation, shard)

    def do(write: Writer) -> Outcome:
        items = translate.items_of(store.read(shard.documents))

        def answered() -> list[Prediction]:
            toolformer = _toolformer(evaluation)
            about["parameters"] = parameters_of(toolformer.lm)
            return answer(
                toolformer,
                task,
                items,
                top_k=evaluation.k,
                tools=evaluation.offered,
                max_new_tokens=evaluation.max_new_tokens,
                max_calls=evaluation.max_calls,
            )

        found = in_model_thread(answered, waited=write.waits)
        write.table(translate.predictions_table(found, about))
        failed = Counter(p.problem for p in found if p.problem)
        balance = Balance("items", len(items), len(items) - failed.total(), failed=dict(sorted(failed.items())))
        counters = {
            "right": sum(p.correct for p in found),
            "calls": sum(p.called for p in found),
            "new_tokens": sum(p.new_tokens for p in found),
            "call_tokens": sum(p.call_tokens for p in found),
        }
        return Outcome((balance,), counters)

    return run_shard(store, work, benchmark.run_id, do, claims_of(store))


@prefect_task(name="perplexity", task_run_name="perplexity {evaluation.arm} {shard.name}")
def perplexity_shard(benchmark: Benchmark, evaluation: Evaluation, shard: Shard) -> Done:
    """Measure how likely an arm finds the texts of a shard, tools disabled."""
    store = benchmark.store()
    work, about = _work("perplexity", benchmark, evaluation, shard)

    def do(write: Writer) -> Outcome:
        items = translate.items_of(store.read(shard.documents))

        def measured() -> list[Likelihood]:
            lm = _toolformer(evaluation).lm
            about["parameters"] = parameters_of(lm)
            return likelihoods(lm, items)

        found = in_model_thread(measured, waited=write.waits)
        write.table(translate.likelihoods_table(found, about))
        failed = Counter(one.problem for one in found if one.problem)
        balance = Balance("texts", len(items), len(items) - failed.total(), failed=dict(sorted(failed.items())))
        return Outcome((balance,), {"tokens": sum(one.tokens for one in found)})

    return run_shard(store, work, benchmark.run_id, do, claims_of(store))


def _work(stage: str, benchmark: Benchmark, evaluation: Evaluation, shard: Shard) -> tuple[Work, dict[str, Any]]:
    """Return the shard's work, and the columns that all its rows share."""
    name = evaluation.name(benchmark)
    config = {
        "evaluation": name,
        "task": benchmark.task,
        "arm": evaluation.arm,
        "k": evaluation.k,
        "model": evaluation.model,
        "model_digest": evaluation.model_digest,
        "base": evaluation.base,
        "base_digest": evaluation.base_digest,
        "tools": list(evaluation.offered),
        "max_new_tokens": evaluation.max_new_tokens,
        "source": benchmark.source,
        "path": benchmark.path or "",
    }
    parts = {**evaluation.parts(), "evaluation": name, "inputs": shard.documents.digest}
    work = Work(stage, VERSIONS[stage], "", f"{name}-{shard.name}", config, parts, (shard.documents,))
    return work, {"evaluation": name, "task": benchmark.task, "arm": evaluation.arm, "k": evaluation.k}


class _Held:
    """The resident model with its tools, while an evaluation asks for it; only the model's thread touches it."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.toolformer: Toolformer | None = None

    def let_go(self) -> None:
        """Drop it and end its tools' threads."""
        held, self.toolformer, self.key = self.toolformer, None, ()
        if held is not None:
            held.close()


_HELD = _Held()
when_dropped(_HELD.let_go)


def _toolformer(evaluation: Evaluation) -> Toolformer:
    """Return the evaluation's model with its tools, loaded once as long as no other is asked for.

    Raises:
        ModelError, UsageError: model or tools cannot be loaded.
    """
    from toolformer_core.decode.toolformer import Toolformer
    from toolformer_core.lm.load import load_model

    name, digest = evaluation.model, evaluation.model_digest
    key = (name, digest, evaluation.offered, evaluation.tool_settings, evaluation.tool_digests)
    if _HELD.toolformer is None or _HELD.key != key:
        _HELD.let_go()
        lm: Any = resident_model(
            name, digest, lambda: load_model(name, digest=digest, credentials=model_credentials(name))
        )
        tools = build_tools(evaluation.offered, evaluation.tool_settings) if evaluation.offered else {}
        _HELD.toolformer, _HELD.key = Toolformer(lm, list(tools.values())), key
    return _HELD.toolformer
