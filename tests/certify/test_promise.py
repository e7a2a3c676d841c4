"""The label of every token, worked out by hand from stretches of text."""

from typing import Any

import pytest
from hypothesis import given

from certify.promise import (
    BrokenPromiseError,
    Promise,
    Stretch,
    byte_pieces,
    labels_of,
    segments_promise,
    tokens_promise,
)
from tests.strategies import encodable_texts
from tests.tiny import tokenizer

BOOKS = "Of 587 books 58 are lent, so [Calculator(587 - 58) -> 529] 529 remain."
# " [Calculator(587 - 58) -> 529]" begins at 28 and has 30 characters.
ROW: dict[str, Any] = {"text": BOOKS, "calls": [{"start": 28, "end": 58, "response": "529"}]}


def labels(tokens: list[str], promise: Promise) -> list[int]:
    """Labels of tokens with the ids 1, 2, ..., given as texts."""
    return labels_of(range(1, len(tokens) + 1), [token.encode() for token in tokens], promise)


def test_a_response_is_masked_and_all_else_is_trained() -> None:
    promise = tokens_promise(ROW, "<s>", "</s>")
    tokens = ["<s>", BOOKS[:54], "529", "] 529 remain.", "</s>"]
    assert labels(tokens, promise) == [-100, 2, -100, 4, 5]
    # A token that shares a character with the response is masked with it, here " 5" and "9]".
    tokens = ["<s>", BOOKS[:53], " 5", "2", "9]", " 529 remain.", "</s>"]
    assert labels(tokens, promise) == [-100, 2, -100, -100, -100, 6, 7]


def test_segments_have_no_tokens_around_them() -> None:
    promise = segments_promise(ROW)
    assert [stretch.trained for stretch in promise.stretches] == [True, False, True]
    assert "".join(stretch.text for stretch in promise.stretches) == BOOKS
    with pytest.raises(BrokenPromiseError, match="nothing should follow where there is '</s>'"):
        labels([BOOKS, "</s>"], promise)


def test_an_empty_response_masks_nothing() -> None:
    row = {"text": "So [QA(a) -> ] it is.", "calls": [{"start": 2, "end": 14, "response": ""}]}
    assert labels([row["text"]], segments_promise(row)) == [1]


def test_a_token_of_a_chat_is_trained_if_it_shares_a_byte_with_what_is_trained() -> None:
    promise = Promise((Stretch("user: a\n", False), Stretch("b.", True), Stretch("\n", False)))
    assert labels(["user: a", "\nb", ".", "\n"], promise) == [-100, 2, 3, -100]


def test_bytes_of_one_character_belong_to_its_stretch() -> None:
    promise = Promise((Stretch("a", False), Stretch("é", True), Stretch("b", False)))
    pieces = [b"a", "é".encode()[:1], "é".encode()[1:], b"b"]
    assert labels_of([7, 8, 9, 10], pieces, promise) == [-100, 8, 9, -100]


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (["a", "c"], "'b' should stand where there is 'c'"),
        (["a"], "'b' should stand where there is ''"),
        (["a", "b", "b"], "nothing should follow where there is 'b'"),
    ],
)
def test_another_text_breaks_the_promise(tokens: list[str], says: str) -> None:
    with pytest.raises(BrokenPromiseError, match=says):
        labels(tokens, Promise((Stretch("a", False), Stretch("b", True))))


def test_a_frame_may_stand_between_stretches_where_it_is_not_promised() -> None:
    promise = Promise((Stretch("ask", False), Stretch("say", True)), whole=False)
    assert labels(["<", "ask", ">", "say", "."], promise) == [-100, -100, -100, 4, -100]
    with pytest.raises(BrokenPromiseError, match="'say' should stand"):
        labels(["say", "ask"], promise)  # the order counts


@given(encodable_texts)
def test_the_bytes_of_tokens_are_those_of_the_text(text: str) -> None:
    coded = tokenizer()
    ids = coded(text, add_special_tokens=False)["input_ids"]
    assert b"".join(byte_pieces(coded)(ids)) == text.encode()
