"""What questions answer where something is wrong or lacking, and what they say they speak of, through `main`."""

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from wh_fixtures import make_run, put, snapshot_of

from cli.render.cost import amount, hours
from tests.support.commands import Run
from warehouse.queries import rows_of
from warehouse.ratings import CallIdentity, add_ratings
from warehouse.store import Store


def is_one_line(said: tuple[int, str, str], code: int, *words: str) -> None:
    assert (said[0], said[1], said[2].count("\n")) == (code, "", 1), said
    assert said[2].startswith("error: ")
    for one in words:
        assert one in said[2]


def test_a_folder_that_was_moved_is_to_be_reconciled(run: Run, as_built: Path) -> None:
    moved = as_built.rename(as_built.with_name("moved"))
    assert run("reconcile", "--data", moved)[0] == 0  # the copy's own files, which the next move takes away
    (first,) = rows_of(moved / "warehouse.duckdb", "SELECT min(doc_id) AS doc_id FROM documents")
    again = moved.rename(moved.with_name("again"))
    is_one_line(run("explain", first["doc_id"], "--data", again), 1, "moved", "run toolformer reconcile")
    assert run("reconcile", "--data", again)[0] == 0
    assert run("explain", first["doc_id"], "--data", again)[0] == 0


def test_reconcile_rebuilds_a_damaged_snapshot_and_a_lost_catalog(run: Run, as_built: Path) -> None:
    before = json.loads(run("stats", "--data", as_built, "--json").out)
    (as_built / "catalog.duckdb").unlink()
    (as_built / "warehouse.duckdb").write_bytes(b"x" * 5000)
    for command in ("stats", "what-if", "tables"):
        is_one_line(run(command, "--data", as_built), 1, "cannot open the snapshot", "run toolformer reconcile")
    counts = json.loads(run("reconcile", "--data", as_built, "--json").out)
    assert counts["commits"] >= 28  # ingest, four stages of two tools and three shards, assemble of three shards
    assert counts["datasets"] == 1
    assert json.loads(run("stats", "--data", as_built, "--json").out) == before


def test_what_would_be_run_is_an_object_too(run: Run, as_built: Path) -> None:
    code, said, _ = run("finetune", "--dry-run", "--json", "--data", as_built)
    told = json.loads(said)
    assert code == 0
    assert run("finetune", "--dry-run", "--data", as_built)[1] == told["preview"] + "\n"
    assert told["preview"].startswith(f"# {told['folder']}\n")
    assert (told["launcher"], told["processes"]) == ("local", 1)
    assert not (as_built / "finetunes").exists()


def test_a_build_that_never_ended_has_no_dataset_to_train_on(run: Run, as_built: Path) -> None:
    shutil.rmtree(as_built / "datasets")
    for command in (["finetune"], ["export", str(as_built / "out.jsonl")]):
        is_one_line(run(*command, "--data", as_built), 2, f"there is no dataset in {as_built} yet", "toolformer build")
    assert not (as_built / "prefect").exists()


def test_answers_begin_with_what_they_speak_of(run: Run, as_built: Path) -> None:
    (made,) = rows_of(as_built / "warehouse.duckdb", "FROM facts.datasets")
    # few.jsonl is the corpus of the small build
    of = f"cstar@{made['version']} of few.jsonl, built {made['created'][:10]} {made['created'][11:16]}"
    of += f" (run {made['run_id']})"
    assert run("stats", "--data", as_built)[1].splitlines()[0] == of
    assert run("what-if", "--data", as_built)[1].splitlines()[0] == f"now: {of}"
    told = json.loads(run("stats", "--data", as_built, "--json")[1])["of"]
    assert (told["name"], told["version"], told["run_id"]) == ("cstar", made["version"], made["run_id"])
    # what was assembled by other thresholds is a version beside it: the answers still speak of what was built
    assert run("what-if", "--tau", "calendar=0.5", "--materialise", "strict", "--data", as_built)[0] == 0
    assert run("what-if", "--data", as_built)[1].splitlines()[0] == f"now: {of}"
    assert json.loads(run("what-if", "--data", as_built, "--json")[1])["now"]["name"] == "cstar"


