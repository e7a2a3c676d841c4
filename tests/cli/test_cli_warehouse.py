"""The commands that keep a data folder in order, on a folder of a few shards."""

import json
import logging
import os
from pathlib import Path

import pytest
from fakes import a_document
from typer.testing import CliRunner, Result

from cli.commands import warehouse as cli_warehouse
from cli.main import app
from tasks.shards.arrow import stage_table
from tasks.shards.run_shard import ShardResult, ShardSpec, ShardWriter, StageOutput, run_shard
from toolformer_core.errors import UsageError
from warehouse.catalog import Catalog
from warehouse.commits import Dataset, RowCounts, Run, dataset_version
from warehouse.errors import LockHeldError
from warehouse.queries import rows_of
from warehouse.store import Store


def shard(store: Store, config: str) -> ShardResult:
    def do(write: ShardWriter) -> StageOutput:
        write.write(stage_table("ingest", [a_document(f"text {config}")]))
        return StageOutput((RowCounts("rows", 1, 1),))

    return run_shard(store, ShardSpec("ingest", "1", "", "s0", {}, {"config": config}), config, do)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three runs of one shard each: a dataset rests on the first, the second is superseded, the third is current."""
    store = Store(tmp_path)
    for day, config in enumerate("abc", start=1):
        done = shard(store, config)
        started = f"2024-05-0{day}"
        store.write_run(Run(config, "build-dataset", started, started, "completed", {}, "c", "m", (done.key,)))
        if config == "a":
            version = dataset_version(done.files)
            store.write_dataset(Dataset("cstar", version, done.files, {}, {}, "a", "m", "c", started))
    return store


def run(store: Store, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--data", store.root])


def test_gc_lists_and_with_delete_removes(store: Store) -> None:
    superseded = next(commit for commit in store.commits() if commit.run_id == "b")
    listed = run(store, "gc")
    assert listed.exit_code == 0
    commit, data, total = listed.stdout.splitlines()
    assert commit.split()[:3] == ["commit", "commits/ingest/_", "1"]
    assert data.split()[:3] == ["data", "shards/ingest/_", "1"]
    assert commit.endswith("superseded: not current, and no dataset depends on it")
    assert total.startswith("2 files, ")
    assert total.endswith("to be removed: run it again with --delete")
    assert store.read_commit(superseded.key) == superseded  # nothing was removed
    gone = json.loads(run(store, "gc", "--delete", "--json").stdout)
    assert gone["deleted"]
    assert [file["path"] for file in gone["files"]] == [f"commits/{superseded.id}.json", superseded.files[0].path]
    assert gone["bytes"] == sum(file["bytes"] for file in gone["files"]) > superseded.files[0].bytes
    assert {commit.run_id for commit in store.commits()} == {"a", "c"}
    assert run(store, "gc").stdout == "nothing to remove: every file is needed\n"
    (shown,) = rows_of(Path(store.root) / "warehouse.duckdb", "SELECT text FROM documents")
    assert shown == {"text": "text c"}


def test_gc_and_reconcile_wait_for_who_is_at_work(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLFORMER_WAIT_S", "0.3")
    with Catalog(Path(store.root) / "catalog.duckdb"):
        assert run(store, "gc").stdout.endswith(" to be removed: run it again with --delete\n")  # a list locks nothing
        for arguments in (["gc", "--delete"], ["reconcile"]):
            found = run(store, *arguments)
            assert isinstance(found.exception, LockHeldError)
            assert f"is held by process {os.getpid()} on " in found.stderr
    assert len(list(store.commits())) == 3


def test_reconcile_check_finds_damage_and_says_what_rests_on_it(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    clean = run(store, "reconcile", "--check")
    assert (clean.exit_code, clean.stdout) == (0, "found: 3 commits, 3 runs, 1 datasets\n")
    (dataset,) = store.datasets()
    victim = Path(store.locate(dataset.files[0].path))
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with caplog.at_level(logging.CRITICAL):
        found = run(store, "reconcile", "--check")
    assert found.exit_code == 1
    assert found.stdout.splitlines() == [
        "found: 2 commits, 3 runs, 1 datasets",
        f"damaged  {dataset.files[0].path} is altered: its digest is not the one in its commit",
        f"cstar@{dataset.version} depends on what is damaged: run the build that made it again",
    ]
    again = shard(store, "a")  # what that build does
    assert not again.skipped
    assert victim.read_bytes() == whole
    told = json.loads(run(store, "reconcile", "--check", "--json").stdout)
    assert (told["commits"], told["damaged"]) == (3, [])


def test_pack(store: Store, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_warehouse, "_MANY_ROWS", 1)  # so that a table of one row is announced
    out = tmp_path_factory.mktemp("analyst") / "c4.duckdb"
    assert run(store, "reconcile").exit_code == 0
    said = run(store, "pack", str(out))
    assert (said.exit_code, said.stderr) == (0, "copying documents: 1 rows\ncopying dataset_examples: 1 rows\n")
    assert rows_of(out, "SELECT text FROM documents") == [{"text": "text c"}]

    refused = run(store, "pack", str(out))
    assert str(refused.exception) == f"{out} exists already; name another, or remove it first"
    other = out.with_name("other.duckdb")
    packed = json.loads(run(store, "pack", str(other), "--json").stdout)
    assert (packed["file"], packed["bytes"], packed["tables"]["documents"]) == (str(other), other.stat().st_size, 1)
    assert "kept_calls" in packed["views"]
    some = out.with_name("some.duckdb")
    packed = json.loads(run(store, "pack", str(some), "--tables", "documents", "--json").stdout)
    assert packed["tables"] == {"documents": 1}
    assert "shards" in packed["views"]  # over the facts alone
    assert "kept_calls" not in packed["views"]  # it needs examples and scored
    assert rows_of(some, "SELECT count(*) AS n FROM documents") == [{"n": 1}]
    wrong = run(store, "pack", str(out.with_name("none.duckdb")), "--tables", "nosuch")
    assert isinstance(wrong.exception, UsageError)
    assert "there is no table nosuch" in str(wrong.exception)


def test_sql_prints_a_table_json_or_csv_and_refuses_to_write(store: Store) -> None:
    assert run(store, "reconcile").exit_code == 0
    query = 'SELECT stage, "current", NULL AS nothing FROM shards WHERE NOT "current" LIMIT 1'
    table = run(store, "sql", query)
    assert table.exit_code == 0
    assert [line.split() for line in table.stdout.splitlines()] == [
        ["stage", "current", "nothing"],
        ["ingest", "False", "NULL"],
    ]
    assert json.loads(run(store, "sql", "SELECT 1 AS n, 2 AS n", "--json").stdout) == [{"n": 1, "n_2": 2}]
    numbers = "SELECT 'nan'::DOUBLE AS a, ['-inf'::DOUBLE, 1] AS b, {'c': 'inf'::FLOAT} AS d"  # JSON has none of these
    assert json.loads(run(store, "sql", numbers, "--json").stdout) == [{"a": None, "b": [None, 1.0], "d": {"c": None}}]
    assert run(store, "sql", "SELECT 'a,b' AS x, 2 AS y", "--csv").stdout == 'x,y\n"a,b",2\n'
    many = run(store, "sql", "FROM range(101)")
    assert len(many.stdout.splitlines()) == 101  # the names and a hundred rows
    assert "--csv prints all" in many.stderr
    for words, says in ((["COPY shards TO 'x.csv'"], "COPY is refused"), (["SELECT 1", "--csv", "--json"], "not both")):
        refused = run(store, "sql", *words).exception
        assert (type(refused), says in str(refused)) == (UsageError, True)
