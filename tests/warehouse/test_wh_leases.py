"""Who is at work on what: one holder at a time, until its lease ends; on a real PostgreSQL."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wh_fixtures import program

from tests.support.postgres import asked, schema
from tests.support.waiting import soon
from warehouse.leases import Lease, Leases
from warehouse.store import Store

LONG = 3600.0  # seconds: a lease that does not end while a test runs


def end_leases(url: str, data: Path) -> None:
    """Let all leases be over, as if their holders had not been heard of for long."""
    asked(url, f"UPDATE {schema(data)}.leases SET ends = clock_timestamp() - interval '1 second'")


def test_one_holds_it_until_it_is_given_back(postgres: str, tmp_path: Path) -> None:
    with Leases(postgres, Store(tmp_path), lease_s=LONG) as one, Leases(postgres, Store(tmp_path), lease_s=LONG) as two:
        lease = one.take("score/qa/part-00000")
        assert lease is not None
        assert two.take("score/qa/part-00000") is None
        assert one.take("score/qa/part-00000") is None  # not twice by one process either
        assert two.take("score/qa/part-00001") is not None
        one.release(lease)
        again = two.take("score/qa/part-00000")
        assert again is not None
        one.release(lease)  # given back already: the other's stays
        assert two.confirm(again)


def test_once_a_lease_has_ended_another_takes_it_and_the_old_holder_is_told(postgres: str, tmp_path: Path) -> None:
    with Leases(postgres, Store(tmp_path), lease_s=LONG) as old, Leases(postgres, Store(tmp_path), lease_s=LONG) as new:
        lease = old.take("work")
        assert lease is not None
        end_leases(postgres, tmp_path)
        assert old.confirm(lease)  # it is late, but was not replaced
        assert new.take("work") is None
        end_leases(postgres, tmp_path)
        other = new.take("work")
        assert other is not None
        assert not old.confirm(lease)
        old.release(lease)  # what it lost is not its to give back
        assert new.confirm(other)
        assert old.take("work") is None


def test_leases_are_renewed_while_the_holder_lives(postgres: str, tmp_path: Path) -> None:
    with Leases(postgres, Store(tmp_path), lease_s=0.4) as one, Leases(postgres, Store(tmp_path), lease_s=0.4) as two:
        assert one.take("work") is not None
        ends = f"SELECT ends, clock_timestamp() FROM {schema(tmp_path)}.leases"
        ((first, _),) = asked(postgres, ends)
        # more than a whole lease after the first one's end it is still held
        soon(lambda: (asked(postgres, ends)[0][1] - first).total_seconds() > 0.4, 60, 0.02)  # type: ignore[operator]
        assert two.take("work") is None
        one.close()
        soon(lambda: two.take("work") is not None, 60, 0.02)


def test_waiting_ends_with_what_another_finished_or_with_the_claim(postgres: str, tmp_path: Path) -> None:
    with Leases(postgres, Store(tmp_path), lease_s=LONG) as one, Leases(postgres, Store(tmp_path), lease_s=LONG) as two:
        assert one.wait_for("a", lambda: "done before") == "done before"
        held = one.take("a")
        assert held is not None
        looks: list[str | None] = [None, None, "done"]  # before it tries; before it tries again; at last
        assert two.wait_for("a", lambda: looks.pop(0)) == "done"
        one.release(held)
        looks = [None, "done meanwhile"]  # between the look and the taking; the lease is then given back
        assert two.wait_for("a", lambda: looks.pop(0)) == "done meanwhile"
        free = one.wait_for("a", lambda: None)
        assert isinstance(free, Lease)


def test_stores_in_one_database_do_not_meet_and_a_store_has_one_name_by_any_path(postgres: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (tmp_path / "mounted").symlink_to(here)
    with Leases(postgres, Store(here), lease_s=LONG) as one, Leases(postgres, Store(there), lease_s=LONG) as two:
        assert one.take("work") is not None
        assert two.take("work") is not None
        with Leases(postgres, Store(tmp_path / "mounted"), lease_s=LONG) as other_host:
            assert other_host.take("work") is None


def test_of_hosts_that_begin_at_once_one_gets_the_lease(postgres: str, tmp_path: Path) -> None:
    ready = threading.Barrier(4, timeout=60)

    def begin(_: int) -> list[Lease | None]:
        ready.wait()
        with Leases(postgres, Store(tmp_path), lease_s=LONG) as host, ThreadPoolExecutor(2) as threads:
            ready.wait()
            return list(threads.map(lambda _: host.take("work"), range(2)))

    with ThreadPoolExecutor(4) as pool:
        taken = [lease for leases in pool.map(begin, range(4)) for lease in leases]
    assert taken.count(None) == 7


HOLD = """
import sys
from warehouse.leases import Leases
from warehouse.store import Store
leases = Leases(sys.argv[1], Store(sys.argv[2]), lease_s=1.0)
assert leases.take("work") is not None
print("held", flush=True)
sys.stdin.read()
"""


def test_a_killed_holders_claim_ends_with_its_lease(postgres: str, tmp_path: Path) -> None:
    with program(HOLD, postgres, tmp_path) as holder, Leases(postgres, Store(tmp_path), lease_s=1.0) as other:
        assert other.take("work") is None
        holder.kill()
        assert isinstance(other.wait_for("work", lambda: None), Lease)
