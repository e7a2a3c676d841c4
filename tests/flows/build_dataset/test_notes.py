"""Notes before a build; after it the summary, and of one that kept nothing why, worked out by hand."""

from pathlib import Path

import pytest

from cli.render.progress import print_summary
from flows.build_dataset.flow import build_summary, run_build
from flows.build_dataset.notes import notes_on_build, notes_on_training, nothing_kept
from flows.build_dataset.parameters import BuildParameters
from tests.support.small_builds import small_build
from toolformer_core.embedded import CORPUS
from warehouse.queries import CallInContext, rows_of
from warehouse.queries.builds import StageBalance
from warehouse.store import Store


def parameters(corpus: Path, *tools: str, **more: str) -> BuildParameters:
    return BuildParameters(corpus=str(corpus), tools=list(tools), **more)


def test_files_of_other_kinds_are_counted_and_named(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("a.jsonl", "b.csv", "c.CSV", "deep/d.txt", "deep/e.json.gz", ".hidden.csv", "_part.csv", "LICENSE"):
        (tmp_path / name).write_text("")
    # read: a.jsonl and deep/e.json.gz; hidden: two; others: b.csv, c.CSV, deep/d.txt, LICENSE
    assert notes_on_build(parameters(tmp_path, "calculator")) == [
        "4 files of the corpus are of other kinds and are not read (.csv 2, .txt 1, no extension 1): "
        "LICENSE, b.csv, c.CSV and 1 more"
    ]


def test_tools_that_answer_from_the_invented_world_are_named_unless_it_is_the_corpus(tmp_path):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("{}")
    (note,) = notes_on_build(parameters(corpus, "qa", "calculator", "mt"))
    assert note.startswith("answers of qa, mt come from the program's small invented world")
    (note,) = notes_on_build(parameters(corpus, "qa", "mt", passages="/p.jsonl"))
    assert note.startswith("answers of mt come from")
    given = parameters(corpus, "qa", "mt", passages="/p.jsonl", translator="/p.tsv")
    for without in (given, parameters(corpus, "calculator"), parameters(CORPUS, "qa", "mt", "wikisearch")):
        assert notes_on_build(without) == []
    for named in ({"tools": ["QA"]}, {"tool": ["qa"]}):  # in whatever way they are named
        (note,) = notes_on_build(BuildParameters.model_validate({"corpus": str(corpus), **named}))
        assert note.startswith("answers of qa come from")


def test_a_dataset_made_by_another_model(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert notes_on_training("model", str(tmp_path / "model")) == []  # one folder, named in two ways
    (note,) = notes_on_training("model", "embedded")
    assert note.startswith("the calls of this dataset were sampled and scored by embedded, and model is finetuned")


TAU = {"calculator": 0.5, "qa": 1.0}
ASKED = BuildParameters(corpus="embedded", model="gpt2", tools=["calculator", "qa"], tau_s=0.1)
DATA = "/runs/my data"


def scored(below: int, **more: int) -> list[StageBalance]:
    """A build of which `below` calls, and more by other reasons, were scored and dropped."""
    calls = below + sum(more.values())
    return [
        StageBalance("prefilter", "calculator", "documents", 1, 30, 20, {"few_numbers": 10}),
        StageBalance("sample", "calculator", "documents", 1, 20, 20),
        StageBalance("sample", "calculator", "samples", 1, 200, calls, {"wrong_tool": 200 - calls}),
        StageBalance("score", "calculator", "calls", 1, calls, calls),
        StageBalance("assemble", "", "calls", 1, calls, 0, {"below_threshold": below, **more}),
        StageBalance("assemble", "", "documents", 1, 30, 0, {"no_surviving_call": 30}),
    ]


def call(tool: str, gain: float) -> CallInContext:
    return CallInContext("d", tool, 0, "1+1", "2", gain, "", "")


def test_where_calls_help_a_little_a_lower_threshold_is_the_next_thing_to_ask_for() -> None:
    told = nothing_kept(scored(7), [call("qa", 0.429), call("calculator", 0.31), call("qa", 0.2)], TAU, ASKED, DATA)
    assert told == [
        "C* is empty: no call reached its tool's tau_f (calculator 0.5, qa 1; in nats).",
        # 193 = 200 - 7
        "Main reason: below_threshold 7 (assemble), of 7 calls. "
        "Most rows were lost before: wrong_tool 193 (sample calculator), of 200 samples.",
        "Next: toolformer what-if --tau calculator=0.31,qa=0.42 --data '/runs/my data'",
    ]


def test_where_every_call_hurts_the_model_is_to_be_looked_at() -> None:
    told = nothing_kept(scored(150), [call("calculator", -0.2)], TAU, ASKED, DATA)
    assert told[1] == "Main reason: below_threshold 150 (assemble), of 150 calls."  # 50 samples were lost before
    assert told[-1] == "Next: toolformer diagnose --model gpt2 --tools calculator,qa --tau-s 0.1"
    # a threshold of 0.00 would be one: what gains less than a hundredth of a nat is no help
    assert nothing_kept(scored(150), [call("qa", 0.004)], TAU, ASKED, DATA)[-1] == told[-1]


def test_calls_that_may_not_be_kept_whatever_they_gain_are_no_matter_of_tau_f() -> None:
    told = nothing_kept(scored(1, seen_only_after=150), [], {"mt": 0.5}, ASKED, DATA)
    assert told[0] == "C* is empty: no call that reached its tool's tau_f (mt 0.5; in nats) may be kept."
    assert told[1].startswith("Main reason: seen_only_after 150 (assemble) and below_threshold 1 (assemble), of 151")


def test_where_nothing_was_scored_the_step_at_which_nothing_was_left_is_named() -> None:
    balances = [
        StageBalance("prefilter", "calculator", "documents", 1, 30, 0, {"few_numbers": 30}),
        StageBalance("prefilter", "qa", "documents", 1, 30, 0, {"wrong_language": 29}, {"too_long": 1}),
        StageBalance("sample", "qa", "samples", 1, 0, 0),
        StageBalance("assemble", "", "calls", 1, 0, 0),
        StageBalance("assemble", "", "documents", 1, 30, 0, {"no_surviving_call": 30}),
    ]
    told = nothing_kept(balances, [], TAU, ASKED.model_copy(update={"top_k": 3, "prompts": "/my/prompts"}), DATA)
    assert told[0] == "C* is empty: no call was scored."
    # 30 + 30 documents, one for each tool
    assert told[1] == (
        "Main reason: few_numbers 30 (prefilter calculator) and wrong_language 29 (prefilter qa), of 60 documents."
    )
    assert told[-1].endswith("--tools calculator,qa --tau-s 0.1 --top-k 3 --prompts /my/prompts")


def test_a_build_whose_thresholds_nothing_reaches(
    few_documents: Path, as_built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(few_documents.parent)
    result = run_build(small_build(Path(few_documents.name), as_built, tau_f={"calculator": 9.0, "calendar": 9.0}))
    assert (result.examples, result.thresholds) == (0, {"calculator": 9.0, "calendar": 9.0})
    (row,) = rows_of(result.snapshot, "SELECT count(*) AS n FROM scored WHERE NOT isnan(TRY(gain))")
    print_summary(result)
    shown = capsys.readouterr().out
    assert "The most helpful of its calls" not in shown
    assert "The best calls, none of which was kept" in shown
    assert f"Main reason: below_threshold {row['n']} (assemble), of {row['n']} calls." in shown
    card = as_built / "datasets" / "cstar" / f"{result.version}.md"
    assert "No texts: no tool call was kept." in card.read_text(encoding="utf-8")
    assert Store(as_built).datasets()[-1].corpus == few_documents.name  # as its owner named it


def test_only_calls_that_were_kept_are_called_the_most_helpful(
    prefect_server: None, few_documents: Path, as_built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = rows_of(as_built / "warehouse.duckdb", "SELECT max(gain) AS gain FROM best_calls")[0]["gain"]
    tau_f = dict.fromkeys(("calculator", "calendar"), best - 1e-6)
    result = run_build(small_build(few_documents, as_built, tau_f=tau_f))
    print_summary(result)
    shown = capsys.readouterr().out.partition("The most helpful of its calls")[2].splitlines()
    assert result.examples == 1  # the best call's
    assert sum(line.lstrip().startswith(f"{best:+.2f}") for line in shown) == 1
    assert not any(line.startswith("  +") for line in shown[2:])


def test_the_summary_holds_card_rows_gains_and_the_way_on() -> None:
    balances = [StageBalance("ingest", "", "rows", 1, 1200, 1100)]
    text = build_summary("# cstar@0123\n", balances, "![gains](data:)", "/data/warehouse.duckdb", "run 12ab")
    assert text.startswith("# cstar@0123\n\n## Rows by stage\n")
    assert "| --- | --- | --- | --- | --- |\n| ingest |  | rows | 1,200 | 1,100 |\n" in text
    assert "\n\n![gains](data:)\n\n" in text
    assert text.endswith("- `toolformer sql 'FROM yield_by_threshold' --data /data`\n- MLflow: run 12ab\n")
    assert "\n- why\n" in build_summary("# c\n", (), "", "w", "", ["why"])
