"""A stage that is added by one file and one line in the list: it runs, and every command knows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.plan import plan_build
from tasks.stages import BUILD_STAGES
from tests.support.length_stage import LENGTHS
from tests.support.small_builds import small_build
from warehouse.queries import rows_of, stats
from warehouse.queries.explain import explain


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
    counted = [own for own in stats(first.snapshot).balances if own.stage == "lengths"]
    assert [own.tool for own in counted] == ["calculator", "calendar"]
    assert all(own.rows_in == 16 == own.kept + sum(own.dropped.values()) for own in counted)

    (row,) = rows_of(first.snapshot, "SELECT doc_id, tool, characters FROM lengths ORDER BY ALL LIMIT 1")
    found = explain(first.snapshot, row["doc_id"])
    assert found.document is not None
    assert row["characters"] == len(found.document["text"])
    assert row in found.further["lengths"]

    assert plan_build(asked).nothing_to_do
