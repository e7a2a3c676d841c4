"""What arrives in a watched folder: each file once, when it is wholly there."""

from pathlib import Path

import pytest

from ops.arrivals import Arrivals


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "incoming"
    own.mkdir()
    return own


def test_a_file_arrives_once_and_not_before_it_has_stopped_growing(folder: Path, tmp_path: Path) -> None:
    (folder / "old.jsonl").write_text("{}\n")
    arrivals = Arrivals(folder, tmp_path / "up" / "arrived.json")
    assert arrivals.look() == []
    new = folder / "below" / "new.jsonl"
    new.parent.mkdir()
    new.write_text("{}\n")
    assert arrivals.look() == []  # it may still be written
    with new.open("a") as stream:
        stream.write("{}\n")
    assert arrivals.look() == []  # it was
    assert arrivals.look() == [new]
    assert arrivals.look() == []
    (folder / "notes.txt").write_text("no corpus")
    empty = folder / "empty.jsonl"
    empty.touch()
    assert [arrivals.look(), arrivals.look()] == [[], []]
    empty.write_text("{}\n")
    assert [arrivals.look(), arrivals.look()] == [[], [empty]]


def test_what_arrives_while_nobody_looks_is_found_by_the_next(folder: Path, tmp_path: Path) -> None:
    note = tmp_path / "arrived.json"
    Arrivals(folder, note)  # the very first look: an empty folder
    (folder / "b.jsonl").write_text("{}\n")
    (folder / "a.parquet").write_bytes(b"PAR1")
    arrivals = Arrivals(folder, note)
    assert arrivals.look() == []
    assert arrivals.look() == [folder / "a.parquet", folder / "b.jsonl"]
    again = Arrivals(folder, note)
    assert (again.look(), again.look()) == ([], [])


def test_each_folder_has_a_memory_of_its_own(folder: Path, tmp_path: Path) -> None:
    note = tmp_path / "arrived.json"
    Arrivals(folder, note)
    other = tmp_path / "other"
    other.mkdir()
    (other / "known.jsonl").write_text("{}\n")
    arrivals = Arrivals(other, note)
    assert (arrivals.look(), arrivals.look()) == ([], [])
    (folder / "late.jsonl").write_text("{}\n")
    first = Arrivals(folder, note)  # which is not forgotten over it
    assert (first.look(), first.look()) == ([], [folder / "late.jsonl"])
