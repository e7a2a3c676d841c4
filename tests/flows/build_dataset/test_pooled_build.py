"""The option `--wordings`: what it accepts, and a small build with several wordings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters, build_command
from flows.build_dataset.plan import plan_build
from flows.build_dataset.resolve import resolve
from tests.support.small_builds import small_build
from toolformer_core.errors import PromptError, UsageError
from warehouse.queries import rows_of, stats
from warehouse.store import Store

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")


def wordings_of(parameters: BuildParameters) -> dict[str, list[int]]:
    return {tool: [p.wording for p in prompts] for tool, prompts in resolve(parameters, "run").prompts.items()}


def test_which_wordings_a_tool_has(few_documents: Path, tmp_path: Path) -> None:
    def asked(**changes: object) -> BuildParameters:
        return small_build(few_documents, tmp_path / "data", **{"draws": 5, **changes})

    assert wordings_of(asked()) == {"calculator": [1], "calendar": [1]}
    assert wordings_of(asked(wordings="4,2")) == {"calculator": [2, 4], "calendar": [2, 4]}
    assert wordings_of(asked(wordings="all")) == {"calculator": [1, 2, 3, 4, 5], "calendar": [1, 2, 3, 4, 5]}
    folder = tmp_path / "prompts"
    folder.mkdir()
    for name in ("calculator", "calculator.2", "calendar"):
        (folder / f"{name}.txt").write_text("[Calculator(1)] {text}", encoding="utf-8")
    assert wordings_of(asked(wordings="all", prompts=str(folder))) == {"calculator": [1, 2], "calendar": [1]}
    with pytest.raises(PromptError, match="calendar has no wording 2 in "):
        resolve(asked(wordings="2", prompts=str(folder)), "run")
    assert "--wordings 2,4" in build_command(asked(wordings="4,2"))
    assert "--wordings" not in build_command(asked())


def test_each_wording_has_a_draw(few_documents: Path, tmp_path: Path) -> None:
    message = "2 draws at a position cannot be shared out over 5 wordings: raise --draws, or name fewer"
    with pytest.raises(UsageError, match=re.escape(message)):
        resolve(small_build(few_documents, tmp_path / "data", wordings="all"), "run")


def test_a_build_pools_the_draws_of_its_wordings(few_documents: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    parameters = small_build(few_documents, data, wordings="1,3", tools=["calendar"])
    before = plan_build(parameters)
    assert "cached" not in {shard.state for shard in before.shards}
    run_build(parameters)
    assert {shard.state for shard in plan_build(parameters).shards} == {"cached"}
    (run,) = Store(data).runs()
    assert run.parameters["wordings"] == "1,3"

    snapshot = data / "warehouse.duckdb"
    positions = rows_of(snapshot, 'SELECT doc_id, "position", sum("count")::INT AS draws FROM sampled GROUP BY ALL')
    assert positions
    assert {row["draws"] for row in positions} == {2}  # one of each wording
    figures = stats(snapshot)
    assert [(one.tool, one.wording, one.draws) for one in figures.wordings] == [
        ("calendar", 1, len(positions)),
        ("calendar", 3, len(positions)),
    ]
    (kept,) = rows_of(snapshot, "SELECT count(*)::INT AS n FROM kept_calls")
    assert max(one.kept for one in figures.wordings) <= kept["n"] <= sum(one.kept for one in figures.wordings)
    prompts = rows_of(snapshot, 'SELECT text FROM prompts WHERE "current"')
    assert len({row["text"] for row in prompts}) == 2

    # one wording alone is other work, scanned once where two wordings scan twice each
    plan = plan_build(parameters.model_copy(update={"wordings": "1"}))
    (own,) = (one for one in plan.stages if (one.stage, one.tool) == ("sample", "calendar"))
    assert own.because == {"prompt 3": 3}
    tokens = sum(commit.counters["lm_tokens"] for commit in Store(data).commits("sample"))
    assert own.estimate is not None
    assert own.estimate.lm_tokens == pytest.approx(tokens / 4)
