"""The warehouse on OpenStack Swift, an object store that knows neither `aws-chunked` nor a put on a condition."""

from wh_fixtures import put, scored

from warehouse.catalog import Catalog
from warehouse.files.remote import object_creator
from warehouse.queries import rows_of
from warehouse.snapshot.publish import publish
from warehouse.store import Store


def test_what_is_written_is_found_and_published(url: str) -> None:
    commit = put(Store(url), "score", "qa", "s0", [scored("d", "qa", 0, 1.0)])
    store = Store(url)
    assert store.find("score", "qa", "s0", commit.fingerprint) == commit
    with Catalog(store.local_folder / "catalog.duckdb", store=store) as catalog:
        assert rows_of(publish(store, catalog), "SELECT gain FROM scored") == [{"gain": 1.0}]


def test_a_file_of_several_parts_is_written_whole(url: str) -> None:
    data = bytes(range(256)) * 50_000  # 12.8 MB; Arrow sends parts of 10 MB
    files = Store(url).files
    files.put("a", data)
    assert files.get("a") == data
    files.move("a", "b")
    assert (files.get("a"), files.stat("b")[0]) == (None, len(data))  # type: ignore[index]


def test_without_a_condition_it_looks_before_it_puts(url: str) -> None:
    create_object = object_creator(url, "us-east-1")
    assert create_object is not None
    assert create_object(f"{url.split('/')[2]}/x", b"x") is None  # 501
    files = Store(url).files
    assert [files.create("a", b"one"), files.create("a", b"two")] == [True, False]
    assert files.get("a") == b"one"
