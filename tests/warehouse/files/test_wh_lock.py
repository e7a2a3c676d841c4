"""Two processes and one data folder: the second waits and is told for whom, or gives up and says so."""

import fcntl
import math
import os
import pickle
import subprocess
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from wh_fixtures import program

from warehouse.errors import LockHeldError
from warehouse.files.lock import FileLock

HOLD = """
import sys
from pathlib import Path
from warehouse.files.lock import FileLock
lock = FileLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def held(path: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """Another process that holds a lock until its input ends, or it is killed."""
    return program(HOLD, path, "--data", "s3://key:secret@place/data")


def test_who_gives_up_says_who_holds_it_since_when_and_with_what_command(tmp_path: Path) -> None:
    path = tmp_path / "catalog.duckdb.lock"
    with held(path) as process, pytest.raises(LockHeldError) as caught:
        FileLock(path, wait_s=0.3)
    said = str(caught.value)
    assert said.startswith(f"{path} is held by process {process.pid} on {os.uname().nodename} since 2")
    assert said.endswith(f"(-c {path} --data s3://place/data); wait for it to finish, or stop it")
    assert "secret" not in said
    assert str(pickle.loads(pickle.dumps(caught.value))) == said


@pytest.mark.parametrize("end", ["finished", "killed"])
def test_who_waits_is_told_once_for_whom_and_goes_on_when_the_holder_has_ended(tmp_path: Path, end: str) -> None:
    path, told = tmp_path / "x.lock", []
    with held(path) as process:

        def waiting(holder: LockHeldError) -> None:
            told.append(holder.pid)
            if end == "killed":
                process.kill()  # however it dies, the kernel frees the lock
            else:
                process.stdin.close()

        with FileLock(path, wait_s=math.inf, on_wait=waiting), pytest.raises(LockHeldError) as caught:
            FileLock(path)
    assert told == [process.pid]
    assert caught.value.pid == os.getpid()  # and not what the dead one wrote


def test_a_program_that_uses_flock_itself_takes_turns_too(tmp_path: Path) -> None:
    """Earlier versions of this one did, and may still run in the same folder."""
    path = tmp_path / "x.lock"
    with path.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(LockHeldError, match="another process"):
            FileLock(path)
    with FileLock(path), path.open("rb") as stream, pytest.raises(BlockingIOError):
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_any_thread_may_close_a_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "x.lock")
    thread = threading.Thread(target=lock.close)
    thread.start()
    thread.join()
    FileLock(tmp_path / "x.lock").close()


def test_a_lock_file_is_written_by_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        FileLock(tmp_path / "x.lock").close()
    finally:
        os.umask(before)
    assert oct((tmp_path / "x.lock").stat().st_mode & 0o777) == "0o644"
