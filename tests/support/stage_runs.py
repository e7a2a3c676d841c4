"""The stages of a build run one after another, as the flow does but without Prefect."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.shards.run_shard import ShardResult
from tasks.shards.stage import Inputs, Shard, files_of, run_stage, shards_of
from tasks.specs.build_spec import BuildSpec
from tasks.stages import build_stages
from tasks.stages.assemble import ASSEMBLE, AssemblySpec
from tasks.stages.ingest import CORPUS, INGEST
from tests.fakes import a_drawn, a_prompt, a_scored
from toolformer_core.annotate.sample import SampledDocument
from toolformer_core.config import (
    AssembleConfig,
    ExecuteConfig,
    IngestConfig,
    PrefilterConfig,
    SampleConfig,
    ScoreConfig,
)
from toolformer_core.records import Document, DrawnCall, PrefilterResult, Prompt, ScoredCall
from toolformer_core.tools.build import ToolSettings


def calculator_spec(data: Path | str, corpus: Path | str, **changes: Any) -> BuildSpec:
    """Return a build of one tool; everything that its fingerprints depend on is a constant."""
    spec = BuildSpec(
        run_id="r",
        data=str(data),
        corpus=str(corpus),
        corpus_digest="c1",
        model="m",
        model_digest="m1",
        tools=("calculator",),
        tool_names={"calculator": "Calculator"},
        tool_digests={"calculator": "v1"},
        prompts={"calculator": a_prompt()},
        tool_settings=ToolSettings(),
        ingest=IngestConfig(),
        prefilter=PrefilterConfig(),
        sample={"calculator": SampleConfig()},
        execute=ExecuteConfig(),
        score=ScoreConfig(),
        assemble=AssembleConfig(),
    )
    return replace(spec, **changes)


def drawing(written: Callable[[Document, Prompt], str]) -> Callable[..., list[SampledDocument]]:
    """Return what stands in for `sample`: one call per document, at position 4, with an input as `written` gives it."""

    def draw(
        lm: Any, prompt: Prompt, name: str, documents: Iterable[tuple[Document, PrefilterResult]], config: SampleConfig
    ) -> list[SampledDocument]:
        return [
            SampledDocument(d.doc_id, "sampled", (a_drawn(d, 4, written(d, prompt), prompt.tool),))
            for d, _ in documents
        ]

    return draw


def judge(
    lm: Any, tool_name: str, texts: Mapping[str, str], items: Iterable[tuple[DrawnCall, str]], *_: object
) -> list[ScoredCall]:
    return [a_scored(c.doc_id, c.tool, c.position, c.input, response) for c, response in items]


def run_all(spec: BuildSpec) -> list[ShardResult]:
    """Run every stage on every shard of a build of one tool; return all results in order."""
    (tool,) = spec.tools
    ingested = ingest(spec)
    results = [ingested]
    for shard in shards_of(ingested):
        annotated = annotate_shard(spec, tool, shard)
        results += [*annotated.values(), assemble_shard(spec, shard, [annotated["score"]])]
    return results


def ingest(spec: BuildSpec) -> ShardResult:
    return run_stage(INGEST, Inputs(spec, CORPUS))


def annotate_shard(spec: BuildSpec, tool: str, shard: Shard) -> dict[str, ShardResult]:
    """Return what each stage of one tool gave, in order."""
    results: dict[str, ShardResult] = {}
    for stage in build_stages(spec, "tool"):
        files = {name: results[name].files for name in stage.reads if name in results}
        results[stage.name] = run_stage(
            stage, Inputs(spec, shard.name, tool, {INGEST.name: (shard.documents,), **files})
        )
    return results


def assemble_shard(spec: BuildSpec, shard: Shard, scored: Sequence[ShardResult]) -> ShardResult:
    assembly = AssemblySpec(spec.run_id, spec.data, spec.assemble, spec.tool_names)
    files = {INGEST.name: (shard.documents,), "score": files_of(scored)}
    return run_stage(ASSEMBLE, Inputs(assembly, shard.name, files=files))
