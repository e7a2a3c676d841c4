"""What Prefect's pages show of a run: progress by a fake clock and a fake client, and what a real build left there."""

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from httpx import ConnectError
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey, FlowRunFilter, FlowRunFilterId

from flows.build_dataset.parameters import BuildParameters
from flows.runtime.artifacts import ProgressArtifacts, run_name_from, short
from tasks.shards.run_shard import ShardResult
from tests.support.small_builds import Built
from warehouse.commits import CommitKey, RowCounts

RUN = UUID(int=7)
ANNOTATION = ("ingest", "prefilter", "sample", "execute", "score")


class FakeClient:
    """Remembers what it is sent; with `broken` nobody is there."""

    def __init__(self) -> None:
        self.artifacts: dict[UUID, dict[str, Any]] = {}
        self.sent = 0
        self.broken = False

    def _send(self) -> None:
        if self.broken:
            raise ConnectError("nobody is there\nat all")
        self.sent += 1

    def create_artifact(self, artifact: ArtifactCreate) -> Any:
        self._send()
        made = artifact.model_copy(update={"id": uuid4()})
        self.artifacts[made.id] = artifact.model_dump()
        return made

    def update_artifact(self, artifact_id: UUID, artifact: ArtifactUpdate) -> None:
        self._send()
        self.artifacts[artifact_id] |= artifact.model_dump(exclude_unset=True)

    def shown(self) -> dict[str, tuple[float, str]]:
        return {a["key"]: (a["data"], a["description"]) for a in self.artifacts.values()}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def done(stage: str, number: int, *balances: RowCounts, skipped: bool = False) -> ShardResult:
    return ShardResult(CommitKey(stage, "qa", f"s{number}", "f"), (), balances, 1.0, skipped)


def samples(kept: int, dropped: int) -> RowCounts:
    return RowCounts("samples", kept + dropped, kept, {"no_call": dropped})


@pytest.fixture
def board() -> Any:
    return ProgressArtifacts("build-dataset", {"sample": 4}, FakeClient(), RUN, logging.getLogger("run"), Clock())


def test_a_stage_tells_shards_rows_and_the_time_left(board: Any) -> None:
    board.update()
    assert board.client.shown() == {"build-dataset-01-sample": (0.0, "0 of 4 shards")}
    board.note(done("sample", 1, RowCounts("documents", 60, 50, {"no_position": 10}), samples(30, 70)))
    board.clock.now += 20.0
    board.update()
    # one shard in 20 s, three to go: 60 s
    told = "1 of 4 shards; 60 documents, 50 kept; 100 samples, 30 kept; 60 s left"
    assert board.client.shown() == {"build-dataset-01-sample": (25.0, told)}
    assert [a["flow_run_id"] for a in board.client.artifacts.values()] == [RUN]


def test_shards_cost_no_request_and_only_news_are_sent(board: Any) -> None:
    board.update()
    for number in range(4):
        board.note(done("sample", number, samples(1, 0)))
    assert board.client.sent == 1
    board.update()
    assert board.client.shown()["build-dataset-01-sample"] == (100.0, "4 of 4 shards; 4 samples, 4 kept")
    board.update()
    assert board.client.sent == 2
    board.totals["assemble"] = 1  # expected only now
    board.update()
    assert board.client.shown()["build-dataset-02-assemble"] == (0.0, "0 of 1 shards")
    assert board.client.sent == 3


def test_a_server_that_does_not_answer_is_told_of_once(board: Any, caplog: pytest.LogCaptureFixture) -> None:
    board.client.broken = True
    with caplog.at_level(logging.INFO):
        board.update()
        board.note(done("sample", 1, samples(1, 0)))
        board.update()
    assert [r.message for r in caplog.records] == [
        "sample: 0 of 4 shards",
        "Prefect shows no progress from here on, the work goes on: nobody is there",
        "sample: 1 of 4 shards; 1 samples, 1 kept",  # no time has passed, so none is promised
    ]


def test_the_log_is_told_of_quarters_and_once_a_minute(board: Any, caplog: pytest.LogCaptureFixture) -> None:
    board = replace(board, totals={"evaluate": 100}, pulse=lambda: "at work: x")
    with caplog.at_level(logging.INFO):
        for shard in range(40):
            board.update()
            board.note(done("evaluate", shard))
            board.clock.now += 10.0
        assert board.client.sent == 40  # the page is renewed all the same
        told = [r.message.partition(" shards")[0] for r in caplog.records]
        # when it begins, six shards later each (a minute), and at 25, from where the minute is counted anew
        assert told == [f"evaluate: {n} of 100" for n in (0, 6, 12, 18, 24, 25, 31, 37)]
        caplog.clear()
        for _ in range(12):  # a shard that takes two minutes
            board.clock.now += 10.0
            board.update()
        # the last line was said at 37 shards, 30 s before
        assert [r.message.partition(";")[0] for r in caplog.records] == ["evaluate: 40 of 100 shards", "at work: x"]


def test_names_are_short() -> None:
    names = ["/data/models/gpt-j-6b/", "s3://bucket/c4.jsonl", "embedded", "/", ["calculator", "qa"]]
    assert [short(name) for name in names] == ["gpt-j-6b", "c4.jsonl", "embedded", "/", "2"]


def test_a_runs_name_counts_a_users_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = BuildParameters.model_validate({"corpus": "/c", "tools": "calculator", "tool": ["/a.py:f", "/b.py:g"]})
    monkeypatch.setattr("flows.runtime.artifacts.this_run", SimpleNamespace(parameters={"parameters": parameters}))
    assert run_name_from("{corpus}, {tools} tools")() == "c, 3 tools"


def test_what_a_build_leaves_in_prefect(built: Built, few_documents: Path) -> None:
    result, _, _ = built
    summaries = ArtifactFilter(key=ArtifactFilterKey(any_=["build-summary"]))
    with get_client(sync_client=True) as client:
        kept = client.read_artifacts(artifact_filter=summaries)
        kept.sort(key=lambda a: str(a.created))  # the card in a later one tells of this run too
        first = next(a for a in kept if f"run {result.run_id}" in str(a.data))
        own = FlowRunFilter(id=FlowRunFilterId(any_=[first.flow_run_id]))
        found = {str(a.key): a for a in client.read_artifacts(flow_run_filter=own)}
        name = client.read_flow_run(first.flow_run_id).name
    assert name == f"build cstar from {few_documents.name} with embedded, tools: 2"
    stages = {key: (a.data, str(a.description)) for key, a in found.items() if a.type == "progress"}
    in_order = [*ANNOTATION, "assemble"]
    assert sorted(stages) == [f"build-dataset-{at:02d}-{stage}" for at, stage in enumerate(in_order, 1)]
    assert {data for data, _ in stages.values()} == {100}
    # 16 documents, a row cut off, one without text, one seen before
    assert stages["build-dataset-01-ingest"][1] == "1 of 1 shards; 19 rows, 16 kept"
    assert stages["build-dataset-02-prefilter"][1].startswith("6 of 6 shards; 32 documents, ")  # 16, for two tools
    text = str(first.data)
    assert text.startswith(f"# cstar@{result.version}")
    assert "![Scored calls by gain](data:image/png;base64,iVBOR" in text
    assert all(a.description for a in found.values())
