"""Skip, run, commit: with a store in a folder, and work that counts how often it is done."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import a_document
from wh_fixtures import alter, truncate

from tasks.shards.arrow import rejects_table, stage_table
from tasks.shards.cpu_time import CPU_SECONDS
from tasks.shards.run_shard import ShardResult, ShardSpec, ShardWriter, StageOutput, active_shards, run_shard
from toolformer_core.records import Rejection
from warehouse.commits import RowCounts
from warehouse.errors import ConservationError
from warehouse.store import Store

WORK = ShardSpec("ingest", "1", "", "s0", {"limit": None}, {"config": "c1", "inputs": "i1"})
DOCUMENTS = [a_document(f"text {i}", line=i) for i in (1, 2, 3)]


class Job:
    """Three documents in, two kept, one failed; counts how often it was done."""

    def __init__(self, balance: RowCounts | None = None) -> None:
        self.done = 0
        self.balance = balance or RowCounts("rows", 3, 2, failed={"no_text": 1})

    def __call__(self, write: ShardWriter) -> StageOutput:
        self.done += 1
        write.write(stage_table("ingest", DOCUMENTS[:2]), "s0-00000")
        write.write_rejects(rejects_table([Rejection("corpus.jsonl", 3, "no_text", "", "{}")]))
        return StageOutput((self.balance,), counters={"lm_tokens": 7})


def failing(write: ShardWriter) -> StageOutput:
    raise OSError("the machine is on fire")


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_work_is_done_once(tmp_path: Path) -> None:
    store, job = Store(tmp_path), Job()
    first = run_shard(store, WORK, "r1", job)
    written = files_of(tmp_path)
    second = run_shard(store, WORK, "r2", job)
    assert job.done == 1
    assert (first.skipped, second.skipped) == (False, True)
    assert second == replace(first, skipped=True)  # also the seconds it took then
    assert files_of(tmp_path) == written


def test_a_shard_is_at_work_while_it_is_worked_on(tmp_path: Path) -> None:
    store, seen = Store(tmp_path), []

    def watched(write: ShardWriter) -> StageOutput:
        seen.extend(map(str, active_shards()))
        return Job()(write)

    run_shard(store, WORK, "r1", watched)
    run_shard(store, WORK, "r2", watched)  # found done
    assert seen == ["ingest s0"]
    assert active_shards() == []


def test_of_two_that_do_one_shard_the_first_to_commit_is_right(tmp_path: Path) -> None:
    store, firsts = Store(tmp_path), []

    def slow(write: ShardWriter) -> StageOutput:
        write.write(stage_table("ingest", DOCUMENTS))  # three rows, and the other's has two
        firsts.append(run_shard(store, WORK, "r1", Job()))
        return StageOutput((RowCounts("rows", 3, 3),))

    second = run_shard(store, WORK, "r2", slow)
    assert second == replace(firsts[0], skipped=True)  # later stages of both read the same rows
    [commit] = store.commits()
    assert (commit.run_id, store.damage(commit)) == ("r1", {})


def test_the_commit_says_what_was_done(tmp_path: Path) -> None:
    store = Store(tmp_path)
    done = run_shard(store, WORK, "r1", Job())
    [commit] = store.commits()
    assert (commit.stage_version, commit.key, commit.run_id) == ("1", WORK.key, "r1")
    assert commit.parts == {"code": "ingest/1", "config": "c1", "inputs": "i1"}
    assert commit.balances == (RowCounts("rows", 3, 2, failed={"no_text": 1}),)
    assert commit.counters == {"lm_tokens": 7, CPU_SECONDS: commit.counters[CPU_SECONDS]}  # no model worked
    assert "python" in commit.versions
    # rejects are listed in the commit, but are not data that the next stage reads
    assert [f.path.split("/")[0] for f in commit.files] == ["shards", "rejects"]
    assert [f.path.split("/")[0] for f in done.files] == ["shards"]
    assert store.read(done.files[0]).num_rows == 2


def test_whatever_the_result_depends_on_makes_it_other_work() -> None:
    parts = [{"config": "c2", "inputs": "i1"}, {"config": "c1", "inputs": "i2"}, {**WORK.parts, "model": "m"}]
    other = [replace(WORK, version="2"), replace(WORK, tool="qa"), replace(WORK, shard="s1")]
    other += [replace(WORK, stage="prefilter"), *(replace(WORK, parts=own) for own in parts)]
    assert len({spec.key for spec in (WORK, *other)}) == 1 + len(other)
    assert replace(WORK, config={"limit": 7}).key == WORK.key  # for people to read


@pytest.mark.parametrize("folder", ["shards", "rejects", "commits"])
@pytest.mark.parametrize("damage", [truncate, alter, Path.unlink], ids=["truncated", "altered", "removed"])
def test_damage_is_found_and_the_work_done_again(tmp_path: Path, folder: str, damage: Callable[[Path], None]) -> None:
    store, job = Store(tmp_path), Job()
    first = run_shard(store, WORK, "r1", job)
    (victim,) = (tmp_path / folder).rglob("*.*")
    damage(victim)
    left = victim.read_bytes() if victim.exists() else None
    second = run_shard(store, WORK, "r1", job)
    assert (job.done, second.skipped) == (2, False)
    # the same content again; its file has another name where a damaged one still holds the first
    assert [f.digest for f in second.files] == [f.digest for f in first.files]
    (commit,) = store.commits()
    assert [store.read(f).num_rows for f in commit.files] == [2, 1]
    # what is damaged, and the commit that rests on it, are kept to be looked at, each with a note that says why
    kept = {path for path in (tmp_path / "quarantine").rglob("*.*") if not path.name.endswith(".why.json")}
    assert all(path.with_name(path.name + ".why.json").is_file() for path in kept)
    aside = tmp_path / "quarantine" / victim.relative_to(tmp_path)
    assert (aside.read_bytes() if aside in kept else None) == left
    assert any("commits" in path.parts for path in kept) == (folder != "commits" or left is not None)
    assert run_shard(store, WORK, "r1", job).skipped


def test_what_does_not_add_up_is_not_committed(tmp_path: Path) -> None:
    # 3 rows in, 2 kept, and nobody says where the third went
    store, lossy = Store(tmp_path), Job(RowCounts("rows", 3, 2))
    with pytest.raises(ConservationError, match="rows"):
        run_shard(store, WORK, "r1", lossy)
    assert list(store.commits()) == []
    assert not run_shard(store, WORK, "r1", Job()).skipped


def test_work_that_fails_leaves_no_commit(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="on fire"):
        run_shard(Store(tmp_path), WORK, "r1", failing)
    assert files_of(tmp_path) == {}
    assert active_shards() == []


def test_two_at_the_same_shard_end_with_one_result(tmp_path: Path) -> None:
    both_at_it = threading.Barrier(2, timeout=30)
    jobs = [Job(), Job()]

    def do(job: Job) -> ShardResult:
        def wait_for_the_other(write: ShardWriter) -> StageOutput:
            both_at_it.wait()
            return job(write)

        return run_shard(Store(tmp_path), WORK, "r1", wait_for_the_other)

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(do, jobs)
    assert [job.done for job in jobs] == [1, 1]
    assert sorted([one.skipped, two.skipped]) == [False, True]  # who commits later finds it done
    assert (one.key, one.files, one.counts) == (two.key, two.files, two.counts)
    kinds = sorted(path.split("/")[0] for path in files_of(tmp_path))
    assert kinds == ["commits", "rejects", "shards"]
