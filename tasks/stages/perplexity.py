"""Perplexity: how likely an arm finds the texts of a shard, tools disabled."""

from collections import Counter

from tasks.shards import arrow
from tasks.shards.model_thread import in_model_thread
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Stage
from tasks.specs.evaluation_spec import PERPLEXITY_VERSION, ArmRun, toolformer_of
from tasks.stages.evaluate import arm_columns, arm_config_notes, arm_digests
from toolformer_core.evaluate.answer import parameters_of
from toolformer_core.evaluate.likelihood import Likelihood, likelihoods
from warehouse.commits import RowCounts


def _run(inputs: Inputs[ArmRun], writer: ShardWriter) -> StageOutput:
    columns = arm_columns(inputs)
    items = inputs.records("benchmark", arrow.items_of)

    def measure() -> list[Likelihood]:
        lm = toolformer_of(inputs.spec.evaluation).lm
        columns["parameters"] = parameters_of(lm)
        return likelihoods(lm, items)

    measured = in_model_thread(measure, waited=writer.add_wait)
    failed = Counter(text.problem for text in measured if text.problem)
    counts = RowCounts("texts", len(items), len(items) - failed.total(), failed=dict(sorted(failed.items())))
    counters = {"tokens": sum(text.tokens for text in measured)}
    return StageOutput((counts,), arrow.evaluation_table("perplexity", measured, columns), counters)


PERPLEXITY: Stage[ArmRun] = Stage(
    name="perplexity",
    version=PERPLEXITY_VERSION,
    unit="texts",
    per="shard",
    needs="model",
    reads=("benchmark",),
    run=_run,
    digests=arm_digests,
    config_notes=arm_config_notes,
)
