"""The shipped wordings of the annotation prompts, and those of a user's folder."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from smallworld import chain_frames, frames
from toolformer_core.annotate.tool_prompt import chain_prompt_for, chosen_wordings, prompts_for
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import PromptError
from toolformer_core.prompts.load import load_prompt, prompt_path, wordings_in
from toolformer_core.syntax import find_calls, strip

WORDINGS = [(tool, number) for tool in TOOL_NAMES for number in range(1, 6)]
SUMS = re.compile(r"(\d+) ([+*/-]) (\d+)")


def demonstrations(tool: str, wording: int) -> list[tuple[str, str]]:
    return re.findall(r"^Input: (.+)\nOutput: (.+)$", load_prompt(tool, None, wording).head, re.MULTILINE)


def a_tool(key: str) -> Any:
    return SimpleNamespace(key=key, name=TOOL_NAMES.get(key, key.title()))


def test_each_tool_has_five_wordings() -> None:
    assert {tool: wordings_in(tool) for tool in TOOL_NAMES} == {tool: [2, 3, 4, 5] for tool in TOOL_NAMES}


@pytest.mark.parametrize(("tool", "wording"), WORDINGS)
def test_a_wording_has_the_papers_form(tool: str, wording: int) -> None:
    prompt = load_prompt(tool, None, wording)
    assert (prompt.tool, prompt.tail, prompt.wording) == (tool, "\nOutput:", wording)
    assert prompt.head.endswith("\n\nInput: ")
    instruction = prompt.head.split("\n")[0]
    assert f"[{TOOL_NAMES[tool]}(" in instruction
    assert len(instruction.split()) <= 35
    assert 3 <= len(demonstrations(tool, wording)) <= 7


@pytest.mark.parametrize(("tool", "wording"), WORDINGS)
def test_a_demonstration_is_its_input_with_one_call_at_most(tool: str, wording: int) -> None:
    called = 0
    for text, annotated in demonstrations(tool, wording):
        found = list(find_calls(annotated))
        assert strip(annotated, [(one.start, one.end) for one in found]) == text
        assert all(annotated[one.start : one.end] == f" [{TOOL_NAMES[tool]}({one.call.input})]" for one in found)
        assert len(found) <= 1
        called += len(found)
    shown = len(demonstrations(tool, wording))
    assert called == (3 if wording == 2 else shown)  # the second one also shows when not to call
    assert shown - called == (2 if wording == 2 else 0)


@pytest.mark.parametrize("tool", TOOL_NAMES)
def test_wordings_differ_in_instruction_and_demonstrations(tool: str) -> None:
    heads = [load_prompt(tool, None, number).head for number in range(1, 6)]
    assert len({head.split("\n")[0] for head in heads}) == 5
    texts = [text for number in range(1, 6) for text, _ in demonstrations(tool, number)]
    assert len(set(texts)) == len(texts)
    assert len({load_prompt(tool, None, number).digest for number in range(1, 6)}) == 5


@pytest.mark.parametrize("wording", range(2, 6))
def test_the_calculators_sums_are_right(wording: int) -> None:
    for _, annotated in demonstrations("calculator", wording):
        for found in find_calls(annotated):
            a, op, b = SUMS.fullmatch(found.call.input).groups()  # type: ignore[union-attr]
            x, y = int(a), int(b)
            result = {"+": x + y, "-": x - y, "*": x * y, "/": x // y}[op]
            assert op != "/" or x % y == 0
            assert annotated[found.end :].split()[0].rstrip(".,") == str(result)


@pytest.mark.parametrize("wording", range(2, 6))
def test_the_translators_phrase_stands_in_front(wording: int) -> None:
    for _, annotated in demonstrations("mt", wording):
        for found in find_calls(annotated):
            assert found.call.input in annotated[: found.start]


def frames_of(value: Any) -> set[str]:
    """All sentence frames in a value of `smallworld.frames`."""
    if isinstance(value, str):
        return {value} if "{" in value else set()
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return {frame for part in parts for frame in frames_of(part)} if isinstance(parts, list | tuple | set) else set()


def test_no_demonstration_is_a_text_of_the_small_world() -> None:
    given = {frame for name, value in vars(frames).items() if name.isupper() for frame in frames_of(value)}
    assert len(given) > 200
    patterns = [
        re.compile(re.sub(r"<?\\{.*?\\}>?", ".+", re.escape(frame)).removesuffix(r"\.") + r"\.?")
        for frame in given
        if len(re.sub(r"<?\{.*?\}>?", "", frame).split()) >= 3
    ]
    for tool, number in WORDINGS:
        for text, _ in demonstrations(tool, number) if number > 1 else ():
            assert not [pattern.pattern for pattern in patterns if pattern.fullmatch(text)], text


def folder_of(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).write_text(f"{name} {{text}}", encoding="utf-8")
    return tmp_path


def test_a_users_folder_holds_further_wordings(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qa.txt", "qa.3.txt", "qa.10.txt", "qa.1.txt", "qa.02.txt", "qa.x.txt", "mt.2.txt")
    assert wordings_in("qa", folder) == [3, 10]
    found = prompts_for(a_tool("qa"), None, folder)
    assert [(p.wording, p.head) for p in found] == [(1, "qa.txt "), (3, "qa.3.txt "), (10, "qa.10.txt ")]
    assert [p.wording for p in prompts_for(a_tool("qa"), (10, 2, 1), folder)] == [1, 10]  # those that it has
    assert prompt_path("qa", folder, 10) == folder / "qa.10.txt"


def test_a_tool_without_any_of_the_wordings_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"qa has no wording 6, 7, only 1, 2, 3, 4, 5; name one that it has"):
        chosen_wordings("qa", (7, 6))
    with pytest.raises(PromptError, match=r"qa has no wording 2 in .*, only 1;"):
        prompts_for(a_tool("qa"), (2,), folder_of(tmp_path, "qa.txt"))


def test_a_tool_of_ones_own_has_the_wording_that_it_declares(tmp_path: Path) -> None:
    assert chosen_wordings("miles", None) == chosen_wordings("miles", (1, 3)) == [1]
    with pytest.raises(PromptError, match="miles has no wording 3, only 1"):
        chosen_wordings("miles", (3,))
    folder = folder_of(tmp_path, "miles.txt", "miles.2.txt")
    assert [p.head for p in prompts_for(a_tool("miles"), None, folder)] == ["miles.txt ", "miles.2.txt "]


@pytest.mark.parametrize("tool", TOOL_NAMES)
def test_a_prompt_for_chains_shows_a_call_behind_an_answered_one(tool: str) -> None:
    prompt = chain_prompt_for(a_tool(tool))
    assert (prompt.tool, prompt.tail, prompt.wording) == (tool, "\nOutput:", 1)
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
    given = [group for groups in chain_frames.CHAINS.values() for group in groups.values()]
    assert sum(len(group.frames) for group in given) > 60
    patterns = [
        re.compile(re.sub(r"<?\\{.*?\\}>?", ".+", re.escape(frame)).removesuffix(r"\.") + r"\.?")
        for group in given
        for frame in group.frames
    ]
    for tool in TOOL_NAMES:
        for text in re.findall(r"^Input: (.+)$", chain_prompt_for(a_tool(tool)).head, re.MULTILINE):
            assert not [pattern.pattern for pattern in patterns if pattern.fullmatch(text)], text


def test_chains_are_drawn_with_a_users_prompt_where_there_is_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qa.txt", "qa.chain.txt", "mt.txt")
    assert chain_prompt_for(a_tool("qa"), folder).head == "qa.chain.txt "
    assert chain_prompt_for(a_tool("mt"), folder).head == "mt.txt "
    assert wordings_in("qa", folder) == []
