"""Ingest: the corpus once, into shards of documents, with its rejected rows beside them."""

from __future__ import annotations

from collections import Counter

from tasks import arrow
from tasks.build_spec import BuildSpec
from tasks.run_shard import ShardWriter, StageOutput
from tasks.stage import Inputs, Stage, shard_name
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.records import Document, Rejection
from warehouse.commits import RowCounts

__all__ = ["CORPUS", "INGEST"]

CORPUS = "corpus"  # the name of its one commit
_REJECTS_PER_FILE = 10_000  # rejected rows held at once


def _run(inputs: Inputs[BuildSpec], writer: ShardWriter) -> StageOutput:
    spec = inputs.spec
    kept = 0
    batch: list[Document] = []
    failed: Counter[str] = Counter()
    rejected: list[Rejection] = []
    for row in read_corpus(spec.corpus, spec.ingest):
        if isinstance(row, Rejection):
            failed[row.reason] += 1
            rejected.append(row)
            if len(rejected) == _REJECTS_PER_FILE:
                writer.write_rejects(arrow.rejects_table(rejected))
                rejected = []
            continue
        batch.append(row)
        if len(batch) == spec.ingest.shard_documents:
            writer.write(arrow.stage_table("ingest", batch), shard_name(kept // len(batch)))
            kept += len(batch)
            batch = []
    if batch:
        writer.write(arrow.stage_table("ingest", batch), shard_name(kept // spec.ingest.shard_documents))
        kept += len(batch)
    if rejected:
        writer.write_rejects(arrow.rejects_table(rejected))
    return StageOutput((RowCounts("rows", kept + failed.total(), kept, failed=dict(sorted(failed.items()))),))


INGEST: Stage[BuildSpec] = Stage(
    name="ingest",
    version="2",
    unit="rows",
    per="source",
    run=_run,
    config=lambda inputs: inputs.spec.ingest,
    digests=lambda inputs: {"inputs": inputs.spec.corpus_digest},
)
