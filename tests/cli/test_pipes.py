"""Whoever reads has enough (`toolformer ... | head -1`): a command ends without a word, as a shell counts it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "words", [["tools", "test", "calculator", "1 + 1"], ["tools", "--help"]], ids=["print", "rich"]
)
def test_a_pipe_that_nobody_reads_is_no_answer_of_the_command(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "cli.main", *words]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")  # 128 + SIGPIPE; 1 would be `diagnose` saying no
