"""What a user is told beforehand: files that are not read, tools that answer from invented data, another annotator."""

from pathlib import Path

from flows.build_dataset.notes import notes_on_build, notes_on_training
from flows.build_dataset.parameters import BuildParameters
from toolformer_core.embedded import CORPUS


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
    assert note.startswith("qa and mt answer from the small invented world")
    (note,) = notes_on_build(parameters(corpus, "qa", "mt", passages="/p.jsonl"))
    assert note.startswith("mt answers from")
    assert notes_on_build(parameters(corpus, "qa", "mt", passages="/p.jsonl", translator="/p.tsv")) == []
    assert notes_on_build(parameters(corpus, "calculator", "calendar")) == []
    assert notes_on_build(parameters(CORPUS, "qa", "mt", "wikisearch")) == []
    for named in ({"tools": ["QA"]}, {"tool": ["qa"]}):  # in whatever way they are named
        (note,) = notes_on_build(BuildParameters.model_validate({"corpus": str(corpus), **named}))
        assert note.startswith("qa answers from")


def test_a_dataset_made_by_another_model(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert notes_on_training("model", str(tmp_path / "model")) == []  # one folder, named in two ways
    assert notes_on_training("embedded", "embedded") == []
    (note,) = notes_on_training("model", "embedded")
    assert note.startswith("the calls of this dataset were sampled and scored by embedded, and model is finetuned")
