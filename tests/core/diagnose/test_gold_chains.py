"""Chains of C* against gold: what is a chain, which one is right, and what is read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smallworld.generate_chains import generate_chains
from toolformer_core.diagnose.chains import (
    Chain,
    ChainFigures,
    GoldChain,
    chains_in,
    compare_chains,
    read_gold_chains,
)
from toolformer_core.errors import CorpusError
from toolformer_core.records import Call, Example, InsertedCall, document_id
from toolformer_core.syntax import interleave, linearize

BORN = ("qa", "When was Velden founded?", "1820")
SUM = ("calculator", "1820 + 45", "1865")
GOLD = GoldChain(30, "1865", (BORN, SUM))


def example(text: str, *calls: tuple[int, tuple[str, str, str]]) -> Example:
    """An example with these calls, inserted in the order given."""
    pieces = [(position, linearize(Call(tool, input), response)) for position, (tool, input, response) in calls]
    annotated, spans = interleave(text, pieces)
    placed = sorted(calls, key=lambda c: c[0])  # stable, as `interleave` is
    return Example(
        "d",
        annotated,
        tuple(
            InsertedCall(tool, position, start, end, input, response, 1.0)
            for (position, (tool, input, response)), (start, end) in zip(placed, spans, strict=True)
        ),
    )


def test_a_chain_is_a_run_of_calls_at_one_position() -> None:
    one = example("Velden has a bridge of 1865.", (6, BORN), (22, BORN), (22, SUM))
    born, summed = "[qa(When was Velden founded?) -> 1820]", "[calculator(1820 + 45) -> 1865]"
    assert one.text == f"Velden {born} has a bridge of {born} {summed} 1865."
    assert chains_in(one) == [(22, [BORN, SUM])]  # one call alone is no chain
    assert chains_in(Example("d", "Velden has a bridge.")) == []


@pytest.mark.parametrize(
    ("chain", "right"),
    [
        ((30, [BORN, SUM]), True),
        ((30, [("qa", "How old is Velden?", "1820"), SUM]), True),  # other inputs, the same answer
        ((30, [BORN, ("calculator", "1820 + 45", "1865.00")]), False),  # 1865.00 does not hold 1865
        ((30, [BORN, ("calculator", "1820 + 54", "1874")]), False),  # another response
        ((30, [SUM, BORN]), False),  # the other order, whose last response is 1820
        ((30, [BORN, BORN, SUM]), False),  # one call more
        ((30, [("wikisearch", "Velden", "Velden > founded in 1820"), SUM]), False),  # another tool
        ((29, [BORN, SUM]), False),  # another position
        ((60, [BORN, SUM]), False),
    ],
)
def test_a_chain_is_right_by_position_tools_and_last_response(chain: Chain, right: bool) -> None:
    assert compare_chains({"d": [chain]}, {"d": [GOLD]}) == ChainFigures(1, int(right), 1, int(right))


def test_precision_and_recall_by_hand() -> None:
    searched = GoldChain(30, "1865", (("wikisearch", "Velden", "founded in 1820"), SUM))
    gold = {
        "a": [GOLD, searched],  # two ways at one position: one to find
        "b": [GOLD, GoldChain(80, "blue hat", (BORN, ("mt", "sombrero azul", "blue hat")))],
        "c": [GOLD],
    }
    kept = {
        "a": [(30, [("wikisearch", "Velden", "founded in 1820"), SUM])],  # right, by the second way
        "b": [(30, [BORN, SUM]), (80, [BORN, ("mt", "azul", "blue")])],  # right; wrong: blue is no blue hat
        "e": [(30, [BORN, SUM])],  # wrong: the document has no gold
    }
    figures = compare_chains(kept, gold)
    # 2 of 4 kept chains are right; of the positions a30, b30, b80, c30 two were found
    assert (figures.precision, figures.recall) == (2 / 4, 2 / 4)
    assert figures == ChainFigures(kept=4, right=2, gold=4, found=2)
    assert (compare_chains({}, gold).precision, compare_chains({}, gold).recall) == (None, 0.0)
    assert (compare_chains(kept, {}).precision, compare_chains(kept, {}).recall) == (0.0, None)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(2, 4)), unique_by=lambda x: x[0], max_size=8))
def test_gold_itself_is_all_right(placed: list[tuple[int, int]]) -> None:
    calls = {n: tuple(("calculator", f"{i} + 1", str(i + 1)) for i in range(n)) for n in range(2, 5)}
    gold = {"d": [GoldChain(position, str(n), calls[n]) for position, n in placed]}
    one = example("x" * 41, *((position, call) for position, n in placed for call in calls[n]))
    figures = compare_chains({"d": chains_in(one)}, gold)
    assert figures == ChainFigures(*[len(placed)] * 4)


def test_the_small_worlds_gold_is_read_and_compares_with_itself(tmp_path: Path) -> None:
    generate_chains(tmp_path, documents=12, facts=8, per_group=1)
    gold = read_gold_chains(tmp_path)
    with gzip.open(tmp_path / "chains-corpus.jsonl.gz", "rt", encoding="utf-8") as rows:
        texts = {document_id(row["text"], row["url"]): row["text"] for row in map(json.loads, rows)}
    kept: dict[str, list[Chain]] = {}
    for doc_id, chains in gold.items():
        assert all(texts[doc_id][one.position :].startswith(f" {one.value}") for one in chains)
        first = {one.position: one for one in reversed(chains)}  # the way that is meant
        one = example(texts[doc_id], *((c.position, call) for c in first.values() for call in c.calls))
        kept[doc_id] = chains_in(one)
    figures = compare_chains(kept, gold)
    assert figures.kept == figures.right == figures.gold == figures.found >= 10


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"url": "https://a.example/0"}, "KeyError"),
        ({"url": "https://a.example/0", "chains": [{"position": 99, "value": "x", "calls": []}]}, "outside the text"),
        ({"url": "https://a.example/0", "chains": [{"position": 1, "value": 7, "calls": []}]}, "not text"),
        ({"url": "https://a.example/0", "chains": [{"position": 1, "value": "x", "calls": [{"tool": "qa"}]}]}, "input"),
        ([], "TypeError"),
    ],
)
def test_gold_of_a_wrong_form_is_refused(row: object, says: str, tmp_path: Path) -> None:
    (tmp_path / "chains-corpus.jsonl").write_text('{"text": "Some text.", "url": "https://a.example/0"}\n')
    with pytest.raises(CorpusError, match="cannot read the gold chains"):
        read_gold_chains(tmp_path)  # there is no gold
    (tmp_path / "chains-gold.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(CorpusError, match=says):
        read_gold_chains(tmp_path)
