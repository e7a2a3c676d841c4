"""Records of what was done: conservation, round trips, digests."""

import dataclasses

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wh_fixtures import make_commit

from warehouse.commits import Commit, DataFile, RowCounts, changed_parts, dataset_version, fingerprint
from warehouse.errors import ConservationError

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
counts = st.dictionaries(text, st.integers(0, 10**9), max_size=3)
numbers = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False))
files = st.builds(DataFile, text, text, st.integers(0, 2**53), st.integers(0, 2**53))


@st.composite
def balances(draw: st.DrawFn) -> RowCounts:
    kept, dropped, failed = draw(st.integers(0, 10**9)), draw(counts), draw(counts)
    return RowCounts(draw(text), kept + sum(dropped.values()) + sum(failed.values()), kept, dropped, failed)


commits = st.builds(
    Commit,
    stage=text,
    stage_version=text,
    tool=text,
    shard=text,
    fingerprint=text,
    parts=st.dictionaries(text, text, max_size=3),
    config=st.dictionaries(text, st.one_of(text, numbers, st.none(), st.lists(numbers, max_size=2)), max_size=3),
    files=st.lists(files, max_size=3).map(tuple),
    inputs=st.lists(text, max_size=3).map(tuple),
    balances=st.lists(balances(), max_size=2).map(tuple),
    seconds=st.floats(0, 1e6),
    counters=st.dictionaries(text, numbers, max_size=3),
    host=text,
    versions=st.dictionaries(text, text, max_size=2),
    created=text,
    run_id=text,
)


@given(balances(), st.integers(-(10**6), 10**6))
def test_only_closed_balances_pass(balance: RowCounts, error: int) -> None:
    balance.check()
    if error:
        with pytest.raises(ConservationError):
            dataclasses.replace(balance, rows_in=balance.rows_in + error).check()


@given(commits)
def test_a_commit_survives_json(commit: Commit) -> None:
    back = Commit.from_json(orjson.loads(orjson.dumps(commit.to_json())))
    assert back == commit
    assert back.content_digest == commit.content_digest


def test_the_content_digest_covers_the_data_alone() -> None:
    commit = make_commit("ingest", "", "s", [DataFile("a", "d1", 3, 9)])
    same = dataclasses.replace(commit, seconds=9.0, host="x", created="now", run_id="r2", versions={}, counters={})
    moved = dataclasses.replace(commit, files=(DataFile("b", "d1", 3, 9),))
    assert commit.content_digest == same.content_digest == moved.content_digest
    for other in (
        make_commit("ingest", "", "s", [DataFile("a", "d2", 3, 9)]),
        make_commit("ingest", "", "t", [DataFile("a", "d1", 3, 9)]),
        make_commit("ingest", "", "s", [DataFile("a", "d1", 3, 9)], balances=[RowCounts("rows", 4, 3, {"x": 1})]),
    ):
        assert other.content_digest != commit.content_digest


def test_fingerprints_name_their_parts_and_versions_their_content() -> None:
    old = {"config": "c", "model": "m"}
    assert fingerprint(old) == fingerprint({"model": "m", "config": "c"})
    assert len(fingerprint(old)) == 32
    assert fingerprint({"a": ""}) != fingerprint({})
    assert changed_parts(old, {"config": "c", "model": "m2", "tool": "t"}) == ("model", "tool")
    assert changed_parts(old, old) == ()
    a, b = DataFile("a", "d1", 1, 1), DataFile("b", "d2", 1, 1)
    assert dataset_version([a, b]) == dataset_version([dataclasses.replace(a, path="z"), b])
    assert dataset_version([a, b]) != dataset_version([b, a])
