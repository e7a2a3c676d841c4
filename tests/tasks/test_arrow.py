"""Every record of the method goes into its table, through Parquet, and comes back the same."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import records

from tasks.shards import arrow as translate
from toolformer_core.records import Rejection, ScoredCall
from warehouse.schema import REJECTS, stage_facts
from warehouse.store import Store

BACK: dict[str, Callable[[pa.Table], list[Any]]] = {
    "ingest": translate.documents_of,
    "prefilter": translate.prefilter_results,
    "sample": translate.drawn_of,
    "execute": translate.executions_of,
    "score": translate.scored_of,
    "assemble": translate.examples_of,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("stage", BACK)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_there_and_back(store: Store, stage: str, data: st.DataObject) -> None:
    given_ = data.draw(st.lists(records[stage], max_size=5))
    table = translate.stage_table(stage, given_)
    assert table.schema == stage_facts(stage).schema
    assert BACK[stage](table) == given_
    written = store.write(stage, "", "s", "f" * 32, table)
    assert BACK[stage](store.read(written)) == given_


@given(st.lists(st.builds(Rejection, *[st.text(max_size=9), st.integers(0, 2**40), *[st.text(max_size=9)] * 3])))
def test_rejections_keep_their_columns(given_: list[Rejection]) -> None:
    table = translate.rejects_table(given_)
    assert table.schema == REJECTS
    assert [Rejection(**row) for row in table.to_pylist()] == given_


def test_the_gain_is_written_for_queries_and_computed_for_records() -> None:
    # L- = min(3.0, 2.5) = 2.5; gain 2.5 - 1.0 = 1.5
    call = ScoredCall("d", "qa", 4, "q", "r", -1.0, 1, 3.0, 2.5, 1.0, False, False)
    table = translate.stage_table("score", [call])
    assert table.column("gain").to_pylist() == [1.5]
    assert translate.scored_of(table)[0].gain == 1.5
