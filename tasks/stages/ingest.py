"""Ingest: the corpus once, into shards of documents, with its rejected rows beside them.

Each part of the corpus is read by itself (`READ`), several at the same time. `INGEST` puts them together, in order; its
commit lists their files. The limit counts dropped documents as well, whatever parts the corpus is read in.
"""

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tasks.shards import arrow
from tasks.shards.corpus import PartSpec, part_specs
from tasks.shards.run_shard import ShardResult, ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Stage, nonzero, pii_part, run_stage, shard_name
from tasks.specs.build_spec import BuildSpec
from tasks.stages.decontaminate import DECONTAMINATE, benchmarks_digest, reason_of
from tasks.stages.deduplicate import SIGN, NearDuplicate, find_near_duplicates
from toolformer_core.annotate.call_filter import SharedWords
from toolformer_core.annotate.duplicates import NAME, DigestSet
from toolformer_core.annotate.ingest import read_part
from toolformer_core.evaluate.contamination import FoundItem
from toolformer_core.records import Document, Rejection
from warehouse.commits import RowCounts
from warehouse.errors import StoreError
from warehouse.store import Store

CORPUS = "corpus"  # the name of its one commit
_PART = "part"  # of every part's: the fingerprint tells them apart, wherever they are in the corpus
_REJECTS_PER_FILE = 10_000  # rejected rows held at once
_RAW_CHARS = 2_000  # of a rejected row
_DETAIL_CHARS = 400
_LATEST_DATE = "latest_date"  # a counter: YYYYMMDD; of a part 0 if none of its documents has a date
_UNDATED = "undated"  # ... and the number of a part's documents without one
CALLS_ONLY = "calls"  # in its config: documents with items stay, without the calls near them
ITEMS, FOUND = "items:", "found:"  # counters, with a benchmark's name: its items, and those that documents hold


