"""An evaluation of many shards has as many tasks as a run can bear: the shards of an arm are cut into groups."""

import json
from pathlib import Path
from typing import Any

import pytest

from flows.evaluate import flow
from flows.evaluate.parameters import EvaluateParameters
from flows.runtime import stage_tasks
from flows.runtime.ledger import reporting_to
from tasks.shards.run_shard import ShardResult
from warehouse.queries import rows_of


def test_the_shards_of_each_arm_are_cut_into_groups_and_each_is_reported(
    prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"ID": f"p-{n}", "Body": f"A shelf holds {n} books.", "Question": "How many?", "Answer": n, "Type": "Sum"}
        for n in range(3)
    ]
    (tmp_path / "problems.json").write_text(json.dumps(rows), encoding="utf-8")
    names: list[str] = []
    submit = stage_tasks.submit_stage

    def noting(*arguments: Any, **options: Any) -> Any:
        names.append(options["name"])
        return submit(*arguments, **options)

    monkeypatch.setattr(stage_tasks, "submit_stage", noting)
    monkeypatch.setattr(flow, "tasks_at_most", lambda: 4)  # two arms: two groups each, of three shards of one item
    reported: list[int] = []

    def progress(_stage: str, finished: int, _total: int, _done: ShardResult) -> None:
        reported.append(finished)

    asked = {"task": "svamp", "path": str(tmp_path / "problems.json"), "data": str(tmp_path / "data")}
    small = {"tools": ["calculator"], "arms": ["base", "base+tools"], "k": [0, 1], "shard_items": 1}
    parameters = EvaluateParameters.model_validate({**asked, **small, "max_new_tokens": 2})
    with reporting_to(progress):
        result = flow.run_evaluate(parameters)
    assert names == [
        *("evaluate svamp base k=0 0", "evaluate svamp base k=0 1-2"),
        *("evaluate svamp base+tools k=1 0", "evaluate svamp base+tools k=1 1-2"),
    ]
    assert (result.done, result.skipped) == (1 + 2 * 3, 0)
    assert sorted(reported) == [1, 1, 2, 3, 4, 5, 6]  # the benchmark's one, and six shards in groups
    assert len(rows_of(result.snapshot, "SELECT DISTINCT arm, item_id FROM predictions")) == 6
    sql = "SELECT config->>'evaluation' AS evaluation, shard FROM shards WHERE stage = 'evaluate'"
    shards = rows_of(result.snapshot, sql)
    named = sorted(f"{row['evaluation']}-{row['shard'][-5:]}" for row in shards)
    assert sorted(row["shard"] for row in shards) == named
    assert {row["shard"][-5:] for row in shards} == {"00000", "00001", "00002"}
