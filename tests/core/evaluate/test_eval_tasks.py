from __future__ import annotations

import dataclasses
import json
import sys
import types
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.evaluate.formats import FORMATS, Format, lines, packed
from toolformer_core.errors import CorpusError, UnknownNameError, UsageError
from toolformer_core.evaluate.cloze import RELATIONS
from toolformer_core.evaluate.fields import texts_in
from toolformer_core.evaluate.figures import DECODING, PERPLEXITY, TABLES, figures_for
from toolformer_core.evaluate.files import in_turn, reread
from toolformer_core.evaluate.items import Item, Rejected, Rule
from toolformer_core.evaluate.own import line_of
from toolformer_core.evaluate.tasks import read, score, task_named, tasks


def split(stream) -> tuple[list[Item], list[Rejected]]:
    every = list(stream)
    return [x for x in every if isinstance(x, Item)], [x for x in every if isinstance(x, Rejected)]


# --- formats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_a_published_format(name, tmp_path):
    form = FORMATS[name]
    items, rejected = split(read(task_named(form.task), form.write(tmp_path)))
    assert [item.answers for item in items] == form.answers
    assert [(r.line, r.reason) for r in rejected] == form.rejected
    assert all(r.detail for r in rejected)
    for item, prompt in zip(items, form.prompts, strict=False):
        assert item.prompt.endswith(prompt)
    for item, day in zip(items, form.dates, strict=False):
        assert item.date == day
    assert {item.task for item in items} == {form.task}
    assert {x.source for x in (*items, *rejected)} == {Path(form.name).name}
    assert len({item.item_id for item in items}) == len(items)
    assert not any(item.prompt != item.prompt.strip() for item in items)


@pytest.mark.parametrize("name", FORMATS)
def test_gold_answers_are_right(name, tmp_path):
    form = FORMATS[name]
    task = task_named(form.task)
    items, _ = split(read(task, form.write(tmp_path)))
    for item in items:
        for answer in item.answers:
            assert score(task, item, f" {answer}.")
            assert score(task, item, f" {answer}\n\nand more")
        assert not score(task, item, " something else entirely")


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
    assert [(r.line, r.reason) for r in rejected] == form.rejected


def test_ids_are_the_files_own_or_of_the_content(tmp_path):
    (one, *_), _ = split(read(task_named("svamp"), FORMATS["svamp"].write(tmp_path)))
    assert (one.item_id, one.line) == ("toy-1", 2)
    items, _ = split(read(task_named("nq"), FORMATS["nq"].write(tmp_path)))
    assert items[2].item_id == f"{items[0].item_id}#2"  # the same row again, counted as the benchmark does
    other = tmp_path / "other.jsonl"
    other.write_text("\n" + FORMATS["nq"].text)
    again, _ = split(read(task_named("nq"), other))
    assert [i.item_id for i in again] == [i.item_id for i in items]


def test_a_folder_is_read_by_the_names_of_its_files(tmp_path):
    for name in ("lama-squad", "lama-google-re", "lama-trex"):
        FORMATS[name].write(tmp_path)
    (tmp_path / "relations.jsonl").write_text(lines({"relation": "P19", "template": "[X] [Y]"}))
    (tmp_path / "notes.md").write_text("not data")
    for name in ("lama-squad", "lama-google-re", "lama-trex"):
        items, rejected = split(read(task_named(name), tmp_path))
        assert {x.source for x in (*items, *rejected)} == {FORMATS[name].name}


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
    with pytest.raises(CorpusError, match="SituatedQA is read from its file; name it with --path"):
        read(task_named("situatedqa"))


@pytest.mark.parametrize("text", ["['a' + 'b']", "[open('x')]", "['a'", "[1, 2]", "[a]"])
def test_answers_as_python_prints_them_are_literals_and_nothing_else(text):
    assert texts_in(text) == ([] if text == "[1, 2]" else [text])


def test_a_list_of_answers_with_a_backslash_gives_no_warning():
    assert texts_in(r"['5 \% of\d', 'b']") == [r"5 \% of\d", "b"]


def test_a_relation_named_by_the_row_beats_the_files(tmp_path):
    path = tmp_path / "P19.jsonl"
    path.write_text(lines({"sub_label": "Ona", "obj_label": "Tarn", "predicate_id": "P20", "uuid": "1"}))
    (item,), _ = split(read(task_named("lama-trex"), path))
    assert item.group == "P20"
    assert item.prompt.endswith("The place where Ona died is")


def test_every_relation_of_lama_has_a_phrase():
    assert len(RELATIONS) == 41
    assert all(phrase.count("{x}") == 1 for phrase in RELATIONS.values())
    assert len(set(RELATIONS.values())) == 41


