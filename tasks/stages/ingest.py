"""Ingest: the corpus once, into shards of documents, with its rejected rows beside them.

Its commit notes the corpus's latest date: the newest date of a document, if all have one, else the day of reading. So
it stays the same for later builds, which read no corpus again.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import replace

from tasks import arrow
from tasks.build_spec import BuildSpec
from tasks.run_shard import ShardResult, ShardWriter, StageOutput
from tasks.stage import Inputs, Stage, shard_name
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.records import Document, Rejection
from warehouse.commits import RowCounts

CORPUS = "corpus"  # the name of its one commit
_REJECTS_PER_FILE = 10_000  # rejected rows held at once
_LATEST_DATE = "latest_date"  # the counter of its commit: YYYYMMDD


def _run(inputs: Inputs[BuildSpec], writer: ShardWriter) -> StageOutput:
    spec = inputs.spec
    kept = 0
    batch: list[Document] = []
    failed: Counter[str] = Counter()
    rejected: list[Rejection] = []
    today = dt.datetime.now(dt.UTC).date().isoformat()
    newest, all_dated = "", True
    for row in read_corpus(spec.corpus, spec.ingest):
        if isinstance(row, Rejection):
            failed[row.reason] += 1
            rejected.append(row)
            if len(rejected) == _REJECTS_PER_FILE:
                writer.write_rejects(arrow.rejects_table(rejected))
                rejected = []
            continue
        batch.append(row)
        all_dated = all_dated and row.created is not None
        if row.created is not None and row.created <= today:  # a later one is a mistake
            newest = max(newest, row.created)
        if len(batch) == spec.ingest.shard_documents:
            writer.write(arrow.stage_table("ingest", batch), shard_name(kept // len(batch)))
            kept += len(batch)
            batch = []
    if batch:
        writer.write(arrow.stage_table("ingest", batch), shard_name(kept // spec.ingest.shard_documents))
        kept += len(batch)
    if rejected:
        writer.write_rejects(arrow.rejects_table(rejected))
    counts = RowCounts("rows", kept + failed.total(), kept, failed=dict(sorted(failed.items())))
    latest = newest if newest and all_dated else today
    return StageOutput((counts,), counters={_LATEST_DATE: int(latest.replace("-", ""))})


def with_latest_date(spec: BuildSpec, ingested: ShardResult) -> BuildSpec:
    """Return the build with the latest date of its corpus, unless the user gave one."""
    commit = spec.store().read_commit(ingested.key)
    if spec.prefilter.latest_date or commit is None:
        return spec
    latest = dt.date.fromisoformat(f"{int(commit.counters[_LATEST_DATE]):08d}").isoformat()
    return replace(spec, prefilter=replace(spec.prefilter, latest_date=latest))


INGEST: Stage[BuildSpec] = Stage(
    name="ingest",
    version="3",
    unit="rows",
    per="source",
    run=_run,
    config=lambda inputs: inputs.spec.ingest,
    digests=lambda inputs: {"inputs": inputs.spec.corpus_digest},
)
