"""`run_shard` where several hosts share a store: each shard is done once, and a host that was given up gives way."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes import a_document

from tasks.shards.arrow import stage_table
from tasks.shards.run_shard import ShardResult, ShardSpec, ShardWriter, StageOutput, run_shard
from tests.support.postgres import asked, schema
from warehouse.commits import RowCounts
from warehouse.leases import Leases
from warehouse.store import Store

LONG = 3600.0  # seconds: a lease that does not end while a test runs


def work(shard: str) -> ShardSpec:
    return ShardSpec("ingest", "1", "", shard, {}, {"config": "c1", "inputs": shard})


def one_document(_: ShardWriter) -> StageOutput:
    return StageOutput((RowCounts("rows", 1, 1),), stage_table("ingest", [a_document()]))


def test_hosts_at_once_do_every_shard_once(postgres: str, tmp_path: Path) -> None:
    shards = [f"part-{n:05d}" for n in range(12)]
    done_by = Counter[str]()
    ready = threading.Barrier(3, timeout=60)

    def host(name: str) -> list[ShardResult]:
        store, order = Store(tmp_path), random.Random(name).sample(shards, len(shards))
        with Leases(postgres, store, lease_s=LONG) as leases:

            def one(shard: str) -> ShardResult:
                def do(write: ShardWriter) -> StageOutput:
                    done_by[shard] += 1
                    return one_document(write)

                return run_shard(store, work(shard), name, do, leases)

            ready.wait()
            with ThreadPoolExecutor(2) as pool:
                return list(pool.map(one, order))

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(host, ("a", "b", "c")))
    assert done_by == dict.fromkeys(shards, 1)
    assert all({done.key.shard for done in result} == set(shards) for result in results)
    # of the three that had each shard, two found it done
    assert sum(done.skipped for result in results for done in result) == 2 * 12
    assert asked(postgres, f"SELECT count(*) FROM {schema(tmp_path)}.leases") == [(0,)]


def taken_over(postgres: str, data: Path, then: Callable[[Leases], None]) -> Callable[[ShardWriter], StageOutput]:
    """Work during which the lease ends and another host takes the lease."""

    def do(write: ShardWriter) -> StageOutput:
        asked(postgres, f"UPDATE {schema(data)}.leases SET ends = clock_timestamp() - interval '1 second'")
        with Leases(postgres, Store(data), lease_s=LONG) as other:
            then(other)
        return one_document(write)

    return do


def test_who_lost_its_claim_takes_what_the_other_committed(postgres: str, tmp_path: Path) -> None:
    store = Store(tmp_path)

    def other_does_it(leases: Leases) -> None:
        assert not run_shard(store, work("s0"), "other", one_document, leases).skipped

    with Leases(postgres, store, lease_s=LONG) as leases:
        done = run_shard(store, work("s0"), "late", taken_over(postgres, tmp_path, other_does_it), leases)
    assert done.skipped
    (commit,) = store.commits()
    assert commit.run_id == "other"


def test_who_lost_its_claim_to_one_that_died_too_does_the_work_again(postgres: str, tmp_path: Path) -> None:
    store, tries = Store(tmp_path), []

    def do(write: ShardWriter) -> StageOutput:
        tries.append(len(tries))
        if len(tries) > 1:
            return one_document(write)

        def takes_it_and_dies(other: Leases) -> None:
            (key,) = [row[0] for row in asked(postgres, f"SELECT name FROM {schema(tmp_path)}.leases")]
            assert other.take(str(key)) is not None
            asked(postgres, f"UPDATE {schema(tmp_path)}.leases SET ends = clock_timestamp() - interval '1 second'")

        return taken_over(postgres, tmp_path, takes_it_and_dies)(write)

    with Leases(postgres, store, lease_s=LONG) as leases:
        done = run_shard(store, work("s0"), "r", do, leases)
    assert (tries, done.skipped) == ([0, 1], False)
    assert len(list(store.commits())) == 1


def test_work_that_fails_gives_its_claim_back(postgres: str, tmp_path: Path) -> None:
    def fail(write: ShardWriter) -> StageOutput:
        raise OSError("the machine is on fire")

    store = Store(tmp_path)
    with Leases(postgres, store, lease_s=LONG) as leases, Leases(postgres, store, lease_s=LONG) as other:
        with pytest.raises(OSError, match="on fire"):
            run_shard(store, work("s0"), "r", fail, leases)
        assert not run_shard(store, work("s0"), "r2", one_document, other).skipped
