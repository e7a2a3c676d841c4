"""Answer: what the large LM answers to the queries of a shard, by a call each, with the tools that one method chose."""

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.shards import arrow
from tasks.shards.model_thread import in_model_thread
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Stage
from tasks.specs.grounding_spec import ANSWER_VERSION, CHOSEN_BY_A_MODEL, AnswerRun, grounder_of
from tasks.stages.ground import counters_of, labelled_queries, notes_of
from toolformer_core.evaluate.scoring import is_right
from toolformer_core.evaluate.tasks import task_named
from toolformer_core.grounding.baselines import few_shot_prompt
from toolformer_core.grounding.ground import Answer
from toolformer_core.grounding.records import Cost, Weights
from toolformer_core.grounding.small_lm import first_line
from warehouse.commits import RowCounts


def _run(inputs: Inputs[AnswerRun], writer: ShardWriter) -> StageOutput:
    run = inputs.spec
    items = inputs.records("benchmark", arrow.items_of)
    queries = labelled_queries(run.grounding, items)
    choices, settings = _choices(inputs, queries), run.grounding.settings

    def answer() -> tuple[list[Answer], Cost]:
        grounder = grounder_of(run.grounding, run.large)
        lm = grounder.small_lm
        if run.method != "few-shot":
            return grounder.answer_all([one.query for one in queries], choices, lm), grounder.cost
        before = lm.tokens
        prompts = [few_shot_prompt(run.examples, one.query.text, settings.answer_prompt) for one in queries]
        texts = map(first_line, lm.answers(prompts, max_tokens=settings.max_answer_tokens))
        answers = [Answer(None, "", text, "" if text else "empty") for text in texts]
        return answers, Cost(0, len(queries), lm.tokens - before)

    answers, cost = in_model_thread(answer, waited=writer.add_wait)
    task = task_named(run.grounding.benchmark.task)
    correct = [is_right(task, item, one.text) for item, one in zip(items, answers, strict=True)]
    about = {"grounding": run.grounding.name, "answering": run.name, "method": run.method, "task": task.name}
    rows = []
    for item, query, one, right in zip(items, queries, answers, correct, strict=True):
        answer_columns = {"tool": one.tool, "call": one.call, "answer": one.text, "failure": one.failure}
        rows.append({**about, **query.columns, "answers": list(item.answers), "correct": right, **answer_columns})
    counts = RowCounts("queries", len(items), len(answers))
    counters = {**counters_of(cost), "right": sum(correct)}
    return StageOutput((counts,), arrow.rows_table("answer_grounded", rows), counters)


def _choices(inputs: Inputs[AnswerRun], queries: Sequence[arrow.LabelledQuery]) -> list[str | None]:
    run = inputs.spec
    if weights := _weights(run):
        by_item = {item_id: grounding for item_id, _, grounding in inputs.records("ground", arrow.groundings_of)}
        return [by_item[one.item_id].choice(weights) for one in queries]
    if run.method in CHOSEN_BY_A_MODEL:
        chosen = {item_id: tool for item_id, _, tool in inputs.records("choose", arrow.choices_of)}
        return [chosen[one.item_id] for one in queries]
    if run.method == "oracle":
        keys = run.grounding.library.keys
        return [next((key for key in keys if key in one.right), None) for one in queries]
    return [None] * len(queries)


def _weights(run: AnswerRun) -> Weights | None:
    return {"gear": run.weights, "cosine": Weights(gamma=1)}.get(run.method)


def _notes(inputs: Inputs[AnswerRun]) -> Mapping[str, Any]:
    run, weights = inputs.spec, _weights(inputs.spec)
    return {
        "evaluation": f"answers/{run.name}",
        **notes_of(run.grounding),
        "answering": run.name,
        "method": run.method,
        "large_model": run.large.name,
        "large_model_digest": run.large.digest,
        **({"gamma": weights.gamma, "lambda": weights.smoothing, "threshold": weights.threshold} if weights else {}),
    }


ANSWER_GROUNDED: Stage[AnswerRun] = Stage(
    name="answer_grounded",
    version=ANSWER_VERSION,
    unit="queries",
    per="shard",
    needs="model",
    reads=("benchmark", "ground", "choose"),
    run=_run,
    digests=lambda inputs: inputs.spec.parts(),
    config_notes=_notes,
)
