"""The snapshot's index: yields as the method counts them, taken over where nothing changed, a document found."""

import math
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from wh_fixtures import make_run, put, put_dataset, scored, snapshot_of

from warehouse.commits import Commit
from warehouse.queries import rows_of, yield_by_threshold
from warehouse.queries.explain import explain, ids_with_prefix, nearest_ids
from warehouse.snapshot import index
from warehouse.snapshot.views import MEASURED
from warehouse.store import Store

TOOLS = ("calculator", "mt", "qa")
COLUMNS = 'tool, doc, "position", gain, log_p, "rank", alike, window_end, best'
GAINS = f"SELECT {COLUMNS} FROM facts.gains JOIN facts.slots USING (slot)"

Rows = dict[str, list[dict[str, Any]]]  # tool -> scored calls


def write(store: Store, shard: str, rows: Rows, run: list[Commit]) -> None:
    """One shard: samples whose rank is the position, of log p = -rank, and scored calls."""
    for tool, own in rows.items():
        full = [{**scored(tool=tool, **row), "log_p": -float(row["position"])} for row in own]
        places = sorted({(row["doc_id"], row["position"]) for row in full})
        drawn = [{"doc_id": d, "tool": tool, "position": p, "rank": p, "log_p": -float(p)} for d, p in places]
        run += [put(store, "sample", tool, shard, drawn), put(store, "score", tool, shard, full)]


@pytest.mark.parametrize("gains", [[-1.0, math.nan], [0.5, math.nan, -1.0], [math.nan], [math.inf, math.nan, 0.5]])
def test_a_gain_that_is_not_a_number_is_seen(tmp_path: Path, gains: list[float]) -> None:
    """The statistics of a Parquet file leave NaN out: of -1.0 and NaN they say "from -1.0 to -1.0"."""
    known = len(gains) - 1  # one of each is NaN
    # written by us: whoever asks, in whatever words
    put(Store(tmp_path / "own"), "score", "qa", "s0", [scored("d1", "qa", i, gain) for i, gain in enumerate(gains)])
    (own,) = (tmp_path / "own").rglob("s0-*.parquet")
    assert duckdb.execute(f"SELECT count(*) FROM '{own}' WHERE NOT isnan(gain)").fetchone() == (known,)
    # written by others, with statistics: asked in our words
    pq.write_table(pa.table({"gain": gains}), tmp_path / "other.parquet")
    assert duckdb.execute(f"SELECT count(*) FROM '{tmp_path}/other.parquet' WHERE {MEASURED}").fetchone() == (known,)


def test_only_new_shards_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, run = Store(tmp_path / "data"), list[Commit]()
    rows: Rows = {"calculator": [{"doc_id": "d1", "position": 0, "gain": 1.0}], "qa": []}
    write(store, "s0", rows, run)
    store.write_run(make_run("r", [c.key for c in run]))
    snapshot_of(store)
    read: list[str] = []
    real = index._read

    def noting(store: Store, batch: Any, slots: Any) -> Any:
        read.extend(source.path for source in batch)
        return real(store, batch, slots)

    monkeypatch.setattr(index, "_read", noting)
    other: Rows = {tool: [{**row, "doc_id": "d2"} for row in own] for tool, own in rows.items()}
    write(store, "s1", other, run)
    store.write_run(make_run("r", [c.key for c in run]))
    path = snapshot_of(store)
    assert {Path(one).name.split("-")[0] for one in read} == {"s1"}
    # a commit of a shard changes: its whole shard is read again, and the other is taken over
    read.clear()
    newer = put(store, "score", "qa", "s0", [scored("d1", "qa", 0, 2.0)], parts={"config": "c2"})
    changed = [c.key for c in run if (c.stage, c.tool, c.shard) != ("score", "qa", "s0")]
    store.write_run(make_run("r", [*changed, newer.key]))
    path = snapshot_of(store)
    assert {Path(one).name.split("-")[0] for one in read} == {"s0"}
    gains = rows_of(path, f"{GAINS} ORDER BY ALL")
    assert [(y.tool, y.examples) for y in yield_by_threshold(path) if y.tau_f == 0.5] == [("calculator", 1), ("qa", 1)]
    assert gains == rows_of(snapshot_of(store, anew=True), f"{GAINS} ORDER BY ALL")


def test_a_file_that_cannot_be_read_is_left_out_and_called_broken(tmp_path: Path) -> None:
    store, run = Store(tmp_path), list[Commit]()
    rows: Rows = {tool: [{"doc_id": "d1", "position": i, "gain": 1.0}] for i, tool in enumerate(TOOLS)}
    write(store, "s0", rows, run)
    (victim,) = (c for c in run if (c.stage, c.tool) == ("score", "qa"))
    file = tmp_path / victim.files[0].path
    file.chmod(0o644)
    file.write_bytes(b"x" * victim.files[0].bytes)
    os.utime(file, (0, 0))  # older than its commit: nothing tells that it was altered
    path = snapshot_of(store)
    yields = [(y.tool, y.examples) for y in yield_by_threshold(path) if y.tau_f == 0.5]
    assert yields == [("calculator", 1), ("mt", 1), ("qa", 0)]
    assert rows_of(path, "SELECT tool FROM shards WHERE NOT intact") == [{"tool": "qa"}]


def test_a_document_is_found_in_its_shard_alone(store: Store, tmp_path: Path) -> None:
    ids = {"part-00000": ["aa1", "ab2"], "part-00001": ["ab3", "b4"]}
    files = tuple(
        file
        for shard, own in ids.items()
        for file in put(store, "ingest", "", shard, [{"doc_id": d, "text": d} for d in own]).files
    )
    for shard, file in zip(ids, files, strict=True):
        rows = [{"doc_id": d, "tool": "qa", "reason": shard} for d in ids[shard]]
        put(store, "prefilter", "qa", shard, rows, inputs=(file.digest,))
        example = put(store, "assemble", "", shard, [{"doc_id": ids[shard][0]}], inputs=(file.digest,))
        put_dataset(store, "c", [example], "r", version=shard)
    path = snapshot_of(store)
    assert ids_with_prefix(path, "ab") == ["ab2", "ab3"]
    assert ids_with_prefix(path, "ab3") == ["ab3"]
    assert ids_with_prefix(path, "z") == []
    assert nearest_ids(path, "ab4")[:2] == ["ab2", "ab3"]
    (tmp_path / files[0].path).unlink()  # of the other shard: it is not opened
    found = explain(path, "ab3")
    assert (found.shard, [row["reason"] for row in found.prefiltered]) == ("part-00001", ["part-00001"])
    assert [(d["name"], d["version"]) for d in found.datasets] == [("c", "part-00001")]
    assert explain(path, "b4").datasets == ()
    assert explain(path, "nobody").document is None
