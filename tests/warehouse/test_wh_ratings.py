"""Ratings: none that was acknowledged is lost, in a crash or beside another writer; a user's last one counts."""

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from warehouse.errors import StoreError
from warehouse.ratings import CallIdentity, Rating, Verdict, add_ratings, read_ratings, standing
from warehouse.store import Store


def call(position: int = 0, **changes: str) -> CallIdentity:
    plain = {"doc_id": "d", "tool": "qa", "input": "Wo?", "response": "hier"}
    return CallIdentity(**{**plain, **changes}, position=position)


@pytest.fixture(params=["folder", "url"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "folder":
        return Store(tmp_path)
    monkeypatch.chdir(tmp_path)
    return Store(f"memory://{tmp_path.name}/ratings")


def test_what_was_said_is_there(store: Store) -> None:
    hostile = call(input='")] -> \n{"a": 1}', response="\u202e\0\ud800")
    said: list[tuple[CallIdentity, Verdict]] = [(call(), "accept"), (hostile, "reject")]
    ratings = add_ratings(store, " Ä. ../x ", said)
    assert read_ratings(store) == (ratings, 0)
    assert [(rating.call, rating.verdict, rating.user) for rating in ratings] == [(c, v, "Ä. ../x") for c, v in said]
    [more] = add_ratings(store, "b", [(call(), "unsure")])
    assert read_ratings(store) == ([*ratings, more], 0)
    assert read_ratings(store, until=ratings[0].at) == (ratings, 0)
    assert add_ratings(store, "b", []) == []


def test_a_user_s_last_verdict_on_a_call_counts() -> None:
    said: list[tuple[str, int, Verdict]] = [("a", 0, "accept"), ("b", 0, "reject"), ("a", 0, "unsure")]
    said += [("a", 1, "reject"), ("a", 1, "none"), ("b", 2, "none")]
    ratings = [Rating(call(position), verdict, user, str(at)) for at, (user, position, verdict) in enumerate(said)]
    assert standing(ratings) == {call(0): {"a": "unsure", "b": "reject"}}
    calls = [call(), call(1), call(doc_id="e"), call(tool="mt"), call(input="x"), call(response="x")]
    assert len({one.digest for one in calls}) == len(set(calls)) == 6
    assert call().digest == call().digest


@pytest.mark.parametrize("user", ["", "  ", "x" * 201])
def test_a_rating_has_a_name(store: Store, user: str) -> None:
    with pytest.raises(StoreError, match="no user's name"):
        add_ratings(store, user, [(call(), "accept")])
    with pytest.raises(StoreError, match="'yes' is no verdict: say accept, reject, unsure, none"):
        add_ratings(store, "a", [(call(), "yes")])  # type: ignore[list-item]
    assert read_ratings(store) == ([], 0)


def test_lines_that_are_no_ratings_are_counted_and_what_was_never_finished_is_not(tmp_path: Path) -> None:
    store = Store(tmp_path)
    [first] = add_ratings(store, "a", [(call(), "accept")])
    path = tmp_path / "ratings/a.jsonl"
    line = path.read_bytes()
    path.write_bytes(line + line[:20])  # its writer was killed
    assert read_ratings(store) == ([first], 0)
    [second] = add_ratings(store, "a", [(call(), "reject")])
    assert read_ratings(store) == ([first, second], 1)
    path.write_bytes(path.read_bytes() + line.replace(b'"position": 0', b'"position": "0"'))
    assert read_ratings(store) == ([first, second], 2)


_RATINGS = """
import sys
from warehouse.ratings import CallIdentity, add_ratings
from warehouse.store import Store
store = Store(sys.argv[1])
for position in range(10**9):
    add_ratings(store, "a", [(CallIdentity("d", "qa", position, "x" * 5000, ""), "accept")])
    print(position, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _RATINGS, str(tmp_path)], stdout=subprocess.PIPE) as process:
        acknowledged = [int(process.stdout.readline()) for _ in range(20)]
        process.kill()
        acknowledged += [int(line) for line in process.stdout]
    ratings, damaged = read_ratings(Store(tmp_path))
    assert [rating.call.position for rating in ratings][: len(acknowledged)] == acknowledged
    assert len(ratings) <= len(acknowledged) + 1  # one more may be written and not acknowledged
    assert damaged == 0


def _rate_fifty(folder: str, first: int) -> None:
    for position in range(first, first + 50):
        add_ratings(Store(folder), "a", [(call(position), "accept")])


def test_two_windows_of_one_user_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_rate_fifty, args=(str(tmp_path), first)) for first in (0, 50)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    ratings, damaged = read_ratings(Store(tmp_path))
    assert sorted(rating.call.position for rating in ratings) == list(range(100))
    assert damaged == 0


_TWO_TOO_MANY = """
import resource, sys
from warehouse.errors import StoreError
from warehouse.ratings import CallIdentity, add_ratings
from warehouse.store import Store
size = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
calls = [CallIdentity("d", "qa", position, "", "") for position in (1, 2)]
try:
    add_ratings(Store(sys.argv[1]), "a", [(call, "accept") for call in calls])
except StoreError as exc:
    print(exc)
"""


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    ratings = add_ratings(Store(tmp_path), "a", [(call(), "accept")])
    size = (tmp_path / "ratings/a.jsonl").stat().st_size
    room = str(size + 150)  # ends within the second line of the next batch
    said = subprocess.run([sys.executable, "-c", _TWO_TOO_MANY, str(tmp_path), room], capture_output=True, text=True)
    assert said.stdout.startswith(f"cannot write ratings to {tmp_path / 'ratings/a.jsonl'}: "), said.stderr
    assert read_ratings(Store(tmp_path)) == (ratings, 0)
    assert (tmp_path / "ratings/a.jsonl").stat().st_size == size
