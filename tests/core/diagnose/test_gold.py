"""Texts with gold calls: read, chosen; demonstrations counted; the shipped reference."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny import sentencepiece, tiny_lm, tokenizer
from toolformer_core.config import TOOL_NAMES, PrefilterConfig
from toolformer_core.diagnose import reference
from toolformer_core.diagnose.gold import GoldCall, choose, normalised, read_gold
from toolformer_core.diagnose.structure import demonstrations, structure_of
from toolformer_core.diagnose.verdict import STEPS
from toolformer_core.errors import CorpusError
from toolformer_core.lm.load import model_digest
from toolformer_core.prompts.load import load_prompt, prompt_from_text
from toolformer_core.tools.declaration import DocumentFilter

SUM = "The {0} nuts and the {1} pears make {2} things to eat in all of the houses of Velden."


def write(folder: Path, rows: list[tuple[str, list[dict[str, object]]]]) -> Path:
    """Write texts and their gold calls."""
    with gzip.open(folder / "corpus.jsonl.gz", "wt", encoding="utf-8") as corpus:
        for i, (text, _) in enumerate(rows):
            corpus.write(json.dumps({"text": text, "url": f"https://a.example/{i}"}) + "\n")
    with gzip.open(folder / "gold.jsonl.gz", "wt", encoding="utf-8") as gold:
        for i, (_, calls) in enumerate(rows):
            gold.write(json.dumps({"url": f"https://a.example/{i}", "calls": calls}) + "\n")
    return folder


def sums(n: int) -> list[tuple[str, list[dict[str, object]]]]:
    """Texts of which every other one has a gold call; the others' numbers add up by chance, so to speak."""
    out: list[tuple[str, list[dict[str, object]]]] = []
    for i in range(n):
        text = SUM.format(i + 20, i + 30, 2 * i + 50)
        call = {
            "tool": "calculator",
            "input": f"{i + 20} + {i + 30}",
            "position": text.index(" make") + 5,
            "value": str(2 * i + 50),
            "something": "new",
        }
        out.append((text, [call] if i % 2 == 0 else []))
    return out


def test_gold_calls_find_their_documents(tmp_path: Path) -> None:
    texts = read_gold(write(tmp_path, sums(3)))
    first, second, _ = texts.documents
    (call,) = texts.of(first, "calculator")
    assert call == GoldCall(first.doc_id, "calculator", "20 + 30", first.text.index(" 50"), "50")
    assert texts.of(first, "qa") == texts.of(second, "calculator") == ()


