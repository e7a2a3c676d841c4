"""A process that builds C* beside others, without Prefect: `building_host.py CORPUS DATA NAME [SHARD]`.

It says "ready", waits for a line, builds, and says which shards it did itself. At SHARD it says "stuck" when it has
begun to score it, and goes no further: whoever started it may kill it there.
"""

import sys
from types import SimpleNamespace
from typing import Any

from tasks.shards.run_shard import ShardResult
from tasks.shards.stage import shards_of
from tasks.specs.build_spec import BuildSpec
from tasks.stages import execute, sample, score
from tests.fakes import FakeTool
from tests.support.stage_runs import annotate_shard, assemble_shard, calculator_spec, drawing, ingest, judge
from toolformer_core.annotate.ingest import corpus_files
from toolformer_core.config import IngestConfig
from toolformer_core.folders import file_digest
from toolformer_core.records import ScoredCall, digest_of


def spec_of(corpus: str, data: str, name: str) -> BuildSpec:
    """One tool; a shard for every document."""
    digest = digest_of(*map(file_digest, corpus_files(corpus)))
    by_document = {"corpus_digest": digest, "ingest": IngestConfig(shard_documents=1)}
    return calculator_spec(data, corpus, run_id=name, model="none", model_digest="none", **by_document)


def build(spec: BuildSpec, stop_at: str = "") -> list[ShardResult]:
    """Build, shard by shard, in an order of this run's own."""
    sample.model_of = score.model_of = lambda spec: SimpleNamespace(name="none", digest="none")  # nobody looks at it
    execute.tool_of = lambda spec, key: FakeTool(lambda input, _: input.split(" ")[0])
    sample.sample = drawing(lambda document, _: f"{len(document.text)} + 1")
    score.score = judge
    ingested = ingest(spec)
    done = [ingested]
    for shard in sorted(shards_of(ingested), key=lambda shard: digest_of(spec.run_id, shard.name)):
        if shard.name == stop_at:
            score.score = stuck
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
