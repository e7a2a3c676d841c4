"""Dask runs the same flow and gives the same C*."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import runners
from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters
from toolformer_core.errors import UsageError


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")
def test_dask_and_threads_give_the_same_dataset(
    prefect_server: None, few_documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "_TASKS", 2)  # one to annotate, one to assemble: both shards are of one group
    monkeypatch.setattr(runners, "_PER_THREAD", 1)
    results = []
    for runner in ("threads", "dask"):
        asked = BuildParameters(
            corpus=str(few_documents),
            data=str(tmp_path / runner),
            tools=["calendar"],
            shard_documents=8,
            top_k=2,
            draws=1,
            tau_f={"calendar": -1.0},
            workers=2,
        )
        results.append(run_build(asked, runner))
    threads, dask = results
    assert threads.examples > 0
    assert dask.version == threads.version


def test_an_unknown_runner_is_answered(few_documents: Path, tmp_path: Path) -> None:
    asked = BuildParameters(corpus=str(few_documents), data=str(tmp_path))
    with pytest.raises(UsageError, match="--runner: 'dsk' is not threads, dask, or a scheduler's address"):
        run_build(asked, "dsk")
