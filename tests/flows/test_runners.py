"""Where a flow's tasks run: as its caller says, else as the environment does; those of the model where a GPU is."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import httpx
import pytest
from distributed import Scheduler, SpecCluster, Worker, get_worker
from hypothesis import given
from hypothesis import strategies as st
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from small_builds import small_build

import flows.build_dataset as building
from flows.build_dataset import BuildResult, run_build
from flows.cli_build import runner_options
from flows.ledger import reporting_to
from flows.runners import grouped, model_resources, on, running, taking, tasks_at_most
from toolformer_core.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")

Built = tuple[BuildResult, Path, list[str]]


@flow
def chosen(workers: int) -> Any:
    """What the tasks of this flow are run by; outside of the block it is Prefect's own choice again."""
    with running(workers):
        context = FlowRunContext.get()
        assert context is not None
        inside = context.task_runner
    context = FlowRunContext.get()
    assert context is not None
    assert context.task_runner is not inside
    return inside


@task(cache_policy=NO_CACHE)
def where(number: int) -> str:
    return str(get_worker().name)


@flow
def spread(of_model: int, others: int) -> tuple[set[str], set[str]]:
    """The workers on which tasks ran: those of the model, and others."""
    with running(1):
        with taking(model_resources()):
            one = [where.submit(number) for number in range(of_model)]
        assert tasks_at_most() == 200  # of two threads eight each would be fewer
        two = [where.submit(-1 - number) for number in range(others)]
        return {future.result() for future in one}, {future.result() for future in two}


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("TOOLFORMER_RUNNER", raising=False)
    return monkeypatch


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a scheduler in this process, and of workers named by what they offer."""
    offers: dict[str, dict[str, float]] = request.param
    workers = {name: {"cls": Worker, "options": {"nthreads": 1, "resources": own}} for name, own in offers.items()}
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "host": "127.0.0.1", "port": 0}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with SpecCluster(workers=workers, scheduler=scheduler, silence_logs=False) as running:
            yield running.scheduler_address


def test_threads_are_four_times_the_workers_that_the_form_asks_for(
    prefect_server: None, own_environment: pytest.MonkeyPatch
) -> None:
    assert chosen(3)._max_workers == 12


def test_a_deployed_flow_goes_where_its_workers_environment_says(
    prefect_server: None, own_environment: pytest.MonkeyPatch
) -> None:
    own_environment.setenv("TOOLFORMER_RUNNER", "dask")
    assert chosen(3).cluster_kwargs["n_workers"] == 3
    with on("threads"):  # whoever calls it knows better
        assert chosen(3)._max_workers == 12


@pytest.mark.parametrize("cluster", [{"plain": {}, "with-gpu": {"GPU": 1.0}}], indirect=True)
def test_work_of_the_model_goes_to_workers_with_a_gpu(prefect_server: None, cluster: str) -> None:
    with on(cluster):
        of_model, others = spread(3, 4)
    assert of_model == {"with-gpu"}
    assert "plain" in others


@pytest.mark.parametrize("cluster", [{"one": {}, "other": {}}], indirect=True)
def test_where_no_worker_has_a_gpu_any_will_do(prefect_server: None, cluster: str) -> None:
    with on(cluster):
        of_model, _ = spread(3, 0)
    assert of_model <= {"one", "other"}


@given(st.lists(st.integers()), st.none() | st.integers(0, 30))
def test_groups_are_the_items_in_their_order_and_alike_in_size(items: list[int], most: int | None) -> None:
    groups = grouped(items, most)
    assert [item for group in groups for item in group] == items
    assert len(groups) == (len(items) if most is None else min(len(items), max(1, most)))
    sizes = {len(group) for group in groups}
    assert not sizes or max(sizes) - min(sizes) <= 1 <= min(sizes)


def test_groups_by_hand() -> None:
    assert grouped("abcdefg", 3) == [("a", "b"), ("c", "d"), ("e", "f", "g")]
    assert grouped("abc", None) == grouped("abc", 200) == [("a",), ("b",), ("c",)]


def test_a_scheduler_that_is_not_there_is_told(prefect_server: None) -> None:
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        on("tcp://127.0.0.1:9"),
        pytest.raises(UsageError, match=re.escape("no Dask scheduler answers at tcp://127.0.0.1:9")),
    ):
        chosen(1)


def test_options_name_one_runner(own_environment: pytest.MonkeyPatch) -> None:
    assert runner_options(None, 4, None) == ("threads", 4)
    assert runner_options("dask", 4, None) == ("dask", 4)
    assert runner_options(None, 4, 7) == runner_options("dask", 4, 7) == ("dask", 7)
    with pytest.raises(UsageError, match="--dask-workers starts workers on this machine, and --runner says tcp://h:1"):
        runner_options("tcp://h:1", 4, 7)
    own_environment.setenv("TOOLFORMER_RUNNER", "tcp://scheduler:8786")
    assert runner_options(None, 4, None) == ("tcp://scheduler:8786", 4)
    own_environment.setenv("TOOLFORMER_RUNNER", "ray")
    with pytest.raises(UsageError, match="TOOLFORMER_RUNNER: 'ray' is not threads, dask"):
        runner_options(None, 4, None)


@pytest.mark.parametrize("limit", [25_000, 2])  # a shard is assembled as soon as it is scored, or when all are
def test_a_build_in_groups_gives_what_it_gives_shard_by_shard(
    built: Built, few_documents: Path, as_built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    changes = {"tau_f": {"calculator": -1.0, "calendar": -1.0}, "max_examples": limit}
    apart = Path(shutil.copytree(as_built, tmp_path / "apart"))
    single = run_build(small_build(few_documents, apart, **changes))
    monkeypatch.setattr(building, "tasks_at_most", lambda: 6)  # two tools and assemble: two groups of three tasks
    told: list[str] = []
    with reporting_to(lambda stage, finished, total, done: told.append(f"{stage} {finished}/{total}")):
        together = run_build(small_build(few_documents, as_built, **changes))
    assert (together.version, together.counts) == (single.version, single.counts)
    # three shards to assemble; found done: ingest, and of each shard and tool four stages
    assert (together.done, together.skipped) == (single.done, single.skipped) == (3, 1 + 3 * 2 * 4)
    assert told[-1] == "assemble 3/3"
    assert max(single.counts.values()) == 2 or limit > 2


def test_a_build_has_its_model_at_work_where_the_gpus_are_and_assembles_anywhere(
    built: Built, few_documents: Path, as_built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []

    @contextmanager
    def taking_note(resources: dict[str, float]) -> Iterator[None]:
        told.append(resources)
        yield
        told.append("anywhere")

    def noting(work: Any, name: str) -> Any:
        submit = work.submit

        def noted(*args: Any) -> Any:
            told.append(name)
            return submit(*args)

        return noted

    monkeypatch.setattr(building, "model_resources", lambda: {"GPU": 1.0})
    monkeypatch.setattr(building, "taking", taking_note)
    for work, name in ((building.annotate_shards, "annotate"), (building.assemble_shards, "assemble")):
        monkeypatch.setattr(work, "submit", noting(work, name))
    run_build(small_build(few_documents, as_built))
    assert told == [{"GPU": 1.0}, "annotate", "annotate", "anywhere", "assemble"] * 3  # two tools, three shards


@flow
def pages() -> dict[str, int]:
    """The statuses of the pages that a local cluster's scheduler and worker have had since Dask began."""
    with running(1):
        context = FlowRunContext.get()
        assert context is not None
        [worker] = context.task_runner.client.scheduler_info()["workers"].values()
        scheduler = context.task_runner.client.cluster.scheduler.http_server
        ports = {"scheduler": scheduler.port, "worker": worker["services"]["dashboard"]}
        paths = ("health", "info/main/workers.html", "json/counts.json", "metrics")
        asked = {f"{name}/{path}": f"http://127.0.0.1:{port}/{path}" for name, port in ports.items() for path in paths}
        return {name: httpx.get(url).status_code for name, url in asked.items()}


def test_dask_on_this_machine_has_no_pages(prefect_server: None) -> None:
    with on("dask"):
        assert {name: status for name, status in pages().items() if status != 404} == {}
