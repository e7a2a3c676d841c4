"""Every benchmark is read from its published file format, plain and packed."""

import pytest

from tests.core.evaluate.published import FORMATS, lines, packed, split
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.readers.cloze import relations
from toolformer_core.evaluate.readers.rows import texts_in
from toolformer_core.evaluate.scoring import is_right
from toolformer_core.evaluate.tasks import read, task_named


@pytest.mark.parametrize("name", FORMATS)
def test_a_published_format_and_its_gold_answers(name, tmp_path):
    form, task = FORMATS[name], task_named(FORMATS[name].task)
    items, rejected = split(read(task, form.write(tmp_path)))
    assert [list(item.answers) for item in items] == form.answers
    assert [[r.line, r.reason] for r in rejected] == form.rejected
    assert all(r.detail for r in rejected)
    for item, prompt in zip(items, form.prompts, strict=False):
        assert item.prompt.endswith(prompt)
    for item, day in zip(items, form.dates, strict=False):
        assert (item.date or "") == day
    assert {x.source for x in (*items, *rejected)} == {form.path.name}
    assert len({item.item_id for item in items}) == len(items)
    for item in items:
        assert (item.task, item.prompt) == (form.task, item.prompt.strip())
        assert all(is_right(task, item, f" {a}.") and is_right(task, item, f" {a}\n\nand more") for a in item.answers)
        assert not is_right(task, item, " something else entirely")


@pytest.mark.parametrize("name", ["lama-squad", "mawps-hub", "nq", "triviaqa-hub", "mlqa-hub", "small-world"])
@pytest.mark.parametrize("how", ["gz", "zst", "parquet"])
def test_packed_files(name, how, tmp_path):
    form = FORMATS[name]
    path = form.write(tmp_path)
    plain, _ = split(read(task_named(form.task), path))
    items, rejected = split(read(task_named(form.task), packed(path, how)))
    assert [(i.item_id, i.prompt, i.answers, i.line) for i in items] == [
        (i.item_id, i.prompt, i.answers, i.line) for i in plain
    ]
    assert [[r.line, r.reason] for r in rejected] == form.rejected


def test_ids_are_the_files_own_or_of_the_content(tmp_path):
    (one, *_), _ = split(read(task_named("svamp"), FORMATS["svamp"].write(tmp_path)))
    assert (one.item_id, one.line) == ("toy-1", 2)
    items, _ = split(read(task_named("nq"), FORMATS["nq"].write(tmp_path)))
    assert items[2].item_id == f"{items[0].item_id}#2"  # the same row again, counted as the benchmark does
    other = tmp_path / "other.jsonl"
    other.write_text("\n" + FORMATS["nq"].path.read_text())
    again, _ = split(read(task_named("nq"), other))
    assert [i.item_id for i in again] == [i.item_id for i in items]


def test_a_folder_is_read_by_the_names_of_its_files(tmp_path):
    for name in ("lama-squad", "lama-google-re", "lama-trex"):
        FORMATS[name].write(tmp_path)
    (tmp_path / "relations.jsonl").write_text(lines({"relation": "P19", "template": "[X] [Y]"}))
    (tmp_path / "notes.md").write_text("not data")
    for name in ("lama-squad", "lama-google-re", "lama-trex"):
        items, rejected = split(read(task_named(name), tmp_path))
        assert {x.source for x in (*items, *rejected)} == {FORMATS[name].file}


def test_an_empty_file_hides_no_other(tmp_path):
    FORMATS["lama-squad"].write(tmp_path)
    (tmp_path / "Squad" / "test.jsonl").rename(tmp_path / "other.jsonl")
    (tmp_path / "Squad" / "test.jsonl").touch()  # the name that is looked for first
    items, _ = split(read(task_named("lama-squad"), tmp_path))
    assert {item.source for item in items} == {"other.jsonl"}


def test_of_mlqa_only_the_languages_own_file_is_read(tmp_path):
    FORMATS["mlqa-es"].write(tmp_path)
    with pytest.raises(CorpusError, match=r"no file named test-context-en-question-de\*"):
        read(task_named("mlqa-de"), tmp_path)
    items, _ = split(read(task_named("mlqa-es"), tmp_path))
    assert len(items) == 2


def test_a_task_that_is_not_on_the_hub_asks_for_its_file():
    with pytest.raises(CorpusError, match="Queries is read from its file; give the file with --path"):
        read(task_named("queries"))


@pytest.mark.parametrize(
    ("text", "texts"),
    [(text, [text]) for text in ("['a' + 'b']", "[open('x')]", "['a'", "[a]")]
    + [("[1, 2]", []), (r"['5 \% of\d', 'b']", [r"5 \% of\d", "b"])],  # a backslash gives no warning
)
def test_answers_as_python_prints_them_are_literals_and_nothing_else(text, texts):
    assert texts_in(text) == texts


def test_a_relation_named_by_the_row_beats_the_files(tmp_path):
    path = tmp_path / "P19.jsonl"
    path.write_text(lines({"sub_label": "Ona", "obj_label": "Tarn", "predicate_id": "P20", "uuid": "1"}))
    (item,), _ = split(read(task_named("lama-trex"), path))
    assert item.group == "P20"
    assert item.prompt.endswith("The place where Ona died is")


def test_every_relation_of_lama_has_a_phrase():
    assert len(relations()) == 41
    assert all(phrase.count("{x}") == 1 for phrase in relations().values())
    assert len(set(relations().values())) == 41


def test_the_limit_counts_items(tmp_path):
    every = list(read(task_named("triviaqa"), FORMATS["triviaqa"].write(tmp_path), limit=1))
    assert len(every) == 1
    items, rejected = split(read(task_named("svamp"), FORMATS["svamp"].write(tmp_path), limit=2))
    assert (len(items), len(rejected)) == (2, 2)  # the rows in front of the second item


def test_a_broken_packed_file_keeps_what_came_before(tmp_path):
    rows = lines(*({"question": f"q{i}", "answer": [f"a{i}"]} for i in range(5_000)))
    path = tmp_path / "nq.jsonl"
    path.write_text(rows)
    cut = packed(path, "gz")
    cut.write_bytes(cut.read_bytes()[:-2_000])
    items, rejected = split(read(task_named("nq"), cut))
    assert len(items) > 1_000
    assert [r.reason for r in rejected] == ["truncated"]
    whole = tmp_path / "svamp.json.gz"
    whole.write_bytes(b"\x1f\x8b no gzip")
    with pytest.raises(CorpusError, match="truncated"):
        read(task_named("svamp"), whole)
