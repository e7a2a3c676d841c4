"""Where a flow's tasks run: as its caller says, else as the environment does; those of the model where a GPU is."""

import os
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import httpx
import pytest
from distributed import Scheduler, SpecCluster, Worker, get_worker
from hypothesis import given
from hypothesis import strategies as st
from prefect import flow, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext, TaskRunContext

import flows.build_dataset.pipeline as pipeline
from cli.commands.build import checked_runner
from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters
from flows.runtime.gpu_workers import gpus_of_workers
from flows.runtime.ledger import reporting_to
from flows.runtime.runners import choose_runner, cut_evenly, task_resources, tasks_at_most, use_runner
from tasks.settings import visible_gpus
from tests.support.small_builds import Built, small_build
from toolformer_core.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")


def running_flow() -> Any:
    return FlowRunContext.get()


@flow
def chosen(workers: int) -> Any:
    """What the tasks of this flow are run by; outside of the block it is Prefect's own choice again."""
    with use_runner(workers):
        inside = running_flow().task_runner
    assert running_flow().task_runner is not inside
    return inside


@task(cache_policy=NO_CACHE)
def tags_of_task() -> list[str]:
    context: Any = TaskRunContext.get()
    return list(context.task_run.tags)


@flow
def tags_seen() -> tuple[list[str], list[str]]:
    """The tags of this flow's run, and of its task's."""
    with use_runner(1):
        return sorted(running_flow().flow_run.tags), tags_of_task.submit().result()


@task(cache_policy=NO_CACHE)
def where(number: int) -> str:
    return str(get_worker().name)


@flow
def spread(of_model: int, others: int) -> tuple[set[str], set[str]]:
    """The workers on which tasks ran: those of the model, and others."""
    with use_runner(1):
        with task_resources(model=True):
            one = [where.submit(number) for number in range(of_model)]
        assert tasks_at_most() == 300  # of two threads eight each would be fewer
        with task_resources(model=False):
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


def test_tasks_have_no_tags_for_which_they_would_wait_for_the_server(prefect_server: None) -> None:
    with tags("toolformer", "terminal"):
        assert tags_seen() == (["terminal", "toolformer"], [])


def test_a_deployed_flow_heeds_its_environment(prefect_server: None, own_environment: pytest.MonkeyPatch) -> None:
    own_environment.setenv("TOOLFORMER_RUNNER", "dask")
    assert chosen(3).cluster_kwargs["n_workers"] == 3
    with choose_runner("threads"):  # whoever calls it knows better
        assert chosen(3)._max_workers == 48  # sixteen times the workers that the form asks for


@pytest.mark.parametrize("cluster", [{"plain": {}, "with-gpu": {"GPU": 1.0}}], indirect=True)
def test_work_of_the_model_goes_to_workers_with_a_gpu(prefect_server: None, cluster: str) -> None:
    with choose_runner(cluster):
        of_model, others = spread(3, 4)
    assert of_model == {"with-gpu"}
    assert "plain" in others  # and on a worker with a GPU only while that has nothing to do


@given(st.lists(st.integers()), st.integers(0, 30))
def test_groups_are_the_items_in_their_order_and_alike_in_size(items: list[int], most: int) -> None:
    groups = cut_evenly(items, most)
    assert [item for group in groups for item in group] == items
    assert len(groups) == min(len(items), max(1, most))
    sizes = {len(group) for group in groups}
    assert not sizes or max(sizes) - min(sizes) <= 1 <= min(sizes)


def test_groups_by_hand() -> None:
    assert cut_evenly("abcdefg", 3) == [("a", "b"), ("c", "d"), ("e", "f", "g")]
    assert cut_evenly("abc", 200) == [("a",), ("b",), ("c",)]


def test_a_scheduler_that_is_not_there_is_told(prefect_server: None) -> None:
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        choose_runner("tcp://127.0.0.1:9"),
        pytest.raises(UsageError, match=re.escape("no Dask scheduler answers at tcp://127.0.0.1:9")),
    ):
        chosen(1)


def test_options_name_one_runner(own_environment: pytest.MonkeyPatch) -> None:
    own_environment.setenv("CUDA_VISIBLE_DEVICES", "")
    assert checked_runner(None, 4) == "threads"
    assert checked_runner("dask", 4) == "dask"
    with pytest.raises(UsageError, match=r"\A--gpus 2: GPUs that this machine shows: 0; give fewer.*\Z"):  # in one line
        checked_runner("dask", 4, 2)
    with pytest.raises(
        UsageError, match=r"the runner is threads: give --runner dask or a Dask scheduler's address.*\Z"
    ):
        checked_runner(None, 4, 1)
    own_environment.setenv("TOOLFORMER_RUNNER", "tcp://scheduler:8786")
    assert checked_runner(None, 4) == "tcp://scheduler:8786"
    own_environment.setenv("TOOLFORMER_RUNNER", "ray")
    with pytest.raises(UsageError, match="TOOLFORMER_RUNNER: 'ray' is not threads, dask"):
        checked_runner(None, 4)