@pytest.mark.parametrize(
    "call",
    [
        {"tool": "qa", "input": "x", "position": 10_000},
        {"tool": "qa", "input": "x"},
        {"tool": "qa", "input": "\ud800", "position": 0},
        {"tool": "qa", "input": "x", "position": "0"},
        {"tool": "qa", "input": "x", "position": 0, "value": {}},
    ],
)
def test_gold_calls_that_are_none(tmp_path: Path, call: dict[str, object]) -> None:
    with pytest.raises(CorpusError, match=r"gold\.jsonl\.gz"):
        read_gold(write(tmp_path, [("A text of some words.", [call])]))


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:12] + b"\xff" * 9 + b[21:], lambda _: b"["])
def test_gold_files_that_are_damaged(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    gold = write(tmp_path, sums(3)) / "gold.jsonl.gz"
    gold.write_bytes(damage(gold.read_bytes()))
    with pytest.raises(CorpusError, match=r"gold\.jsonl\.gz"):
        read_gold(tmp_path)


def test_three_documents_with_a_gold_call_to_one_without(tmp_path: Path) -> None:
    texts = read_gold(write(tmp_path, [*sums(40), ("No number is in here.", [])]))
    few, more, all_ = (choose(texts, "calculator", n, PrefilterConfig()) for n in (8, 12, None))
    for chosen, gold, documents in ((few, 6, 8), (more, 9, 12), (all_, 20, 40)):
        assert (len(chosen.gold), len(chosen.pairs), chosen.dropped) == (gold, documents, 0)
    assert set(few.gold) < set(more.gold) < set(all_.gold)
    with pytest.raises(CorpusError, match="hold no call of calendar; name a folder that does by --gold"):
        choose(texts, "calendar", 8, PrefilterConfig())
    call = {"tool": "calculator", "input": "1 + 1", "position": 7}
    unfit = [*sums(2), ("Nothing to add up: here is one.", [call])]  # what the prefilter drops is counted
    chosen = choose(read_gold(write(tmp_path, unfit)), "calculator", None, PrefilterConfig())
    assert (len(chosen.gold), chosen.dropped) == (1, 1)


def test_a_users_own_gold_calls_in_plain_files_and_the_conditions_of_their_tool(tmp_path: Path) -> None:
    far, near = "It is 5 miles, that is 8.0 km.", "It is 5 leagues, that is 24 km."
    call = {"tool": "miles", "input": "5 miles", "position": far.index("8.0"), "value": "8.0 km"}
    write(tmp_path, [(far, [call]), (near, [{**call, "position": near.index("24")}])])
    for name in ("corpus.jsonl", "gold.jsonl"):
        (tmp_path / name).write_bytes(gzip.decompress((tmp_path / f"{name}.gz").read_bytes()))
        (tmp_path / f"{name}.gz").unlink()
    chosen = choose(read_gold(tmp_path), "miles", None, PrefilterConfig(), declared=DocumentFilter(keywords=("miles",)))
    assert [document.text for document, _ in chosen.pairs] == [far]
    assert ([gold.input for gold in chosen.gold], chosen.dropped) == (["5 miles"], 1)


@pytest.mark.parametrize(
    ("tool", "one", "other", "same"),
    [
        ("calculator", "268 + 33", "268+33 =", True),
        ("calculator", "1,400 / 2", "1400/2", True),
        ("calculator", "268 + 33", "268 * 33", False),
        ("qa", "Who founded Velden?", "who founded  velden", True),
        ("qa", "Who founded Velden?", "Who founded Garrow?", False),
        ("calendar", "", " ", True),
    ],
)
def test_what_makes_no_difference_to_a_tool(tool: str, one: str, other: str, same: bool) -> None:
    assert (normalised(tool, one) == normalised(tool, other)) is same


# Structure.


@pytest.mark.parametrize(
    ("prompt", "count"),
    [
        ("A call is written [QA(question)], right there.\n\nInput: {text}\nOutput:", 0),
        ("Text: It is 5 in all.\nNow: It is [QA(What?)] 5 in all.\n\nText: {text}\nNow:", 1),
        ("It is 5 in all of it. => It is [QA(How much?)] 5 in [QA(Of what?)] all of it.\n{text} =>", 2),
        ("Input: Velden is a town.\nOutput: [QA(Where?)] Velden is a town.\n\nInput: {text}\nOutput:", 1),
        ("Now: It is [QA(What?)] 5 in all.\n\nText: {text}\nNow:", 0),  # never shown without the call
        ("Text: It is 5 in all.\nNow: It is [MT(What?)] 5 in all.\n\nText: {text}\nNow:", 0),  # another tool's
    ],
)
def test_demonstrations_are_texts_without_and_with_a_call(prompt: str, count: int) -> None:
    assert demonstrations(prompt_from_text("qa", prompt), "QA") == count


@pytest.mark.parametrize(
    "coded", [tokenizer(), tokenizer(merged_trigger=False), sentencepiece()], ids=["bytes", "split", "sentencepiece"]
)
def test_a_token_starts_at_every_gold_position_whatever_the_kind_of_tokenizer(tmp_path: Path, coded: object) -> None:
    lm = tiny_lm(coded=coded, context=2048)
    texts = read_gold(write(tmp_path, sums(6)))
    chosen = choose(texts, "calculator", None, PrefilterConfig())
    by_id = {d.doc_id: d.text for d, _ in chosen.pairs}
    found = structure_of(lm.hf_model, "Calculator", load_prompt("calculator"), by_id, chosen.gold, None)
    assert found.place_alone == 1.0
    assert (found.context, found.vocabulary) == (2048, len(coded))  # type: ignore[arg-type]


# The reference.


def test_the_reference_is_of_the_shipped_model_and_texts() -> None:
    """If not: python -m toolformer_core.diagnose.reference."""
    shipped = reference.read_reference()
    assert (shipped.model, shipped.texts) == (model_digest("embedded"), read_gold().digest)
    assert set(shipped.tools) == set(TOOL_NAMES)
    assert {tuple(measures) for measures in shipped.tools.values()} == {STEPS}


def test_one_command_writes_the_reference(tmp_path: Path) -> None:
    out = tmp_path / "reference.json"
    reference.main("calendar", 4, out)
    written = reference.read_reference(out)
    assert (written.model, written.documents, set(written.tools)) == (model_digest("embedded"), 4, {"calendar"})
    assert tuple(written.tools["calendar"]) == STEPS
