"""A process that builds C* beside others: all stages of all shards, without Prefect, with a model that is a function.

    python tests/tasks/building_host.py CORPUS DATA NAME [at-which-shard-to-stop]

It says "ready", waits for a line, builds, and says which shards it did itself. Told to stop at a shard, it says "stuck"
when it has begun to score it, and goes no further: whoever started it may kill it there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from tasks.shards.run_shard import ShardResult
from tasks.shards.stage import shards_of
from tasks.specs.build_spec import BuildSpec
from tasks.stages import execute as execute_stage
from tasks.stages import sample as sample_stage
from tasks.stages import score as score_stage
from tests.fakes import FakeTool, a_drawn, a_prompt, a_scored
from tests.support.stage_runs import annotate_shard, assemble_shard, ingest
from toolformer_core.annotate.ingest import corpus_files, file_digest
from toolformer_core.annotate.sample import SampledDocument
from toolformer_core.config import (
    AssembleConfig,
    ExecuteConfig,
    IngestConfig,
    PrefilterConfig,
    SampleConfig,
    ScoreConfig,
)
from toolformer_core.records import Document, DrawnCall, PrefilterResult, Prompt, ScoredCall, digest_of
from toolformer_core.tools.build import ToolSettings

__all__ = ["build", "spec_of"]


class NoModel:
    """Stands where a model would; the functions below do not look at it."""

    name = digest = "none"


def draw(
    lm: Any,
    prompt: Prompt,
    name: str,
    documents: Iterable[tuple[Document, PrefilterResult]],
    config: SampleConfig,
) -> list[SampledDocument]:
    return [
        SampledDocument(d.doc_id, "sampled", (a_drawn(d, 4, f"{len(d.text)} + 1", prompt.tool),)) for d, _ in documents
    ]


def judge(
    lm: Any, name: str, texts: Mapping[str, str], items: Iterable[tuple[DrawnCall, str]], *_: object
) -> list[ScoredCall]:
    return [a_scored(c.doc_id, c.tool, c.position, c.input, response) for c, response in items]


def spec_of(corpus: str, data: str, name: str) -> BuildSpec:
    """One tool; a shard for every document."""
    return BuildSpec(
        run_id=name,
        data=data,
        corpus=corpus,
        corpus_digest=digest_of(*map(file_digest, corpus_files(corpus))),
        model="none",
        model_digest="none",
        tools=("calculator",),
        tool_names={"calculator": "Calculator"},
        tool_digests={"calculator": "v1"},
        prompts={"calculator": a_prompt()},
        tool_settings=ToolSettings(),
        ingest=IngestConfig(shard_documents=1),
        prefilter=PrefilterConfig(),
        sample={"calculator": SampleConfig()},
        execute=ExecuteConfig(),
        score=ScoreConfig(),
        assemble=AssembleConfig(),
    )


def build(spec: BuildSpec, stop_at: str = "") -> list[ShardResult]:
    """Build, shard by shard, in an order of this run's own."""
    sampling: Any = sample_stage
    scoring: Any = score_stage
    executing: Any = execute_stage
    sampling.model_of = scoring.model_of = lambda spec: NoModel()
    executing.tool_of = lambda spec, key: FakeTool(lambda input, _: input.split(" ")[0])
    sampling.sample, scoring.score = draw, judge
    ingested = ingest(spec)
    done = [ingested]
    for shard in sorted(shards_of(ingested), key=lambda shard: digest_of(spec.run_id, shard.name)):
        if shard.name == stop_at:
            scoring.score = stuck
        annotated = annotate_shard(spec, "calculator", shard)
        done += [*annotated.values(), assemble_shard(spec, shard, [annotated["score"]])]
    return done


def stuck(*_: Any) -> list[ScoredCall]:
    print("stuck", flush=True)  # noqa: T201
    sys.stdin.read()
    return []


if __name__ == "__main__":
    asked = spec_of(*sys.argv[1:4])
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    finished = build(asked, *sys.argv[4:5])
    print(*(done.key.id for done in finished if not done.skipped), flush=True)  # noqa: T201