@pytest.mark.parametrize(
    "limit", [pytest.param(25_000, marks=pytest.mark.slow), 2]
)  # a shard is assembled as soon as it is scored, or when all are
def test_a_build_in_groups_gives_what_it_gives_shard_by_shard(
    built: Built, few_documents: Path, as_built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    changes = {"tau_f": {"calculator": 0.0, "calendar": 0.0}, "max_examples": limit}
    apart = Path(shutil.copytree(as_built, tmp_path / "apart"))
    # two tools of four tasks each and assemble: nine tasks a group
    monkeypatch.setattr(pipeline, "tasks_at_most", lambda: 27)
    single = run_build(small_build(few_documents, apart, **changes))
    monkeypatch.setattr(pipeline, "tasks_at_most", lambda: 18)
    told: list[str] = []
    with reporting_to(lambda stage, finished, total, done: told.append(f"{stage} {finished}/{total}")):
        together = run_build(small_build(few_documents, as_built, **changes))
    assert (together.version, together.counts) == (single.version, single.counts)
    # three shards to assemble; found done: ingest, and of each shard and tool four stages
    assert (together.done, together.skipped) == (single.done, single.skipped) == (3, 1 + 3 * 2 * 4)
    assert told[-1] == "assemble 3/3"
    assert max(single.counts.values()) == 2 or limit > 2


@flow
def pages() -> dict[str, int]:
    """The statuses of the pages that a local cluster's scheduler and worker have had since Dask began."""
    with use_runner(1):
        client = running_flow().task_runner.client
        [worker] = client.scheduler_info()["workers"].values()
        scheduler = client.cluster.scheduler.http_server
        ports = {"scheduler": scheduler.port, "worker": worker["services"]["dashboard"]}
        paths = ("health", "info/main/workers.html", "json/counts.json", "metrics")
        asked = {f"{name}/{path}": f"http://127.0.0.1:{port}/{path}" for name, port in ports.items() for path in paths}
        return {name: httpx.get(url).status_code for name, url in asked.items()}


def test_dask_on_this_machine_has_no_pages(prefect_server: None) -> None:
    with choose_runner("dask"):
        assert {name: status for name, status in pages().items() if status != 404} == {}


class TestGpus:
    def test_each_worker_is_given_one(self) -> None:
        """Of GPUs 3, 5 and 7 two workers have the first two; without a number, all that there are workers for."""
        visible = ["3", "5", "7"]
        assert gpus_of_workers("dask", 4, 2, visible) == ["3", "5"]
        assert gpus_of_workers("dask", 4, None, visible) == visible
        assert gpus_of_workers("dask", 1, None, visible) == ["3"]
        assert gpus_of_workers("dask", 1, 3, visible) == visible  # more workers then, see `gpu_cluster`
        assert gpus_of_workers("dask", 4, 0, visible) == []  # and no worker is to see one
        assert gpus_of_workers("dask", 4, None, []) is None
        assert gpus_of_workers("threads", 4, None, visible) is None
        for asked in (None, 64):  # of a scheduler elsewhere they are expected, and not counted here
            assert gpus_of_workers("tcp://127.0.0.1:1", 1, asked, ["0"]) is None

    def test_refused_at_once(self, prefect_server: None, tmp_path: Path, own_environment: pytest.MonkeyPatch) -> None:
        own_environment.setattr("flows.runtime.runners.visible_gpus", lambda: ("0",))
        asked = BuildParameters(corpus=str(tmp_path / "none.jsonl"), data=str(tmp_path / "data"), gpus=2)
        with pytest.raises(UsageError, match="--gpus 2: GPUs that this machine shows: 1;"):
            run_build(asked, "dask")

    @pytest.mark.parametrize(
        ("named", "count", "names"),
        [
            (None, 2, ("0", "1")),
            ("4,GPU-8e9a", 2, ("4", "GPU-8e9a")),
            ("2,9", 1, ("2",)),  # there is no ninth
            ("", 0, ()),
        ],
    )
    def test_which_gpus_there_are(
        self, monkeypatch: pytest.MonkeyPatch, named: str | None, count: int, names: tuple[str, ...]
    ) -> None:
        monkeypatch.setattr("torch.cuda.device_count", lambda: count)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if named is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
        assert visible_gpus() == names

    @pytest.mark.slow  # seven processes that import Prefect
    def test_workers_keep_their_gpu(self, prefect_server: None, own_environment: pytest.MonkeyPatch) -> None:
        """Two workers for GPUs 4 and 6, and a third: the model's tasks see 4 or 6, and the third worker none."""
        own_environment.setattr("flows.runtime.runners.visible_gpus", lambda: ("4", "6", "7"))
        with choose_runner("dask"):
            offered, of_model, restarted = seen_by_workers(3, 2)
        assert offered == {0: {"GPU": 1.0}, 1: {"GPU": 1.0}, 2: {}}
        assert set(of_model) <= {"4", "6"}
        assert restarted == {0: "4", 1: "6", 2: ""}


@task(cache_policy=NO_CACHE)
def visible_to_task() -> str:
    return os.environ["CUDA_VISIBLE_DEVICES"]


@flow
def seen_by_workers(workers: int, gpus: int) -> tuple[dict[int, Any], list[str], dict[int, str]]:
    """What workers offer, what tasks of the model see, and what each worker sees after one was started again."""
    with use_runner(workers, gpus):
        client = running_flow().task_runner.client
        offered = {w["name"]: w["resources"] for w in client.scheduler_info()["workers"].values()}
        with task_resources(model=True):
            futures = [visible_to_task.submit() for _ in range(4)]
        of_model = [future.result() for future in futures]
        again = next(address for address, w in client.scheduler_info()["workers"].items() if w["name"] == 1)
        client.restart_workers([again])
        names = {address: w["name"] for address, w in client.scheduler_info()["workers"].items()}
        told = client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
        return offered, of_model, {names[address]: seen for address, seen in told.items()}
