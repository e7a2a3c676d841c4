"""The prompts for calls in chains: those that are shipped, and those of a user's folder."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from smallworld.chains import CHAINS
from toolformer_core.annotate.tool_prompt import chain_prompt_for
from toolformer_core.config import TOOL_NAMES
from toolformer_core.prompts.load import load_prompt
from toolformer_core.syntax import find_calls, strip

SUMS = re.compile(r"(\d+) ([+*/-]) (\d+)")


def a_tool(key: str) -> Any:
    return SimpleNamespace(key=key, name=TOOL_NAMES.get(key, key.title()))


def folder_of(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).write_text(f"{name} {{text}}", encoding="utf-8")
    return tmp_path


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


def test_chains_are_drawn_with_a_users_prompt_where_there_is_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qa.txt", "qa.chain.txt", "mt.txt")
    assert chain_prompt_for(a_tool("qa"), folder).head == "qa.chain.txt "
    assert chain_prompt_for(a_tool("mt"), folder).head == "mt.txt "
