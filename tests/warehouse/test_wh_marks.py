"""Marks: what was acknowledged is there, whoever dies or writes at the same time; the last one of a user counts."""

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from warehouse.errors import StoreError
from warehouse.marks import CallIdentity, Mark, Verdict, add_marks, read_marks, standing
from warehouse.store import Store


def call(position: int = 0, **changes: str) -> CallIdentity:
    plain = {"doc_id": "d", "tool": "qa", "input": "Wo?", "response": "hier"}
    return CallIdentity(**{**plain, **changes}, position=position)


@pytest.fixture(params=["folder", "url"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "folder":
        return Store(tmp_path)
    monkeypatch.chdir(tmp_path)
    return Store(f"memory://{tmp_path.name}/marks")


def test_what_was_said_is_there(store: Store) -> None:
    hostile = call(input='")] -> \n{"a": 1}', response="\u202e\0\ud800")
    said: list[tuple[CallIdentity, Verdict]] = [(call(), "accept"), (hostile, "reject")]
    marks = add_marks(store, " Ä. ../x ", said)
    assert read_marks(store) == (marks, 0)
    assert [(mark.call, mark.verdict, mark.user) for mark in marks] == [(c, v, "Ä. ../x") for c, v in said]
    [more] = add_marks(store, "b", [(call(), "unsure")])
    assert read_marks(store) == ([*marks, more], 0)
    assert read_marks(store, until=marks[0].at) == (marks, 0)
    assert add_marks(store, "b", []) == []


def test_a_user_s_last_verdict_on_a_call_counts() -> None:
    said: list[tuple[str, int, Verdict]] = [("a", 0, "accept"), ("b", 0, "reject"), ("a", 0, "unsure")]
    said += [("a", 1, "reject"), ("a", 1, "none"), ("b", 2, "none")]
    marks = [Mark(call(position), verdict, user, str(at)) for at, (user, position, verdict) in enumerate(said)]
    assert standing(marks) == {call(0): {"a": "unsure", "b": "reject"}}
    calls = [call(), call(1), call(doc_id="e"), call(tool="mt"), call(input="x"), call(response="x")]
    assert len({one.digest for one in calls}) == len(set(calls)) == 6
    assert call().digest == call().digest


@pytest.mark.parametrize("user", ["", "  ", "x" * 201])
def test_a_mark_has_a_name(store: Store, user: str) -> None:
    with pytest.raises(StoreError, match="no user's name"):
        add_marks(store, user, [(call(), "accept")])
    with pytest.raises(StoreError, match="'yes' is no verdict: say accept, reject, unsure, none"):
        add_marks(store, "a", [(call(), "yes")])  # type: ignore[list-item]
    assert read_marks(store) == ([], 0)


def test_lines_that_are_no_marks_are_counted_and_what_was_never_finished_is_not(tmp_path: Path) -> None:
    store = Store(tmp_path)
    [first] = add_marks(store, "a", [(call(), "accept")])
    path = tmp_path / "marks/a.jsonl"
    line = path.read_bytes()
    path.write_bytes(line + line[:20])  # its writer was killed
    assert read_marks(store) == ([first], 0)
    [second] = add_marks(store, "a", [(call(), "reject")])
    assert read_marks(store) == ([first, second], 1)
    path.write_bytes(path.read_bytes() + line.replace(b'"position": 0', b'"position": "0"'))
    assert read_marks(store) == ([first, second], 2)


_MARKS = """
import sys
from warehouse.marks import CallIdentity, add_marks
from warehouse.store import Store
store = Store(sys.argv[1])
for position in range(10**9):
    add_marks(store, "a", [(CallIdentity("d", "qa", position, "x" * 5000, ""), "accept")])
    print(position, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _MARKS, str(tmp_path)], stdout=subprocess.PIPE) as process:
        acknowledged = [int(process.stdout.readline()) for _ in range(20)]
        process.kill()
        acknowledged += [int(line) for line in process.stdout]
    marks, damaged = read_marks(Store(tmp_path))
    assert [mark.call.position for mark in marks][: len(acknowledged)] == acknowledged
    assert len(marks) <= len(acknowledged) + 1  # one more may be written and not acknowledged
    assert damaged == 0


def _mark_fifty(folder: str, first: int) -> None:
    for position in range(first, first + 50):
        add_marks(Store(folder), "a", [(call(position), "accept")])


def test_two_windows_of_one_user_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_mark_fifty, args=(str(tmp_path), first)) for first in (0, 50)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    marks, damaged = read_marks(Store(tmp_path))
    assert sorted(mark.call.position for mark in marks) == list(range(100))
    assert damaged == 0


_TWO_TOO_MANY = """
import resource, sys
from warehouse.errors import StoreError
from warehouse.marks import CallIdentity, add_marks
from warehouse.store import Store
size = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
calls = [CallIdentity("d", "qa", position, "", "") for position in (1, 2)]
try:
    add_marks(Store(sys.argv[1]), "a", [(call, "accept") for call in calls])
except StoreError as exc:
    print(exc)
"""


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    marks = add_marks(Store(tmp_path), "a", [(call(), "accept")])
    size = (tmp_path / "marks/a.jsonl").stat().st_size
    room = str(size + 150)  # ends within the second line of the next batch
    said = subprocess.run([sys.executable, "-c", _TWO_TOO_MANY, str(tmp_path), room], capture_output=True, text=True)
    assert said.stdout.startswith(f"cannot write marks to {tmp_path / 'marks/a.jsonl'}: "), said.stderr
    assert read_marks(Store(tmp_path)) == (marks, 0)
    assert (tmp_path / "marks/a.jsonl").stat().st_size == size
