"""Prompts and queries: what is left of a prompt, the tools that are right, figures, and files of queries."""

import json
import math
from pathlib import Path

import pytest

from tests.core.evaluate.published import split
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.prompts import (
    completion,
    paragraph_question,
    query_in,
    question,
    translation,
    word_problem,
)
from toolformer_core.evaluate.queries import (
    NO_TOOL,
    RIGHT_TOOLS,
    accuracy_by_paper,
    confusion,
    grounding_accuracy,
    query_of,
    rejection,
    right_tools,
)
from toolformer_core.evaluate.readers.files import translation_files
from toolformer_core.evaluate.tasks import read, task_named, tasks


def test_prompts_end_as_the_papers_do():
    whole = "Complete the text so that it is factually correct: The mill stands in"
    assert completion("The mill stands in ") == whole  # breaks off where the statement does
    assert word_problem(" Two and 3. ", "How many?") == "Two and 3. How many? The answer is"
    assert word_problem("", "How many?") == "How many? The answer is"
    text = paragraph_question("The mill is old.\n", " ¿Cuándo? ")
    assert "The mill is old.\n" in text
    assert "in English" in text
    assert text.endswith("¿Cuándo?")


@pytest.mark.parametrize(
    ("asked", "put"),
    [
        ("who built it", "who built it?"),
        ("Who built it?", "Who built it?"),
        ("Who built it ? ", "Who built it ?"),
        ("谁建的？", "谁建的？"),
        ("من بناه؟", "من بناه؟"),
    ],
)
def test_a_question_has_its_mark(asked, put):
    assert question(asked) == f"Answer the following question: {put}"


@pytest.mark.parametrize(
    ("form", "prompt", "query"),
    [
        ("completion", completion("Lima is in "), "Lima is in"),
        ("word_problem", word_problem("Tom has 3.", "How many?"), "Tom has 3. How many?"),
        ("question", question("who wrote emma"), "who wrote emma?"),
        ("paragraph_question", paragraph_question("A: b\nc", "¿Qué?"), "¿Qué?"),
        ("translation", translation(" Guten Tag \n"), "Translate into English: Guten Tag"),
        ("text", "The answer is", "The answer is"),
    ],
)
def test_the_query_is_the_prompt_without_its_instruction(form: str, prompt: str, query: str) -> None:
    assert query_in(form, prompt) == query


def test_every_benchmark_with_a_declared_tool_exists() -> None:
    assert set(RIGHT_TOOLS) <= set(tasks())
    assert {form for task in tasks().values() if (form := task.form)} >= {"translation", "text"}


def test_right_tools_are_the_benchmarks_or_the_items_own() -> None:
    def item(tool: str | None) -> Item:
        return Item("1", "nq", question("who"), ("x",), "2024-01-02", tool)

    assert right_tools(task_named("nq"), item(None)) == ("qa", "wikisearch")
    assert right_tools(task_named("nq"), item("units, power")) == ("units", "power")
    assert right_tools(task_named("nq"), item("")) == ()
    assert right_tools(task_named("small-world"), item("mt")) == ("mt",)
    query = query_of(task_named("nq"), item(None))
    assert (query.text, query.context) == ("who?", "2024-01-02")


