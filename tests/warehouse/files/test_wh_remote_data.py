"""A snapshot of data on a URL: the index is here, the data stays there and is read as queries need it."""

from pathlib import Path
from typing import Any

import pytest
from wh_fixtures import make_run, put, put_dataset, scored

from toolformer_core.annotate.call_filter import CallFilter
from warehouse.catalog import Catalog
from warehouse.commits import Commit
from warehouse.errors import RefusedQueryError
from warehouse.files.remote import RemoteFiles, public_url
from warehouse.queries import best_calls, gain_histogram, rows_of, stats, yield_by_threshold
from warehouse.queries.explain import explain
from warehouse.queries.guarded import run_query
from warehouse.snapshot.pack import pack
from warehouse.snapshot.publish import publish
from warehouse.store import Store
from warehouse.what_if import what_if

TEXT = "Two and two makes a total of 4 apples. "


def build(store: Store, shards: int = 3) -> Path:
    """Shards of two documents: the first gains 1.0 at position 4, the second 0.25 at position 0."""
    commits: list[Commit] = []
    for shard in (f"s{number}" for number in range(shards)):
        ids = [f"{shard}-{letter}" for letter in "ab"]
        documents = put(store, "ingest", "", shard, [{"doc_id": one, "text": TEXT + one} for one in ids])
        rows = [scored(ids[0], "qa", 4, 1.0), scored(ids[1], "qa", 0, 0.25)]
        read = (documents.files[0].digest,)
        scores = put(store, "score", "qa", shard, rows, inputs=read)
        call = {"tool": "qa", "position": 4, "start": 4, "end": 9, "input": "1 + 1", "response": "2", "gain": 1.0}
        kept = put(store, "assemble", "", shard, [{"doc_id": ids[0], "text": TEXT, "calls": [call]}], inputs=read)
        commits += [documents, scores, kept]
    store.write_run(make_run("r", [commit.key for commit in commits]))
    put_dataset(store, "cstar", [commit for commit in commits if commit.stage == "assemble"], "r")
    with Catalog(store.local_folder / "catalog.duckdb", store=store) as catalog:
        return publish(store, catalog)


def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the path of every data file is added when any of its bytes are fetched."""
    reads: list[str] = []
    real = RemoteFiles.get_range

    def noting(self: RemoteFiles, path: str, start: int, length: int) -> bytes | None:
        reads.append(path)
        return real(self, path, start, length)

    monkeypatch.setattr(RemoteFiles, "get_range", noting)
    return reads


def names(paths: list[str]) -> set[str]:
    return {Path(path).name.split("-")[0] for path in paths}


def test_no_data_is_copied_and_figures_need_an_index(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = build(Store(url))
    here = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent for path in here} == {snapshot.parent}
    assert snapshot.parent.parent == tmp_path / "toolformer-remote"
    assert snapshot.parent.name.startswith(Store(url).root.partition("://")[2].replace("/", "-"))
    assert [path for path in here if path.suffix == ".parquet"] == []
    reads = reads_of(monkeypatch)
    assert [(one.tau_f, one.examples) for one in yield_by_threshold(snapshot)] == [(0.5, 3), (1.0, 3), (2.0, 0)]
    assert stats(snapshot).conserved
    assert [(one.low, one.calls) for one in gain_histogram(snapshot) if one.calls] == [(0.0, 3), (1.0, 3)]
    assert what_if(snapshot, CallFilter({"qa": 0.5}), CallFilter({"qa": 0.2}), n=0).changes[0].after.calls == 6
    assert reads == []


def test_a_document_s_path_needs_its_shard_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = build(Store(url))
    reads = reads_of(monkeypatch)
    found = explain(snapshot, "s1-a")
    assert found.document["text"] == TEXT + "s1-a"
    assert [row["gain"] for row in found.scored] == [1.0]
    assert [(one["name"], len(one["calls"])) for one in found.datasets] == [("cstar", 1)]
    assert names(reads) == {"s1"}


def test_samples_need_the_shards_that_they_come_from(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = build(Store(url))
    reads = reads_of(monkeypatch)
    (one,) = best_calls(snapshot, n=1)
    assert (one.gain, one.before, one.after[:4]) == (1.0, "Two ", "and ")
    assert names(reads) == {one.doc_id[:2]}
    found = what_if(snapshot, CallFilter({"qa": 0.5}), CallFilter({"qa": 0.2}), n=2)
    assert [call.gain for call in found.comes] == [0.25, 0.25]
    assert [call.gain for call in best_calls(snapshot, kept=True)] == [1.0, 1.0, 1.0]


def test_views_need_the_url_and_a_packed_file_none(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = build(Store(url))
    assert rows_of(snapshot, "SELECT sum(gain) AS gain FROM scored") == [{"gain": 3 * 1.25}]
    assert rows_of(snapshot, "SELECT count(*) AS n FROM kept_calls") == [{"n": 3}]
    with run_query(snapshot, "SELECT count(*), sum(gain) FROM scored") as rows:
        assert list(rows) == [(6, 3.75)]
    root = Store(url).root
    for place in (f"{root.rpartition('/')[0]}/other/x.parquet", "/etc/x.parquet"):
        with pytest.raises(RefusedQueryError, match="the data folder alone"), run_query(snapshot, f"FROM '{place}'"):
            pass
    out = tmp_path / "out.duckdb"
    packed = pack(snapshot, out)
    assert packed.tables["scored"] == 6
    reads = reads_of(monkeypatch)
    assert rows_of(out, "SELECT count(*) AS n FROM kept_calls") == [{"n": 3}]
    assert reads == []
    assert b"s3://" not in out.read_bytes()


def test_small_files_are_fetched_once_and_large_ones_in_parts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(url)
    snapshot = build(store, shards=1)
    reads = reads_of(monkeypatch)
    for _ in range(2):
        rows_of(snapshot, "SELECT doc_id, gain FROM scored")
    assert len(reads) == 1
    monkeypatch.setattr("warehouse.snapshot.remote._WHOLE_BYTES", 100)
    monkeypatch.setattr("warehouse.snapshot.remote._BLOCK", 1000)
    (file,) = (file for commit in store.commits("ingest") for file in commit.files)
    from warehouse.snapshot import remote

    system = remote._file_system(lambda: store.files, store.root)
    with system.open(store.locate(file.path)) as stream:
        stream.seek(-4, 2)
        assert stream.read() == b"PAR1"
        stream.seek(998)
        whole = store.files.get(file.path)
        assert stream.read(4) == whole[998:1002]  # across two parts


@pytest.mark.parametrize("place", ["x.parquet", "../other/x.parquet", "c4/../../x"])
def test_nothing_beside_the_data_folder_is_read_and_nothing_is_written(url: str, place: str) -> None:
    from warehouse.snapshot import remote

    store = Store(url)
    system: Any = remote._file_system(lambda: store.files, store.root)
    elsewhere = f"{store.root.rpartition('/')[0]}/{place}"
    with pytest.raises(FileNotFoundError):
        system.open(elsewhere)
    with pytest.raises(PermissionError, match="cannot be written"):
        system.open(f"{store.root}/shards/x.parquet", "wb")


def test_a_url_that_is_kept_has_no_credentials() -> None:
    kept = public_url("s3://key:secret@bucket/c4?endpoint_override=127.0.0.1:9000&scheme=http&session_token=x")
    assert kept == "s3://bucket/c4?endpoint_override=127.0.0.1:9000&scheme=http"
    assert public_url("folder/c4") == "folder/c4"
