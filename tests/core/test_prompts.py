import operator
import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from smallworld.chains import CHAINS
from toolformer_core.annotate.tool_prompt import chain_prompt_for
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import PromptError
from toolformer_core.prompts.load import load_prompt, prompt_from_text
from toolformer_core.syntax import find_calls, strip

TOOLS = sorted(TOOL_NAMES)


def demonstrations(tool: str) -> list[tuple[str, str]]:
    return re.findall(r"^Input: (.+)\nOutput: (.+)$", load_prompt(tool).head, re.MULTILINE)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_shipped_prompt_has_the_papers_form_and_is_short(tool: str) -> None:
    prompt = load_prompt(tool)
    assert (prompt.tool, prompt.tail) == (tool, "\nOutput:")
    assert prompt.head.endswith("\n\nInput: ")
    instruction = prompt.head.split("\n")[0]
    assert f"[{TOOL_NAMES[tool]}(" in instruction
    assert len(instruction.split()) <= 30
    assert len(demonstrations(tool)) == 4
    for text, annotated in demonstrations(tool):  # each is its input with one call and no response
        assert 8 <= len(text.split()) <= 18
        (found,) = find_calls(annotated)
        assert strip(annotated, [(found.start, found.end)]) == text
        assert found.call.tool == TOOL_NAMES[tool]
        assert found.response is None
        assert annotated[found.start : found.end] == f" [{found.call.tool}({found.call.input})]"  # no quotes, no arrow
        assert tool != "mt" or found.call.input in text[: found.start]  # the phrase stands in front


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


def test_a_prompt_needs_exactly_one_placeholder() -> None:
    for text, message in {"Input: x": "no {text}", "{text} {text}": "more than one {text}", "": "no {text}"}.items():
        with pytest.raises(PromptError, match=re.escape(message)):
            prompt_from_text("qa", text)


def test_a_file_that_is_missing_or_not_utf8_and_an_unknown_tool_are_errors(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"calculator\.txt, calendar\.txt, wikisearch\.txt, qa\.txt, mt\.txt"):
        load_prompt("qa", tmp_path)
    (tmp_path / "qa.txt").write_bytes(b"\xff\xfe {text}")
    with pytest.raises(PromptError, match="cannot read"):
        load_prompt("qa", tmp_path)


SUMS = re.compile(r"(\d+) ([+*/-]) (\d+)")


def a_tool(key: str) -> Any:
    return SimpleNamespace(key=key, name=TOOL_NAMES[key])


@pytest.mark.parametrize("tool", TOOL_NAMES)
def test_a_prompt_for_chains_shows_a_call_behind_an_answered_one(tool: str) -> None:
    prompt = chain_prompt_for(a_tool(tool))
    assert (prompt.tool, prompt.tail) == (tool, "\nOutput:")
    assert prompt.digest != load_prompt(tool).digest
    shown = re.findall(r"^Input: (.+)\nOutput: (.+)$", prompt.head, re.MULTILINE)
    assert 3 <= len(shown) <= 4
    for text, annotated in shown:
        first, second = find_calls(annotated)
        assert strip(annotated, [(one.start, one.end) for one in (first, second)]) == text
        assert first.response
        assert first.end == second.start
        assert annotated[second.start : second.end] == f" [{TOOL_NAMES[tool]}({second.call.input})]"
        if tool in ("qa", "wikisearch", "mt"):  # what it asks about comes from the answer in front of it
            words = set(re.findall(r"\w+", first.response)) & set(re.findall(r"\w+", second.call.input))
            assert words - set(re.findall(r"\w+", text))
        if tool == "calculator":
            a, op, b = SUMS.fullmatch(second.call.input).groups()  # type: ignore[union-attr]
            assert {a, b} & set(re.findall(r"\d+", first.response)) - set(re.findall(r"\d+", text))
            result = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[op]
            assert annotated[second.end :].split()[0].rstrip(".,") == str(result)


def test_no_chain_in_a_prompt_is_one_of_the_small_world() -> None:
    given = [group for groups in CHAINS.values() for group in groups.values()]
    assert sum(len(group.frames) for group in given) > 60
    patterns = [
        re.compile(re.sub(r"<?\\{.*?\\}>?", ".+", re.escape(frame)).removesuffix(r"\.") + r"\.?")
        for group in given
        for frame in group.frames
    ]
    for tool in TOOL_NAMES:
        for text in re.findall(r"^Input: (.+)$", chain_prompt_for(a_tool(tool)).head, re.MULTILINE):
            assert not [pattern.pattern for pattern in patterns if pattern.fullmatch(text)], text


def test_a_users_folder_is_read_for_chains_as_well_and_braces_are_nothing_special(tmp_path: Path) -> None:
    for name in ("qa.txt", "qa.chain.txt", "mt.txt"):
        (tmp_path / name).write_bytes(f"{name} {{0}} and {{name}}.\r\nInput: {{text}}\r\nOutput:\r\n".encode())
    prompts = [load_prompt("qa", tmp_path), *(chain_prompt_for(a_tool(key), tmp_path) for key in ("qa", "mt"))]
    assert [(prompt.head, prompt.tail) for prompt in prompts] == [
        (f"{name} {{0}} and {{name}}.\nInput: ", "\nOutput:") for name in ("qa.txt", "qa.chain.txt", "mt.txt")
    ]
