"""The tools that a flow's parameters name: each once, and named so that a process in another folder finds it."""

from pathlib import Path

import pytest

from flows.build_dataset.parameters import BuildParameters
from flows.forms.chosen_tools import chosen_tools


@pytest.mark.parametrize(
    ("tools", "tool", "keys"),
    [
        ("calculator", ["Calculator"], ["calculator"]),  # one tool, named twice in two ways
        ("Calculator, calendar", [" CALENDAR "], ["calculator", "calendar"]),
        ("Far.py:Miles", [], ["miles"]),
        ("calculator,Far.py:Miles", ["Far.py:Miles"], ["calculator", "miles"]),
    ],
)
def test_a_tool_is_found_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: str, tool: list[str], keys: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Far.py").write_text("def Miles(text):\n    return text\n", encoding="utf-8")
    built, settings = chosen_tools(BuildParameters.model_validate({"corpus": "c", "tools": tools, "tool": tool}))
    assert list(built) == keys
    assert dict(settings.references) == ({"miles": f"{tmp_path}/Far.py:Miles"} if "miles" in keys else {})
