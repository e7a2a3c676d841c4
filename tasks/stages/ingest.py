"""Ingest: the corpus once, into shards of documents, with its rejected rows beside them.

Each part of the corpus is read by itself (`READ`, with its own commit), so that parts may be read at the same time, and
again after a kill only where they were not finished. `INGEST` puts them together, in order: it reads their ids alone,
and its commit lists their files, but for those that hold a duplicate of an earlier part or exceed the limit.

Its commit notes the corpus's latest date: the newest date of a document, if all have one, else the day of reading. So
it stays the same for later builds, which read no corpus again.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tasks.shards import arrow
from tasks.shards.corpus import PartSpec, part_specs
from tasks.shards.run_shard import ShardResult, ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Stage, run_stage, shard_name
from tasks.specs.build_spec import BuildSpec
from toolformer_core.annotate.digest_set import DigestSet
from toolformer_core.annotate.ingest import read_part
from toolformer_core.records import Document, Rejection
from warehouse.commits import RowCounts
from warehouse.errors import StoreError

CORPUS = "corpus"  # the name of its one commit
_PART = "part"  # of every part's: the fingerprint tells them apart, wherever they are in the corpus
_REJECTS_PER_FILE = 10_000  # rejected rows held at once
_RAW_CHARS = 2_000  # of a rejected row
_LATEST_DATE = "latest_date"  # a counter: YYYYMMDD; of a part 0 if none of its documents has a date
_UNDATED = "undated"  # ... and the number of a part's documents without one


def _read(inputs: Inputs[PartSpec], writer: ShardWriter) -> StageOutput:
    spec = inputs.spec
    kept = undated = 0
    batch: list[Document] = []
    failed: Counter[str] = Counter()
    rejected: list[Rejection] = []
    today, newest = dt.datetime.now(dt.UTC).date().isoformat(), ""
    for row in read_part(Path(spec.corpus), spec.part, spec.ingest):
        if isinstance(row, Rejection):
            failed[row.reason] += 1
            rejected.append(row)
            if len(rejected) == _REJECTS_PER_FILE:
                writer.write_rejects(arrow.rejects_table(rejected), stage="ingest")
                rejected = []
            continue
        batch.append(row)
        undated += row.created is None
        if row.created is not None and row.created <= today:  # a later one is a mistake
            newest = max(newest, row.created)
        if len(batch) == spec.ingest.shard_documents:
            writer.write(arrow.stage_table("ingest", batch), shard_name(kept // len(batch)), stage="ingest")
            kept += len(batch)
            batch = []
    if batch:
        writer.write(
            arrow.stage_table("ingest", batch), shard_name(kept // spec.ingest.shard_documents), stage="ingest"
        )
        kept += len(batch)
    if rejected:
        writer.write_rejects(arrow.rejects_table(rejected), stage="ingest")
    counts = RowCounts("rows", kept + failed.total(), kept, failed=dict(sorted(failed.items())))
    return StageOutput((counts,), counters={_LATEST_DATE: _as_number(newest or "0"), _UNDATED: undated})


READ: Stage[PartSpec] = Stage(
    name="read",
    version="1",
    unit="rows",
    per="source",
    run=_read,
    config=lambda inputs: inputs.spec.ingest,
    digests=lambda inputs: {"inputs": inputs.spec.digest},
)


def read_parts(specs: list[PartSpec]) -> list[ShardResult]:
    """Return the results of some parts of a corpus, after those were read that were not finished."""
    return [run_stage(READ, Inputs(spec, _PART)) for spec in specs]


def _run(inputs: Inputs[BuildSpec], writer: ShardWriter) -> StageOutput:
    spec, store = inputs.spec, inputs.spec.store()
    limit = spec.ingest.limit
    seen = DigestSet()
    failed: Counter[str] = Counter()
    duplicates: list[Rejection] = []
    newest = undated = shards = 0
    for part in part_specs(spec):
        (result,) = read_parts([part])
        if result.skipped:
            writer.add_wait(-result.seconds)  # the reading belongs to the ingest's seconds
        if (commit := store.read_commit(result.key)) is None:
            raise StoreError(f"the commit {result.key.id} is gone: run the same build again")
        newest = max(newest, int(commit.counters[_LATEST_DATE]))
        undated += int(commit.counters[_UNDATED])
        failed.update(result.counts[0].failed)
        writer.files += [file for file in commit.files if file not in result.files]
        for file in result.files:
            ids = store.read(file, ["doc_id"]).column(0).to_pylist()
            is_new: list[bool] = []
            for doc_id in ids:
                if limit is not None and len(seen) >= limit:
                    break
                is_new.append(seen.add(bytes.fromhex(doc_id)))
            if is_new.count(True) == len(ids):
                writer.files.append(file)
            elif any(is_new):
                table = store.read(file).slice(0, len(is_new))
                writer.write(table.filter(pa.array(is_new)), shard_name(shards))
            if False in is_new:
                table = store.read(file).slice(0, len(is_new))
                duplicates += map(_duplicate, arrow.documents_of(table.filter(pc.invert(pa.array(is_new)))))
            shards += any(is_new)
        if limit is not None and len(seen) >= limit:
            break
    for start in range(0, len(duplicates), _REJECTS_PER_FILE):
        writer.write_rejects(arrow.rejects_table(duplicates[start : start + _REJECTS_PER_FILE]))
    failed.update({"duplicate": len(duplicates)} if duplicates else {})
    counts = RowCounts("rows", len(seen) + failed.total(), len(seen), failed=dict(sorted(failed.items())))
    today = _as_number(dt.datetime.now(dt.UTC).date().isoformat())
    return StageOutput((counts,), counters={_LATEST_DATE: newest if newest and not undated else today})


def _duplicate(document: Document) -> Rejection:
    detail = f"of document {document.doc_id}"
    return Rejection(document.source, document.line, "duplicate", detail, document.text[:_RAW_CHARS])


def _as_number(date: str) -> int:
    return int(date.replace("-", ""))


def with_latest_date(spec: BuildSpec, ingested: ShardResult) -> BuildSpec:
    commit = spec.store().read_commit(ingested.key)
    if commit is None:
        return spec
    latest = dt.date.fromisoformat(f"{int(commit.counters[_LATEST_DATE]):08d}").isoformat()
    return replace(spec, prefilter=replace(spec.prefilter, latest_date=latest))


INGEST: Stage[BuildSpec] = Stage(
    name="ingest",
    version="4",
    unit="rows",
    per="source",
    run=_run,
    config=lambda inputs: inputs.spec.ingest,
    digests=lambda inputs: {"inputs": inputs.spec.corpus_digest},
)
