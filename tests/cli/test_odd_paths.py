"""Data folders of any name: commands work there, or refuse in one line; nothing is written beside them."""

import os
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from cli.render.progress import print_demo
from tasks.training.registry import MLFLOW_NOTE
from tests.strategies import folder_names
from tests.support.commands import Run, Said
from warehouse.files.paths import database_problem

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning", "ignore:The ``noload`` loader"
)

NASTY = "-a%20b %3F#[x]*'\"; $HOME&{y}:@=~ e\u0301\U0001f642 "
BUILD = "--tools calculator,calendar --shard-documents 6 --top-k 3 --samples 2 --tau-f calendar=0.2".split()
TRAIN = "finetune --profile cpu --steps 2 --batch 2 --sequence-length 256".split()


def use(run: Run, data: Path, corpus: Path, *more: list[str]) -> list[Said]:
    """Build, ask and export there; what cannot be used is refused by each command, and nothing is made."""
    out = data / f"{data.name[:40]}.txt"
    commands = [["build", "--corpus", str(corpus), *BUILD], ["stats"], ["sql", "FROM kept_calls"]]
    told = []
    for command in (*commands, ["export", "--format", "text", str(out)], *more):
        os.environ.pop("PREFECT_HOME", None)  # the folder of the one before; `run` restores the environment
        told.append(said := run(*command, f"--data={data}"))
        if database_problem(data):
            assert (said.code, said.out, said.err.count("\n"), said.err[:7]) == (2, "", 1, "error: "), command
        else:
            assert said.code == 0, (command, said.err)
    assert database_problem(data) or out.read_text(encoding="utf-8")
    return told


@pytest.fixture
def unfinished(as_built: Path) -> Path:
    """A build without its last stage, catalog and snapshot; no model is needed to go on."""
    for part in ("commits/assemble", "shards/assemble"):
        shutil.rmtree(as_built / part)
    for part in ("catalog.duckdb", "warehouse.duckdb"):
        (as_built / part).unlink()
    return as_built


def test_a_build_goes_on_under_a_nasty_name(run: Run, unfinished: Path, few_documents: Path, tmp_path: Path) -> None:
    data = tmp_path / "there" / NASTY
    shutil.copytree(unfinished, data)
    before = run("sql", "FROM kept_calls", "--data", data)
    assert words_after("; run ", before.err) == ["toolformer", "reconcile", "--data", str(data)]
    built, *_ = use(run, data, few_documents)
    assert words_after("Ask it anything: ", built.out) == [
        *("toolformer", "sql", "FROM yield_by_threshold", "--data", str(data))
    ]
    assert os.listdir(data.parent) == [NASTY]


def words_after(label: str, printed: str) -> list[str]:
    """Return the words of a shell's command that is printed behind a label."""
    return shlex.split(printed.rpartition(label)[2])


def test_commands_that_are_printed_can_be_pasted(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / NASTY)
    said = run("view", "--data", folder)
    assert (said.code, said.err.startswith(f"error: there is no folder {folder}; ")) == (2, True)
    assert words_after("; toolformer ", said.err.partition(" makes one")[0]) == ["build", "--data", folder]
    print_demo([], folder, "as [b]it[/b] is", folder, "All is well.")
    look, compare, generate, verdict = capsys.readouterr().out.splitlines()[-4:]
    assert words_after("its calls: ", look) == ["toolformer", "view", "--data", folder]
    assert compare.endswith("the runs: as [b]it[/b] is")
    assert words_after("the model: ", generate)[-4:] == ["--stop", ".", "--model", folder]
    assert verdict == "All is well."


@pytest.mark.parametrize("name", ["h?y", "h\\y", "h\ny", os.fsdecode(b"h\xffy")])
def test_a_name_that_no_database_can_have_is_refused(run: Run, few_documents: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "h").mkdir()  # where `?` would end the name, and `\` part it
    use(run, tmp_path / name, few_documents, TRAIN)
    assert [(path.name, os.listdir(path)) for path in tmp_path.iterdir()] == [("h", [])]


def test_the_current_folder_counts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "h?y").mkdir()
    monkeypatch.chdir(tmp_path / "h?y")
    for data in ("data", "s3://bucket/data"):  # the snapshot of data at a URL would lie below it
        said = run("stats", "--data", data)
        assert (said.code, said.err.count("\n")) == (2, 1)
        assert f"'{tmp_path}/h?y" in said.err
    assert run("pack", "out.duckdb", "--data", tmp_path).code == 2
    assert list((tmp_path / "h?y").iterdir()) == []


@pytest.mark.slow
def test_whole_builds_run_under_any_name(run: Run, prefect_server: None, few_documents: Path, tmp_path: Path) -> None:
    for name in (NASTY, "a%20b", "[*]", "x" * 255):
        data = tmp_path / "there" / name
        use(run, data, few_documents, TRAIN)
        assert os.listdir(data.parent) == [name]
        shutil.rmtree(data)


@pytest.mark.slow
def test_many_names(run: Run, unfinished: Path, few_documents: Path, empty_database: Path, tmp_path: Path) -> None:
    """MLflow's tables and a finished training are copied: both take seconds to make. MLflow has no run of it yet."""
    plain = tmp_path / "plain"
    shutil.copytree(unfinished, plain)
    use(run, plain, few_documents, TRAIN)
    shutil.copytree(plain / "finetunes", unfinished / "finetunes", ignore=shutil.ignore_patterns(MLFLOW_NOTE))
    shutil.copyfile(empty_database, unfinished / "mlflow.db")

    @settings(max_examples=200)
    @given(folder_names)
    def try_it(name: str) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as there:
            data = Path(there, name)
            if not database_problem(data):
                shutil.copytree(unfinished, data)
            use(run, data, few_documents, TRAIN)
            assert os.listdir(there) == ([] if database_problem(data) else [name])

    try_it()
