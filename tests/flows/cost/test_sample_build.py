"""A plan from a sample build: what its commits say is what the plan says, in proportion."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wh_fixtures import make_commit, make_run

from flows.build_dataset.parameters import BuildParameters
from flows.cost.of_build import CostPlan, cost_of_build
from flows.cost.parameters import CostOptions
from toolformer_core.errors import UsageError
from warehouse.commits import DataFile, Dataset, RowCounts
from warehouse.store import Store

# Two shards of 50 documents for one tool: 40 kept, 200 samples, 100 of them calls, 64 calls of the tool, 80 scored.
_ROWS: dict[str, list[RowCounts]] = {
    "prefilter": [RowCounts("documents", 50, 20, {"no": 30})],
    "sample": [RowCounts("documents", 20, 18, {"no_call": 2}), RowCounts("samples", 100, 50, {"unparsable": 50})],
    "execute": [RowCounts("calls", 30, 30)],
    "score": [RowCounts("calls", 50, 40, {"same": 10})],
}
_COUNTERS: dict[str, dict[str, float]] = {
    "prefilter": {"cpu_seconds": 0.05},
    "sample": {"cpu_seconds": 0.06, "model_cpu_seconds": 4.0, "lm_tokens": 4000},
    "execute": {"cpu_seconds": 0.04, "calls": 32, "tool_seconds": 1.6},
    "score": {"cpu_seconds": 0.08, "model_cpu_seconds": 3.0, "lm_tokens": 2000},
}
_BYTES = 6000


def sample_folder(folder: Path, **run: Any) -> Path:
    """Write the commits of a build of 100 documents; no data files."""
    store = Store(folder)
    keys = []

    def commit(stage: str, tool: str, shard: str, **more: Any) -> None:
        file = DataFile(f"shards/{stage}/{shard}.parquet", "0" * 32, 50, _BYTES)
        made = make_commit(stage, tool, shard, [file], **more)
        store.write_json(f"commits/{made.key.id}.json", made.to_json())
        keys.append(made.key)

    rows = [RowCounts("rows", 100, 100)]
    commit("ingest", "", "corpus", balances=rows, counters={"cpu_seconds": 0.01}, parts={"config": "i"})
    for shard in ("part-00000", "part-00001"):
        for stage, balances in _ROWS.items():
            config: dict[str, Any] = {"top_k": 5, "samples": 2} if stage == "sample" else {}
            commit(stage, "calculator", shard, balances=balances, counters=_COUNTERS[stage], config=config)
        documents = [RowCounts("calls", 40, 10, {"low": 30}), RowCounts("documents", 50, 10, {"no": 40})]
        commit("assemble", "", shard, balances=documents, counters={"cpu_seconds": 0.02})
    store.write_run(make_run("r1", keys, **{"model": "embedded", **run}))
    return folder


def plan_from(folder: Path, documents: float, *assume: str, **changes: Any) -> CostPlan:
    settings: dict[str, Any] = {"tools": ["calculator"], "top_k": 5, "samples": 2, **changes}
    parameters = BuildParameters(corpus="", data=str(folder.parent / "none"), **settings)
    return cost_of_build(parameters, documents, CostOptions(from_=str(folder), assume=list(assume)))


def origins(plan: CostPlan) -> dict[str, str]:
    return {line.name: line.origin for line in plan.assumptions}


@pytest.mark.parametrize("times", [1, 7])
def test_a_plan_of_the_same_build_is_what_its_commits_say(tmp_path: Path, times: int) -> None:
    plan = plan_from(sample_folder(tmp_path / "data"), 100 * times, "ingest_ms=0", "assemble_ms=0")
    assert plan.sum("lm_tokens") == pytest.approx(times * 2 * (4000 + 2000))
    assert plan.sum("tool_calls") == pytest.approx(times * 2 * 32)
    assert plan.sum("tool_hours") == pytest.approx(times * 2 * 1.6 / 3600)
    # per shard 0.05 + 0.06 + 0.04 + 0.08 s and the model's 4 + 3 s
    assert plan.sum("cpu_hours") == pytest.approx(times * 2 * 7.23 / 3600)
    assert {stage.stage: stage.units for stage in plan.stages}["score"] == pytest.approx(times * 80)
    # 8,000 tokens less 200 samples of 12, over 40 documents that were read twice
    assert {line.name: line.value for line in plan.assumptions}["text_tokens"] == pytest.approx(5600 / 40 / 2)


def test_twice_the_samples_are_twice_the_calls_and_the_same_scan(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data")
    few, many = plan_from(folder, 100), plan_from(folder, 100, samples=4)
    assert many.sum("tool_calls") == pytest.approx(2 * few.sum("tool_calls"))
    # 200 samples of 12 tokens are 2,400 of the 8,000 tokens of sample; 200 more are 2,400 more, and score doubles
    assert many.sum("lm_tokens") == pytest.approx(few.sum("lm_tokens") + 2400 + 4000)


def test_with_a_card_the_models_work_is_computed_and_the_rest_measured(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data")
    parameters = BuildParameters(corpus="", data=str(folder), tools=["calculator"], top_k=5, samples=2)
    costs = CostOptions(gpu="h100", gpu_price=1.0, assume=["ingest_ms=0", "assemble_ms=0"])
    plan = cost_of_build(parameters, 100, costs)
    assert plan.sum("gpu_hours") > 0
    assert plan.sum("cpu_hours") == pytest.approx(2 * 0.23 / 3600)  # without the model's 7 s a shard
    found = origins(plan)
    assert found["calculator.scan_tokens"] == found["calculator.ok_share"] == found["text_tokens"] == "measured"


@pytest.mark.parametrize("changes", [{"model": "gpt-j-6b"}, {"draw_form": "forced"}, {"decoys": 2}], ids=str)
def test_a_build_sampled_otherwise_says_nothing_of_samples_and_tokens(tmp_path: Path, changes: dict[str, Any]) -> None:
    found = origins(plan_from(sample_folder(tmp_path / "data"), 100, **changes))
    assert found["calculator.kept_share"] == found["calculator.call_seconds"] == "measured"
    assert found["ok_share"] == "assumed"
    assert found["calculator.scan_tokens"] == found["calculator.score_tokens"] == "computed"


def test_examples_are_those_of_the_nearest_threshold_on_the_samples_card(tmp_path: Path) -> None:
    card = Dataset("c", "v", (), {"calculator": 20}, {"calculator": 0.7}, "r1", "embedded", "corpus", "t")
    folder = sample_folder(tmp_path / "data", dataset=card.key)
    Store(folder).write_dataset(replace(card, yields=(("calculator", 0.5, 30), ("calculator", 1.0, 10))))
    # of 100 documents: 30 at 0.5, 20 at the build's own 0.7, 10 at 1
    for tau_f, share in ((0.5, 0.3), (0.7, 0.2), (0.8, 0.2), (2.0, 0.1)):
        plan = plan_from(folder, 100, tau_f={"calculator": tau_f})
        assert next(line.value for line in plan.assumptions if line.name == "calculator.examples") == share


def test_tools_that_the_sample_lacks_are_planned_from_the_papers_figures(tmp_path: Path) -> None:
    found = origins(plan_from(sample_folder(tmp_path / "data"), 100, tools=["calculator", "calendar"]))
    assert (found["calculator.kept_share"], found["calendar.kept_share"]) == ("measured", "paper")


def test_a_build_that_did_not_end_and_a_folder_without_one(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data", state="failed")
    with pytest.raises(UsageError, match=r"no build in .* was completed"):
        plan_from(folder, 100)
    with pytest.raises(UsageError, match=r"--from .*nosuch: nothing was built there"):
        plan_from(tmp_path / "nosuch", 100)
    parameters = BuildParameters(corpus="", data=str(folder), tools=["calculator"])
    assert cost_of_build(parameters, 100, CostOptions()).sample == ""  # its own folder is no sample yet
