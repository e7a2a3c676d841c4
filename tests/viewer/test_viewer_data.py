"""Which snapshot a page sees: a new one at once, unless another page still shows the old one."""

from __future__ import annotations

import threading
from pathlib import Path

from wh_fixtures import put, scored

from viewer.data import ViewedData
from warehouse.queries import rows_of
from warehouse.snapshot.publish import publish
from warehouse.store import Store


def test_a_page_after_a_publication_waits_for_the_pages_before_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store, "score", "qa", "s0", [scored("d1", "qa", 0, 1.0)])
    publish(store, None)
    viewed = ViewedData(str(tmp_path))
    seen: list[int] = []

    def look() -> None:
        with viewed.opened():
            seen.append(rows_of(viewed.snapshot, "SELECT count(*) AS n FROM scored")[0]["n"])

    look()
    with viewed.opened():
        assert [one.tool for one in viewed.histogram()][:1] == ["qa"]
        put(store, "score", "mt", "s0", [scored("d1", "mt", 0, 1.0)])
        publish(store, None)
        later = threading.Thread(target=look)
        later.start()
        # It is the old file that is open here: two openings of the same path are one.
        assert rows_of(viewed.snapshot, "SELECT count(*) AS n FROM scored")[0]["n"] == 1
    later.join(30)
    assert seen == [1, 2]
    with viewed.opened():
        assert {one.tool for one in viewed.histogram()} == {"mt", "qa"}  # what was known of the old one is forgotten
