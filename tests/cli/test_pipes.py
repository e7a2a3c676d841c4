"""Whoever reads has enough (`toolformer ... | head -1`): a command ends without a word, as a shell counts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "words",
    [["tools", "test", "calculator", "1 + 1"], ["tools", "--help"], ["tools", "list", "--json"]],
    ids=["print", "rich", "json"],
)
def test_a_pipe_that_nobody_reads_is_no_answer_of_the_command(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "cli.main", *words]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")  # 128 + SIGPIPE; 1 would be `diagnose` saying no


def test_what_processes_print_that_a_tool_starts_does_not_stand_in_the_json(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import subprocess\nsubprocess.run(['echo', 'child'])\ndef loud(text): return text\n"
    )
    command = [sys.executable, "-m", "cli.main", "tools", "list", "--tool", f"{tmp_path}/loud.py:loud", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "child\n")
    assert json.loads(ended.stdout)[-1]["key"] == "loud"
