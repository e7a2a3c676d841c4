"""A plan from a sample build: what its commits say is what the plan says, in proportion."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wh_fixtures import make_commit, make_run

from flows.build_dataset.parameters import BuildParameters
from flows.cost.assumptions import ASSUMED, COMPUTED, GIVEN, MEASURED
from flows.cost.of_build import cost_of_build
from flows.cost.plan import CostPlan
from flows.cost.sample import read_sample
from toolformer_core.embedded import MODEL
from toolformer_core.errors import UsageError
from warehouse.commits import DataFile, Dataset, RowCounts
from warehouse.store import Store

# Two shards of 50 documents for one tool: 40 kept, 200 draws, 100 of them calls, 64 calls of the tool, 80 scored.
_ROWS: dict[str, list[RowCounts]] = {
    "prefilter": [RowCounts("documents", 50, 20, {"no": 30})],
    "sample": [RowCounts("documents", 20, 18, {"no_call": 2}), RowCounts("draws", 100, 50, {"unparsable": 50})],
    "execute": [RowCounts("calls", 30, 30)],
    "score": [RowCounts("calls", 50, 40, {"same": 10})],
}
_COUNTERS: dict[str, dict[str, float]] = {
    "prefilter": {"cpu_seconds": 0.05},
    "sample": {"cpu_seconds": 0.06, "model_cpu_seconds": 4.0, "lm_tokens": 4000},
    "execute": {"cpu_seconds": 0.04, "calls": 32, "tool_seconds": 1.6},
    "score": {"cpu_seconds": 0.08, "model_cpu_seconds": 3.0, "lm_tokens": 2000},
}
_FIXED = {"commit_cpu_ms": 0, "file_bytes": 0, "commit_bytes": 0}  # shards without rows cost nothing
_BYTES = 6000


def sample_folder(folder: Path, wordings: list[int] | None = None, **run: Any) -> Path:
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
            config: dict[str, Any] = {"top_k": 5, "draws": 2} if stage == "sample" else {}
            config |= {"wordings": wordings} if stage == "sample" and wordings else {}
            commit(stage, "calculator", shard, balances=balances, counters=_COUNTERS[stage], config=config)
        documents = [RowCounts("calls", 40, 10, {"low": 30}), RowCounts("documents", 50, 10, {"no": 40})]
        commit("assemble", "", shard, balances=documents, counters={"cpu_seconds": 0.02})
    store.write_run(make_run("r1", keys, **{"model": "embedded", **run}))
    return folder


def plan_from(folder: Path, documents: float, *assume: str, **changes: Any) -> CostPlan:
    settings: dict[str, Any] = {"tools": ["calculator"], "top_k": 5, "draws": 2, "shard_documents": 50, **changes}
    parameters = BuildParameters(corpus="", data=str(folder.parent / "none"), **settings)
    fixed = [f"{name}={value}" for name, value in _FIXED.items()]
    return cost_of_build(parameters, documents, sample=str(folder), assume=[*fixed, *assume])


def test_the_sums_of_the_commits(tmp_path: Path) -> None:
    sample = read_sample(str(sample_folder(tmp_path / "data")))
    assert sample is not None
    assert (sample.documents, sample.tools, sample.model) == (100, ("calculator",), "embedded")
    sampled = sample.of("sample", "calculator")
    assert sampled is not None
    assert (sampled.commits, sampled.lm_tokens, sampled.bytes, sampled.k_times_m) == (2, 8000, 2 * _BYTES, 10)
    assert (sampled.own_cpu, sampled.model_cpu) == (pytest.approx(0.12), 8.0)
    assert (sampled.rows_in, sampled.kept) == ({"documents": 40, "draws": 200}, {"documents": 36, "draws": 100})


@pytest.mark.parametrize("times", [1, 7])
def test_a_plan_of_the_same_build_is_what_its_commits_say(tmp_path: Path, times: int) -> None:
    plan = plan_from(sample_folder(tmp_path / "data"), 100 * times)
    assert plan.sum("lm_tokens") == pytest.approx(times * 2 * (4000 + 2000))
    assert plan.sum("tool_calls") == pytest.approx(times * 2 * 32)
    assert plan.sum("tool_hours") == pytest.approx(times * 2 * 1.6 / 3600)
    # per shard 0.05 + 0.06 + 0.04 + 0.08 s and the model's 4 + 3 s; assemble 0.02 s; ingest 0.01 s
    assert plan.sum("cpu_hours") == pytest.approx(times * (2 * 7.25 + 0.01) / 3600)
    stages = {stage.cost.stage: stage.cost for stage in plan.stages}
    assert stages["sample"].bytes == pytest.approx(times * 2 * _BYTES)
    assert stages["score"].units == pytest.approx(times * 80)


def test_what_a_commit_costs_whatever_it_holds_is_not_scaled_with_documents(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data")
    # 10 ms of each of the two commits' 60 ms: 50 ms for 20 documents; seven times the documents in one shard
    plan = plan_from(folder, 700, "commit_cpu_ms=10", shard_documents=700)
    sampled = next(stage.cost for stage in plan.stages if stage.cost.stage == "sample")
    assert sampled.cpu_hours == pytest.approx((7 * 2 * (0.05 + 4) + 0.01) / 3600)


def test_twice_the_draws_are_twice_the_calls_and_the_same_scan(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data")
    few, many = plan_from(folder, 100), plan_from(folder, 100, draws=4)
    assert many.sum("tool_calls") == pytest.approx(2 * few.sum("tool_calls"))
    # 200 draws of 12 tokens are 2,400 of the 8,000 tokens of sample; 200 more draws are 2,400 more, and score doubles
    assert many.sum("lm_tokens") == pytest.approx(few.sum("lm_tokens") + 2400 + 4000)


def test_with_a_card_the_models_work_is_computed_and_the_rest_measured(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data")
    parameters = BuildParameters(
        corpus="", data=str(folder), tools=["calculator"], top_k=5, draws=2, shard_documents=50
    )
    plan = cost_of_build(parameters, 100, gpu="h100", gpu_price=1.0, assume=["commit_cpu_ms=0"])
    assert plan.gpu_origin == COMPUTED
    assert plan.sum("gpu_hours") > 0
    assert plan.sum("cpu_hours") == pytest.approx((2 * 0.25 + 0.01) / 3600)  # without the model's 7 s a shard
    origins = {line.name: line.origin for line in plan.assumptions}
    assert origins["calculator.scan_tokens"] == origins["calculator.ok_share"] == origins["text_tokens"] == MEASURED


def test_what_is_given_goes_before_what_was_measured(tmp_path: Path) -> None:
    plan = plan_from(sample_folder(tmp_path / "data"), 100, "calculator.kept_share=0.2")
    assert plan.sum("tool_calls") == pytest.approx(2 * 32 / 2)  # 40 of 100 were kept
    (line,) = (line for line in plan.assumptions if line.name == "calculator.kept_share")
    assert (line.value, line.origin, line.source) == (0.2, GIVEN, "instead of 0.4, measured")


def test_another_model_has_other_tokens_of_the_same_texts(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data")
    other = tmp_path / "model"
    other.mkdir()
    shutil.copy(MODEL / "config.json", other)  # no tokenizer: the rule of thumb
    plan = plan_from(folder, 100, model=str(other))
    ratio = next(line.value for line in plan.assumptions if line.name == "tokens_ratio")
    assert 0.3 < ratio < 1  # four characters a token, and fewer with the embedded model's small vocabulary
    scanned = next(line for line in plan.assumptions if line.name == "calculator.scan_tokens")
    assert scanned.value == pytest.approx(ratio * (8000 - 2400) / 40)


def test_cpu_seconds_of_another_model_are_computed_from_its_size(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data")
    origins = {line.name: line.origin for line in plan_from(folder, 100).assumptions}
    assert origins["calculator.sample_model_us"] == MEASURED
    lines = {line.name: line for line in plan_from(folder, 100, model="gpt-j-6b").assumptions}
    assert lines["calculator.sample_model_us"].origin == COMPUTED
    assert lines["calculator.sample_model_us"].value > 1e5  # 11 GFLOPs at 84 GFLOP/s; 6 x 10^9 weights


def test_examples_are_those_of_the_nearest_threshold_on_the_samples_card(tmp_path: Path) -> None:
    card = Dataset("c", "v", (), {"calculator": 20}, {"calculator": 0.7}, "r1", "embedded", "corpus", "t")
    folder = sample_folder(tmp_path / "data", dataset=card.key)
    Store(folder).write_dataset(replace(card, yields=(("calculator", 0.5, 30), ("calculator", 1.0, 10))))
    # of 100 documents: 30 at 0.5, 20 at the build's own 0.7, 10 at 1
    for tau_f, share in ((0.5, 0.3), (0.7, 0.2), (0.8, 0.2), (2.0, 0.1)):
        plan = plan_from(folder, 100, tau_f={"calculator": tau_f})
        assert next(line.value for line in plan.assumptions if line.name == "calculator.examples") == share


def test_tools_that_the_sample_lacks_are_planned_from_the_papers_figures(tmp_path: Path) -> None:
    plan = plan_from(sample_folder(tmp_path / "data"), 100, tools=["calculator", "calendar"])
    origins = {line.name: line.origin for line in plan.assumptions}
    assert origins["calculator.kept_share"] == MEASURED
    assert origins["calendar.kept_share"] == "paper"


def test_a_build_that_did_not_end_and_a_folder_without_one(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data", state="failed")
    with pytest.raises(UsageError, match=r"no build in .* was completed"):
        plan_from(folder, 100)
    with pytest.raises(UsageError, match=r"--from .*nosuch: nothing was built there"):
        plan_from(tmp_path / "nosuch", 100)
    parameters = BuildParameters(corpus="", data=str(folder), tools=["calculator"])
    assert cost_of_build(parameters, 100).sample == ""  # its own folder is no sample yet


def test_commits_from_before_cpu_seconds_were_counted_are_read_by_the_clock(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data")
    store = Store(folder)
    for commit in list(store.commits()):
        counters = {name: value for name, value in commit.counters.items() if "cpu" not in name}
        path = f"commits/{commit.key.id}.json"
        store.files.delete(path)
        store.write_json(path, json.loads(json.dumps(commit.to_json() | {"counters": counters})))
    sample = read_sample(str(folder))
    assert sample is not None
    sampled = sample.of("sample", "calculator")
    assert sampled is not None
    assert (sampled.own_cpu, sampled.model_cpu) == (3.0, 0.0)  # 1.5 s each


@pytest.mark.parametrize(("positions", "more"), [("trigger", 0), ("need", 1), ("both", 1)])
def test_need_reads_each_text_once_more(tmp_path: Path, positions: str, more: int) -> None:
    # of the 8,000 tokens of sample 200 draws of 12 are 2,400; the other 5,600 are two copies: a third one is 2,800.
    # By need alone tau_s excludes nothing: 40 documents have k x m = 10 draws each, 400, and not the 200 measured
    folder = sample_folder(tmp_path / "data")
    plan = plan_from(folder, 100, positions=positions)
    sampled = next(stage.cost for stage in plan.stages if stage.cost.stage == "sample")
    draws = 400 if positions == "need" else 200
    assert sampled.lm_tokens == pytest.approx(5600 + 2800 * more + draws * 12)


@pytest.mark.parametrize(("wordings", "scans"), [("1", 1), ("1,3", 4), ("all", 10), ("1,7", 1)])
def test_each_of_several_wordings_scans_a_text_twice(tmp_path: Path, wordings: str, scans: int) -> None:
    # the 5,600 scanned tokens are one scan; there is no wording 7, so of 1 and 7 the first alone is scanned
    folder = sample_folder(tmp_path / "data")
    plan = plan_from(folder, 100, wordings=wordings)
    sampled = next(stage.cost for stage in plan.stages if stage.cost.stage == "sample")
    assert sampled.lm_tokens == pytest.approx(5600 * scans + 200 * 12)


def test_a_sample_build_of_several_wordings_had_more_scans(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data", wordings=[1, 3])  # its 5,600 tokens are four scans of 1,400
    plan = plan_from(folder, 100)
    sampled = next(stage.cost for stage in plan.stages if stage.cost.stage == "sample")
    assert sampled.lm_tokens == pytest.approx(1400 + 200 * 12)


def test_draws_of_the_other_form_say_nothing_of_the_share_that_are_calls(tmp_path: Path) -> None:
    folder = sample_folder(tmp_path / "data")
    for form, origin in (("free", MEASURED), ("forced", ASSUMED)):
        lines = plan_from(folder, 100, draw_form=form).assumptions
        assert [line.origin for line in lines if line.name.endswith("ok_share")] == [origin]