def test_the_limit_counts_items(tmp_path):
    every = list(read(task_named("triviaqa"), FORMATS["triviaqa"].write(tmp_path), limit=1))
    assert len(every) == 1
    items, rejected = split(read(task_named("svamp"), FORMATS["svamp"].write(tmp_path), limit=2))
    assert (len(items), len(rejected)) == (2, 2)  # the rows in front of the second item
    with pytest.raises(UsageError, match="limit must be positive"):
        read(task_named("svamp"), tmp_path, limit=0)


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


# --- files that cannot be read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.jsonl", lines({"a": 1}, {"b": 2}), "expected rows with question and answer, a list; the first of 2 rows"),
        ("a.jsonl", "", "holds no item of Natural Questions"),
        ("a.json", "{", "broken_json"),
        ("a.json", '{"rows": []}', "the first of 1 rows, line 1: no_question"),
        ("a.xml", "<Problem><Question>q", "line 1: broken_xml"),
        ("a.txt", "text", "is no benchmark file. Valid extensions: .jsonl"),
    ],
)
def test_a_file_without_a_usable_row(name, text, says, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CorpusError) as error:
        read(task_named("nq"), path)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(CorpusError, match="no such benchmark file or folder"):
        read(task_named("nq"), tmp_path / "none")
    with pytest.raises(CorpusError, match=r"no file named \* in"):
        read(task_named("nq"), tmp_path)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "svamp.json"
    path.write_bytes(b'[\n{"Question": "\xff"}]')
    with pytest.raises(CorpusError, match="line 2: not_utf8"):
        read(task_named("svamp"), path)


def test_lone_surrogates_are_a_reason_to_drop_a_row(tmp_path):
    """JSON can write half of a character, which no tokenizer reads and no file of results holds."""
    half = r"\ud800"
    path = tmp_path / "items.jsonl"
    path.write_text(
        "".join(
            f'{{"prompt": "{prompt}", "answers": ["{answer}"], "item_id": "{own}", "group": "{group}"}}\n'
            for prompt, answer, own, group in [
                ("It is", "x", "sound", ""),
                (f"It {half} is", "x", "1", ""),
                ("It is", half + "x", "2", ""),
                ("It is", "x", half, ""),
                ("It is", "x", "4", half),
            ]
        )
        + f'{{"{half}": 1}}\n'
    )
    items, rejected = split(read(task_named("small-world"), path))
    assert [item.item_id for item in items] == ["sound"]
    reasons = [(r.line, r.reason) for r in rejected]
    assert reasons == [*((line, "not_utf8") for line in (2, 3, 4, 5)), (6, "no_prompt")]
    assert rejected[0].detail == "lone surrogate U+D800 at character 4"  # behind "It "
    assert all(r.detail.isascii() for r in rejected)  # what is told of them can be written anywhere
    texts = tmp_path / "texts.jsonl"
    texts.write_text(lines({"text": " = A = "}, {"text": "Sound."}) + f'{{"text": "{half}"}}\n')
    with pytest.raises(CorpusError, match="not_utf8"):  # the one article holds it
        read(task_named("perplexity"), texts)


# --- the hub ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the package `datasets`, which need not be installed: answers from a table."""
    asked = []
    answers = {}

    def load_dataset(repository, config=None, *, split):
        asked.append((repository, config, split))
        answer = answers[repository]
        if isinstance(answer, Exception):
            raise answer
        return answer

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    module.asked, module.answers = asked, answers
    return module


def test_reading_from_the_hub(hub):
    hub.answers["ChilleD/SVAMP"] = [
        {"ID": "toy-1", "Body": "Two and 3.", "Question": "How many?", "Answer": "5"},
        {"ID": "toy-2", "Body": "Two and 3.", "Question": None, "Answer": "5"},
    ]
    items, rejected = split(read(task_named("svamp")))
    assert hub.asked == [("ChilleD/SVAMP", None, "test")]
    assert [(i.item_id, i.answers, i.source, i.line) for i in items] == [("toy-1", ("5",), "ChilleD/SVAMP", 1)]
    assert [(r.line, r.reason) for r in rejected] == [(2, "no_question")]


def test_a_hub_row_that_is_no_object_is_rejected(hub):
    row = json.loads(FORMATS["mlqa-es"].text)["data"][0]
    row["paragraphs"][0]["qas"].append("a question")
    hub.answers["facebook/mlqa"] = [row]
    _, rejected = split(read(task_named("mlqa-es")))
    assert (1, "not_an_object") in [(r.line, r.reason) for r in rejected]


