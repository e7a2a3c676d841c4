"""`build --answers retry`, from the plan to the snapshot: a tool that could not be reached, and then could."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.build_dataset.flow import run_build
from flows.build_dataset.plan import plan_build
from tests.fakes import FakeTool
from tests.support.commands import Run
from tests.support.small_builds import small_build
from toolformer_core.records import ToolFailure, ToolResult
from toolformer_core.tools.calculator import Calculator
from toolformer_core.tools.execution.pool import AnnotationPool
from warehouse.queries import rows_of, stats


class Unreachable(FakeTool):
    """A calculator that cannot be reached for every second question, unless it is `up`."""

    key, name = "calculator", "Calculator"

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.up = False

    def _answer(self, input: str, context: str) -> ToolResult:
        if not self.up and sum(input.encode()) % 2:
            return ToolFailure("unreachable", "connection refused", retryable=True)
        return Calculator().run(input, context)


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Unreachable]:
    tool = Unreachable()
    pool = AnnotationPool(tool, timeout_s=60, backoff=lambda tries: 0.0)
    monkeypatch.setattr("tasks.stages.execute.tool_of", lambda spec, key: tool)
    monkeypatch.setattr("tasks.stages.execute.pool_of", lambda tool, timeout_s: pool)
    yield tool
    pool.close()


def counted(snapshot: str) -> dict[str, Any]:
    sql = "SELECT count(*) AS rows, count_if(failure = 'unreachable') AS unreachable, count_if(transient) AS transient"
    (row,) = rows_of(Path(snapshot), f"{sql} FROM executed")
    return row


@pytest.mark.slow
def test_failed_questions_are_asked_again(few_documents: Path, tmp_path: Path, tool: Unreachable, run: Run) -> None:
    asked = small_build(few_documents, tmp_path / "data", tools=["calculator"], limit=12, top_k=2)
    first = run_build(asked)
    before = counted(first.snapshot)
    failed = {row["input"] for row in rows_of(Path(first.snapshot), "SELECT input FROM executed WHERE transient")}
    assert 0 < before["unreachable"] == before["transient"] < before["rows"]
    (costs,) = stats(first.snapshot).tools
    assert (costs.questions, costs.failed_transient) == (before["rows"], before["transient"])
    assert (costs.answered or 0) + (costs.failed_lasting or 0) + before["transient"] == before["rows"]
    assert costs.retries == sum(tool.asked.count((own, "")) - 1 for own in {input for input, _ in tool.asked} & failed)

    retrying = asked.model_copy(update={"answers": "retry"})
    questions = before["transient"]
    before_it, plan = plan_build(asked), plan_build(retrying)
    assert before_it.nothing_to_do
    told = f"{questions} questions to calculator failed for passing reasons: --answers retry asks them again"
    assert told in before_it.notes
    told = f"--answers retry: {questions} calls of calculator that failed for passing reasons are retried"
    assert told in plan.notes
    (execute,) = [stage for stage in plan.stages if stage.stage == "execute"]
    assert execute.because == {"failures retried": execute.to_do}

    tool.up = True
    tool.asked.clear()
    second = run_build(retrying)
    assert {input for input, _ in tool.asked} == failed
    assert len(tool.asked) == questions  # the same question in two shards is asked twice, as these run at once
    assert counted(second.snapshot) == {"rows": before["rows"], "unreachable": 0, "transient": 0}

    tool.asked.clear()
    assert plan_build(retrying).nothing_to_do
    third = run_build(asked)  # whether it asks again or not
    assert (third.done, third.version, tool.asked) == (0, second.version, [])
    said = json.loads(run("stats", "--data", str(tmp_path / "data"), "--json").out)["tools"]
    assert [(one["tool"], one["failed_transient"]) for one in said] == [("calculator", 0)]
    assert "Calls of tools, in milliseconds" in run("stats", "--data", str(tmp_path / "data")).out