def _read(inputs: Inputs[PartSpec], writer: ShardWriter) -> StageOutput:
    build, shard_documents = inputs.spec.build, inputs.spec.build.ingest.shard_documents
    kept = undated = 0
    batch: list[Document] = []
    failed: Counter[str] = Counter()
    rejected: list[Rejection] = []
    today, newest = dt.datetime.now(dt.UTC).date().isoformat(), ""

    def write(documents: int = 1, rejects: int = 1) -> None:
        """Write the documents, and the rejected rows, that are held, if there are at least as many."""
        nonlocal kept
        if len(batch) >= documents:
            writer.write(arrow.stage_table("ingest", batch), shard_name(kept // shard_documents), stage="ingest")
            kept += len(batch)
            batch.clear()
        if len(rejected) >= rejects:
            writer.write_rejects(arrow.rejects_table(rejected), stage="ingest")
            rejected.clear()

    for row in read_part(Path(build.corpus), inputs.spec.part, build.ingest):
        if isinstance(row, Rejection):
            failed[row.reason] += 1
            rejected.append(row)
        else:
            batch.append(row)
            undated += row.created is None
            if row.created is not None and row.created <= today:  # a later one is a mistake
                newest = max(newest, row.created)
        write(shard_documents, _REJECTS_PER_FILE)
    write()
    counts = RowCounts("rows", kept + failed.total(), kept, failed=dict(sorted(failed.items())))
    return StageOutput((counts,), counters={_LATEST_DATE: _as_number(newest or "0"), _UNDATED: undated})


READ: Stage[PartSpec] = Stage(
    name="read",
    version="1",
    unit="rows",
    per="source",
    run=_read,
    config=lambda inputs: inputs.spec.build.ingest,
    digests=lambda inputs: {"inputs": inputs.spec.digest},
)

PART_STAGES: list[Stage[PartSpec]] = [DECONTAMINATE, SIGN]  # what is found out about each part, once it is read


def read_stages(spec: PartSpec) -> dict[str, ShardResult]:
    """Return the results of a part of a corpus by stage, after what was not finished is done."""
    read = run_stage(READ, Inputs(spec, _PART))
    inputs = Inputs(spec, _PART, files={READ.name: read.files})
    return {READ.name: read, **{one.name: run_stage(one, inputs) for one in PART_STAGES if one.wanted(spec)}}


def _run(inputs: Inputs[BuildSpec], writer: ShardWriter) -> StageOutput:
    spec, store = inputs.spec, inputs.spec.store()
    limit = spec.ingest.limit
    seen = DigestSet()
    failed: Counter[str] = Counter()
    rejected: list[Rejection] = []
    items: dict[str, set[str]] = {name: set() for name, _ in spec.decontamination.items} if spec.decontamination else {}
    newest = undated = shards = 0
    parts = list(_parts(spec))
    near = _near_duplicates(spec, parts) if spec.deduplicate else {}
    calls_only = _calls_only(spec)
    for results in parts:
        result = results[READ.name]
        writer.add_wait(-sum(one.seconds for one in results.values() if one.skipped))  # part of the ingest's seconds
        if (commit := store.read_commit(result.key)) is None:
            raise StoreError(f"the commit {result.key.id} is gone: run the same build again")
        newest = max(newest, int(commit.counters[_LATEST_DATE]))
        undated += int(commit.counters[_UNDATED])
        failed.update(result.counts[0].failed)
        writer.files += [file for file in commit.files if file not in result.files]
        contaminated = _contaminated(store, results)
        for file in result.files:
            drops: list[dict[str, Any] | None] = []  # of each row what its rejection says; None: it is kept
            for doc_id in store.read(file, ["doc_id"]).column(0).to_pylist():
                if limit is not None and len(seen) >= limit:
                    break
                if not seen.add(bytes.fromhex(doc_id)):
                    drops.append({"reason": "duplicate", "detail": f"of document {doc_id}"})
                    continue
                found = contaminated.get(doc_id, [])
                for item in found:
                    items[item.benchmark].add(item.item_id)
                if found and not calls_only:
                    drops.append({"doc_id": doc_id, **_holding(doc_id, found[0])})
                elif (like := near.get(doc_id)) is not None:
                    drops.append({"doc_id": doc_id, **_like(doc_id, like)})
                else:
                    drops.append(None)
            if drops.count(None) == file.rows:
                writer.files.append(file)
            elif None in drops:
                kept = pa.array([drop is None for drop in drops])
                writer.write(store.read(file).slice(0, len(drops)).filter(kept), shard_name(shards))
            shards += None in drops
            if any(drops):
                documents = arrow.documents_of(store.read(file).slice(0, len(drops)))
                rejected += [
                    Rejection(document.source, document.line, raw=document.text[:_RAW_CHARS], **drop)
                    for document, drop in zip(documents, drops, strict=True)
                    if drop is not None
                ]
    for start in range(0, len(rejected), _REJECTS_PER_FILE):
        writer.write_rejects(arrow.rejects_table(rejected[start : start + _REJECTS_PER_FILE]))
    dropped = Counter(row.reason for row in rejected)
    failed["duplicate"] += dropped.pop("duplicate", 0)
    kept_rows = len(seen) - dropped.total()
    counts = RowCounts("rows", len(seen) + failed.total(), kept_rows, nonzero(dropped), nonzero(failed))
    today = _as_number(dt.datetime.now(dt.UTC).date().isoformat())
    counters = {_LATEST_DATE: newest if newest and not undated else today}
    for name, number in spec.decontamination.items if spec.decontamination else ():
        counters |= {ITEMS + name: number, FOUND + name: len(items[name])}
    return StageOutput((counts,), counters=counters)


def _parts(spec: BuildSpec) -> Iterator[dict[str, ShardResult]]:
    store, limit, seen = spec.store(), spec.ingest.limit, DigestSet()
    for part in part_specs(spec):
        if limit is not None and len(seen) >= limit:
            return
        results = read_stages(part)
        for doc_id in _ids(store, results) if limit is not None else ():
            seen.add(bytes.fromhex(doc_id))
        yield results


def _ids(store: Store, results: Mapping[str, ShardResult]) -> list[str]:
    return [one for file in results[READ.name].files for one in store.read(file, ["doc_id"]).column(0).to_pylist()]


def _near_duplicates(spec: BuildSpec, parts: Iterable[dict[str, ShardResult]]) -> dict[str, NearDuplicate]:
    store, limit = spec.store(), spec.ingest.limit

    def of(results: dict[str, ShardResult]) -> tuple[list[str], pa.Table, Collection[str]]:
        dropped = () if _calls_only(spec) else _contaminated(store, results)
        return _ids(store, results), pa.concat_tables(map(store.read, results[SIGN.name].files)), dropped

    return find_near_duplicates(map(of, parts), limit)


def _contaminated(store: Store, results: Mapping[str, ShardResult]) -> dict[str, list[FoundItem]]:
    found: dict[str, list[FoundItem]] = {}
    for file in results[DECONTAMINATE.name].files if DECONTAMINATE.name in results else ():
        for row in store.read(file).to_pylist():
            found.setdefault(row.pop("doc_id"), []).append(FoundItem(**row))
    return found


def _calls_only(spec: BuildSpec) -> bool:
    return spec.decontamination is not None and spec.decontamination.calls_only


def with_shared_words(spec: BuildSpec) -> BuildSpec:
    """Return a build with the words that its documents share with benchmarks, where these cost calls alone."""
    if not _calls_only(spec):
        return spec
    store = spec.store()
    shared: dict[str, list[SharedWords]] = {}
    for results in _parts(spec):
        for doc_id, found in _contaminated(store, results).items():
            shared[doc_id] = sorted({(one.start, one.end, reason_of(one.benchmark)) for one in found})
    return replace(spec, shared_words=shared)


def _holding(doc_id: str, item: FoundItem) -> dict[str, Any]:
    detail = f"document {doc_id} holds words of item {item.item_id}: {item.shared}"[:_DETAIL_CHARS]
    reason = reason_of(item.benchmark)
    return {"reason": reason, "detail": detail, "benchmark": item.benchmark, "item_id": item.item_id}


def _like(doc_id: str, near: NearDuplicate) -> dict[str, Any]:
    detail = f"document {doc_id} is like {near.like} ({near.likeness:.2f})"
    return {"reason": "near_duplicate", "detail": detail, "like_doc_id": near.like, "likeness": near.likeness}


def _as_number(date: str) -> int:
    return int(date.replace("-", ""))


def with_latest_date(spec: BuildSpec, ingested: ShardResult) -> BuildSpec:
    commit = spec.store().read_commit(ingested.key)
    if commit is None:
        return spec
    latest = dt.date.fromisoformat(f"{int(commit.counters[_LATEST_DATE]):08d}").isoformat()
    return replace(spec, prefilter=replace(spec.prefilter, latest_date=latest))


def _digests(inputs: Inputs[BuildSpec]) -> Mapping[str, str]:
    spec = inputs.spec
    near = {"near_duplicates": NAME} if spec.deduplicate else {}
    return {"inputs": spec.corpus_digest, **benchmarks_digest(spec), **_calls_note(spec), **near, **pii_part(spec)}


def _calls_note(spec: BuildSpec) -> dict[str, str]:
    return {"decontaminate": CALLS_ONLY} if _calls_only(spec) else {}


INGEST: Stage[BuildSpec] = Stage(
    name="ingest",
    version="4",
    unit="rows",
    per="source",
    run=_run,
    config=lambda inputs: inputs.spec.ingest,
    digests=_digests,
    config_notes=lambda inputs: _calls_note(inputs.spec),
)