def test_mlqa_on_the_hub_has_a_config_per_language(hub):
    hub.answers["facebook/mlqa"] = [json.loads(FORMATS["mlqa-hub"].text)]
    assert len(list(read(task_named("mlqa-zh")))) == 1
    assert hub.asked == [("facebook/mlqa", "mlqa.en.zh", "test")]


@pytest.mark.parametrize("error", [ConnectionError("offline\nnow"), ValueError("x"), RuntimeError("scripts")])
def test_without_a_network_the_error_names_the_way_out(hub, error):
    hub.answers["ChilleD/SVAMP"] = error
    with pytest.raises(CorpusError, match=r"ChilleD/SVAMP could not be read from the hub \(.*give .* --path"):
        read(task_named("svamp"))


def test_without_the_package_the_error_names_the_way_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # importing it fails
    with pytest.raises(CorpusError, match=r"needs the package datasets.*--path"):
        read(task_named("nq"))


# --- texts for perplexity ---------------------------------------------------------------------------------------------

WIKI = """ = Old mill =

 The old mill is a mill .

 = = History = =

 It was built with an inductance L
 = 1 henry and capacitance C =
 1 farad .
 = Reed ( plant ) =
 The reed grows .
"""
ARTICLES = [
    " = Old mill =\n\n The old mill is a mill .\n\n = = History = =\n\n It was built with an inductance L\n"
    " = 1 henry and capacitance C =\n 1 farad .",
    " = Reed ( plant ) =\n The reed grows .",
]


def texts(path=None, limit=None):
    return split(read(task_named("perplexity"), path, limit))


def test_wikitext_is_cut_into_articles(tmp_path):
    path = tmp_path / "wiki.test.raw"
    path.write_text(WIKI)
    items, rejected = texts(path)
    assert [i.prompt for i in items] == ARTICLES
    assert [i.line for i in items] == [1, 10]
    assert {i.answers for i in items} == {()}
    assert rejected == []
    assert len(texts(path, limit=1)[0]) == 1


def test_wikitext_in_rows_is_joined_first(tmp_path, hub):
    rows = [{"text": f"{line}\n" if line else ""} for line in WIKI.split("\n")]
    path = tmp_path / "wiki.jsonl"
    path.write_text(lines(*rows))
    assert [i.prompt for i in texts(path)[0]] == ARTICLES
    hub.answers["Salesforce/wikitext"] = rows
    assert [i.prompt for i in texts()[0]] == ARTICLES


def test_any_other_text_is_one_and_any_corpus_is_read_as_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("One text.\n\nIn two parts.\n")
    assert [i.prompt for i in texts(path)[0]] == ["One text.\n\nIn two parts.\n"]
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(lines({"text": "one", "timestamp": "2020-01-30"}, {"no": 1}, {"text": "two"}, {"text": "two"}))
    items, rejected = texts(corpus)
    assert [(i.prompt, i.date) for i in items] == [("one", "2020-01-30"), ("two", None)]
    assert [(r.line, r.reason) for r in rejected] == [(2, "no_text"), (4, "duplicate")]


def test_texts_that_are_none(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CorpusError, match="not_utf8"):
        read(task_named("perplexity"), path)
    path.write_bytes(b" \n")
    with pytest.raises(CorpusError, match="blank"):
        read(task_named("perplexity"), path)
    with pytest.raises(CorpusError, match="no such"):
        read(task_named("perplexity"), tmp_path / "none")


# --- the table --------------------------------------------------------------------------------------------------------


def test_the_tasks():
    assert list(tasks()) == [
        *("lama-squad", "lama-google-re", "lama-trex", "templama", "asdiv", "svamp", "mawps", "gsm8k"),
        *("webqs", "nq", "triviaqa", "situatedqa"),
        *("mlqa-es", "mlqa-de", "mlqa-hi", "mlqa-vi", "mlqa-zh", "mlqa-ar"),
        *("dateset", "perplexity", "wikitext", "small-world", "small-world-plain"),
    ]
    excluded = {name: task.excluded_tools for name, task in tasks().items() if task.excluded_tools}
    assert (
        excluded.pop("wikitext") == excluded.pop("perplexity") == ("calculator", "calendar", "wikisearch", "qa", "mt")
    )
    lama, qa = ("lama-squad", "lama-google-re", "lama-trex"), ("webqs", "nq", "triviaqa", "situatedqa")
    assert excluded == dict.fromkeys(lama, ("wikisearch",)) | dict.fromkeys(qa, ("qa",))
    assert {name for name, task in tasks().items() if task.rule is Rule.FIRST_NUMBER} == {
        *("asdiv", "svamp", "mawps", "gsm8k")
    }


