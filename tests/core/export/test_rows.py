"""Pieces, tokens, segments and turns of one sentence, worked out by hand; and the laws that hold for every text."""

import json
import re
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import encodable_texts, examples_with_calls
from tests.support.examples_of_c_star import BOOKS, an_example
from tests.tiny import sentencepiece, tokenizer
from toolformer_core import tool
from toolformer_core.errors import CallSyntaxError, UsageError
from toolformer_core.export.conversation import REASONS, REQUEST, LeftOut, Requests, Turn, conversation_of
from toolformer_core.export.dialects import openai_row, sharegpt_row
from toolformer_core.export.pieces import Piece, pieces_of, segment_row
from toolformer_core.export.restore import restore
from toolformer_core.export.schemas import ToolSchema, schema_of
from toolformer_core.export.tokens import NOT_TRAINED, token_rows
from toolformer_core.records import Call, Example
from toolformer_core.syntax import escape
from toolformer_core.tools.arguments.form import ArgumentForm, BadInput
from toolformer_core.tools.calculator import Calculator
from toolformer_core.tools.calendar import Calendar

SCHEMAS = {
    "Calculator": ToolSchema("Calculator", "Calculates."),
    "Calendar": ToolSchema("Calendar", "Says the date.", None),
    "QA": ToolSchema("QA", "Answers.", "question"),
}
MINUS = Call("Calculator", "587 - 58")
# Of the text, "Of 587 books 58 are lent, so" is 28 characters, and " 529 remain," another 12.
TWICE = an_example(
    "Of 587 books 58 are lent, so 529 remain, 23 on each of 23 shelves.",
    (28, "calculator", "587 - 58", "529"),
    (40, "calculator", "529 / 23", "23"),
)


def turns_of(example: Example, *requests: Requests) -> tuple[Turn, ...]:
    found = conversation_of(example, *requests)
    assert not isinstance(found, LeftOut)
    return found


class Letters:
    """A tokenizer of one token a character, but for the pieces given."""

    def __init__(self, *merged: str) -> None:
        self._merged = merged

    def __call__(self, texts: list[str], **_: Any) -> dict[str, list[Any]]:
        token = re.compile("|".join([*map(re.escape, self._merged), "."]), re.DOTALL)
        offsets = [[found.span() for found in token.finditer(text)] for text in texts]
        ids = [[ord(text[at]) for at, _ in spans] for text, spans in zip(texts, offsets, strict=True)]
        return {"input_ids": ids, "offset_mapping": offsets}

    def decode(self, ids: list[int]) -> str:
        return f"<{ids[0]}>"


def test_the_pieces_of_a_sentence() -> None:
    assert BOOKS.text == "Of 587 books 58 are lent, so [Calculator(587 - 58) -> 529] 529 remain."
    assert pieces_of(BOOKS) == [
        Piece("text", "Of 587 books 58 are lent, so"),
        Piece("call", " [Calculator(587 - 58) -> "),
        Piece("response", "529"),
        Piece("call", "]"),
        Piece("text", " 529 remain."),
    ]
    assert [piece.trained for piece in pieces_of(BOOKS)] == [True, True, False, True, True]
    segments = {"Of 587 books 58 are lent, so [Calculator(587 - 58) -> ": True, "529": False, "] 529 remain.": True}
    assert segment_row(BOOKS) == {"segments": [{"label": one, "text": text} for text, one in segments.items()]}


def test_spans_that_are_not_those_of_the_calls_are_refused() -> None:
    (call,) = BOOKS.calls
    others = (replace(call, start=call.start - 1), replace(call, input="587 - 59"), replace(call, response="52"))
    for calls in (*((other,) for other in others), (call, call)):
        with pytest.raises(CallSyntaxError):
            pieces_of(Example("d", BOOKS.text, calls))


def test_the_tokens_of_a_call() -> None:
    # x* = "a [QA(q) -> r] b", tokens of one character: the response is the character 12.
    example = an_example("a b", (1, "qa", "q", "r"))
    assert example.text.index("r") == 12
    (row,) = token_rows(Letters(), [example], start=1, end=2)
    letters = [ord(letter) for letter in example.text]
    assert row.input_ids == [1, *letters, 2]
    assert row.labels == [-100, *letters[:12], -100, *letters[13:], 2]  # the start is predicted by nothing
    assert row.row()["attention_mask"] == [1] * 18
    assert row.trained == 16
    assert "".join(row.texts) == f"<1>{example.text}<2>"