def test_where_no_build_has_ended_nothing_is_shown_that_is_not_there(run: Run, tmp_path: Path) -> None:
    store = Store(tmp_path)
    commit = put(store, "ingest", "", "corpus", [{"doc_id": "d1", "text": "a text"}])
    store.write_run(make_run("r1", [commit.key], state="failed", corpus="/some/few.jsonl"))
    snapshot_of(store)
    shown = run("stats", "--data", tmp_path)[1]
    assert shown.startswith("few.jsonl, no version of C* yet (run r1, failed)")
    assert "Examples with calls" not in shown
    assert run("datasets", "--data", tmp_path)[:2] == (0, "no version yet: run the same toolformer build to its end\n")
    assert run("datasets", "--data", tmp_path, "--json")[:2] == (0, "[]\n")


def test_only_ids_that_could_have_been_meant_are_named(run: Run, tmp_path: Path) -> None:
    store = Store(tmp_path)
    ids = ["0123456789abcdef", "fedcba9876543210"]
    put(store, "ingest", "", "corpus", [{"doc_id": one, "text": "a text"} for one in ids])
    snapshot_of(store)
    ask = f"list them: toolformer sql 'SELECT doc_id FROM documents' --data {tmp_path}"
    # 01x3 has three of its four characters in the first id's beginning, and not two in the other's
    is_one_line(run("explain", "01x3", "--data", tmp_path), 2, f"'01x3'; nearest: 0123456789abcdef; {ask}")
    for none_meant in ("zzzz", ""):
        is_one_line(run("explain", none_meant, "--data", tmp_path), 2, f"beginning with '{none_meant}'; {ask}")


def test_the_version_is_the_packages(run: Run) -> None:
    assert run("--version") == (0, f"toolformer {metadata.version('toolformer-platform')}\n", "")


def test_names_on_80_columns(run: Run, as_built: Path, few_documents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    planned = run("plan", "--data", as_built, "--corpus", few_documents, "--tools", "calculator,calendar").out
    told = run("stats", "--data", as_built).out
    (first,) = rows_of(as_built / "warehouse.duckdb", "SELECT min(doc_id) AS doc_id FROM scored")
    explained = run("explain", first["doc_id"], "--data", as_built).out
    assert {"documents", "calculator", "prefilter"} <= set(told.split())
    assert {"LM", "tokens", "assemble"} <= set(planned.split())
    assert {"calculator", "below_threshold", "gain", "L+"} <= set(explained.split())
    assert "…" not in planned + told + explained  # nothing was cut


KEPT = 'SELECT doc_id, tool, "position", input, response FROM kept_calls ORDER BY ALL LIMIT 2'


def test_precision_agreement_and_a_file(run: Run, as_built: Path, tmp_path: Path) -> None:
    nothing = run("ratings", "--data", as_built)
    assert (nothing.code, nothing.out) == (0, "nobody has judged a call yet: toolformer view, page Judge\n")
    store = Store(as_built)
    one, other = (CallIdentity(**row) for row in rows_of(as_built / "warehouse.duckdb", KEPT))
    unknown = CallIdentity("d", one.tool, 0, "x", "y")
    add_ratings(store, "[b]a", [(one, "accept"), (other, "reject"), (unknown, "reject")])
    add_ratings(store, "b", [(one, "accept")])
    out = tmp_path / "judged.jsonl"
    said = run("ratings", "--data", as_built, "--tau", "-9", "--export", out)
    assert said.code == 0, said.err
    assert "3 rated calls; of [b]a 3, b 1" in said.out
    assert "1 of them are not among the current scores" in said.out
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["doc_id"], row["judgement"]) for row in rows] == sorted(
        [(one.doc_id, "right"), (other.doc_id, "wrong"), ("d", "wrong")]
    )
    assert rows[0].keys() == {*("doc_id", "tool", "position", "input", "response"), *("gain", "verdicts", "judgement")}
    found = json.loads(run("ratings", "--data", as_built, "--tau", "-9", "--json").out)
    assert (found["calls"], found["users"]) == (3, {"[b]a": 3, "b": 1})
    lowest = [(p["right"], p["wrong"]) for p in found["precisions"] if p["tau_f"] == -9]
    assert [sum(column) for column in zip(*lowest, strict=True)] == [1, 1]


