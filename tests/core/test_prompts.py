from __future__ import annotations

import operator
import re
from fractions import Fraction
from pathlib import Path

import pytest

from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import PromptError
from toolformer_core.prompts.load import load_prompt, prompt_from_text
from toolformer_core.syntax import find_calls, strip

TOOLS = sorted(TOOL_NAMES)


def demonstrations(tool: str) -> list[tuple[str, str]]:
    return re.findall(r"^Input: (.+)\nOutput: (.+)$", load_prompt(tool).head, re.MULTILINE)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_shipped_prompt_has_the_papers_form(tool: str) -> None:
    prompt = load_prompt(tool)
    assert (prompt.tool, prompt.tail) == (tool, "\nOutput:")
    assert prompt.head.endswith("\n\nInput: ")
    assert f"[{TOOL_NAMES[tool]}(" in prompt.head.split("\n")[0]
    assert len(demonstrations(tool)) == 4


@pytest.mark.parametrize("tool", TOOLS)
def test_a_shipped_prompt_is_short(tool: str) -> None:
    assert len(load_prompt(tool).head.split("\n")[0].split()) <= 30
    assert all(8 <= len(text.split()) <= 18 for text, _ in demonstrations(tool))


@pytest.mark.parametrize("tool", TOOLS)
def test_each_demonstration_is_its_input_with_one_call_and_no_response(tool: str) -> None:
    for text, annotated in demonstrations(tool):
        (found,) = find_calls(annotated)
        assert strip(annotated, [(found.start, found.end)]) == text
        assert found.call.tool == TOOL_NAMES[tool]
        assert found.response is None
        assert annotated[found.start : found.end] == f" [{found.call.tool}({found.call.input})]"  # no quotes, no arrow


def test_the_calculators_demonstrations_are_right() -> None:
    # 48 + 27 = 75; 350 - 112 = 238; 14 * 36 = 504; 90 / 4 = 22.50
    said = []
    for _, annotated in demonstrations("calculator"):
        (found,) = find_calls(annotated)
        left, op, right = found.call.input.split()
        a, b = Fraction(left), Fraction(right)
        result = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[op](a, b)
        assert annotated[found.end :].split()[0] == (str(result) if result.denominator == 1 else f"{float(result):.2f}")
        said.append(op)
    assert said == ["+", "-", "*", "/"]


def test_the_translators_demonstrations_quote_the_phrase_first() -> None:
    for text, annotated in demonstrations("mt"):
        (found,) = find_calls(annotated)
        assert found.call.input in text[: found.start]


def test_a_users_folder_is_read_and_braces_are_nothing_special(tmp_path: Path) -> None:
    (tmp_path / "qa.txt").write_bytes(b"Use {0} and {name}.\r\nInput: {text}\r\nOutput:\r\n")
    prompt = load_prompt("qa", tmp_path)
    assert (prompt.head, prompt.tail) == ("Use {0} and {name}.\nInput: ", "\nOutput:")


@pytest.mark.parametrize(
    ("text", "message"), [("Input: x", "no {text}"), ("{text} {text}", "more than one {text}"), ("", "no {text}")]
)
def test_a_prompt_needs_exactly_one_placeholder(text: str, message: str) -> None:
    with pytest.raises(PromptError, match=re.escape(message)):
        prompt_from_text("qa", text)


def test_a_missing_file_in_a_users_folder_is_an_error_that_names_the_files(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"calculator\.txt, calendar\.txt, wikisearch\.txt, qa\.txt, mt\.txt"):
        load_prompt("qa", tmp_path)


def test_a_prompt_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "qa.txt").write_bytes(b"\xff\xfe {text}")
    with pytest.raises(PromptError, match="cannot read"):
        load_prompt("qa", tmp_path)


def test_the_digest_follows_the_text() -> None:
    assert prompt_from_text("qa", "a {text}").digest != prompt_from_text("qa", "b {text}").digest
