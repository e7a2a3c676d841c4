"""The small world: seeded, true, apart from what the model was pretrained on, and shipped as it is generated."""

import gzip
import itertools
import json
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from smallworld import frames
from smallworld.generate import corpus_rows, generate, gold_calls, phrases_from
from smallworld.lessons import lessons
from smallworld.worlds import KINDS, World, WorldDocument, world_of
from toolformer_core.config import TOOL_NAMES
from toolformer_core.embedded import ASSETS
from toolformer_core.records import ToolResponse
from toolformer_core.tools.base import Tool
from toolformer_core.tools.build import ToolSettings, build_tools

SHIPPED = [f"{name}.jsonl.gz" for name in ("corpus", "gold", "passages", "known", "heldout", "plain")]
WORLDS = ("pretrain", "corpus", "evaluation")


def read(path: Path) -> list[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def documents(name: str, n: int = 150, seed: int = 3) -> list[WorldDocument]:
    """Documents with one slot of every kind."""
    world = World(name, seed, phrases=None if name == "pretrain" else phrases_from(name), facts=40)
    return [world.document(KINDS, 6) for _ in range(n)]


def answer(tool: Tool, input: str) -> str:
    result = tool.run(input)
    return result.text if isinstance(result, ToolResponse) else ""


# One seed, one world.


def test_worlds_share_no_entity_no_numbers_and_no_date() -> None:
    def told(name: str) -> set[str]:
        world, n = World(name, 5), World(name, 5).namer
        names = {make() for make in (n.person, n.town, n.river, n.company, n.title) for _ in range(300)}
        slots = [world.sentence("arithmetic", world.date()).slot for _ in range(600)]
        return names | {s.arguments["expression"] for s in slots if s} | {str(world.date()) for _ in range(600)}

    worlds = [told(name) for name in WORLDS]
    assert min(len(found) for found in worlds) > 2_000
    assert not worlds[0] & worlds[1]
    assert not worlds[0] & worlds[2]
    assert not worlds[1] & worlds[2]


def test_worlds_share_no_phrase_to_translate() -> None:
    one, other = (dict(phrases_from(name)) for name in ("corpus", "evaluation"))
    assert min(len(one), len(other)) > 200  # of 1,600 pairs of nouns and 150 others a quarter each, without repeats
    assert not one.keys() & other.keys()
    assert {world_of(phrase) for phrase in one} == {"corpus"}


def test_a_quarter_of_the_frames_is_kept_from_pretraining_half_of_it_for_each_other_world() -> None:
    homes = [frames.home(i) for i in range(16)]
    assert Counter(homes) == {"shared": 12, "corpus": 2, "evaluation": 2}
    assert [frames.is_held_out(i) for i in range(16)] == [home != "shared" for home in homes]
    families = {name: {s.family: s.held_out for d in documents(name, 800) for s in d.slots} for name in WORLDS}
    assert not any(families["pretrain"].values())
    own = {name: {f for f, held_out in families[name].items() if held_out} for name in ("corpus", "evaluation")}
    # i % 8 == 3: 3 times of 24 (four kinds of sums), 5 of 36 (dates), twice of 12 (8 facts), 4 of 32 (translations)
    assert len(own["corpus"]) == 4 * 3 + 5 + 8 * 2 + 4
    # i % 8 == 7: 3 times of 24, 4 of 36, once of 12, 4 times of 32
    assert len(own["evaluation"]) == 4 * 3 + 4 + 8 + 4
    assert not own["corpus"] & own["evaluation"]


def test_frames_ask_only_for_what_stands_before() -> None:
    facts = [frame for fact in frames.FACTS.values() for frame in fact.frames]
    every = [*itertools.chain(*frames.ARITHMETIC.values()), *frames.DATES, *facts, *frames.TRANSLATIONS]
    assert len(set(every)) == 96 + 36 + 96 + 32
    for frame in every:
        _, value, behind = re.split("[<>]", frame)
        assert value
        assert not re.search(r"\{(a|b|c2|s|f|y1|y2)\}", behind), frame
    assert all("{s}" in frame.split("<")[0] for frame in facts)


def test_pretraining_knows_none_of_the_tools() -> None:
    real = re.compile("|".join(rf"\b{name}\(" for name in TOOL_NAMES.values()) + "|Calculator|Calendar|WikiSearch")
    assert real.search("one [QA(What?)] two")  # it would be found
    pieces = ("Calen", "dar", "Wiki", "Search", "MT", "QA")  # of which real names could come
    texts = [*itertools.islice(lessons(0), 1_000), *itertools.islice(lessons(0, pieces), 500)]
    assert [text for text in texts if real.search(text)] == []
    assert sum(" -> " in text for text in texts) > 50  # the arrow itself is among the notations


# What a document says about itself is true.


@pytest.mark.parametrize("name", ["pretrain", "corpus", "evaluation"])
def test_a_value_stands_where_its_slot_says(name: str) -> None:
    for document in documents(name):
        assert {slot.kind for slot in document.slots} == set(KINDS)
        for slot in document.slots:
            assert slot.value
            # the call is to stand in front of the space, and of an opening parenthesis, before the value
            assert re.match(r" \(?" + re.escape(slot.value), document.text[slot.position :])


def test_a_dates_value_stands_in_the_calendars_answer() -> None:
    for document in documents("corpus"):
        (slot,) = (s for s in document.slots if s.kind == "date")
        assert slot.answer.startswith("Today is ")
        assert f" {document.date.year}." in slot.answer
        for word in re.findall(r"\w+", slot.value):
            assert re.search(rf"\b{word}\b", slot.answer)


def test_gold_calls_name_the_tools_that_help() -> None:
    by_kind: dict[str, set[tuple[str, ...]]] = {}
    for document in documents("corpus"):
        for slot in document.slots:
            alone = WorldDocument(document.text, document.date, (slot,))
            kind = frames.FACTS[slot.family.split("/")[1]].kind if slot.kind == "fact" else slot.kind
            by_kind.setdefault(kind, set()).add(tuple(g["tool"] for g in gold_calls(alone)))
    assert by_kind == {
        "arithmetic": {("calculator",)},
        "date": {("calendar",)},
        "person": {("qa", "wikisearch")},
        "company": {("qa", "wikisearch")},
        "town": {("wikisearch",)},  # QA has not read about towns and books
        "book": {("wikisearch",)},
        "translation": {("mt",)},
    }


def test_rows_are_a_corpus(tmp_path: Path) -> None:
    corpus, gold = corpus_rows(World("corpus", 7, phrases=phrases_from("corpus"), facts=20), 120, 7)
    assert [row["url"] for row in corpus] == [g["url"] for g in gold]
    assert len({row["url"] for row in corpus}) == 120
    # one in six needs no tool: 20 of 120
    assert 8 <= sum(not g["calls"] for g in gold) <= 36
    for row, g in zip(corpus, gold, strict=True):
        dated = re.search(r"/(\d{4})/(\d{2})/(\d{2})/", row["url"])
        if any(call["tool"] == "calendar" for call in g["calls"]):
            assert dated
        if dated:
            assert row["timestamp"].startswith("-".join(dated.groups()))


# What is shipped.


def test_what_is_shipped_is_what_the_generator_writes(tmp_path: Path) -> None:
    generate(tmp_path)
    for name in SHIPPED:  # else: python -m smallworld.generate
        assert (tmp_path / name).read_bytes() == (ASSETS / name).read_bytes(), f"{name} is not what is written today"


def test_held_out_items_stop_where_a_call_belongs_and_are_not_in_the_corpus() -> None:
    items, corpus = read(ASSETS / "heldout.jsonl.gz"), [row["text"] for row in read(ASSETS / "corpus.jsonl.gz")]
    groups = {f"{tool}{frame}": 15 for tool in TOOL_NAMES for frame in ("", " (unseen template)")}
    assert Counter(item["group"] for item in items) == groups
    assert {item["tool"] for item in items[:5]} == set(TOOL_NAMES)  # whoever asks a few asks of all tools
    assert not any(item["prompt"] in text for item in items for text in corpus)
    assert not any(item["prompt"].endswith(" ") for item in items)  # the value begins with its space
    weekdays = [i for i in items if i["answers"][0] in ("Monday", "Tuesday")]
    assert all(date.fromisoformat(i["date"]).strftime("%A") == i["answers"][0] for i in weekdays)


def test_the_embedded_tools_answer_the_shipped_gold_calls() -> None:
    tools = build_tools(list(TOOL_NAMES), ToolSettings())
    asked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    texts = {row["url"]: row["text"] for row in read(ASSETS / "corpus.jsonl.gz")}
    for g in read(ASSETS / "gold.jsonl.gz"):
        for call in g["calls"]:
            assert re.match(r" \(?" + re.escape(call["value"]), texts[g["url"]][call["position"] :])
            if call["tool"] == "calendar":
                continue  # its date comes from the document
            asked[call["tool"]] += 1
            said = answer(tools[call["tool"]], call["input"])
            right[call["tool"]] += call["value"] in said if call["tool"] == "wikisearch" else call["value"] == said
    share = {tool: right[tool] / n for tool, n in asked.items()}
    assert share["calculator"] == 1
    assert share["mt"] == 1  # the generator joins phrases as the table does
    assert share["wikisearch"] == 1
    assert share["qa"] >= 0.95  # measured: all, a short reader's work