@pytest.mark.parametrize("coded", [tokenizer(), tokenizer(merged_trigger=False), sentencepiece()])
def test_every_token_of_a_character_that_is_split_is_masked(coded: Any) -> None:
    # 🙂 is four bytes; no tokenizer here has it as one token
    example = an_example("so x", (2, "qa", "how?", "é🙂"))
    (row,) = token_rows(coded, [example], start=None, end=0)
    masked = [i for i, label in enumerate(row.labels) if label == NOT_TRAINED and i]
    assert masked == list(range(masked[0], masked[-1] + 1))
    said = coded.decode([row.input_ids[i] for i in masked])
    assert said.strip() == "é🙂"


@given(examples_with_calls(), st.sampled_from([tokenizer(), sentencepiece(), Letters("] ", "->", "  ")]))
def test_exactly_the_tokens_that_share_a_character_with_a_response_are_masked(example: Example, coded: Any) -> None:
    (row,) = token_rows(coded, [example], start=None, end=None)
    assert "".join(row.texts) == example.text
    assert len(row.input_ids) == len(row.labels) == len(row.texts)
    trained = [piece.trained for piece in pieces_of(example) for _ in piece.text]
    responses = {i for i, of_character in enumerate(trained) if not of_character}
    at = 0
    for i, text in enumerate(row.texts):
        if text and i:  # a token without a character of its own is a part of the one before it
            touches = bool(responses & set(range(at, at + len(text))))
            assert (row.labels[i] == NOT_TRAINED) is touches
        at += len(text)


def test_the_turns_of_a_sentence() -> None:
    assert turns_of(BOOKS) == (
        Turn("user", f"{REQUEST}\n\nOf 587 books 58 are lent, so"),
        Turn("assistant", "", MINUS),
        Turn("tool", "529", MINUS),
        Turn("assistant", "529 remain."),
    )
    assert turns_of(BOOKS, Requests("Write on:"))[0].content == "Write on:\n\nOf 587 books 58 are lent, so"
    assert turns_of(BOOKS, Requests(""))[0].content == "Of 587 books 58 are lent, so"


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        (an_example("a b"), "plain"),
        (an_example("\n a b", (1, "qa", "q", "r")), "start"),
        (an_example("a b \n", (3, "qa", "q", "r")), "end"),
        (an_example("a\nb", (1, "qa", "q", "r")), "newline"),
        (an_example("a  b", (1, "qa", "q", "r")), "spaces"),
        (an_example("a\u00a0b", (1, "qa", "q", "r")), "spaces"),
        (an_example("a b", (2, "qa", "q", "r")), "glued"),
        (an_example("a.", (1, "qa", "q", "r")), "glued"),
        (an_example("a b.", (1, "qa", "q", "r"), (3, "qa", "q", "r")), "glued"),  # the second
        (an_example("a  b", (1, "qa", "q", "r"), (2, "qa", "q", "r")), "spaces"),  # a space between two calls
    ],
)
def test_why_a_text_has_no_turns(example: Example, reason: str) -> None:
    assert conversation_of(example) == LeftOut(reason)
    assert reason in REASONS


def test_messages() -> None:
    found = turns_of(BOOKS)
    row = openai_row(found, SCHEMAS)
    called = {"type": "function", "function": {"name": "Calculator", "arguments": '{"input": "587 - 58"}'}}
    assert row["messages"] == [
        {"role": "user", "content": f"{REQUEST}\n\nOf 587 books 58 are lent, so"},
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "name": "Calculator", "content": "529"},
        {"role": "assistant", "content": "529 remain."},
    ]
    (call,) = openai_row(found, SCHEMAS, "dict")["messages"][1]["tool_calls"]
    assert call["function"]["arguments"] == {"input": "587 - 58"}
    calculator, calendar, _ = json.loads(row["tools"])
    takes = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    described = {"name": "Calculator", "description": "Calculates.", "parameters": takes}
    assert calculator == {"type": "function", "function": described}
    assert calendar["function"]["parameters"] == {"type": "object", "properties": {}, "required": []}


def test_sharegpt_has_a_human_turn_between_a_text_and_the_next_call() -> None:
    found = turns_of(TWICE)
    row = sharegpt_row(found, SCHEMAS)
    assert [(one["from"], one["value"]) for one in row["conversations"]] == [
        ("human", f"{REQUEST}\n\nOf 587 books 58 are lent, so"),
        ("function_call", '{"name": "Calculator", "arguments": {"input": "587 - 58"}}'),
        *(("observation", "529"), ("gpt", "529 remain,"), ("human", "Go on.")),
        ("function_call", '{"name": "Calculator", "arguments": {"input": "529 / 23"}}'),
        *(("observation", "23"), ("gpt", "23 on each of 23 shelves.")),
    ]
    assert json.loads(row["tools"])[0]["name"] == "Calculator"


