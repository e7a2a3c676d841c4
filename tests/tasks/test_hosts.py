"""Two processes, as on two hosts, build on the same data and PostgreSQL, without Prefect: every shard done once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from building_host import build, spec_of

from tasks.stages import execute, sample, score
from tests.support.postgres import asked, schema
from warehouse.store import Store

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")

DOCUMENTS = 8
SHARDS = 1 + DOCUMENTS * 5  # ingest; prefilter, sample, execute, score and assemble of each
HERE = Path(__file__).resolve().parent


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    path = tmp_path / "corpus.jsonl"
    texts = [f"{'very ' * n}many apples makes a total of {n} apples." for n in range(DOCUMENTS)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return str(path)


@pytest.fixture
def alone(corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes | None]:
    """C* of one process that had the data for itself."""
    replaced = [(sample, "model_of"), (sample, "sample"), (score, "model_of"), (score, "score"), (execute, "tool_of")]
    for module, name in replaced:  # by `build`
        monkeypatch.setattr(module, name, getattr(module, name))
    data = tmp_path / "alone"
    assert [done.skipped for done in build(spec_of(corpus, str(data), "alone"))] == [False] * SHARDS
    return cstar(Store(data))


def cstar(store: Store) -> dict[str, bytes | None]:
    return {path: store.files.get(path) for path in store.files.walk("shards/assemble")}


def shards_in(store: Store) -> set[str]:
    """The commits of all shards; the corpus's parts are read within `ingest`."""
    return {name for name in store.names("commits") if not name.startswith("read/")}


@contextmanager
def host(corpus: str, data: str, name: str, *stop_at: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has loaded what it needs and waits for a line."""
    command = [sys.executable, "-W", "ignore", str(HERE / "building_host.py"), corpus, data, name, *stop_at]
    environment = {**os.environ, **variables, "PYTHONPATH": str(HERE.parents[1])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        try:
            assert said(process) == "ready"
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.mark.parametrize("place", [pytest.param("s3", marks=pytest.mark.slow), "folder"])
def test_two_at_once_do_every_shard_once(
    place: str,
    request: pytest.FixtureRequest,
    postgres: str,
    corpus: str,
    alone: dict[str, bytes | None],
    tmp_path: Path,
) -> None:
    data = str(request.getfixturevalue("bucket") if place == "s3" else tmp_path / "shared")
    shared = {"TOOLFORMER_CATALOG": postgres, "TOOLFORMER_LEASE_S": "3600"}
    with host(corpus, data, "one", **shared) as one, host(corpus, data, "other", **shared) as other:
        go(one)
        go(other)
        done = [said(one).split(), said(other).split()]
    store = Store(data)
    assert sorted(done[0] + done[1]) == sorted(shards_in(store))
    assert len(done[0] + done[1]) == SHARDS
    assert {commit.id for commit in store.commits() if commit.run_id == "one"} & shards_in(store) == set(done[0])
    assert cstar(store) == alone
    assert asked(postgres, f"SELECT count(*) FROM {schema(data)}.leases") == [(0,)]


def test_when_one_is_killed_at_work_the_other_finishes(
    postgres: str, corpus: str, alone: dict[str, bytes | None], tmp_path: Path
) -> None:
    data = str(tmp_path / "shared")
    store, shared = Store(data), {"TOOLFORMER_CATALOG": postgres, "TOOLFORMER_LEASE_S": "2"}
    with host(corpus, data, "victim", "part-00003", **shared) as victim, host(corpus, data, "other", **shared) as other:
        go(victim)
        assert said(victim) == "stuck"  # amid part-00003, whose claim it holds and renews
        held = asked(postgres, f"SELECT name, pid FROM {schema(data)}.leases")
        assert [pid for _, pid in held] == [victim.pid]
        before = shards_in(store)
        go(other)
        victim.send_signal(signal.SIGKILL)
        done = said(other).split()
    assert held[0][0] in done
    assert before.isdisjoint(done)
    assert before | set(done) == shards_in(store)
    assert len(before) + len(done) == SHARDS
    assert cstar(store) == alone
