"""A limit takes the files of a folder in turn, and keeps one file open at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.evaluate.published.all import lines, split
from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.readers.files import reread, round_robin
from toolformer_core.evaluate.tasks import read, task_named


def relations(folder: Path, **sizes: int) -> None:
    for name, size in sizes.items():
        rows = [{"sub_label": f"{name} {n}", "obj_label": "Tarn", "uuid": f"{name}-{n}"} for n in range(size)]
        (folder / f"{name}.jsonl").write_text(lines({"no": "item"}, *rows))


def test_a_limit_takes_the_files_of_a_folder_in_turn(tmp_path):
    relations(tmp_path, P19=3, P20=2, P27=1)
    read_so = {n: split(read(task_named("lama-trex"), tmp_path, n))[0] for n in (2, 4, 99, None)}
    ids = {n: [item.item_id for item in items] for n, items in read_so.items()}
    assert ids[4] == ["P19-0", "P20-0", "P27-0", "P19-1"]
    assert ids[2] == ids[4][:2]
    assert ids[99] == [*ids[4], "P20-1", "P19-2"]
    assert ids[None] == ["P19-0", "P19-1", "P19-2", "P20-0", "P20-1", "P27-0"]  # file by file, as ever
    # the row that is none stands in front of every file's first item, and is told of with its file
    assert [r.source for r in split(read(task_named("lama-trex"), tmp_path, 2))[1]] == ["P19.jsonl", "P20.jsonl"]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6), limit=st.integers(1, 40))
def test_of_the_items_in_turn_every_file_has_as_many_as_any_other_or_all_it_has(sizes, limit):
    def stream(name: int) -> Iterator[Item]:
        for n in range(sizes[name]):
            yield Item(f"{name}-{n}", "lama-trex", "prompt", ("a",), source=str(name))

    every = list(round_robin(stream(name) for name in range(len(sizes))))
    assert len(every) == sum(sizes)
    taken = Counter(item.source for item in every[:limit])
    short = [name for name, size in enumerate(sizes) if taken[str(name)] < size]
    assert all(taken[str(name)] >= max(taken.values(), default=0) - 1 for name in short)


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_of_files_that_have_their_turns_one_is_open_at_a_time(sizes):
    open_now, read = set(), Counter()

    def stream(name: int) -> Iterator[Item]:
        open_now.add(name)
        try:
            for n in range(sizes[name]):
                read[name] += 1
                yield Item(f"{name}-{n}", "lama-trex", "prompt", ("a",))
        finally:
            open_now.remove(name)

    def plain(name: int) -> Iterator[Item]:
        return (Item(f"{name}-{n}", "lama-trex", "prompt", ("a",)) for n in range(sizes[name]))

    found = []
    for item in round_robin(reread(partial(stream, name)) for name in range(len(sizes))):
        assert not open_now
        found.append(item)
    assert found == list(round_robin(plain(name) for name in range(len(sizes))))
    # blocks of 1, 2, 4 and 8 elements begin behind 0, 1, 3 and 7: to read nine, 1 + 3 + 7 + 9 are read at most
    assert all(read[name] <= 20 for name in range(len(sizes)))