def test_queries_are_read_from_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    rows = [
        {"query": " How far? ", "tools": ["units", "power"], "answers": "42.2 km", "date": "2024-01-02"},
        {"query": "Hello", "tools": []},
        {"query": "Either", "tool": "units", "item_id": 7},
        {"query": "Unknown"},
        {"query": " "},
        {"query": "Wrong", "tools": [1]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    items, rejected = split(read(task_named("queries"), path))
    assert [(i.prompt, i.tool, i.answers, i.date) for i in items] == [
        ("How far?", "units,power", ("42.2 km",), "2024-01-02"),
        ("Hello", "", (), None),
        ("Either", "units", (), None),
        ("Unknown", None, (), None),
    ]
    assert items[2].item_id == "7"
    assert len({i.item_id for i in items}) == 4
    assert [(r.line, r.reason) for r in rejected] == [(5, "no_query"), (6, "unknown_tool")]


def test_translations_are_read_from_two_files(tmp_path: Path) -> None:
    (tmp_path / "t.deu").write_text("Guten Tag\n\nNein\nJa\n", "utf-8")
    (tmp_path / "t.eng").write_text("Good day\nblank\n\nYes\nmore\n", "utf-8")
    items, rejected = split(read(task_named("tatoeba-de"), tmp_path))
    assert [(i.item_id, i.prompt, i.answers, i.line) for i in items] == [
        ("t-1", "Translate into English: Guten Tag", ("Good day",), 1),
        ("t-4", "Translate into English: Ja", ("Yes",), 4),
    ]
    assert [(r.line, r.reason) for r in rejected] == [(2, "no_sentence"), (3, "no_answer"), (5, "no_sentence")]
    assert [i.item_id for i in split(read(task_named("tatoeba-de"), tmp_path / "t.eng", 1))[0]] == ["t-1"]


def test_a_missing_or_ambiguous_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="found: none"):
        translation_files(tmp_path, ".deu")
    for name in ("a", "b"):
        for suffix in (".deu", ".eng"):
            (tmp_path / f"{name}{suffix}").touch()
    with pytest.raises(CorpusError, match=r"found: .*a\.deu, .*b\.deu"):
        translation_files(tmp_path, ".deu")
    assert translation_files(tmp_path / "b.eng", ".deu") == (tmp_path / "b.deu", tmp_path / "b.eng")


def test_right_choices() -> None:
    assert grounding_accuracy([None, "qa"], [("qa",), ()]).right == 0
    # of the third query no tool is right, and none was chosen
    found = grounding_accuracy(["qa", "mt", None, "qa"], [("qa", "wikisearch"), ("qa",), (), ("mt", "qa")])
    assert (found.right, found.items, found.value) == (3, 4, 0.75)
    assert 0 < found.low < 0.75 < found.high <= 1


def test_confusion_counts_choices_by_label() -> None:
    counts = {"nq": {NO_TOOL: 1, "qa": 2}, "mlqa": {"mt": 1}}
    assert confusion(["qa", None, "mt", "qa"], ["nq", "nq", "mlqa", "nq"]) == counts


def test_rejection_by_hand() -> None:
    choices, right = ["a", "a", None, None], [("a",), (), ("a",), ()]
    found = rejection(choices, right, 0.3)
    # rejected: 3 and 4, of which 4 rightly: precision 1/2; unfit: 2 and 4, of which 4 was rejected: recall 1/2
    assert (found.precision, found.recall, found.accuracy.value) == (0.5, 0.5, 0.5)
    none = rejection(["a"], [("a",)], 0.05)
    assert math.isnan(none.precision)
    assert math.isnan(none.recall)


def test_by_the_papers_rule_one_tool_is_right_for_questions() -> None:
    either, library = [("qa", "wikisearch")] * 3, ("calculator", "qa", "wikisearch", "mt")
    chosen = ["qa", "wikisearch", "calculator"]
    assert grounding_accuracy(chosen, either).right == 2
    ours, without = accuracy_by_paper("nq", chosen, either, library), accuracy_by_paper("nq", chosen, either, ["qa"])
    assert ((ours.items, ours.right), without.items) == ((3, 1), 0)
    assert accuracy_by_paper("mlqa-de", ["mt"], [("mt",)], library).items == 0
    mlqa = accuracy_by_paper("mlqa-de", ["mt", "multilingual_qa"], [("mt",)] * 2, (*library, "multilingual_qa"))
    assert (mlqa.items, mlqa.right) == (2, 1)
    # elsewhere the rule is ours: also where the library lacks the right tool, and where none is right
    other = accuracy_by_paper("queries", ["qa", None], [("units",), ()], library)
    assert (other.items, other.right) == (2, 1)