def test_mistakes(run: Run, as_built: Path, tmp_path: Path) -> None:
    assert "no list of numbers" in run("ratings", "--data", as_built, "--tau", "high").err
    (tmp_path / "there").touch()
    is_one_line(run("ratings", "--data", as_built, "--export", tmp_path / "there"), 2, "exists already")
    is_one_line(run("what-if", "--ratings", "accepted", "--data", as_built), 2, "nobody has accepted a call")


SIXTY_FOUR = ("--documents", "1e9", "--gpu", "h100", "--gpu-count", "64", "--gpu-price", "2.5", "--model", "gpt-j-6b")


@pytest.fixture
def nowhere(tmp_path: Path) -> tuple[str, str]:
    """A data folder that is not there, so that no sample build is found."""
    return "--data", str(tmp_path / "none")


def test_all_that_was_asked_for_is_told(run: Run, nowhere: tuple[str, str]) -> None:
    code, out, err = run("plan", *SIXTY_FOUR, *nowhere)
    assert (code, err) == (0, "")
    for word in ("GPU h", "in all", "Bottleneck: cards.", "Finetuning: C* of at most"):
        assert word in out
    assert re.search(r"Wall time [\d.]+ days: ingest, then the longest of the others", out)
    assert re.search(r"tflops +989\.4 TFLOP/s bf16 +vendor +NVIDIA H100 data sheet", out)
    assert max(map(len, out.split("No sample build")[0].splitlines())) <= 80
    assert not Path(nowhere[1]).exists()


def test_json_has_the_same_figures_and_every_assumption(run: Run, nowhere: tuple[str, str]) -> None:
    code, out, _ = run("plan", *SIXTY_FOUR, *nowhere, "--tools", "calculator,qa", "--json")
    told = json.loads(out)
    assert code == 0
    assert {stage["tool"] for stage in told["stages"]} == {"", "calculator", "qa"}
    for figure, total in told["total"].items():
        assert total == pytest.approx(sum(stage[figure] for stage in told["stages"]))
    assert {line["origin"] for line in told["assumptions"]} >= {"paper", "vendor", "measured", "computed", "assumed"}


def test_a_finished_build_is_measured(run: Run, as_built: Path) -> None:
    out = run("plan", "--documents", "1000", "--data", as_built, "--tools", "calculator,calendar")[1]
    assert "Measured from the sample build: 16 documents in" in out
    assert re.search(r"calculator\.ok_share +[\d.]+ share +measured +sample build: 16 documents", out)
    elsewhere = run("plan", "--documents", "1000", "--data", as_built.parent / "none", "--from", as_built, "--json")[1]
    assert json.loads(elsewhere)["sample"].startswith("16 documents in")


def test_no_model_library_is_loaded(nowhere: tuple[str, str]) -> None:
    code = (
        "import sys; from cli.main import app; app(sys.argv[1:], standalone_mode=False); "
        "print([name for name in ('torch', 'transformers', 'prefect', 'dask', 'mlflow') if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, "plan", *SIXTY_FOUR, *nowhere], check=True, capture_output=True, text=True
    )
    assert said.stdout.splitlines()[-1] == "[]"


def test_amounts_and_hours_as_a_person_reads_them() -> None:
    assert amount(0) == ""
    amounts = " ".join(map(amount, (0.123, 5, 99.4, 1234, 12_345, 3.9e6, 4.4e12)))
    assert amounts == "0.12 5 99 1,234 12.3k 3.9M 4.4T"
    said = ", ".join(map(hours, (0.002, 0.5, 5, 100, 2400)))
    assert said == "7.2 s, 30 min, 5.0 h, 4.2 days, 100.0 days"
