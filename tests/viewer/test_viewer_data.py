"""Which snapshot a page sees, and which documents: those of the current build, and those of older versions of C*."""

import threading
from pathlib import Path

from wh_fixtures import make_run, put, put_dataset, scored, snapshot_of

from tests.viewer.conftest import pages
from viewer.data import ViewedData
from warehouse.queries import rows_of
from warehouse.store import Store


def test_a_page_after_a_publication_waits_for_the_pages_before_it(tmp_path: Path) -> None:
    store, viewed, seen = Store(tmp_path), ViewedData(str(tmp_path)), []
    put(store, "score", "qa", "s0", [scored("d1", "qa", 0, 1.0)])
    snapshot_of(store)

    def look() -> None:
        with viewed.opened():
            seen.append(rows_of(viewed.snapshot, "SELECT count(*) AS n FROM scored")[0]["n"])

    look()
    with viewed.opened():
        assert [one.tool for one in viewed.histogram()][:1] == ["qa"]
        put(store, "score", "mt", "s0", [scored("d1", "mt", 0, 1.0)])
        snapshot_of(store)
        later = threading.Thread(target=look)
        later.start()
        # It is the old file that is open here: two openings of the same path are one.
        assert rows_of(viewed.snapshot, "SELECT count(*) AS n FROM scored")[0]["n"] == 1
    later.join(30)
    assert seen == [1, 2]
    with viewed.opened():
        assert {one.tool for one in viewed.histogram()} == {"mt", "qa"}  # what was known of the old one is forgotten


def test_a_version_of_an_older_corpus_is_read_from_its_own_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    started = {"old": "2024-05-01T12:00:00+00:00", "new": "2024-05-02T12:00:00+00:00"}
    written = "It is 4 [Calendar() -> <i>noon</i>] now."
    call = {"tool": "calendar", "position": 7, "start": 7, "end": 35, "response": "<i>noon</i>", "gain": 1.0}
    for name, when in started.items():
        parts = {"corpus": name}
        text = {"doc_id": f"{name}-1", "text": "It is 4 now.", "created": "2001-01-01"}
        first = put(store, "ingest", "", "s0", [text], parts=parts)
        after = {"parts": parts, "inputs": (first.files[0].digest,)}
        example = {"doc_id": f"{name}-1", "text": written, "calls": [call]}
        last = put(store, "assemble", "", "s0", [example], config={}, **after)
        store.write_run(make_run(name, [first.key, last.key], started=when, finished=when))
        if name == "old":
            label = put_dataset(store, "cstar", [last], name, created=when).label
    snapshot_of(store)
    with pages(tmp_path) as client:
        assert "old-1" not in client.get("/documents").text
        listed = client.get("/documents", params={"version": label}).text
        assert "old-1" in listed
        assert "2001-01-01" in listed  # from the documents that the version was made from
        shown = client.get("/documents/old-1", params={"version": label})
        assert shown.status_code == 200
        assert "<bdi> [Calendar() -&gt; &lt;i&gt;noon&lt;/i&gt;]</bdi></mark> now." in shown.text
        assert client.get("/documents/old-1").status_code == 404
        assert client.get("/documents/none", params={"version": label}).status_code == 404
