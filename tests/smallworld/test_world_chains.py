"""Chains of the small world: two calls at one position, both needed, and answered by the real tools as gold says."""

import gzip
import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from smallworld.chains import CHAINS, TOOLS, ChainWorld, is_needed
from smallworld.generate import phrases_from, write_lines
from smallworld.generate_chains import chain_items, generate_chains
from smallworld.worlds import Slot, SlotCall
from toolformer_core.config import TOOL_NAMES
from toolformer_core.embedded import ASSETS
from toolformer_core.records import ToolResponse
from toolformer_core.tools.build import ToolSettings, build_tools


def read(path: Path) -> list[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


@lru_cache
def world(name: str) -> ChainWorld:
    """A world of 10 subjects of each kind; documents of it are drawn as they are asked for."""
    return ChainWorld(name, 3, phrases_from(name), 20, 10)


def slots(name: str, family: str, n: int = 40) -> list[tuple[str, date, Slot]]:
    documents = [world(name).document([family], 3) for _ in range(n)]
    return [(d.text, d.date, d.slots[0]) for d in documents]


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


# What a chain says is true, and both of its calls are needed.


@pytest.mark.parametrize("family", CHAINS)
@pytest.mark.parametrize("name", ["corpus", "evaluation"])
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


def test_sums_of_worlds_have_no_pair_of_numbers_in_common() -> None:
    def sums(name: str) -> set[str]:
        found = [s for family in ("fact-sum", "date-sum") for _, _, s in slots(name, family, 150)]
        return {slot.chains[0][1].input for slot in found}

    corpus, evaluation = sums("corpus"), sums("evaluation")
    assert min(len(corpus), len(evaluation)) > 200
    assert not corpus & evaluation


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


# Files.


def test_what_is_shipped_is_what_the_generator_writes(tmp_path: Path) -> None:
    generate_chains(tmp_path)
    for file in tmp_path.iterdir():
        # else: python -m smallworld.generate_chains
        assert file.read_bytes() == (ASSETS / file.name).read_bytes(), f"{file.name} is not what is written today"
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 100_000


def test_items_differ_and_take_the_families_in_turn() -> None:
    items = read(ASSETS / "chains-items.jsonl.gz")
    assert len({item["prompt"] for item in items}) == len({item["item_id"] for item in items}) == len(items)
    assert [item["group"] for item in items[:4]] == list(CHAINS)  # whoever asks a few asks of all families
    assert not any(item["prompt"].endswith(" ") for item in items)  # the value begins with its space
    assert chain_items(world("evaluation"), 2, 1) != chain_items(world("evaluation"), 2, 2)
