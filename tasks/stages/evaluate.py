"""Evaluate: what an arm answers to the items of a shard. Perplexity: how likely it finds the texts, tools disabled."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tasks.shards import arrow
from tasks.shards.model_thread import in_model_thread
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Stage, count_failed
from tasks.specs.evaluation_spec import EVALUATE_VERSION, PERPLEXITY_VERSION, ArmRun, toolformer_of
from tasks.stages.benchmark import items_digest
from toolformer_core.evaluate.answer import Prediction, answer, parameters_of
from toolformer_core.evaluate.likelihood import Likelihood, likelihoods
from toolformer_core.evaluate.tasks import task_named


def _run(inputs: Inputs[ArmRun], writer: ShardWriter) -> StageOutput:
    evaluation = inputs.spec.evaluation
    task, columns = task_named(inputs.spec.benchmark.task), _arm_columns(inputs)
    items = inputs.records("benchmark", arrow.items_of)

    def predict() -> list[Prediction]:
        toolformer = toolformer_of(evaluation)
        columns["parameters"] = parameters_of(toolformer.lm)
        limits = {"max_new_tokens": evaluation.max_new_tokens, "max_calls": evaluation.max_calls}
        offered, trigger = evaluation.offered, dict(evaluation.trigger)
        return answer(toolformer, task, items, top_k=evaluation.k, tools=offered, trigger=trigger, **limits)

    predictions = in_model_thread(predict, waited=writer.add_wait)
    counts = count_failed("items", (p.problem for p in predictions))
    counters = {
        "right": sum(p.correct for p in predictions),
        "calls": sum(p.called if p.calls is None else sum(c.requested for c in p.calls) for p in predictions),
        "new_tokens": sum(p.new_tokens for p in predictions),
        "call_tokens": sum(p.call_tokens for p in predictions),
    }
    return StageOutput((counts,), arrow.evaluation_table("evaluate", predictions, columns), counters)


def _run_perplexity(inputs: Inputs[ArmRun], writer: ShardWriter) -> StageOutput:
    columns = _arm_columns(inputs)
    items = inputs.records("benchmark", arrow.items_of)

    def measure() -> list[Likelihood]:
        lm = toolformer_of(inputs.spec.evaluation).lm
        columns["parameters"] = parameters_of(lm)
        return likelihoods(lm, items)

    measured = in_model_thread(measure, waited=writer.add_wait)
    counts = count_failed("texts", (text.problem for text in measured))
    counters = {"tokens": sum(text.tokens for text in measured)}
    return StageOutput((counts,), arrow.evaluation_table("perplexity", measured, columns), counters)


def _arm_columns(inputs: Inputs[ArmRun]) -> dict[str, Any]:
    run, evaluation = inputs.spec, inputs.spec.evaluation
    return {"evaluation": run.name, "task": run.benchmark.task, "arm": evaluation.arm, "k": evaluation.k}


def _arm_config_notes(inputs: Inputs[ArmRun]) -> Mapping[str, Any]:
    benchmark, evaluation = inputs.spec.benchmark, inputs.spec.evaluation
    return {
        "evaluation": inputs.spec.name,
        "task": benchmark.task,
        "arm": evaluation.arm,
        "k": evaluation.k,
        "model": evaluation.model,
        "model_digest": evaluation.model_digest,
        "base": evaluation.base,
        "base_digest": evaluation.base_digest,
        "tools": list(evaluation.offered),
        "max_new_tokens": evaluation.max_new_tokens,
        "source": benchmark.source,
        "path": benchmark.path or "",
        **({"trigger": dict(evaluation.trigger)} if evaluation.trigger else {}),
        **({"max_calls": evaluation.max_calls} if evaluation.max_calls != 1 else {}),
    }


EVALUATE: Stage[ArmRun] = Stage(
    name="evaluate",
    version=EVALUATE_VERSION,
    unit="items",
    per="shard",
    needs="model",
    reads=("benchmark",),
    run=_run,
    digests=lambda inputs: {**inputs.spec.evaluation.parts(), "evaluation": inputs.spec.name, **items_digest(inputs)},
    config_notes=_arm_config_notes,
)

PERPLEXITY = replace(EVALUATE, name="perplexity", version=PERPLEXITY_VERSION, unit="texts", run=_run_perplexity)
