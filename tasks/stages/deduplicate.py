"""Near-duplicates of the corpus: signatures part by part (`SIGN`), and what they come to over all parts in order."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa

from tasks.shards import arrow
from tasks.shards.corpus import PartSpec
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Stage
from toolformer_core.annotate import duplicates
from toolformer_core.annotate.duplicates import BANDS, NAME, ROWS, DigestSet
from warehouse.commits import RowCounts

_COLUMNS = pa.schema([("doc_id", pa.string()), ("bands", pa.binary()), ("sketch", pa.binary())])


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    like: str  # id of an earlier document that is kept
    likeness: float  # estimated share of common n-grams


def _run(inputs: Inputs[PartSpec], _: ShardWriter) -> StageOutput:
    documents = inputs.records("read", arrow.documents_of)
    rows = [
        {"doc_id": document.doc_id, "bands": signature.bands, "sketch": signature.sketch}
        for document in documents
        if (signature := duplicates.signature_of(document.text)) is not None
    ]
    counts = RowCounts("documents", len(documents), len(documents))
    return StageOutput((counts,), pa.Table.from_pylist(rows, schema=_COLUMNS))


SIGN: Stage[PartSpec] = Stage(
    name="sign",
    version="1",
    unit="documents",
    per="source",
    reads=("read",),
    run=_run,
    digests=lambda _: {"signature": NAME},
    wanted=lambda spec: spec.build.deduplicate,
)


def find_near_duplicates(
    parts: Iterable[tuple[Iterable[str], pa.Table, Collection[str]]], limit: int | None
) -> dict[str, NearDuplicate]:
    """Return the documents that are dropped as near-duplicates, by id; memory is 0.3 kB a document, 0.6 kB of these.

    Args:
        parts: in the order of the corpus: ids of documents, their signatures, and the ids dropped for another reason.
        limit: distinct documents after which to stop, those dropped included; None: none.
    """
    seen = DigestSet()
    ids, bands, sketches = bytearray(), bytearray(), bytearray()
    for doc_ids, signatures, dropped in parts:
        by_id = {row["doc_id"]: row for row in signatures.to_pylist()}
        for doc_id in doc_ids:
            if limit is not None and len(seen) >= limit:
                break
            digest = bytes.fromhex(doc_id)
            if seen.add(digest) and doc_id not in dropped and (row := by_id.get(doc_id)) is not None:
                ids += digest
                bands += row["bands"]
                sketches += row["sketch"]

    def of(data: bytearray, size: int, number: int) -> bytes:
        return bytes(data[number * size : (number + 1) * size])

    def found(number: int, other: int) -> NearDuplicate:
        alike = duplicates.likeness(of(sketches, BANDS * ROWS, number), of(sketches, BANDS * ROWS, other))
        return NearDuplicate(of(ids, 16, other).hex(), alike)

    near = duplicates.near_duplicates(duplicates.as_bands(bands))
    return {of(ids, 16, number).hex(): found(number, other) for number, other in near.items()}
