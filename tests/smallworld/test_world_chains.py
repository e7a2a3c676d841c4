"""Chains of the small world: two calls at one position, both needed, and answered by the real tools as gold says."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from smallworld.chain_frames import CHAINS, TOOLS
from smallworld.chains import ChainWorld, is_needed
from smallworld.frames import ARITHMETIC, DATES, FACTS, TRANSLATIONS, is_held_out
from smallworld.generate import generate, phrases_from, write_lines
from smallworld.generate_chains import chain_items, chain_rows, generate_chains
from smallworld.lessons import lessons
from smallworld.lexicon import GOODS, PLACES, THINGS
from smallworld.pretrain import pretrain
from smallworld.registers import FILLER, REGISTER_FILLER
from smallworld.worlds import Slot, SlotCall
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.config import TOOL_NAMES, IngestConfig
from toolformer_core.embedded import ASSETS
from toolformer_core.errors import UsageError
from toolformer_core.records import Call, Document, ToolResponse
from toolformer_core.syntax import interleave, linearize
from toolformer_core.tools.build import ToolSettings, build_tools

ORDINARY = ("corpus", "gold", "passages", "known", "heldout", "plain")
PART = re.compile(r"<[^>]*>|\{\w+\}")


def read(path: Path) -> list[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


@lru_cache
def world(name: str) -> ChainWorld:
    """A world of 10 subjects of each kind; documents of it are drawn as they are asked for."""
    return ChainWorld(name, 3, None if name == "pretrain" else phrases_from(name), 20, 0 if name == "pretrain" else 10)


def slots(name: str, family: str, n: int = 40) -> list[tuple[str, date, Slot]]:
    documents = [world(name).document([family], 3) for _ in range(n)]
    return [(d.text, d.date, d.slots[0]) for d in documents]


def words(texts: Iterable[str]) -> set[str]:
    return {word.lower() for text in texts for word in re.findall("[A-Za-z]{3,}", PART.sub("_", text))}


# Frames.


def test_a_family_has_16_frames_or_more_of_which_each_other_world_has_its_own() -> None:
    for family, groups in CHAINS.items():
        assert sum(len(group.frames) for group in groups.values()) >= 16
        for group in groups.values():
            assert len(set(group.frames)) == len(group.frames) == 8  # of 8 one is the corpus', one the evaluation's
            for frame in group.frames:
                before, value, behind = re.split("[<>]", frame)
                assert value in ("{c}", "{e}", "{v}"), frame
                assert not re.search(r"\{[asy]\}", behind), frame  # what is needed stands before
                assert ("{s}" in before) == bool(group.subject), frame
        seen = {
            name: {s.family: s.held_out for _, _, s in slots(name, family, 200)} for name in ("corpus", "evaluation")
        }
        own = {name: {frame for frame, held_out in found.items() if held_out} for name, found in seen.items()}
        assert [len(own[name]) for name in seen] == [len(groups)] * 2
        assert {frame.rsplit("/")[-1] for frame in own["corpus"]} == {"3"}
        assert {frame.rsplit("/")[-1] for frame in own["evaluation"]} == {"7"}
        assert not any(s.held_out for _, _, s in slots("pretrain", family, 60))


def test_chains_are_told_in_words_that_ordinary_pretraining_has() -> None:
    groups = (*ARITHMETIC.values(), DATES, *(fact[4] for fact in FACTS.values()), TRANSLATIONS)
    known = [frame for group in groups for i, frame in enumerate(group) if not is_held_out(i)]
    told = words(itertools.chain(known, FILLER, *REGISTER_FILLER.values(), PLACES, GOODS, THINGS))
    frames = [frame for family in CHAINS.values() for group in family.values() for frame in group.frames]
    assert words(frames) - told == set()


# What a chain says is true, and both of its calls are needed.


@pytest.mark.parametrize("family", CHAINS)
@pytest.mark.parametrize("name", ["corpus", "evaluation", "pretrain"])
def test_both_calls_stand_in_front_of_the_value_and_neither_helps_alone(name: str, family: str) -> None:
    for text, _, slot in slots(name, family):
        assert text[slot.position :].startswith(f" {slot.value}")
        assert tuple(call.tool for call in slot.chains[0]) == TOOLS[family]
        for first, second in slot.chains:
            # the second call cannot be written before the first has answered
            assert slot.taken in first.response
            assert slot.taken in second.input
            assert slot.taken not in text[: slot.position]
            assert slot.value in second.response
            assert not re.search(rf"\b{re.escape(slot.value)}\b", text[: slot.position] + first.response)


def test_a_chain_is_not_needed_where_the_text_or_the_first_response_tells_it() -> None:
    calls = (SlotCall("qa", "When was Velden founded?", "1820"), SlotCall("calculator", "1820 + 45", "1865"))
    text = "Velden is 45 years older than its bridge of 1865."
    slot = Slot("fact-sum", "f", False, text.index(" 1865"), "1865", "1865", {}, (calls,), "1820")
    assert is_needed(text, slot)
    assert not is_needed(f"In 1865 {text}", replace(slot, position=slot.position + 8))  # the value
    assert not is_needed(f"In 1820 {text}", replace(slot, position=slot.position + 8))  # what is taken over
    assert is_needed(f"In 18650 {text}", replace(slot, position=slot.position + 9))  # another number
    assert is_needed(f"{text} It was 1820.", slot)  # behind the value
    first = replace(calls[0], response="1820, and the bridge is from 1865")
    assert not is_needed(text, replace(slot, chains=((first, calls[1]),)))
    assert is_needed(text, replace(slot, chains=()))  # no chain


def test_in_a_document_no_other_sentence_tells_what_a_chain_is_to_find_out() -> None:
    documents = [world("corpus").document(["date", "date-sum"], 2) for _ in range(60)]
    for document in documents:
        (chain,) = (slot for slot in document.slots if slot.chains)
        assert not re.search(rf"\b{document.date.year}\b", document.text[: chain.position])
    assert any(str(document.date.year) in document.text for document in documents)  # behind it


def test_a_chain_stands_in_the_text_as_two_calls_one_behind_the_other() -> None:
    text, _, slot = slots("corpus", "fact-sum", 1)[0]
    first, second = slot.chains[0]
    pieces = [(slot.position, linearize(Call(TOOL_NAMES[c.tool], c.input), c.response)) for c in (first, second)]
    annotated, _ = interleave(text, pieces)
    expected = f" [QA({first.input}) -> {first.response}] [Calculator({second.input}) -> {slot.value}] {slot.value}"
    assert expected in annotated


def test_sums_of_worlds_have_no_pair_of_numbers_in_common() -> None:
    def sums(name: str) -> set[str]:
        found = [s for family in ("fact-sum", "date-sum") for _, _, s in slots(name, family, 150)]
        return {slot.chains[0][1].input for slot in found}

    told = [sums(name) for name in ("pretrain", "corpus", "evaluation")]
    assert min(map(len, told)) > 200
    assert not told[0] & told[1]
    assert not told[0] & told[2]
    assert not told[1] & told[2]


def test_the_embedded_tools_answer_every_gold_call_as_gold_says(tmp_path: Path) -> None:
    worlds = [world("corpus"), world("evaluation")]
    file = tmp_path / "passages.jsonl.gz"
    write_lines(file, [p for one in worlds for p in (*one.passages(), *one.chain_passages())])
    tools = build_tools(list(TOOL_NAMES), ToolSettings(passages=file))
    asked: Counter[str] = Counter()
    for name, family in itertools.product(("corpus", "evaluation"), CHAINS):
        for _, day, slot in slots(name, family):
            for call in itertools.chain(*slot.chains):
                said = tools[call.tool].run(call.input, day.isoformat())
                assert said == ToolResponse(call.response), (slot.family, call)
                asked[call.tool] += 1
    assert set(asked) == set(TOOL_NAMES)


# Pretraining.


def test_lessons_have_chains_only_if_asked_and_then_of_invented_tools() -> None:
    # blake2b of 400 lessons as the code at 639dd51, which had no chains, wrote them
    told = "\0".join(itertools.islice(lessons(7), 400))
    assert hashlib.blake2b(told.encode(), digest_size=8).hexdigest() == "e9bf11cdb1ba50cc"
    chain = re.compile(r" \[(\w+)\(([^\n]*?)\) -> ([^\n]*?)\] \[(\w+)\(([^\n]*?)\)\]")
    assert not chain.search(told)
    texts = list(itertools.islice(lessons(7, ("Calen", "dar", "Wiki", "Search", "MT", "QA"), chains=1.0), 400))
    found = [match.groups() for text in texts for match in chain.finditer(text)]
    # three texts of four, with four to five documents each
    assert len(found) > 0.7 * 400 * 4
    assert not {name for first, _, _, second, _ in found for name in (first, second)} & {
        *TOOL_NAMES,
        *TOOL_NAMES.values(),
    }
    real = re.compile("|".join(rf"\b{name}\(" for name in TOOL_NAMES.values()) + "|Calculator|Calendar|WikiSearch")
    assert [text for text in texts if real.search(text)] == []
    assert not any(" > " in text for text in texts)  # WikiSearch's form
    # the second call reads the first one's response: one of its words, or its year
    read = [set(re.findall(r"\w+", response)) & set(re.findall(r"\w+", input)) for _, _, response, _, input in found]
    assert all(read)
    some = list(itertools.islice(lessons(7, chains=0.2), 400))
    assert 0.1 * 400 < sum(bool(chain.search(text)) for text in some) < 0.2 * 400  # three quarters of a fifth: 60


def test_a_share_of_chains_is_one() -> None:
    with pytest.raises(UsageError, match="from 0 to 1, got 2"):
        pretrain(Path("nothing"), minutes=1, chains=2)


# Files.


def test_chains_have_files_of_their_own_and_the_others_stay_what_they_are(tmp_path: Path) -> None:
    generate(tmp_path / "without", documents=30, facts=16, per_tool=3)
    generate(tmp_path / "with", documents=30, facts=16, per_tool=3)
    generate_chains(tmp_path / "with", documents=30, facts=16, per_group=4)
    generate_chains(tmp_path / "again", documents=30, facts=16, per_group=4)
    for name in ORDINARY:
        one, other = (tmp_path / folder / f"{name}.jsonl.gz" for folder in ("without", "with"))
        assert one.read_bytes() == other.read_bytes()
    chains = [f"chains-{name}.jsonl.gz" for name in ("corpus", "items", "passages")]
    assert sorted(file.name for file in (tmp_path / "again").iterdir()) == chains
    for file in chains:
        assert (tmp_path / "with" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    # the passages are those of the ordinary world, and more
    ordinary, all_of_them = (read(tmp_path / "with" / f) for f in ("passages.jsonl.gz", "chains-passages.jsonl.gz"))
    assert [p for p in all_of_them if p in ordinary] == ordinary
    # two worlds, four kinds, 40 of each
    assert len(all_of_them) == len(ordinary) + 2 * 4 * 40


def test_the_number_of_documents_does_not_change_passages_and_items(tmp_path: Path) -> None:
    for documents in (0, 20):
        generate_chains(tmp_path / str(documents), documents=documents, facts=16, per_group=4)
    assert sorted(f.name for f in (tmp_path / "0").iterdir()) == ["chains-items.jsonl.gz", "chains-passages.jsonl.gz"]
    for file in (tmp_path / "0").iterdir():
        assert file.read_bytes() == (tmp_path / "20" / file.name).read_bytes()


def test_what_is_shipped_is_what_the_generator_writes(tmp_path: Path) -> None:
    generate_chains(tmp_path)
    for file in tmp_path.iterdir():
        # else: python -m smallworld.generate_chains
        assert file.read_bytes() == (ASSETS / file.name).read_bytes(), f"{file.name} is not what is written today"
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 100_000


def test_rows_are_read_as_a_corpus(tmp_path: Path) -> None:
    rows = chain_rows(world("corpus"), 120, 7)
    write_lines(tmp_path / "corpus.jsonl.gz", rows)
    found = list(read_corpus(tmp_path / "corpus.jsonl.gz", IngestConfig()))
    assert len(found) == 120
    assert all(isinstance(one, Document) for one in found)


def test_no_document_holds_a_text_that_it_must_not() -> None:
    first, *_ = chain_rows(ChainWorld("corpus", 5, phrases_from("corpus"), 4, 4), 3, 1)
    corpus = chain_rows(ChainWorld("corpus", 5, phrases_from("corpus"), 4, 4), 3, 1, unlike=[first["text"][:30]])
    assert not any(first["text"][:30] in row["text"] for row in corpus)


def test_items_are_200_of_each_family_with_known_frames_and_200_with_new_ones() -> None:
    items = read(ASSETS / "chains-items.jsonl.gz")
    assert Counter(i["group"] for i in items) == {f"{f}{new}": 200 for f in CHAINS for new in ("", " (new frame)")}
    assert len({item["prompt"] for item in items}) == len({item["item_id"] for item in items}) == len(items)
    assert [item["group"] for item in items[:4]] == list(CHAINS)  # whoever asks a few asks of all families
    assert not any(item["prompt"].endswith(" ") for item in items)  # the value begins with its space
    assert {item["group"]: item["tool"] for item in items[:4]} == {
        "fact-sum": "qa,calculator",
        "date-sum": "calendar,calculator",
        "search-mt": "wikisearch,mt",
        "search-search": "wikisearch",
    }
    assert chain_items(world("evaluation"), 2, 1) != chain_items(world("evaluation"), 2, 2)
