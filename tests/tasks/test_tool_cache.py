"""Tool responses found again in what `execute` committed: by whom, how old, and which failures."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wh_fixtures import CountingFiles

from tasks.shards.arrow import stage_table
from tasks.shards.run_shard import ShardResult, ShardSpec, StageOutput, run_shard
from tasks.shards.tool_cache import OLDEST_ANSWER, Question, ToolCache, _Index
from toolformer_core.records import Execution
from warehouse.commits import RowCounts
from warehouse.store import Store

PARTS = {"code": "execute/1", "config": "c1", "answers": "v1"}


def said(input: str, response: str = "", failure: str = "", context: str = "") -> Execution:
    return Execution("qa", input, context, response, failure)


def keep(
    store: Store, shard: str, executions: Sequence[Execution], answered: float = 100.0, **parts: str
) -> ShardResult:
    """Commit a shard of `execute` whose oldest answer was given at `answered`."""
    spec = ShardSpec("execute", "1", "qa", shard, {}, {"config": "c1", "answers": "v1", **parts, "inputs": shard})
    counts = RowCounts("calls", len(executions), len(executions))
    output = StageOutput((counts,), stage_table("execute", executions), {OLDEST_ANSWER: answered})
    return run_shard(store, spec, "r", lambda _: output)


def answers(store: Store, lifetime_s: float | None = None, now: float = 100.0, **parts: str) -> ToolCache:
    return ToolCache(store, "qa", {**PARTS, **parts}, lifetime_s, lambda: now)


def responses(found: dict[Question, Execution]) -> dict[str, str]:
    return {input: execution.response or execution.failure for (input, _), execution in found.items()}


def test_the_context_is_part_of_the_question(tmp_path: Path) -> None:
    # the calendar is asked the same nothing on two days
    store = Store(tmp_path)
    keep(store, "s0", [said("", "Monday", context="2024-01-01"), said("", "Tuesday", context="2024-01-02")])
    assert responses(answers(store).recall([("", "2024-01-02"), ("", "2024-01-03")]).known) == {"": "Tuesday"}


def test_another_tool_or_config_has_answers_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    own: list[dict[str, str]] = [{}, {"answers": "v2"}, {"config": "c2"}]
    for number, parts in enumerate(own):
        assert answers(store, **parts).recall([("a", "")]).known == {}
        keep(store, f"s{number}", [said("a", str(number))], **parts)
    assert [responses(answers(store, **parts).recall([("a", "")]).known) for parts in own] == [
        {"a": "0"}, {"a": "1"}, {"a": "2"},
    ]  # fmt: skip


def test_a_local_tools_own_failure_stands_an_accident_does_not(tmp_path: Path) -> None:
    store = Store(tmp_path)
    outcomes = [said("a", failure="no_result"), said("b", failure="timeout"), said("c", failure="crashed")]
    keep(store, "s0", [*outcomes, said("d", failure="timeout")])
    keep(store, "s1", [said("d", "4")])
    asked = [(name, "") for name in "abcd"]
    assert responses(answers(store).recall(asked).known) == {"a": "no_result", "d": "4"}
    # where nothing may be asked, what came of it then counts, an answer more than an accident
    offline = answers(store).recall(asked, offline=True).known
    assert responses(offline) == {"a": "no_result", "b": "timeout", "c": "crashed", "d": "4"}


def test_answers_of_a_tool_that_asks_others_last_their_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, "s0", [said("a", "old"), said("b", "2"), said("c", failure="no_result")], answered=100.0)
    keep(store, "s1", [said("a", "new")], answered=150.0)
    asked = [(name, "") for name in "abc"]
    # 60 s long: at 160 what was answered at 100 is just old enough to last, at 161 it is not
    at_160 = answers(store, 60.0, now=160.0).recall(asked)
    assert (responses(at_160.known), at_160.answered) == ({"a": "new", "b": "2"}, 100.0)
    at_161 = answers(store, 60.0, now=161.0).recall(asked)
    assert (responses(at_161.known), at_161.answered) == ({"a": "new"}, 150.0)
    # where nothing may be asked, age does not count, and its failures do
    offline = answers(store, 60.0, now=999.0).recall(asked, offline=True)
    assert responses(offline.known) == {"a": "new", "b": "2", "c": "no_result"}


def test_a_damaged_file_answers_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (bad,) = keep(store, "s0", [said("a", "1")]).files
    keep(store, "s1", [said("b", "2")])
    found, asked = answers(store), [("a", ""), ("b", "")]
    assert len(found.recall(asked).known) == 2
    # a file of the same size that reads well, and lies
    (lie,) = keep(Store(tmp_path / "elsewhere"), "s0", [said("a", "9")]).files
    (tmp_path / bad.path).write_bytes((tmp_path / "elsewhere" / lie.path).read_bytes())
    assert (lie.bytes, lie.digest != bad.digest) == (bad.bytes, True)
    assert responses(found.recall(asked).known) == {"b": "2"}  # it was indexed before
    assert responses(answers(store).recall(asked).known) == {"b": "2"}


def test_the_work_of_finding_commits_grows_with_the_shards_and_not_with_their_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    shards = 160
    files = CountingFiles(tmp_path)
    found, store = ToolCache(Store(tmp_path, files=files), "qa", PARTS, None), Store(tmp_path)
    for number in range(shards):
        found.recall([("new", "")])
        found.committed(keep(store, f"s{number}", [said(str(number), "x")]).key.id)
    # listed at every recall it would be 0 + 1 + ... + 159 = 12,720 names; 16 for each recall are 2,560
    assert files.listed <= 16 * shards
    assert responses(found.recall([("0", ""), (str(shards - 1), "")]).known) == {"0": "x", str(shards - 1): "x"}
    commits = [path for path in files.reads if path.startswith("commits/")]
    assert len(commits) == len(set(commits)) == shards  # each read once


def test_what_other_processes_commit_beside_many_of_ones_own_is_found_in_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(48):
        keep(store, f"s{number}", [said(str(number), "x")])
    found, asked = answers(store), [("theirs", "")]
    found.recall(asked)
    keep(store, "other", [said("theirs", "y")])
    # 48 / 16: the third recall lists again
    assert [responses(found.recall(asked).known) for _ in range(3)] == [{}, {}, {"theirs": "y"}]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sets(st.integers(0, 30), max_size=6), max_size=40))
def test_whatever_is_kept_in_whatever_shards_is_found(
    tmp_path_factory: pytest.TempPathFactory, shards: list[set[int]]
) -> None:
    """Forty shards are more than the pieces of an index; the answer to n is always n * n."""
    store = Store(tmp_path_factory.mktemp("data"))
    asked = [(str(n), "") for n in range(31)]
    found = answers(store)
    for number, inputs in enumerate(shards):
        keep(store, f"s{number}", [said(str(n), str(n * n)) for n in sorted(inputs)])
        if number % 3 == 0:  # sometimes several shards at once
            found.recall(asked[:1])
    expected = {str(n): str(n * n) for n in set().union(*shards)}
    assert responses(found.recall(asked).known) == expected
    assert responses(answers(store).recall(asked).known) == expected


@given(st.lists(st.sets(st.integers(0, 200), max_size=12), max_size=60), st.sampled_from([1, 8, 1 << 20]))
def test_an_index_has_few_pieces_and_knows_every_place(batches: list[set[int]], largest: int) -> None:
    index = _Index()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.shards.tool_cache._LARGEST_MERGED", largest)
        for file, batch in enumerate(batches):
            index.add(np.array(sorted(batch), np.uint64), np.arange(len(batch), dtype=np.uint32), file)
    sizes = [len(piece.questions) for piece in index.pieces]
    if largest == 1 << 20:  # each piece is more than twice as long as the next one
        assert all(longer > 2 * shorter for longer, shorter in itertools.pairwise(sizes))
    assert sum(sizes) == sum(map(len, batches))
    asked = np.arange(201, dtype=np.uint64)
    expected = {(n, file, sorted(batch).index(n)) for file, batch in enumerate(batches) for n in batch}
    assert set(index.places(asked)) == expected
    assert index.unseen(asked).tolist() == [not any(n in batch for batch in batches) for n in range(201)]
