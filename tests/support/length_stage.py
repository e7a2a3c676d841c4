"""A stage as a user would add it: how long each document is that a tool's prefilter kept."""

import pyarrow as pa

from tasks.shards import arrow
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Stage
from tasks.specs.build_spec import BuildSpec
from warehouse.commits import RowCounts


def _run(inputs: Inputs[BuildSpec], _: ShardWriter) -> StageOutput:
    texts = {document.doc_id: document.text for document in inputs.records("ingest", arrow.documents_of)}
    verdicts = inputs.records("prefilter", arrow.prefilter_results)
    kept = [verdict.doc_id for verdict in verdicts if verdict.kept]
    table = pa.table({"doc_id": kept, "tool": [inputs.tool] * len(kept), "characters": [len(texts[d]) for d in kept]})
    dropped = len(verdicts) - len(kept)
    return StageOutput(
        (RowCounts("documents", len(verdicts), len(kept), {"not_kept": dropped} if dropped else {}),), table
    )


LENGTHS: Stage[BuildSpec] = Stage(
    name="lengths", version="1", unit="documents", per="tool", reads=("ingest", "prefilter"), run=_run
)