def test_a_task_by_its_name():
    assert task_named(" LAMA_TREx ").name == "lama-trex"
    with pytest.raises(UnknownNameError, match="Did you mean 'svamp'"):
        task_named("swamp")


def test_the_papers_figures():
    assert figures_for("lama-trex")["toolformer"] == 53.5
    assert task_named("dateset").figures["toolformer (disabled)"] == 5.9
    assert task_named("wikitext").figures == PERPLEXITY["wikitext"]
    assert task_named("perplexity").figures == {}  # of any text: the paper measured two
    assert task_named("gsm8k").figures == {}
    named = {task for table in TABLES.values() for task in table}
    own = {"gsm8k", "situatedqa", "perplexity", "wikitext", "small-world", "small-world-plain"}
    assert named == set(tasks()) - own
    # §4.2.1: Toolformer improves on the best baseline by 11.7, 5.2 and 18.6 points
    gains = [round(t["toolformer"] - t["toolformer (disabled)"], 1) for t in TABLES[3].values()]
    assert gains == [11.7, 5.2, 18.6]
    for by_k in DECODING.values():  # accuracy on all is the mean of the two parts; the paper's own are up to 0.36 off
        for everything, called, uncalled, rate in by_k.values():
            mean = (called or 0) * rate / 100 + (uncalled or 0) * (100 - rate) / 100
            assert everything == pytest.approx(mean, abs=0.37)


# --- items in their own form ------------------------------------------------------------------------------------------


def test_an_item_comes_back_from_its_line(tmp_path):
    item = Item("d1", "small-world", "Das ist „zwei“,", ("two", "2"), "2020-03-16", "mt", "translation/3")
    path = tmp_path / "items.jsonl"
    path.write_text(line_of(item) + "\n", encoding="utf-8")
    (again,), _ = split(read(task_named("small-world"), path))
    assert dataclasses.replace(again, source="", line=0) == item


def test_dateset_is_generated_without_a_path_and_read_with_one(tmp_path):
    items, _ = split(read(task_named("dateset"), limit=20))
    assert len(items) == 20
    path = tmp_path / "dateset.jsonl"
    path.write_text("".join(line_of(item) + "\n" for item in items), encoding="utf-8")
    again, _ = split(read(task_named("dateset"), path))
    assert [(i.item_id, i.prompt, i.answers, i.date, i.group) for i in again] == [
        (i.item_id, i.prompt, i.answers, i.date, i.group) for i in items
    ]


def test_shuffled_answers_are_wrong(tmp_path):
    rows = [{"question": f"which word is number {i}", "answer": [f"word{i}"]} for i in range(200)]
    form = Format("nq", "nq.jsonl", lines(*rows), [])
    task = task_named("nq")
    items, _ = split(read(task, form.write(tmp_path)))
    assert all(score(task, item, f" It is {item.answers[0]}.") for item in items)
    assert not any(score(task, a, f" {b.answers[0]}") for a, b in zip(items, items[1:] + items[:1], strict=True))


# --- a part of a folder -----------------------------------------------------------------------------------------------


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

    every = list(in_turn(stream(name) for name in range(len(sizes))))
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
    for item in in_turn(reread(partial(stream, name)) for name in range(len(sizes))):
        assert not open_now
        found.append(item)
    assert found == list(in_turn(plain(name) for name in range(len(sizes))))
    # blocks of 1, 2, 4 and 8 elements begin behind 0, 1, 3 and 7: to read nine, 1 + 3 + 7 + 9 are read at most
    assert all(read[name] <= 20 for name in range(len(sizes)))


@pytest.mark.parametrize("suffix", [".jsonl", ".txt"])
def test_a_limit_takes_texts_of_several_files_in_turn(tmp_path, suffix):
    for name, count in (("a", 3), ("b", 2)):
        if suffix == ".txt":
            (tmp_path / f"{name}.txt").write_text(
                "".join(f" = {name}{n} =\n\n Text {name}{n} .\n" for n in range(count))
            )
        else:
            rows = [{"text": f"Text {name}{n}."} for n in range(count)]
            (tmp_path / f"{name}.jsonl").write_text(lines({"text": "Text a0."}, *rows))
    items, rejected = texts(tmp_path, limit=3)
    assert [Path(item.source).stem for item in items] == ["a", "b", "a"]
    # the text that both files begin with is an item once, as without a limit
    assert [(r.reason, Path(r.source).stem) for r in rejected] == (
        [("duplicate", "b"), ("duplicate", "a")] if suffix == ".jsonl" else []
    )
