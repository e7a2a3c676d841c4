"""Pieces, layouts and the choice of a step's texts: worked by hand, and as laws."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples_with_calls
from tests.support.examples_of_c_star import BOOKS
from tests.tiny import sentencepiece, tokenizer
from toolformer_core.errors import CorpusError, ModelError, UsageError
from toolformer_core.export.tokens import token_rows
from toolformer_core.finetune import texts as texts_of
from toolformer_core.finetune.texts import Piece, encode_texts, make_micro_batch, micro_batches, one_per_row, pack
from toolformer_core.records import Example


class Letters:
    """A tokenizer whose tokens are code points."""

    def __call__(self, texts: list[str], **kwargs: object) -> dict[str, Any]:
        offsets = [[(i, i + 1) for i in range(len(text))] for text in texts]
        return {"input_ids": [[ord(c) for c in text] for text in texts], "offset_mapping": offsets}

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


def test_a_text_is_cut_so_that_every_token_is_a_target_once() -> None:
    # [1] a b c d e [2] is 7 tokens; pieces of 4, each repeating one: [1] a b c | c d e [2]
    first, second = encode_texts(Letters(), ["abcde"], start=1, end=2, length=4)
    assert (first.ids.tolist(), second.ids.tolist()) == ([1, 97, 98, 99], [99, 100, 101, 2])
    assert first.targets.tolist() == second.targets.tolist() == [False, True, True, True]
    # perplexity does not ask for the end
    (piece,) = encode_texts(Letters(), ["ab"], start=1, end=2, length=8, score_end=False)
    assert (piece.ids.tolist(), piece.targets.tolist()) == ([1, 97, 98, 2], [False, True, True, False])
    # without a start the first token is no target, and "x" has nothing to predict
    (piece,) = encode_texts(Letters(), ["abc", "x"], start=None, end=None, length=8)
    assert (piece.ids.tolist(), piece.targets.tolist()) == ([97, 98, 99], [False, True, True])


def test_what_cannot_be_trained_on_is_said() -> None:
    with pytest.raises(UsageError, match="nothing to train on"):
        encode_texts(Letters(), ["x"], start=None, end=None, length=8)
    slow = Letters()
    slow.is_fast = False  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match="no fast tokenizer"):
        encode_texts(slow, ["ab"], start=1, end=2, length=9)


@given(st.lists(st.text("abc", max_size=40), min_size=1, max_size=6), st.integers(2, 9))
def test_all_targets_are_there_in_order(texts: list[str], length: int) -> None:
    pieces = encode_texts(Letters(), texts, start=1, end=2, length=length)
    targets = [int(t) for p in pieces for t in p.ids[p.targets]]
    assert targets == [t for text in texts for t in [*map(ord, text), 2]]
    assert all(2 <= len(p) <= length for p in pieces)


def test_what_an_arm_learns_from_a_document() -> None:
    assert texts_of.training_text(BOOKS, "cc") == "Of 587 books 58 are lent, so 529 remain."


@given(
    st.lists(examples_with_calls(), min_size=1, max_size=3),
    st.sampled_from([tokenizer(), sentencepiece(), Letters()]),
    st.sampled_from([None, 1]),
)
def test_the_tokens_read_are_those_of_the_export(examples: list[Example], coded: Any, start: int | None) -> None:
    texts = [texts_of.training_text(example, "toolformer") for example in examples]
    whole = encode_texts(coded, texts, start=start, end=2, length=10_000)
    rows = token_rows(coded, examples, start=start, end=2)
    assert [piece.ids.tolist() for piece in whole] == [list(row.input_ids) for row in rows]


@given(st.integers(1, 20), st.integers(1, 30), st.integers(1, 6), st.integers(0, 9))
def test_steps_read_the_epochs_in_a_row(pieces: int, batch: int, steps: int, seed: int) -> None:
    flat = [i for s in range(1, steps + 1) for i in texts_of.step_pieces(pieces, batch, s, seed)]
    assert len(flat) == steps * batch
    for at in range(0, len(flat) - pieces + 1, pieces):
        assert sorted(flat[at : at + pieces]) == list(range(pieces))


def test_longest_first_into_the_fullest_row_that_has_room() -> None:
    # rows of 10: 7 opens a row (room 3), 6 another (room 4), 4 fits the second exactly, 3 the first exactly
    assert pack([3, 7, 4, 6], 10) == [[1, 0], [3, 2]]


@given(st.lists(st.integers(1, 30), max_size=40))
def test_rows_hold_every_piece_once_and_no_more_than_fits(lengths: list[int]) -> None:
    rows = pack(lengths, 30)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= 30 for row in rows)
    assert sum(sum(lengths[i] for i in row) <= 15 for row in rows) <= 1  # two half-empty rows would be one


def test_rows_of_one_piece_share_a_pass_with_those_of_like_length() -> None:
    rows = one_per_row([9, 2, 17, 5, 9])
    assert rows == [[2], [0], [4], [3], [1]]
    # passes of two hold 2 x 17, 2 x 9 and 2 places: 54 for 42 tokens; in the order given 18 + 34 + 9 = 61
    assert list(micro_batches(rows, 0, 1, 2)) == [[[2], [0]], [[4], [3]], [[1]]]


@given(st.integers(0, 40), st.integers(1, 5), st.integers(1, 4))
def test_rows_are_dealt_to_all_processes_in_as_many_passes(rows: int, world: int, micro: int) -> None:
    dealt = [list(micro_batches([[i] for i in range(rows)], rank, world, micro)) for rank in range(world)]
    assert len({len(passes) for passes in dealt}) == 1
    assert sorted(r[0] for passes in dealt for batch in passes for r in batch) == list(range(rows))
    assert all(len(batch) <= micro for passes in dealt for batch in passes)


def test_rows_of_pieces() -> None:
    a = Piece(np.array([1, 5, 6]), np.array([False, True, True]))
    b = Piece(np.array([1, 7]), np.array([False, True]))
    rows = make_micro_batch([[a, b], [b]])
    assert rows.ids.tolist() == [[1, 5, 6, 1, 7], [1, 7, 0, 0, 0]]
    assert rows.positions.tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 3, 4]]
    assert rows.weights.tolist() == [[0, 1, 1, 0, 1], [0, 1, 0, 0, 0]]
    assert rows.weights.sum() == 4
    assert make_micro_batch([]).weights.sum() == 0


def test_a_line_without_a_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"text": "a\u2028b"}, ensure_ascii=False) + '\n\n{"txt": 1}\n', encoding="utf-8")
    with pytest.raises(CorpusError, match="line 3"):
        texts_of.read_texts(path)
    path.write_text(json.dumps({"text": "a\u2028b"}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert texts_of.read_texts(path) == ["a\u2028b"]
    with pytest.raises(CorpusError, match="cannot be read"):
        texts_of.read_texts(tmp_path / "none.jsonl")
