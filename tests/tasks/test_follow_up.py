"""Transient failures asked again: by which build, of which shard, and what becomes of the commits."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from wh_fixtures import make_run

from tasks.shards import arrow
from tasks.shards.retry import TRANSIENT, last_inputs
from tasks.shards.run_shard import ShardResult
from tasks.shards.stage import Inputs, shards_of
from tasks.shards.tool_cache import OLDEST_ANSWER
from tasks.specs.build_spec import BuildSpec
from tasks.stages.execute import EXECUTE
from tests.fakes import FakeTool
from tests.support.stage_runs import annotate_shard, calculator_spec, drawing, ingest, judge, run_all
from toolformer_core.errors import ToolError
from toolformer_core.records import Execution, ToolFailure, ToolResult
from toolformer_core.tools.base import Tool
from toolformer_core.tools.execution.pool import AnnotationPool
from warehouse.commits import Commit, RowCounts
from warehouse.gc import find_garbage

LATER = "9999"  # than any commit


def write_corpus(path: Path | str, numbers: Iterable[int]) -> None:
    texts = [f"{n} and {n} makes a total of {2 * n} apples." for n in numbers]
    Path(path).write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


class Flaky(FakeTool):
    """A tool whose answers may be changed while builds go on; it answers 2 as long as nothing else is said."""

    def __init__(self) -> None:
        self.said: dict[str, object] = {}
        super().__init__(lambda input, _: self.said.get(input, "2"))


@pytest.fixture
def tool() -> Flaky:
    return Flaky()


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: Flaky) -> Iterator[BuildSpec]:
    """Three documents in one shard, a call in each."""
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus, (1, 2, 3))
    pools: list[AnnotationPool] = []

    def pool_of(tool: Tool, timeout_s: float) -> AnnotationPool:
        pools.append(AnnotationPool(tool, timeout_s=timeout_s, backoff=lambda tries: 0.0))
        return pools[-1]

    for stage in ("sample", "score"):
        monkeypatch.setattr(f"tasks.stages.{stage}.model_of", lambda spec: spec.model)
    monkeypatch.setattr("tasks.stages.sample.sample", drawing(lambda document, _: document.text.split()[0]))
    monkeypatch.setattr("tasks.stages.score.score", judge)
    monkeypatch.setattr("tasks.stages.execute.tool_of", lambda spec, key: tool)
    monkeypatch.setattr("tasks.stages.execute.pool_of", pool_of)
    yield calculator_spec(tmp_path / "data", corpus)
    for pool in pools:
        pool.close()


@pytest.fixture
def once_busy(spec: BuildSpec, tool: Flaky) -> BuildSpec:
    """A build of which one call was refused for a passing reason; now the tool answers."""
    tool.said = {"2": BUSY}
    run_all(spec)
    tool.said = {}
    tool.asked.clear()
    return spec


def again(spec: BuildSpec, run_id: str) -> BuildSpec:
    return replace(spec, run_id=run_id, retry_failures_before=LATER)


def worked(results: list[ShardResult]) -> list[str]:
    return [result.key.stage for result in results if not result.skipped]


def executed(spec: BuildSpec, results: list[ShardResult]) -> dict[str, Execution]:
    (result,) = [own for own in results if own.key.stage == "execute"]
    rows = [row for file in result.files for row in arrow.executions_of(spec.store().read(file))]
    return {row.input: row for row in rows}


def commits(spec: BuildSpec) -> dict[str, Commit]:
    return {commit.run_id: commit for commit in spec.store().commits("execute")}


BUSY: ToolResult = ToolFailure("busy", "come again", retryable=True)
BAD: ToolResult = ToolFailure("bad_input")


def test_only_what_failed_for_a_passing_reason_is_asked_again(spec: BuildSpec, tool: Flaky) -> None:
    tool.said = {"2": BUSY, "3": BAD}
    first = {i: (e.response, e.failure, e.transient) for i, e in executed(spec, run_all(spec)).items()}
    assert first == {"1": ("2", "", None), "2": ("", "busy", True), "3": ("", "bad_input", False)}
    assert commits(spec)["r"].counters[TRANSIENT] == 1
    tool.said = {}
    tool.asked.clear()
    assert worked(run_all(replace(spec, run_id="r2"))) == []  # not asked for
    second = run_all(again(spec, "r3"))
    assert tool.asked == [("2", "")]
    assert worked(second) == ["execute", "score", "assemble"]  # what lies behind follows
    outcomes = {i: e.response or e.failure for i, e in executed(spec, second).items()}
    assert outcomes == {"1": "2", "2": "2", "3": "bad_input"}
    assert commits(spec)["r3"].balances == (RowCounts("calls", 3, 2, failed={"bad_input": 1}),)
    tool.asked.clear()
    assert (worked(run_all(again(spec, "r4"))), tool.asked) == ([], [])  # nothing failed for a passing reason


def test_the_earlier_commit_stays_and_the_later_one_stands(spec: BuildSpec, once_busy: BuildSpec) -> None:
    before = commits(spec)["r"]
    mended = run_all(again(spec, "r2"))
    kept = commits(spec)
    assert kept["r"] == before
    assert kept["r2"].parts == {**before.parts, "follows": before.fingerprint}
    assert set(kept["r2"].inputs) == {*before.inputs, *(file.digest for file in before.files)}
    assert kept["r2"].counters[OLDEST_ANSWER] == before.counters[OLDEST_ANSWER]
    assert kept["r2"].counters["cache_hits"] == 2
    # whoever builds next, asking again or not, has the mended shard and nothing to do
    for later in (replace(spec, run_id="r3"), again(spec, "r4")):
        results = run_all(later)
        assert worked(results) == []
        assert executed(spec, results) == executed(spec, mended)


def test_what_fails_again_is_asked_once_a_build_until_it_does_not(spec: BuildSpec, tool: Flaky) -> None:
    tool.said = {"2": BUSY}
    run_all(spec)
    assert worked(run_all(again(spec, "r2"))) == ["execute"]  # the same rows: what lies behind is found done
    assert worked(run_all(again(spec, "r2"))) == []  # a task that is run twice
    tool.asked.clear()
    tool.said = {}
    assert worked(run_all(again(spec, "r3"))) == ["execute", "score", "assemble"]
    assert tool.asked == [("2", "")]
    first, second, third = (commits(spec)[run] for run in ("r", "r2", "r3"))
    follows = [commit.parts.get("follows") for commit in (first, second, third)]
    assert follows == [None, first.fingerprint, second.fingerprint]


def test_only_commits_from_before_the_build_are_followed(spec: BuildSpec, tool: Flaky) -> None:
    tool.said = {"2": BUSY}
    run_all(spec)
    made = commits(spec)["r"].created
    assert worked(run_all(replace(spec, run_id="r2", retry_failures_before=made))) == []
    assert worked(run_all(replace(spec, run_id="r2", retry_failures_before=made + ".1"))) == ["execute"]


def test_two_builds_that_ask_again_at_the_same_time_compute_one_shard(spec: BuildSpec, once_busy: BuildSpec) -> None:
    (shard,) = shards_of(ingest(spec))
    annotated = annotate_shard(spec, "calculator", shard)
    files = {"ingest": (shard.documents,), **{name: annotated[name].files for name in EXECUTE.reads}}
    both = (Inputs(again(spec, run), shard.name, "calculator", files) for run in ("r2", "r3"))
    keys = {EXECUTE.shard_spec(last_inputs(EXECUTE, inputs)).key for inputs in both}
    assert len(keys) == 1
    assert annotated["execute"].key not in keys


def test_a_damaged_commit_is_done_anew_instead_of_followed(spec: BuildSpec, once_busy: BuildSpec) -> None:
    (file,) = commits(spec)["r"].files
    path = Path(spec.data) / file.path
    path.chmod(0o600)
    path.write_bytes(bytes(file.bytes))
    results = run_all(again(spec, "r2"))
    assert {i: e.response for i, e in executed(spec, results).items()} == {"1": "2", "2": "2", "3": "2"}
    assert "follows" not in commits(spec)["r2"].parts


def test_garbage_collection_keeps_what_a_current_commit_follows(spec: BuildSpec, once_busy: BuildSpec) -> None:
    results = run_all(again(spec, "r2"))
    store = spec.store()
    store.write_run(make_run("r2", [result.key for result in results]))
    garbage = {item.path for item in find_garbage(store, unfinished_days=0, temporary_s=0) if item.kind == "commit"}
    made_of_it = [c for stage in ("score", "assemble") for c in store.commits(stage) if c.run_id == "r"]
    assert garbage == {f"commits/{commit.id}.json" for commit in made_of_it}


def test_a_tool_that_dies_leaves_no_commit_and_the_same_build_goes_on(spec: BuildSpec, tool: Flaky) -> None:
    write_corpus(spec.corpus, range(10, 30))
    tool.said = {str(n): BUSY for n in range(10, 30)}
    with pytest.raises(ToolError, match="the same command goes on when the tool answers again"):
        run_all(spec)
    assert commits(spec) == {}
    tool.said = {}
    assert worked(run_all(spec)) == ["execute", "score", "assemble"]
