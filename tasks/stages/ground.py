"""Ground: the parts of every tool's score for the queries of a shard, and the choices of models without scores."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from tasks.shards import arrow
from tasks.shards.model_thread import in_model_thread, named_model
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import LM_TOKENS, Inputs, Stage
from tasks.specs.grounding_spec import (
    CHOOSE_VERSION,
    GROUND_VERSION,
    ChoiceRun,
    GroundingRun,
    grounder_of,
    library_tools,
)
from tasks.stages.benchmark import items_digest
from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.queries import query_of, right_tools
from toolformer_core.evaluate.tasks import task_named
from toolformer_core.grounding.baselines import chosen_by_lm, chosen_by_toolformer
from toolformer_core.grounding.records import Cost, Grounding, Query
from toolformer_core.grounding.small_lm import HFSmallLM
from warehouse.commits import RowCounts


def labelled_queries(run: GroundingRun, items: Sequence[Item]) -> list[arrow.LabelledQuery]:
    task = task_named(run.benchmark.task)
    return [arrow.LabelledQuery(item.item_id, query_of(task, item), right_tools(task, item)) for item in items]


def counters_of(cost: Cost) -> dict[str, int]:
    calls = {"small_calls": cost.small_calls, "large_calls": cost.large_calls}
    return {**calls, LM_TOKENS: cost.tokens, "tool_calls": cost.tool_calls}


def notes_of(run: GroundingRun) -> dict[str, Any]:
    benchmark = run.benchmark
    return {
        "grounding": run.name,
        "task": benchmark.task,
        "source": benchmark.source,
        "path": benchmark.path or "",
        "model": run.small.name,
        "model_digest": run.small.digest,
        "encoder": run.encoder.name,
        "patterns": run.patterns.name,
        "tools": list(run.library.keys),
        "mocked": list(run.library.mocked),
        "demonstrations": run.library.demonstrations,
    }


def _ground(inputs: Inputs[GroundingRun], writer: ShardWriter) -> StageOutput:
    run = inputs.spec
    queries = labelled_queries(run, inputs.records("benchmark", arrow.items_of))

    def ground() -> tuple[list[Grounding], Cost]:
        grounder = grounder_of(run)
        return grounder.ground([one.query for one in queries]), grounder.cost

    groundings, cost = in_model_thread(ground, waited=writer.add_wait)
    counts = RowCounts("queries", len(queries), len(groundings))
    table = arrow.groundings_table(run.name, run.benchmark.task, queries, groundings, run.patterns.names)
    return StageOutput((counts,), table, counters_of(cost))


GROUND: Stage[GroundingRun] = Stage(
    name="ground",
    version=GROUND_VERSION,
    unit="queries",
    per="shard",
    needs="model",
    reads=("benchmark",),
    run=_ground,
    digests=lambda inputs: {**inputs.spec.parts(), "grounding": inputs.spec.name, **items_digest(inputs)},
    config_notes=lambda inputs: {"evaluation": f"ground/{inputs.spec.name}", **notes_of(inputs.spec)},
)


def _choose(inputs: Inputs[ChoiceRun], writer: ShardWriter) -> StageOutput:
    run = inputs.spec
    queries = labelled_queries(run.grounding, inputs.records("benchmark", arrow.items_of))

    def choose() -> tuple[list[str | None], Cost]:
        model: Any = named_model(run.model.name, run.model.digest)
        lm = HFSmallLM(model)
        before = lm.tokens
        chosen = _chosen(run, lm, [one.query for one in queries])
        by_small = len(queries) if run.method == "lm" else 0
        return chosen, Cost(by_small, len(queries) - by_small, lm.tokens - before)

    chosen, cost = in_model_thread(choose, waited=writer.add_wait)
    counts = RowCounts("queries", len(queries), len(chosen))
    about = {"grounding": run.grounding.name, "method": run.method, "task": run.grounding.benchmark.task}
    rows = [{**about, **one.columns, "tool": tool} for one, tool in zip(queries, chosen, strict=True)]
    return StageOutput((counts,), arrow.rows_table("choose", rows), counters_of(cost))


def _chosen(run: ChoiceRun, lm: HFSmallLM, queries: Sequence[Query]) -> list[str | None]:
    library = library_tools(run.grounding.library)
    if run.method == "lm":
        return chosen_by_lm(library, lm, [query.text for query in queries])
    from toolformer_core.decode.toolformer import Toolformer

    with closing(Toolformer(lm.lm, [one.tool for one in library])) as toolformer:
        return chosen_by_toolformer(toolformer, queries, top_k=run.top_k, max_new_tokens=run.max_new_tokens)


def _choose_notes(inputs: Inputs[ChoiceRun]) -> Mapping[str, Any]:
    run = inputs.spec
    notes = notes_of(run.grounding) | {"model": run.model.name, "model_digest": run.model.digest}
    return {"evaluation": f"choose/{run.name}", "method": run.method, **notes}


CHOOSE: Stage[ChoiceRun] = Stage(
    name="choose",
    version=CHOOSE_VERSION,
    unit="queries",
    per="shard",
    needs="model",
    reads=("benchmark",),
    run=_choose,
    digests=lambda inputs: {**inputs.spec.parts(), **items_digest(inputs)},
    config_notes=_choose_notes,
)
