"""What questions answer where something is wrong or lacking, and what they say they speak of, through `main`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from flows import cli
from flows.build_dataset import BuildResult
from warehouse.queries import rows_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")

Run = Callable[..., tuple[int, str, str]]
Built = tuple[BuildResult, Path, list[str]]


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """`prepare` sets defaults in the environment; the next test is not to meet them."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `toolformer` with arguments, but for taking the process down; return code, output and errors."""

    def leave(code: int) -> NoReturn:
        raise SystemExit(code)

    def run_(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(cli, "_leave", leave)
        monkeypatch.setattr(sys, "argv", ["toolformer", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run_


def is_one_line(said: tuple[int, str, str], code: int, *words: str) -> None:
    assert (said[0], said[1], said[2].count("\n")) == (code, "", 1), said
    assert said[2].startswith("error: ")
    for one in words:
        assert one in said[2]


def test_a_folder_that_was_moved_is_to_be_reconciled(run: Run, as_built: Path) -> None:
    moved = as_built.rename(as_built.with_name("moved"))
    assert run("reconcile", "--data", moved)[0] == 0  # the copy's own files, which the next move takes away
    (first,) = rows_of(moved / "warehouse.duckdb", "SELECT min(doc_id) AS doc_id FROM documents")
    again = moved.rename(moved.with_name("again"))
    is_one_line(run("explain", first["doc_id"], "--data", again), 1, "moved", "run toolformer reconcile")
    assert run("reconcile", "--data", again)[0] == 0
    assert run("explain", first["doc_id"], "--data", again)[0] == 0


def test_a_damaged_snapshot_is_to_be_reconciled(run: Run, as_built: Path) -> None:
    snapshot = as_built / "warehouse.duckdb"
    snapshot.unlink()
    snapshot.write_bytes(b"x" * 5000)
    for command in ("stats", "what-if", "tables"):
        is_one_line(run(command, "--data", as_built), 1, "cannot open the snapshot", "run toolformer reconcile")
    assert run("reconcile", "--data", as_built)[0] == 0
    assert run("stats", "--data", as_built)[0] == 0


def test_a_record_that_cannot_be_understood_says_what_to_do(run: Run, as_built: Path) -> None:
    commit = next((as_built / "commits").rglob("*.json"))
    commit.write_text(commit.read_text(encoding="utf-8").replace('"format":1', '"format":9'), encoding="utf-8")
    is_one_line(run("reconcile", "--data", as_built), 1, str(commit), "newer version", "run toolformer reconcile")
    commit.unlink()
    assert run("reconcile", "--data", as_built)[0] == 0


@pytest.mark.parametrize("command", [["tables"], ["finetune"], ["finetune", "--dry-run"]])
def test_nothing_is_made_in_a_folder_in_which_nothing_was_built(run: Run, tmp_path: Path, command: list[str]) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        is_one_line(run(*command, "--data", folder), 2, f"nothing was built in {folder} yet; run toolformer build")
    assert list(tmp_path.iterdir()) == []


def test_a_build_that_never_ended_has_no_dataset_to_train_on(run: Run, as_built: Path) -> None:
    shutil.rmtree(as_built / "datasets")
    for command in (["finetune"], ["export", str(as_built / "out.jsonl")]):
        is_one_line(run(*command, "--data", as_built), 2, f"there is no dataset in {as_built} yet", "toolformer build")
    assert not (as_built / "prefect").exists()
