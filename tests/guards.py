"""Removes guards against crashes, full disks, second flows and damage, and sees whether a test fails: `make guards`.

Each is taken out of a copy of the repository, in which its tests run: one that still passes is a test that cannot fail.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_HANGS_S = 300
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "toolformer-*", "small-world-runs")


@dataclass(frozen=True, slots=True)
class Guard:
    """What keeps one fault from doing harm."""

    fault: str
    guard: str
    file: str
    text: str  # stands in the file exactly once
    without: str
    tests: tuple[str, ...]  # of which one fails without the guard


_STORE = "tests/warehouse/test_wh_store.py"
_PUBLISH = "tests/warehouse/snapshot/test_wh_publish.py"
_AUDIT = "tests/warehouse/test_wh_audit.py"
_LEASES = "tests/warehouse/test_wh_leases.py"
_LEDGER = "tests/flows/test_ledger.py"
_SHARDS = "tests/tasks/test_run_shard.py"
_TRACKING = "tests/tasks/tracking/test_tracking.py"

GUARDS = (
    # A process, or the machine, dies.
    Guard(
        "a kill while a file is written",
        "a file gets its name when it is whole",
        "warehouse/files/base.py",
        "temporary_beside(target)\n    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL,",
        "target\n    give_name = lambda *_: True\n    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC,",
        ("tests/warehouse/test_wh_crash.py::test_a_store_survives_every_step",),
    ),
    Guard(
        "a kill while a snapshot is written",
        "a snapshot takes its name when it is whole",
        "warehouse/snapshot/publish.py",
        "    temporary = temporary_beside(target)\n    try:\n        make_folder",
        "    temporary = target\n    target.unlink(missing_ok=True)\n    try:\n        make_folder",
        (f"{_PUBLISH}::test_readers_never_see_a_half_written_snapshot",),
    ),
    Guard(
        "a kill between a shard and the catalog",
        "a catalog that is opened is brought in step with the commits",
        "warehouse/catalog.py",
        "(self.reconcile if rebuild else self.catch_up)(store)",
        "(self.reconcile if rebuild else lambda store: None)(store)",
        (f"{_AUDIT}::test_a_catalog_is_brought_in_step_with_the_store",),
    ),
    Guard(
        "work that fails half-way",
        "the commit comes last",
        "tasks/shards/run_shard.py",
        "        output = run(writer)\n",
        "        try:\n            output = run(writer)\n"
        "        except Exception:\n            output = StageOutput(())\n",
        (f"{_SHARDS}::test_work_that_fails_leaves_no_commit",),
    ),
    Guard(
        "a kill while MLflow's database is made",
        "it takes its name when its tables are complete",
        "tasks/tracking/store.py",
        'new = path.with_name(f"{path.name}.new")',
        "new = path",
        (f"{_TRACKING}::test_a_database_whose_making_was_cut_short_takes_no_name_and_is_made_again",),
    ),
    Guard(
        "a kill while a server makes its database",
        "a database that was not finished is set aside",
        "flows/runtime/server.py",
        "    if not (home / _READY).exists():\n        for name",
        "    if False:\n        for name",
        ("tests/flows/test_server.py::test_a_database_whose_making_was_cut_short_is_set_aside",),
    ),
    Guard(
        "a kill of the flow, whose server lives on",
        "the next flow ends it",
        "flows/runtime/server.py",
        "                server.terminate()\n                server.wait(10)\n",
        "                pass\n",
        ("tests/flows/test_server.py::test_a_server_lives_as_long_as_its_parent",),
    ),
    # The disk is full.
    Guard(
        "a full disk while a file is written",
        "what was written of it goes again",
        "warehouse/files/base.py",
        "        with contextlib.suppress(OSError):\n            os.unlink(temporary)\n        raise",
        "        raise",
        (f"{_STORE}::test_a_full_disk_is_a_store_error_and_leaves_nothing",),
    ),
    Guard(
        "a full disk while a file is written",
        "the file is named in one line",
        "warehouse/files/base.py",
        '            raise StoreError(f"cannot write {target}: {error_line(exc)}") from exc',
        "            raise",
        (f"{_STORE}::test_a_full_disk_is_a_store_error_and_leaves_nothing",),
    ),
    Guard(
        "a full disk while a snapshot is written",
        "the run goes on with the last snapshot",
        "flows/runtime/ledger.py",
        '                except WarehouseError as exc:\n                    _log.warning("the snapshot is not',
        '                except ZeroDivisionError as exc:\n                    _log.warning("the snapshot is not',
        (f"{_LEDGER}::test_a_snapshot_that_cannot_be_written_ends_no_run",),
    ),
    # Two flows on one data folder.
    Guard(
        "two flows on one data folder",
        "the catalog is locked",
        "warehouse/files/lock.py",
        "                self._lock.acquire(timeout=0)\n",
        "                pass\n",
        (
            "tests/warehouse/files/test_wh_lock.py::test_who_gives_up_says_who_holds_it_since_when_and_with_what_command",
        ),
    ),
    Guard(
        "two flows on one data folder",
        "the second waits",
        "warehouse/catalog.py",
        "wait_s=wait_s, on_wait=on_wait)\n",
        "on_wait=on_wait)\n",
        (f"{_LEDGER}::test_who_has_the_folder",),
    ),
    Guard(
        "two hosts on one shard",
        "whoever lost its lease commits nothing",
        "tasks/shards/run_shard.py",
        "if leases.confirm(lease_or_result):",
        "if True:",
        ("tests/tasks/test_leased_shards.py::test_who_lost_its_claim_to_one_that_died_too_does_the_work_again",),
    ),
    Guard(
        "a host that dies with a lease",
        "a lease ends unless it is renewed",
        "warehouse/leases.py",
        "sa.or_(_LEASES.c.ends < _NOW, ",
        "sa.or_(sa.false(), ",
        (f"{_LEASES}::test_once_a_lease_has_ended_another_takes_it_and_the_old_holder_is_told",),
    ),
    # What killed writers leave behind.
    Guard(
        "leftover temporary files",
        "every flow sweeps",
        "flows/runtime/ledger.py",
        '        store.sweep_temporary(seconds("sweep"))\n',
        "",
        (f"{_LEDGER}::test_who_has_the_folder",),
    ),
    Guard(
        "a second writer of one shard, held up until the first has committed",
        "its data takes no other file's place",
        "warehouse/files/base.py",
        "        os.link(temporary, target)\n",
        "        os.replace(temporary, target)\n        return True\n",
        (f"{_STORE}::test_a_writer_that_was_held_up_replaces_no_data",),
    ),
    Guard(
        "a second writer of one shard, held up until the first has committed",
        "the first commit stands",
        "warehouse/store.py",
        "        while not self.files.create(path, text):\n",
        "        self.files.put(path, text)\n        while False:\n",
        (f"{_STORE}::test_a_writer_that_was_held_up_replaces_no_commit",),
    ),
    Guard(
        "a sweep while somebody writes",
        "young files stay",
        "warehouse/files/base.py",
        "if self._at(path).stat().st_mtime <= latest and not",
        "if not",
        (f"{_AUDIT}::test_a_sweep_never_takes_what_is_being_written",),
    ),
    Guard(
        "a sweep while somebody writes",
        "locked files stay",
        "warehouse/files/base.py",
        " and not self._being_written(path):",
        ":",
        (f"{_AUDIT}::test_a_sweep_never_takes_what_is_being_written",),
    ),
    # Data or commits that are truncated or altered.
    Guard(
        "a data file that is gone",
        "its commit does not count",
        "warehouse/store.py",
        "        return all(self._size(file.path) == file.bytes for file in commit.files)",
        "        return True",
        (f"{_STORE}::test_missing_data_makes_a_commit_absent",),
    ),
    Guard(
        "a truncated or altered data file",  # Parquet itself sees that its end is missing, but not other bytes
        "its digest is compared",
        "warehouse/files/encoding.py",
        "if digest(data) != file.digest else",
        "if False else",
        (f"{_AUDIT}::test_damaged_data_is_told_and_who_rests_on_it",),
    ),
    Guard(
        "damage in a finished shard",
        "a shard that is found done is read",
        "tasks/shards/run_shard.py",
        "    if not store.damage(commit):",
        "    if True:",
        (f"{_SHARDS}::test_damage_is_found_and_the_work_done_again",),
    ),
    Guard(
        "damage in a finished shard",
        "it is set aside",
        "tasks/shards/run_shard.py",
        "    store.quarantine(commit)\n",
        "",
        (f"{_SHARDS}::test_damage_is_found_and_the_work_done_again",),
    ),
    Guard(
        "a damaged commit",
        "it is set aside",
        "warehouse/store.py",
        '            self.set_aside(path, "it is not a commit")\n',
        "",
        (f"{_STORE}::test_a_valid_record_that_is_no_commit_is_set_aside",),
    ),
    Guard(
        "damage in what users query",
        "a snapshot leaves it out",
        "warehouse/snapshot/publish.py",
        "        if commit_id not in broken and not store.is_unaltered(file, written):",
        "        if False:",
        (f"{_AUDIT}::test_what_is_damaged_is_not_in_the_tables_of_a_snapshot",),
    ),
    Guard(
        "a snapshot that cannot be read",
        "it is opened before it takes the last one's place",
        "warehouse/snapshot/publish.py",
        "        _read_through(temporary, store)\n    except duckdb.Error:",
        "    except duckdb.Error:",
        (f"{_PUBLISH}::test_nothing_is_published_that_cannot_be_read",),
    ),
    Guard(
        "a damaged catalog",
        "it is set aside and rebuilt",
        "warehouse/catalog.py",
        "                self._set_aside(self._path, exc)\n",
        "                raise\n",
        (f"{_AUDIT}::test_a_damaged_catalog_is_set_aside_and_rebuilt",),
    ),
)


def _copy(folder: Path, guard: Guard | None) -> None:
    shutil.copytree(ROOT, folder, ignore=_LEFT_OUT, symlinks=True)
    if guard is not None:
        file = folder / guard.file
        file.write_text(file.read_text(encoding="utf-8").replace(guard.text, guard.without), encoding="utf-8")


def _failed(tests: tuple[str, ...], guard: Guard | None) -> str:
    """Run tests in a copy of the repository without a guard; return which failed first, "" if none did."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "copy"
        _copy(folder, guard)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        how: dict[str, Any] = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
        try:
            done = subprocess.run(command, check=False, timeout=_HANGS_S, **how)
        except subprocess.TimeoutExpired:
            return f"after {_HANGS_S} s"
        failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")]
        if done.returncode != (1 if failed else 0):  # a fixture that fails, or nothing found to run, tells nothing
            raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return failed[0] if failed else ""


def _missed(guards: Sequence[Guard]) -> Iterator[tuple[Guard, str]]:
    """Yield each guard, and which test failed without it; two at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda guard: (guard, _failed(guard.tests, guard)), guards)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="guards of which fault, guard or file holds this")
    given = parser.parse_args()
    chosen = [g for g in GUARDS if given.only in f"{g.fault} {g.guard} {g.file}"]
    if not chosen:
        parser.error(f"no guard holds {given.only!r}")
    tests = tuple(sorted({test for guard in chosen for test in guard.tests}))
    if failed := _failed(tests, None):
        parser.error(f"{failed} fails with every guard in place")
    missed = 0
    for guard, test in _missed(chosen):
        print(f"{guard.fault}: {guard.guard} ({guard.file}): {test or 'NO TEST FAILS WITHOUT IT'}", flush=True)  # noqa: T201
        missed += not test
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
