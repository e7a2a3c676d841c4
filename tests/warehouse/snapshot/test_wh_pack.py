"""One file for an analyst: it answers what the snapshot answers, alone, and names no path of the machine."""

import shutil
import stat
from pathlib import Path

import duckdb
import pytest
from test_wh_analyst_views import a_training
from test_wh_snapshot import build
from wh_fixtures import make_run, put, snapshot_of

from warehouse.errors import SnapshotError
from warehouse.queries import best_calls, current_build, rows_of, stats, yield_by_threshold
from warehouse.records import write_prompt, write_training
from warehouse.schema import TABLES
from warehouse.snapshot.pack import pack
from warehouse.store import Store

PROMPT = "Ask.\nInput: /home/{text}\nOutput:"
ABOUT = {"evaluation": "e1", "task": "svamp", "arm": "cc", "k": 0, "model_digest": "d", "base_digest": "d"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder whose records name many places of this machine."""
    data = tmp_path / "it's (a) [data] folder"
    store = Store(data)
    commits = build(store)
    model = str(data / "finetunes" / "cstar-cc-1" / "model")
    places = {"model": model, "base": "vllm+http://h/v1#/srv/gpt j/", "source": "svamp.json"}
    places["path"] = str(tmp_path / "svamp.json")
    row = {"evaluation": "e1", "task": "svamp", "arm": "cc", "item_id": "a", "correct": True}
    answers = put(store, "evaluate", "", "e1-0", [row], config=ABOUT | places)
    drawn = put(store, "sample", "qa", "s0", [], parts={"prompt": "p1"})
    corpus = {"corpus": str(tmp_path / "c4.jsonl"), "model": "remote+http://h:1/v1#m?tokenizer=/srv/coded/m"}
    keys = [commit.key for commit in (*commits, drawn)]
    store.write_run(make_run("r1", keys, parameters={"data": str(data), **corpus}, **corpus))
    store.write_run(make_run("r2", [answers.key], flow="evaluate"))
    write_prompt(store, "qa", "p1", PROMPT)
    write_training(store, a_training("cstar-cc-1", model=str(tmp_path / "base"), checkpoint=model))
    snapshot_of(store)
    return data


def test_a_packed_file_answers_alone_what_the_snapshot_answers(data: Path, tmp_path: Path) -> None:
    snapshot, seen = data / "warehouse.duckdb", []
    sql = "SELECT table_name AS n FROM information_schema.tables WHERE table_schema = 'main'"
    answers = {row["n"]: rows_of(snapshot, f"FROM {row['n']} ORDER BY ALL") for row in rows_of(snapshot, sql)}
    figures = (stats(snapshot), yield_by_threshold(snapshot), best_calls(snapshot))
    version = rows_of(snapshot, "SELECT version FROM datasets")[0]["version"]
    packed = pack(snapshot, tmp_path / "new" / "c4.duckdb", lambda *table: seen.append(table))
    assert seen == list(packed.tables.items())
    assert packed.tables == {name: len(answers[name]) for name in TABLES}
    assert set(packed.views) == answers.keys() - TABLES.keys()
    assert list((tmp_path / "new").iterdir()) == [tmp_path / "new" / "c4.duckdb"]  # nothing else is left
    moved = (tmp_path / "new" / "c4.duckdb").rename(tmp_path / "moved.duckdb")
    shutil.rmtree(data)
    for name, rows in answers.items():
        found = rows_of(moved, f"FROM {name} ORDER BY ALL")
        places = {"shards": ["config"], "runs": ["parameters", "corpus", "model"], "trainings": ["model", "checkpoint"]}
        places |= {view: ["model", "base", "path"] for view in ("evaluations", "accuracy")}  # see the next test
        hidden = dict.fromkeys(places.get(name, []))
        assert str([row | hidden for row in found]) == str([row | hidden for row in rows]), name  # NaN is not NaN
    assert rows_of(moved, "SELECT text FROM prompts") == [{"text": PROMPT}]
    assert (stats(moved), yield_by_threshold(moved), best_calls(moved)) == figures
    now = current_build(moved)
    assert (now.run_id, now.version, now.corpus) == ("r1", version, "c4.jsonl")
    assert rows_of(moved, "SELECT view_name FROM duckdb_views() WHERE NOT internal AND comment IS NULL") == []


def test_no_place_of_the_machine_is_named(data: Path, tmp_path: Path) -> None:
    packed = tmp_path / "c4.duckdb"
    pack(data / "warehouse.duckdb", packed)
    (evaluated,) = rows_of(packed, "SELECT model, base, path FROM evaluations")
    # paths in the data folder become relative to it: a checkpoint is still found; of others only the name stays
    assert evaluated == {"model": "finetunes/cstar-cc-1/model", "base": "vllm+http://h/v1#gpt j", "path": "svamp.json"}
    (trained,) = rows_of(packed, "SELECT checkpoint, model FROM trainings")
    assert trained == {"checkpoint": evaluated["model"], "model": "base"}
    parameters = "parameters->>'data' AS data, parameters->>'corpus' AS corpus, parameters->>'model' AS model"
    (run,) = rows_of(packed, f"SELECT {parameters} FROM runs WHERE run_id = 'r1'")
    assert run == {"data": data.name, "corpus": "c4.jsonl", "model": "remote+http://h:1/v1#m?tokenizer=m"}
    with duckdb.connect(str(packed), read_only=True) as connection:
        said = str(connection.execute("SELECT sql FROM duckdb_views() WHERE NOT internal").fetchall())
        tables = connection.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
        for schema, name in tables:
            said += str(connection.execute(f"FROM {schema}.{name}").fetchall())
    for place in (str(tmp_path), "/models", "/srv", "read_parquet"):
        assert place not in said
    assert str(tmp_path).encode() not in packed.read_bytes()  # nor in what was written and freed again


def test_the_file_is_replaced_in_one_step_and_private(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "c4.duckdb"
    out.write_text("what was there")
    shutil.rmtree(data / "shards")
    with pytest.raises(SnapshotError, match="run toolformer reconcile with the same --data"):
        pack(data / "warehouse.duckdb", out)
    with pytest.raises(SnapshotError, match="no snapshot"):
        pack(tmp_path / "none.duckdb", out)
    assert out.read_text() == "what was there"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c4.duckdb", data.name]
    pack(snapshot_of(Store(data)), out)  # without its shards nothing is left to copy
    assert rows_of(out, "FROM documents") == []
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_snapshot_of_an_earlier_version_is_to_be_reconciled(data: Path, tmp_path: Path) -> None:
    snapshot = data / "warehouse.duckdb"
    snapshot.chmod(0o600)
    with duckdb.connect(str(snapshot)) as connection:
        connection.execute("DROP VIEW trainings")
        connection.execute("DROP TABLE facts.trainings")
    with pytest.raises(SnapshotError, match=r"another version of this program wrote .*: run toolformer reconcile"):
        pack(snapshot, tmp_path / "c4.duckdb")
    assert list(tmp_path.iterdir()) == [data]
