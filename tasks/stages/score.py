"""Score: the three losses of every call that has a response, and the gains of its decoys if any are asked for.

Another model may score than has sampled (`--score-model`). What reaches it of a call is text, and the position as an
offset in characters: its tokens from there on count, or, where a token of its own goes across the position, those from
the next one on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks import arrow
from tasks.build_spec import BuildSpec, model_of
from tasks.model_thread import QueuedLM
from tasks.run_shard import ShardWriter, StageOutput
from tasks.stage import LM_TOKENS, Inputs, Stage, nonzero
from toolformer_core.annotate.decoys import RESERVE_NAME, DecoyPool
from toolformer_core.annotate.score import score
from warehouse.commits import RowCounts

__all__ = ["SCORE"]


def _run(inputs: Inputs[BuildSpec], writer: ShardWriter) -> StageOutput:
    spec = inputs.spec.for_scoring()
    contexts = {v.doc_id: v.context for v in inputs.records("prefilter", arrow.verdicts_of)}
    executions = {(e.input, e.context): e for e in inputs.records("execute", arrow.executions_of)}
    calls = inputs.records("sample", arrow.parsed_calls_of)
    answered = [
        (call, execution.response)
        for call in calls
        if not (execution := executions[call.input, contexts[call.doc_id]]).failure
    ]
    scored, tokens = [], 0
    decoys = DecoyPool.of(spec.score, inputs.tool, ((call.doc_id, response) for call, response in answered))
    if answered:
        wanted = {call.doc_id for call, _ in answered}
        texts = {d.doc_id: d.text for d in inputs.records("ingest", arrow.documents_of) if d.doc_id in wanted}
        with QueuedLM(model_of(spec), writer.add_wait) as lm:
            scored = score(lm, spec.tool_names[inputs.tool], texts, answered, spec.score, decoys)
        tokens = lm.tokens
    counts = RowCounts(
        "calls",
        len(calls),
        len(scored),
        dropped=nonzero({"same_call_drawn_differently": len(answered) - len(scored)}),
        failed=nonzero({"no_response": len(calls) - len(answered)}),
    )
    counters = {LM_TOKENS: tokens}
    if decoys is not None:
        counters |= {"decoys": decoys.from_shard + decoys.from_reserve, "decoys_from_reserve": decoys.from_reserve}
    return StageOutput((counts,), arrow.stage_table("score", scored), counters)


def _digests(inputs: Inputs[BuildSpec]) -> Mapping[str, str]:
    return inputs.spec.for_scoring().model_digests()


def _config_notes(inputs: Inputs[BuildSpec]) -> Mapping[str, Any]:
    spec = inputs.spec
    notes = {"reserve": RESERVE_NAME} if spec.score.decoys else {}
    if spec.other_model is not None:
        notes |= {"sampled_by": spec.model, "scored_by": spec.other_model.name}
    return notes


SCORE: Stage[BuildSpec] = Stage(
    name="score",
    version="2",
    unit="calls",
    per="tool",
    needs="model",
    reads=("ingest", "prefilter", "sample", "execute"),
    run=_run,
    config=lambda inputs: inputs.spec.score,
    digests=_digests,
    config_notes=_config_notes,
)
