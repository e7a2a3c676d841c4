"""The flow `export`: the same files as the command writes, and what Prefect shows of them."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from httpx import ConnectError
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from flows.export.flow import run_export
from flows.export.parameters import ExportParameters
from flows.export.run import export_to
from flows.export.settings import ExportSettings
from flows.runtime.artifacts import WorkProgress
from tests.flows.test_export import EXAMPLES, stored
from tests.support.commands import Run as Command
from toolformer_core.errors import UsageError
from warehouse.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return stored(tmp_path / "data", EXAMPLES[:2], EXAMPLES[2:])


def shown(key: str) -> list[Any]:
    """The artifacts of a key, the newest last."""
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))
    return sorted(found, key=lambda artifact: artifact.created)


def test_the_flow_writes_what_the_function_does_and_says_so(prefect_server: None, store: Store, tmp_path: Path) -> None:
    out = tmp_path / "flow" / "out.jsonl"
    done = run_export(ExportParameters(data=store.root, out=str(out), format="chat", dialect="sharegpt"))
    plain = export_to(store, "cstar", tmp_path / "out.jsonl", ExportSettings("chat", dialect="sharegpt"))
    assert [path.read_bytes() for path in done.files] == [path.read_bytes() for path in plain.files]
    progress, table = shown("export")[-1], shown("exported")[-1].data
    assert (progress.data, progress.description) == (100.0, "2 examples written")
    for says in ("| left out | glued 1 |", "| examples | 2 |", *(f"| file | `{path}` |" for path in done.files)):
        assert says in table


def test_progress_counts_the_examples_read(store: Store, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    export_to(store, "cstar", tmp_path / "out.jsonl", ExportSettings(), lambda read, total: told.append((read, total)))
    assert told == [(3, 3)]  # fewer than are tokenized together


def test_the_command_is_a_flow_run(run: Command, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ExportParameters] = []
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr("flows.export.flow.run_export", lambda parameters: asked.append(parameters) or _stop())
    said = run("export", "--data", store.root, "--format", "text", tmp_path / "out.txt")
    assert (said.code, said.err) == (2, "error: enough\n")
    assert asked == [ExportParameters(data=store.root, format="text", out=str(tmp_path / "out.txt"))]
    assert not (tmp_path / "out.txt").exists()


def test_progress_is_sent_every_two_seconds_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[float, str]] = []
    now = [100.0]
    monkeypatch.setattr("prefect.artifacts.create_progress_artifact", lambda *_, **__: UUID(int=7))
    monkeypatch.setattr(
        "prefect.artifacts.update_progress_artifact",
        lambda one, percent, description: sent.append((percent, description)),
    )
    progress = WorkProgress("work", clock=lambda: now[0])
    for at, percent in ((100.0, 1.0), (101.9, 2.0), (102.1, 3.0)):
        now[0] = at
        progress.show(percent, f"{percent:g} %")
    progress.show(100.0, "all of it")
    assert sent == [(1.0, "1 %"), (3.0, "3 %"), (100.0, "all of it")]  # 1.9 s after the first is too soon


def test_the_work_goes_on_where_prefect_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectError("nobody is there")

    monkeypatch.setattr("prefect.artifacts.create_progress_artifact", refuse)
    progress = WorkProgress("work")
    progress.show(50.0, "half")
    progress.show(100.0, "all of it")


def _stop() -> None:
    raise UsageError("enough")
