"""The stages of a build run one after another, as the flow does but without Prefect."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.build_spec import BuildSpec
from tasks.run_shard import ShardResult
from tasks.stage import Inputs, Shard, files_of, run_stage
from tasks.stages import stages_per
from tasks.stages.assemble import ASSEMBLE, AssemblySpec
from tasks.stages.ingest import CORPUS, INGEST

__all__ = ["annotate_shard", "assemble_shard", "ingest"]


def ingest(spec: BuildSpec) -> ShardResult:
    return run_stage(INGEST, Inputs(spec, CORPUS))


def annotate_shard(spec: BuildSpec, tool: str, shard: Shard) -> dict[str, ShardResult]:
    """Return what each stage of one tool gave, in order."""
    results: dict[str, ShardResult] = {}
    for stage in stages_per("tool"):
        files = {name: results[name].files for name in stage.reads if name in results}
        results[stage.name] = run_stage(
            stage, Inputs(spec, shard.name, tool, {INGEST.name: (shard.documents,), **files})
        )
    return results


def assemble_shard(spec: BuildSpec, shard: Shard, scored: Sequence[ShardResult]) -> ShardResult:
    assembly = AssemblySpec(spec.run_id, spec.data, spec.assemble, spec.tool_names)
    files = {INGEST.name: (shard.documents,), "score": files_of(scored)}
    return run_stage(ASSEMBLE, Inputs(assembly, shard.name, files=files))
