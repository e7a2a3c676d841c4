"""Pipes that nobody reads (`toolformer ... | head -1`) and streams that the caller has closed (`>&-`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "words",
    [["tools", "test", "calculator", "1 + 1"], ["tools", "--help"]],
    ids=["print", "rich"],
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


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)])
def test_a_closed_stream_changes_no_result(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """Without standard output (`>&-`), the next file that is opened would have its number, and take what is printed."""
    (tmp_path / "opens.py").write_text(
        "kept = open('kept', 'w')\ndef answer(text):\n    print('noise', flush=True)\n    return text\n"
    )
    words = ["tools", "list", "--json", "--tool", "opens.py:answer"]
    closing = " ".join(f"{number}>&-" for number in closed)
    command = ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-m", "cli.main", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert bool(ended.stdout) == (1 not in closed)
    assert (tmp_path / "kept").read_text() == ""
