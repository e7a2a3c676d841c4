"""The index answers what the queries over all calls answer, for every threshold and on every page."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.warehouse.test_wh_call_pages import Rows, calls, published
from warehouse.call_pages import CallKey, moved_calls
from warehouse.errors import SnapshotError
from warehouse.queries import Yield
from warehouse.reweighting import Gains
from warehouse.store import Store
from warehouse.threshold_index import ThresholdIndex
from warehouse.what_if import CallFilter, yields

TAUS = st.sampled_from([-1.0, 0.2, 0.3, 0.5, 1.0, 1.2, 2.0])


FILTERS = st.builds(
    CallFilter,
    st.fixed_dictionaries({"calculator": TAUS, "qa": TAUS}),
    st.sampled_from([{}, {"calculator": 2}, {"calculator": 1, "qa": 3}]),
    st.sampled_from([{}, {"qa": 0.2}, {"calculator": 0.2, "qa": 0.01}]),  # e^-1 = 0.37, e^-3 = 0.05
    st.booleans(),
)


@settings(max_examples=10, deadline=None)
@given(calls(), FILTERS, FILTERS, st.integers(1, 4))
def test_the_answers_are_the_queries_own(rows: Rows, before: CallFilter, after: CallFilter, n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = published(Store(folder), rows)
        index = ThresholdIndex(path)
        assert index.covers(before)
        assert index.covers(after)
        assert index.yields(after) == yields(path, after)
        comes: CallKey | None = None
        goes: CallKey | None = None
        for _ in range(9):
            expected = moved_calls(path, before, after, n, comes_after=comes, goes_after=goes)
            assert index.moved(before, after, n, comes_after=comes, goes_after=goes) == expected
            comes, goes = expected.comes.last, expected.goes.last
            if comes is None and goes is None:
                break


def test_yields_by_hand(tmp_path: Path) -> None:
    call = {"doc_id": "d1", "input": "a", "gain": 1.0}
    rows: Rows = {
        # d1: at 0 QA gains more, and the call at 5 makes d1 an example all the same; d2: alone, below
        "calculator": [
            {**call, "position": 0},
            {**call, "position": 5, "gain": 0.7, "input": "b"},
            {**call, "doc_id": "d2", "position": 0, "gain": 0.2},
        ],
        "qa": [{**call, "position": 0, "gain": 1.5}],
    }
    path = published(Store(tmp_path), rows)
    index = ThresholdIndex(path)

    def counted(calculator: float, qa: float) -> list[Yield]:
        return index.yields(CallFilter({"calculator": calculator, "qa": qa}))

    assert counted(0.5, 0.5) == [Yield("calculator", 0.5, 1, 1), Yield("qa", 0.5, 1, 1)]
    assert counted(0.5, 2.0) == [Yield("calculator", 0.5, 1, 2), Yield("qa", 2.0, 0, 0)]  # QA's call gives way
    assert counted(0.8, 2.0)[0] == Yield("calculator", 0.8, 1, 1)  # d1 through the call at 0 alone
    assert counted(0.1, 0.5)[0] == Yield("calculator", 0.1, 2, 2)


def test_other_gains_and_a_very_large_k_are_not_covered(tmp_path: Path) -> None:
    index = ThresholdIndex(published(Store(tmp_path), {"calculator": [], "qa": []}))
    first = CallFilter({"calculator": 0.5, "qa": 0.5})
    assert index.covers(replace(first, top_k={"qa": 255}))
    assert not index.covers(replace(first, top_k={"qa": 256}))  # ranks are known up to 254
    assert not index.covers(replace(first, gains=Gains("other_gains", "other_gain")))


def test_reading_ends_when_the_index_is_not_wanted_any_more(tmp_path: Path) -> None:
    path = published(Store(tmp_path), {"calculator": [], "qa": []})
    with pytest.raises(SnapshotError, match="replaced while it was read"):
        ThresholdIndex(path, wanted=lambda: False)
