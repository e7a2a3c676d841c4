"""Fixtures of tests that run flows and commands: a Prefect server for the session, a small build, `toolformer`.

What a fixture needs is imported when it is asked for: the core's tests pass where there is no Prefect.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.support.commands import Run, Said
from tests.support.small_builds import small_build

if TYPE_CHECKING:
    from flows.build_dataset.flow import BuildResult
    from tasks.shards.run_shard import ShardResult
    from warehouse.commits import Dataset
    from warehouse.store import Store


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the server's own
        from prefect import settings
        from prefect.testing.utilities import prefect_test_harness

        # Nobody stores blocks, waits for a trigger or reads a log there.
        unused = {
            settings.PREFECT_API_BLOCKS_REGISTER_ON_START: False,
            settings.PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION: False,
            settings.PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED: False,
            settings.PREFECT_LOGGING_TO_API_ENABLED: False,
        }
        with settings.temporary_settings(unused), prefect_test_harness(server_startup_timeout=600):
            from flows.build_dataset import flow, pipeline
            from flows.build_dataset.tracking import try_to_track_build

            def track_where_asked(store: Store, data: str, dataset: Dataset) -> object:
                """Track a build in a folder in which a test has put MLflow's tables: half a second each."""
                asked = (Path(data) / "mlflow.db").exists()
                return try_to_track_build(store, data, dataset) if asked else None

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(flow, "try_to_track_build", track_where_asked)
                # One group of shards of two tools: a task costs a tenth of a second, whatever it does.
                patch.setattr(pipeline, "tasks_at_most", lambda: 9)
                yield


@pytest.fixture(scope="session")
def few_documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen documents of the embedded corpus and three rows that are none."""
    from toolformer_core.embedded import CORPUS

    path = tmp_path_factory.mktemp("corpus") / "few.jsonl"
    with gzip.open(CORPUS, "rt", encoding="utf-8") as stream:
        lines = list(stream)[:16]
    lines.insert(3, '{"text": "cut off\n')
    lines.insert(5, json.dumps({"url": "https://no.example/text"}) + "\n")
    lines.append(lines[0])
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def built(
    prefect_server: None, few_documents: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[BuildResult, Path, list[str]]:
    """A small build: its result, its data folder, and the progress it told of. Other tests build there again."""
    from flows.build_dataset.flow import run_build
    from flows.runtime.ledger import reporting_to

    data = tmp_path_factory.mktemp("data")
    told: list[str] = []

    def progress(stage: str, finished: int, total: int, done: ShardResult) -> None:
        told.append(f"{stage} {finished}/{total}")

    with reporting_to(progress):
        result = run_build(small_build(few_documents, data))
    shutil.copytree(data, _as_built(data), ignore=shutil.ignore_patterns("prefect"))
    return result, data, told


def _as_built(data: Path) -> Path:
    return data.with_name(f"{data.name}-as-built")


@pytest.fixture
def as_built(built: tuple[BuildResult, Path, list[str]], tmp_path: Path) -> Path:
    """A copy of the small build's data folder as it was before any other test built there."""
    return Path(shutil.copytree(_as_built(built[1]), tmp_path / "data"))


@pytest.fixture(scope="session")
def screenshots() -> ModuleType:
    return importlib.import_module("docs.screenshots")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run `toolformer` with arguments, but for taking the process down."""
    from cli import main as cli

    def leave(code: int) -> NoReturn:
        raise SystemExit(code)

    def run_(*arguments: object) -> Said:
        monkeypatch.setattr(cli, "leave", leave)
        monkeypatch.setattr(sys, "argv", ["toolformer", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, out, err)

    before = dict(os.environ)  # `prepare` sets defaults there; the next test is not to meet them
    yield run_
    os.environ.clear()
    os.environ.update(before)
