"""The events of a real build, small: the chain is whole, and the figures are those that `toolformer stats` shows."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("openlineage", reason="the extra `lineage` is not installed")

from wh_fixtures import a_training

from flows.lineage.events import as_json, events_of
from flows.lineage.select import steps_of
from tests.support.openlineage_rules import check_event
from tests.support.small_builds import Built
from toolformer_core.finetune.recipe import Recipe
from warehouse.records import write_training
from warehouse.store import Store


def test_the_chain_of_a_build(built: Built, as_built: Path) -> None:
    result = built[0]
    store = Store(as_built)
    given = {"version": result.version, "recipe": asdict(Recipe(steps=2)), "checkpoint": "finetunes/job/model"}
    job = f"{result.dataset}-toolformer-0123456789abcdef"
    write_training(store, a_training(job, **given, finished="2100-01-01T00:00:00.000000+00:00"))
    events = [json.loads(as_json(event)) for event in events_of(steps_of(store, dataset=result.dataset))]
    for event in events:
        check_event(event)
    ends = [event for event in events if event["eventType"] == "COMPLETE"]
    made_from = {
        made["name"]: [read["name"] for read in event["inputs"]] for event in ends for made in event["outputs"]
    }
    # From the checkpoint back, everything has a maker but the corpus and the model.
    seen, left = set(), [f"{store.root}/finetunes/job/model"]
    while left:
        name = left.pop()
        seen.add(name)
        left += [one for one in made_from.get(name, []) if one not in seen]
    (run,) = store.runs([result.run_id])
    assert {name for name in seen if name not in made_from} == {run.corpus, "models/embedded"}
    tables = {name.removeprefix(f"{store.root}/shards/") for name in seen if "/shards/" in name}
    stages = ("prefilter", "sample", "execute", "score")
    assert tables == {
        "ingest/_",
        "assemble/_",
        *(f"{stage}/{tool}" for stage in stages for tool in ("calculator", "calendar")),
    }
    assert f"{store.root}/datasets/cstar" in seen
