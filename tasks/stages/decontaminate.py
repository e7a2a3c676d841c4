"""Decontaminate: which documents of a part of the corpus share words in a row with an item of a benchmark."""

from collections.abc import Mapping
from dataclasses import asdict

import pyarrow as pa

from tasks.shards import arrow
from tasks.shards.corpus import PartSpec
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Stage, count_rows
from tasks.specs.build_spec import BuildSpec
from warehouse.schema import columns

_COLUMNS = columns("doc_id text, benchmark text, item_id text, shared text, start int, end int")


def reason_of(benchmark: str) -> str:
    return f"benchmark:{benchmark}"


def _run(inputs: Inputs[PartSpec], _: ShardWriter) -> StageOutput:
    assert inputs.spec.build.decontamination is not None
    finder = inputs.spec.build.decontamination.finder()
    rows, outcomes = [], []
    for document in inputs.records("read", arrow.documents_of):
        found = finder.stretches(document.text)
        rows += [{"doc_id": document.doc_id, **asdict(one)} for one in found]
        outcomes.append(reason_of(found[0].benchmark) if found else "kept")
    counts = count_rows("documents", outcomes, "kept")
    return StageOutput((counts,), pa.Table.from_pylist(rows, schema=_COLUMNS))


def benchmarks_digest(spec: BuildSpec) -> Mapping[str, str]:
    return {} if spec.decontamination is None else {"benchmarks": spec.decontamination.digest}


DECONTAMINATE: Stage[PartSpec] = Stage(
    name="decontaminate",
    version="2",
    unit="documents",
    per="source",
    reads=("read",),
    run=_run,
    digests=lambda inputs: benchmarks_digest(inputs.spec.build),
    wanted=lambda spec: spec.build.decontamination is not None,
)
