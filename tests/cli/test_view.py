"""The command `view`, as far as it does not serve."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import Run


def test_a_folder_that_is_not_there_is_no_empty_project(tmp_path: Path, run: Run) -> None:
    told = run("view", "--data", tmp_path / "typo")
    assert told.code == 2
    assert f"there is no folder {tmp_path / 'typo'}" in told.err
