"""Sample: calls drawn by the model into the documents that the prefilter kept."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from tasks.shards import arrow
from tasks.shards.model_thread import QueuedLM
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import LM_TOKENS, Inputs, Stage, count_rows
from tasks.specs.build_spec import BuildSpec, model_of
from toolformer_core.annotate.sample import Candidates, propose, read_candidates, sample
from toolformer_core.records import DrawnCall, Prompt
from warehouse.commits import RowCounts

# Counters of commits, with a model behind a server: positions at which a call may stand, and those of them at which
# p(" [") is not known and may exceed tau_s.
POSITIONS, UNSEEN_POSITIONS = "positions", "unseen_positions"


def _run(inputs: Inputs[BuildSpec], writer: ShardWriter) -> StageOutput:
    spec, tool = inputs.spec, inputs.tool
    documents = {d.doc_id: d for d in inputs.records("ingest", arrow.documents_of)}
    kept = [v for v in inputs.records("prefilter", arrow.prefilter_results) if v.kept]
    sampled, tokens = [], 0
    if spec.candidates is not None:
        found = _candidates(*spec.candidates)
        sampled = propose((documents[v.doc_id] for v in kept), tool, spec.tool_names[tool], found)
    elif kept:
        pairs = [(documents[v.doc_id], v) for v in kept]
        with QueuedLM(model_of(spec), writer.add_wait) as lm:
            sampled = sample(lm, spec.prompts[tool], spec.tool_names[tool], pairs, spec.sample[tool])
        tokens = lm.tokens
    calls = [call for s in sampled for call in s.calls]
    counts = count_rows("documents", (s.outcome for s in sampled), "sampled"), count_samples(calls)
    counters = {LM_TOKENS: tokens}
    if spec.remote is not None:
        counters |= {POSITIONS: sum(s.positions for s in sampled), UNSEEN_POSITIONS: sum(s.unseen for s in sampled)}
    return StageOutput(counts, arrow.stage_table("sample", calls), counters)


def count_samples(calls: Iterable[DrawnCall]) -> RowCounts:
    return count_rows("samples", (call.outcome for call in calls for _ in range(call.count)), "ok")


@lru_cache(maxsize=1)  # every shard of a build asks for the same
def _candidates(file: str, digest: str) -> Candidates:
    return read_candidates(Path(file))


def prompt_digests(spec: BuildSpec, prompt: Prompt) -> Mapping[str, str]:
    parts = {"prompt": prompt.digest}
    if spec.remote is not None:  # what a scan sees depends on it
        parts["logprobs"] = str(spec.remote.logprobs)
    return {**spec.model_digests(), **parts}


def _digests(inputs: Inputs[BuildSpec]) -> Mapping[str, str]:
    spec = inputs.spec
    if spec.candidates is not None:
        return {"candidates": spec.candidates[1], "name": spec.tool_names[inputs.tool]}
    return prompt_digests(spec, spec.prompts[inputs.tool])


SAMPLE: Stage[BuildSpec] = Stage(
    name="sample",
    version="5",
    unit="documents",
    per="tool",
    needs="model",
    reads=("ingest", "prefilter"),
    run=_run,
    config=lambda inputs: inputs.spec.sample[inputs.tool],
    digests=_digests,
)
