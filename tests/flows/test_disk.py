"""A full disk is named in one line, whoever found no room on it; and the same command goes on once there is some."""

import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from wh_fixtures import disk_of

from flows.runtime.disk import DiskFullError, explain_full_disk
from flows.runtime.server import ServerError
from tests.support.servers_up import toolformer, variables
from toolformer_core.errors import ModelError, UsageError
from warehouse.errors import StoreError
from warehouse.store import Store


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of("512k", tmp_path) as folder:
        yield folder


_ANSWER = httpx.Response(500, request=httpx.Request("POST", "http://127.0.0.1:4200/api/task_runs/"))
_REFUSED = httpx.HTTPStatusError("500 Internal Server Error", request=_ANSWER.request, response=_ANSWER)


@pytest.mark.parametrize("error", [_REFUSED, ServerError("did not start, see log")])
def test_a_server_that_found_no_room(small_disk: Path, error: Exception) -> None:
    # 128 pages of 4,096 bytes, of which 126 are taken: 8,192 are left
    (small_disk / "ballast").write_bytes(bytes(126 * 4096))
    with pytest.raises(DiskFullError) as caught, explain_full_disk(str(small_disk / "data")):
        raise error
    assert str(caught.value).startswith(f"the disk of {small_disk} is full (8,192 bytes free): free some space there ")
    assert caught.value.__cause__ is error


def test_a_commit_that_found_no_room(small_disk: Path) -> None:
    store = Store(small_disk / "data")
    with pytest.raises(DiskFullError, match=f"the disk of {store.root} is full"), explain_full_disk(store.root):
        store.files.put("a", bytes(1 << 20))
    assert not list(store.files.walk(""))


def test_a_database_that_found_no_room_says_so_in_words_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(DiskFullError, match=f"the disk of {tmp_path} is full"), explain_full_disk(str(tmp_path)):
        raise StoreError("the tracking database failed") from sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize(
    "error", [UsageError("a mistake"), StoreError("a bad name"), ModelError("no such model"), RuntimeError("a bug")]
)
def test_on_a_full_disk_other_errors_stay_what_they_are(small_disk: Path, error: Exception) -> None:
    (small_disk / "ballast").write_bytes(bytes(126 * 4096))
    with pytest.raises(type(error), match=str(error)), explain_full_disk(str(small_disk)):
        raise error


def test_where_there_is_room_an_error_is_not_the_disk_s(tmp_path: Path) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="500"), explain_full_disk(str(tmp_path)):
        raise _REFUSED


@pytest.mark.slow
@pytest.mark.parametrize("size", ["512k", "3m", "5m", "7m"])  # it is full ever later; 10m are enough
def test_a_build_on_a_small_disk_goes_on_when_there_is_room(small_disk: Path, few_documents: Path, size: str) -> None:
    def resize(size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(small_disk)], check=True)

    resize(size)
    words = ["build", "--corpus", str(few_documents), "--data", str(small_disk / "data"), "--tools", "calculator"]
    command = toolformer(*words, "--limit", "4", "--top-k", "1", "--samples", "1")
    ended = subprocess.run(command, env=variables(), capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    [error] = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert error == ended.stderr.splitlines()[-1]
    assert f"the disk of {small_disk}" in error
    assert "bytes free" in error
    assert "Traceback" not in ended.stderr
    store = Store(small_disk / "data")
    before = {commit.id: store.damage(commit) for commit in store.commits()}
    assert not any(before.values())
    resize("200m")
    again = subprocess.run(command, env=variables(), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert before.keys() <= store.names("commits")
