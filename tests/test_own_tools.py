"""docs/tools.md, walked through as it stands there: from `tools new` to a model that calls the new tool."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolformer_core.records import ToolResponse
from toolformer_core.tools.build import build_tools
from toolformer_core.tools.custom.scaffold import new_python_tool
from toolformer_core.tools.declaration import declaration_of
from warehouse.queries import rows_of

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs" / "tools.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def shell(script: str, folder: Path) -> str:
    """Run commands of the page in a folder; return what they print."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, words in {"toolformer": "-m cli.main", "python": ""}.items():
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n', "utf-8")
        command.chmod(0o755)
    paths = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(
        ["bash", "-ec", script],
        cwd=folder,
        env={**os.environ, **paths, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_page_shows_the_file_that_the_command_writes() -> None:
    assert blocks("python")[0] == new_python_tool("miles")["miles.py"]


def test_the_pages_tool_with_typed_parameters(tmp_path: Path) -> None:
    (tmp_path / "convert.py").write_text(blocks("python")[1], "utf-8")
    (convert,) = build_tools([f"{tmp_path}/convert.py:convert"]).values()
    ((_, asked),) = declaration_of(convert).examples
    assert convert.run(asked) == ToolResponse("4828.0 m")  # 3 * 1609.344 = 4828.03
    assert convert.run("to=mi, unit=km, amount=1.609344") == ToolResponse("1.0 mi")


def test_a_new_tool_answers_and_passes_its_own_tests(tmp_path: Path) -> None:
    new, ask = blocks("sh")[:2]
    shell(new, tmp_path)
    assert shell(ask, tmp_path) == "42.2 km\n"  # 26.2 * 1.609344 = 42.165
    assert "4 passed" in shell("python -m pytest -q -p no:cacheprovider test_miles.py", tmp_path)


@pytest.mark.slow  # annotates 32 documents and trains: two to five minutes
def test_the_walk_through_ends_in_a_model_that_calls_the_tool(tmp_path: Path) -> None:
    new, _, build, train_and_generate = blocks("sh")[:4]
    shell(new + build, tmp_path)
    snapshot = tmp_path / "toolformer-data" / "warehouse.duckdb"
    [counts] = rows_of(snapshot, "SELECT count(*) AS calls, count(DISTINCT doc_id) AS examples FROM kept_calls")
    assert counts["examples"] >= 16  # the page's run kept one in nearly every document
    [scored] = rows_of(snapshot, "SELECT count(*) AS calls FROM scored WHERE tool = 'miles'")
    assert scored["calls"] > counts["calls"]  # and dropped others
    generated = shell(train_and_generate, tmp_path)
    assert re.search(r"\[Miles\(12[^\]]* -> 19\.3 km\] 19\.3 km", generated)  # 12 * 1.609344 = 19.312
