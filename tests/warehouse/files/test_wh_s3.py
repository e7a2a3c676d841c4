"""Data on a URL: a local S3 server, and a file system that fsspec alone knows."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from wh_fixtures import put, scored

from warehouse.catalog import Catalog
from warehouse.errors import StoreError
from warehouse.files.remote import RemoteFiles, object_creator
from warehouse.queries import rows_of
from warehouse.snapshot.publish import publish
from warehouse.store import Store


def test_an_object_of_s3_is_made_once_whatever_was_seen_before(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Store(bucket).files
    monkeypatch.setattr(files, "stat", lambda path: None)  # it looked, and was held up
    assert [files.create("a", b"one"), files.create("a", b"two")] == [True, False]
    assert files.get("a") == b"one"


def test_over_https_an_object_is_put_without_what_older_servers_do_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    awsrequest = pytest.importorskip("botocore.awsrequest")
    sent = []

    def send(session: object, request: Any) -> Any:
        sent.append({name.lower(): value for name, value in request.headers.items()})
        answer = awsrequest.AWSResponse(request.url, 200, {}, None)
        answer._content = b""
        return answer

    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", send)
    create = object_creator("s3://key:secret@bucket/?endpoint_override=store.example", "us-east-1")
    assert create("bucket/one", b"data")
    [headers] = sent
    assert headers["if-none-match"] in ("*", b"*")
    assert headers.keys().isdisjoint({"content-encoding", "x-amz-trailer", "x-amz-sdk-checksum-algorithm"})


def test_of_two_workers_on_one_shard_of_which_one_stalls_the_committed_bytes_stay(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow worker looked before the fast one wrote, and its rows are others, as those of a model may be."""
    monkeypatch.chdir(tmp_path)
    fast, slow = Store(bucket), Store(bucket)
    stalled, go_on = threading.Event(), threading.Event()
    real = slow.files._create_object  # type: ignore[attr-defined]

    def create_late(path: str, data: bytes) -> bool | None:
        stalled.set()
        assert go_on.wait(60)
        created: bool | None = real(path, data)
        return created

    slow.files._create_object = create_late  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(put, slow, "score", "qa", "s0", [scored("d", "qa", 0, 2.0)])
        assert stalled.wait(60)
        commit = put(fast, "score", "qa", "s0", [scored("d", "qa", 0, 1.0)])
        committed = [fast.files.get(path) for path in (commit.files[0].path, f"commits/{commit.id}.json")]
        go_on.set()
        late.result(60)
    other = Store(bucket)
    assert [other.files.get(path) for path in (commit.files[0].path, f"commits/{commit.id}.json")] == committed
    assert list(other.commits()) == [commit]
    assert other.read(commit.files[0])["gain"].to_pylist() == [1.0]
    with Catalog(other.local_folder / "catalog.duckdb", store=other) as catalog:
        assert rows_of(publish(other, catalog), "SELECT gain FROM scored") == [{"gain": 1.0}]


def test_two_urls_have_two_folders_here(url: str, tmp_path: Path) -> None:
    # also where the names that people read are the same
    one, other = Store(url), Store(url.replace("/c4", "-c4", 1))
    assert one.local_folder != other.local_folder
    assert Store(url).local_folder == one.local_folder


def test_keys_in_a_url_reach_no_message_or_name(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(bucket.replace("s3://", "s3://test:secret@"))
    assert "secret" not in f"{store.root} {store.local_folder} {store.locate('x')}"
    with pytest.raises(StoreError) as caught:
        Store("nosuch://test:secret@place/x")
    assert "secret" not in str(caught.value)


def test_where_a_half_written_file_is_seen_it_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an object store: the file appears when it is whole."""
    files = RemoteFiles("test://data", pafs.LocalFileSystem(), str(tmp_path))

    def write_half(target: str, data: bytes) -> None:
        Path(target).write_bytes(data[: len(data) // 2])
        raise OSError("the line went dead")

    monkeypatch.setattr(files, "_write", write_half)
    with pytest.raises(StoreError, match="the line went dead"):
        files.put("commits/a.json", b"0123456789")
    assert files.get("commits/a.json") is None
    assert list(files.walk("")) == []  # what was left is no file of the store ...
    (left,) = files.stale_temporaries(-1.0)  # ... and is swept
    files.delete(left)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]
