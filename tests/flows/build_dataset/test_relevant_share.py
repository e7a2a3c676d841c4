"""A build with `--tools auto`: of what the prefilter keeps, a tool is tried on the documents nearest to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.plan import plan_build
from flows.build_dataset.resolve import resolve
from tests.support.small_builds import small_build
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import UsageError
from warehouse.explain import explain
from warehouse.queries import rows_of, stats

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")


def test_auto_is_a_share_and_the_tools_named_besides() -> None:
    alone = BuildParameters.model_validate({"corpus": "c", "tools": "auto"})
    assert (alone.tools, alone.relevant_share) == (list(TOOL_NAMES), 0.75)
    besides = BuildParameters.model_validate({"corpus": "c", "tools": ["auto", "qa"], "relevant_share": 0.2})
    assert (besides.tools, besides.relevant_share) == (["qa"], 0.2)
    assert BuildParameters.model_validate({"corpus": "c"}).relevant_share is None


@pytest.mark.parametrize("share", [0, -1, 1.1])
def test_a_share_outside_its_bounds_is_refused(share: float) -> None:
    with pytest.raises(ValidationError, match="relevant_share"):
        BuildParameters.model_validate({"corpus": "c", "relevant_share": share})


def test_an_encoder_without_a_share_is_refused(few_documents: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--relevant-share, which is not given"):
        resolve(small_build(few_documents, tmp_path, encoder="some/encoder"), run_id="r")


def test_without_a_share_an_earlier_build_stays_done(few_documents: Path, as_built: Path) -> None:
    again = plan_build(small_build(few_documents, as_built))
    assert again.nothing_to_do
    assert "relevance" not in {own.stage for own in again.stages}


def test_only_the_nearest_documents_are_annotated(few_documents: Path, as_built: Path) -> None:
    parameters = small_build(few_documents, as_built, tools="auto,calculator,calendar", relevant_share=0.5)
    planned = {own.stage for own in plan_build(parameters).stages if own.to_do or own.depends}
    assert planned == {"relevance", "sample", "execute", "score", "assemble"}

    result = run_build(parameters)
    balances = {(own.stage, own.tool): own for own in stats(result.snapshot).balances if own.unit == "documents"}
    for tool in ("calculator", "calendar"):
        near = balances["relevance", tool]
        assert near.rows_in == balances["prefilter", tool].kept

        # half of each of three shards, rounded up: at most half a document more each
        assert near.rows_in / 2 <= near.kept <= near.rows_in / 2 + 3 / 2
        assert near.dropped == {"irrelevant": near.rows_in - near.kept}
        assert balances["sample", tool].rows_in == near.kept

    rows = rows_of(result.snapshot, "SELECT * FROM relevance")
    assert all(-1 <= row["cosine"] <= 1 for row in rows)
    kept = {(row["doc_id"], row["tool"]) for row in rows if row["kept"]}
    drawn = {(r["doc_id"], r["tool"]) for r in rows_of(result.snapshot, "SELECT DISTINCT doc_id, tool FROM sampled")}
    assert drawn <= kept
    assert rows[0] in explain(result.snapshot, rows[0]["doc_id"]).further["relevance"]

    assert plan_build(parameters).nothing_to_do
    # Another tool leaves what the others have alone.
    more = plan_build(small_build(few_documents, as_built, tools="auto,calculator,calendar,qa", relevant_share=0.5))
    assert {own.tool for own in more.stages if own.to_do and own.tool} == {"qa"}
