"""What Prefect shows of a build: the steps of the paper as task runs, by tool and group, and what each waits on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import TaskRun
from prefect.runtime import flow_run as this_run

from flows.build_dataset import pipeline
from flows.build_dataset.flow import read_corpus_parts, run_build
from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.pipeline import shard_groups
from flows.build_dataset.plan import plan_build
from flows.build_dataset.resolve import resolve
from flows.runtime import running
from flows.runtime.runners import use_runner
from flows.runtime.stage_tasks import group_label
from tasks.shards.corpus import part_specs
from tasks.shards.stage import Shard
from tasks.stages import BUILD_STAGES
from tests.support.length_stage import LENGTHS
from tests.support.small_builds import small_build
from toolformer_core.errors import ToolError
from warehouse.commits import DataFile
from warehouse.queries import rows_of, stats
from warehouse.queries.explain import explain


@pytest.fixture
def flow_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the flow runs that a test starts."""
    ids: list[str] = []
    note = running.record_server

    def noting() -> None:
        ids.append(str(this_run.id))
        note()

    monkeypatch.setattr(running, "record_server", noting)
    return ids


def task_runs(flow_run: str) -> dict[str, TaskRun]:
    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))  # type: ignore[list-item]
    with get_client(sync_client=True) as client:
        return {run.name: run for run in client.read_task_runs(flow_run_filter=chosen)}


def waits_on(run: TaskRun, runs: dict[str, TaskRun]) -> set[str]:
    names = {own.id: name for name, own in runs.items()}
    return {names[own.id] for inputs in run.task_inputs.values() for own in inputs if hasattr(own, "id")}


def test_every_step_of_every_tool_and_group_is_a_task_run(
    few_documents: Path, as_built: Path, flow_runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu_asked: list[bool] = []

    @contextmanager
    def noting(*, model: bool) -> Iterator[None]:
        gpu_asked.append(model)
        yield

    monkeypatch.setattr("flows.runtime.stage_tasks.task_resources", noting)
    monkeypatch.setattr(pipeline, "tasks_at_most", lambda: 18)  # two tools of four tasks each and assemble, twice
    run_build(small_build(few_documents, as_built))  # whether a task finds its shards done or not
    runs = task_runs(flow_runs[0])
    steps = ("prefilter", "sample", "execute", "score")
    groups = ("0", "1-2")  # of three shards
    of_tools = {f"{step} {tool} {group}" for step in steps for tool in ("calculator", "calendar") for group in groups}
    assert set(runs) == {"ingest", *of_tools, *(f"assemble {group}" for group in groups)}
    assert waits_on(runs["sample calendar 0"], runs) == {"prefilter calendar 0"}
    assert waits_on(runs["execute calendar 0"], runs) == {"prefilter calendar 0", "sample calendar 0"}
    before = {"prefilter calendar 0", "sample calendar 0", "execute calendar 0"}
    assert waits_on(runs["score calendar 0"], runs) == before
    assert waits_on(runs["assemble 0"], runs) == {"score calculator 0", "score calendar 0"}
    # of each group: prefilter, sample, execute and score of two tools, stage by stage, then assemble
    assert gpu_asked == [False, False, True, True, False, False, True, True, False] * 2


def test_a_failed_step_is_seen_as_that_step_and_a_second_try_repeats_it_alone(
    prefect_server: None, few_documents: Path, tmp_path: Path, flow_runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = small_build(few_documents, tmp_path / "data", tools=["calculator"], shard_documents=100)

    def failing(*_: object, **__: object) -> None:
        raise ToolError("tool calculator does not answer")

    with monkeypatch.context() as broken:
        broken.setattr("tasks.stages.execute.execute", failing)
        with pytest.raises(ToolError, match="tool calculator does not answer"):
            run_build(asked)
    states = {name: run.state_type.value for name, run in task_runs(flow_runs[0]).items() if run.state_type}
    assert (states["sample calculator 0"], states["execute calculator 0"]) == ("COMPLETED", "FAILED")
    assert "COMPLETED" not in (states.get("score calculator 0"), states.get("assemble 0"))
    again = run_build(asked)
    assert (again.skipped, again.done) == (3, 3)  # found done: ingest, prefilter, sample; done: the others


def shards(count: int, documents: int = 10) -> list[Shard]:
    return [Shard(f"part-{n:05d}", DataFile(f"shards/{n}", "d", documents, 1)) for n in range(count)]


@pytest.mark.parametrize(
    ("count", "seconds", "at_most", "groups"),
    [
        (3, 0.05, 300, 3),  # no more groups than shards
        (1000, 0.05, 300, 25),  # 10,000 documents x 0.05 s = 500 s: 25 tasks of 20 s
        (1000, 0.001, 300, 12),  # 10 s in all: six groups for each of two workers
        (1000, 1.0, 300, 33),  # 10,000 s would be 500 groups of 9 tasks: 300 // 9 = 33
        (1000, 1.0, 5, 1),
    ],
)
def test_a_task_takes_tens_of_seconds_unless_too_many(count: int, seconds: float, at_most: int, groups: int) -> None:
    found = shard_groups(shards(count), seconds, at_once=2, most=at_most // 9)
    assert len(found) == groups
    assert [shard for group in found for shard in group] == shards(count)


def test_a_group_is_named_by_its_shards() -> None:
    some = shards(9)
    groups = (some[7:8], some[2:6], [some[4], some[1], some[8]])
    assert list(map(group_label, groups)) == ["7", "2-5", "4 and 2 more"]


def test_the_parts_of_a_corpus_are_read_side_by_side_unless_a_limit_may_end_the_reading(
    prefect_server: None, few_documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.shards.corpus._BLOCK", 2048)
    monkeypatch.setattr("tasks.shards.corpus._entries", {})
    spec = resolve(small_build(few_documents, tmp_path / "data"))
    limited = replace(spec, data=str(tmp_path / "limited"), ingest=replace(spec.ingest, limit=1))

    @flow
    def read() -> None:
        with use_runner(2):
            for one in (spec, limited):
                read_corpus_parts(one, 2)

    read()
    parts = part_specs(spec)
    assert len(parts) > 2
    assert len(list(spec.store().commits("read"))) == len(parts)
    assert list(limited.store().commits()) == []


@pytest.fixture
def asked(few_documents: Path, as_built: Path) -> Iterator[BuildParameters]:
    BUILD_STAGES.insert(2, LENGTHS)  # the one line, behind the prefilter that it reads
    yield small_build(few_documents, as_built)
    BUILD_STAGES.remove(LENGTHS)


def test_an_added_stage_is_planned_run_shown_and_skipped(asked: BuildParameters) -> None:
    planned = {(own.stage, own.tool): own.to_do for own in plan_build(asked).stages if own.to_do}
    assert planned == {("lengths", "calculator"): 3, ("lengths", "calendar"): 3}  # of the old stages nothing is left

    first = run_build(asked)
    assert (first.done, first.skipped) == (6, 1 + 3 * (2 * 4 + 1))  # two tools, three shards
    counted = {own.tool: own for own in stats(first.snapshot).balances if own.stage == "lengths"}
    assert [(tool, own.rows_in) for tool, own in counted.items()] == [("calculator", 16), ("calendar", 16)]

    (row,) = rows_of(first.snapshot, "SELECT doc_id, tool, characters FROM lengths ORDER BY ALL LIMIT 1")
    found = explain(first.snapshot, row["doc_id"])
    assert found.document is not None
    assert row["characters"] == len(found.document["text"])
    assert row in found.further["lengths"]

    assert plan_build(asked).nothing_to_do