@given(examples_with_calls(), st.builds(Requests, encodable_texts, encodable_texts), st.sampled_from(["dict", "json"]))
def test_a_text_comes_back_from_every_row(example: Example, requests: Requests, arguments: Any) -> None:
    rows: list[Any] = [segment_row(example), {"text": example.text, "calls": []}]
    found = conversation_of(example, requests)
    if not isinstance(found, LeftOut):
        rows += [openai_row(found, SCHEMAS, arguments), sharegpt_row(found, SCHEMAS, requests)]
        said = [one["from"] for one in rows[-1]["conversations"]]
        assert set(said[::2]) <= {"human", "observation"}  # or LLaMA-Factory passes the row over
        assert set(said[1::2]) <= {"gpt", "function_call"}
    for row in rows:
        assert restore(json.loads(json.dumps(row)), requests) == example.text


@given(examples_with_calls())
def test_a_tool_says_in_a_turn_what_it_answered_and_not_what_stands_in_brackets(example: Example) -> None:
    found = conversation_of(example)
    if not isinstance(found, LeftOut):
        said = [turn.content for turn in found if turn.role == "tool"]
        assert said == [call.response for call in example.calls]
        assert all(escape(response) in example.text for response in said)


def test_a_row_with_arrows_nulls_is_read_all_the_same() -> None:
    call = {"function": {"name": "Calendar", "arguments": {"input": None, "question": None}}}
    messages = [
        {"role": "user", "content": "Q\n\na", "tool_calls": None, "name": None},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "May", "name": "Calendar", "tool_calls": None},
        {"role": "assistant", "content": "b", "tool_calls": None},
    ]
    assert restore({"messages": messages}, Requests("Q")) == "a [Calendar() -> May] b"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"input_ids": [1]}, "no text can be recovered from a row of input_ids"),
        ({"text": "rendered"}, "no text can be recovered"),
        ({"messages": [{"role": "user", "content": "Else\n\na"}]}, "another request"),
        ({"messages": [{"role": "user"}]}, "cannot be read"),
        ({"messages": []}, "cannot be read"),
        ({"conversations": [{"from": "human", "value": "x"}, {"from": "human", "value": "y"}]}, "another request"),
    ],
)
def test_what_no_text_is_recovered_from(row: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        restore(row)


def test_what_a_row_says_of_a_tool() -> None:
    assert schema_of(Calculator()).argument == "input"
    calendar = schema_of(Calendar())
    assert (calendar.name, calendar.argument) == ("Calendar", None)
    assert (calendar.arguments(""), calendar.arguments("today")) == ({}, {"input": "today"})
    assert calendar.function()["parameters"]["properties"] == {}


@tool
def convert(amount: float, unit: Literal["mi", "km"], to: str = "m", *, context: str = "") -> str:
    """Converts lengths."""
    return ""


CONVERT = schema_of(convert)
RUN = an_example("It is a run of 3 miles, or 4828 m, then of 2.", (23, "convert", " unit=MI,amount = 3.0", "4828"))


def test_a_tool_with_arguments_has_their_schema_and_its_calls_have_their_values() -> None:
    unit, to = {"type": "string", "enum": ["mi", "km"]}, {"type": "string", "default": "m"}
    properties = {"amount": {"type": "number"}, "unit": unit, "to": to}
    takes = {"type": "object", "properties": properties, "required": ["amount", "unit"]}
    assert CONVERT.function() == {"name": "Convert", "description": "Converts lengths.", "parameters": takes}
    assert CONVERT.arguments("amount=3, unit=mi") == {"amount": 3, "unit": "mi"}
    with pytest.raises(BadInput, match="amount: 'many' is not number"):
        CONVERT.arguments("amount=many, unit=mi")
    empty = ToolSchema("Now", form=ArgumentForm({"type": "object"}))  # a server need not say more
    assert empty.function()["parameters"] == {"type": "object", "properties": {}, "required": []}


@pytest.mark.parametrize("arguments", ["dict", "json"])
def test_a_text_comes_back_from_arguments_as_it_was_written(arguments: Any) -> None:
    found, schemas = turns_of(RUN), {**SCHEMAS, "Convert": CONVERT}
    openai, sharegpt = openai_row(found, schemas, arguments), sharegpt_row(found, schemas)
    (call,) = openai["messages"][1]["tool_calls"]
    given = {"unit": "mi", "amount": 3.0}
    assert call["function"]["arguments"] == (given if arguments == "dict" else json.dumps(given))
    assert json.loads(sharegpt["conversations"][1]["value"]) == {"name": "Convert", "arguments": given}
    for row in (openai, sharegpt):
        assert row["inputs"] == [" unit=MI,amount = 3.0"]
        assert restore(json.loads(json.dumps(row))) == restore(row) == RUN.text
        with pytest.raises(UsageError, match="cannot be read"):
            restore({**row, "inputs": None})  # from two arguments no input can be told
    assert "inputs" not in openai_row(found, {**SCHEMAS, "Convert": ToolSchema("Convert")})
