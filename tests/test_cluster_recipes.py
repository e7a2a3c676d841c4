"""The Slurm scripts and Kubernetes manifests that dask-jobqueue and dask-kubernetes make of our recipes, as text."""

import runpy
from pathlib import Path
from typing import Any

import pytest

RECIPES = Path(__file__).resolve().parents[1] / "examples" / "clusters"
VARIABLES = ("TOOLFORMER_CATALOG", "PREFECT_API_URL", "HF_HOME", "HF_HUB_OFFLINE")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")


def recipe(name: str) -> dict[str, Any]:
    return runpy.run_path(str(RECIPES / name))


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


class TestSlurm:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("dask_jobqueue")

    def test_both_groups_share_a_scheduler_and_only_one_offers_a_gpu(self, no_variables: pytest.MonkeyPatch) -> None:
        no_variables.setenv("TOOLFORMER_CATALOG", "postgresql+psycopg://user@host/toolformer")
        slurm = recipe("slurm.py")
        own = {"port": 0, "dashboard_address": ":0", "host": "127.0.0.1"}
        with slurm["cpu_group"](scheduler_options=own) as cpu:
            address = cpu.scheduler_address
            with slurm["gpu_group"](address) as gpu:
                assert gpu.scheduler_address == address
                cpu_script, gpu_script = cpu.job_script().splitlines(), gpu.job_script().splitlines()
            assert cpu.scheduler.status.name == "running"  # closing a group leaves the scheduler that it only joined
        directives = [line.removeprefix("#SBATCH ") for line in cpu_script if line.startswith("#SBATCH")]
        # 32 GB in GiB, rounded up: 32e9 / 2^30 = 29.8
        assert directives == ["-J toolformer-cpu", "-p cpu", "-n 1", "--cpus-per-task=4", "--mem=30G", "-t 24:00:00"]
        own_directives = [line.removeprefix("#SBATCH ") for line in gpu_script if line.startswith("#SBATCH")]
        assert own_directives == [
            *("-J toolformer-gpu", "-p gpu", "-n 1", "--cpus-per-task=3", "--mem=60G", "-t 24:00:00", "--gres=gpu:1")
        ]  # 64e9 / 2^30 = 59.6
        assert "export TOOLFORMER_CATALOG='postgresql+psycopg://user@host/toolformer'" in cpu_script
        assert "export TOOLFORMER_CATALOG='postgresql+psycopg://user@host/toolformer'" in gpu_script
        on_cpu, on_gpu = (next(line for line in s if "dask_worker" in line) for s in (cpu_script, gpu_script))
        assert f" {address} --name dummy-name --nthreads 1 --memory-limit 7.45GiB --nworkers 4 --nanny" in on_cpu
        assert f" {address} --name dummy-name --nthreads 3 --memory-limit 59.60GiB --nanny" in on_gpu
        assert "--lifetime 23h" in on_cpu
        assert "--resources GPU=1" in on_gpu
        assert "--resources" not in on_cpu


class TestKubernetes:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("dask_kubernetes")

    def test_the_cluster_has_a_scheduler_and_workers_of_a_thread(self) -> None:
        spec = recipe("kubernetes.py")["cluster_spec"]("own:1", "claim", 8, {"PREFECT_API_URL": "http://prefect/api"})
        assert (spec["kind"], spec["metadata"]["name"]) == ("DaskCluster", "toolformer")
        worker, scheduler = spec["spec"]["worker"], spec["spec"]["scheduler"]
        [container] = worker["spec"]["containers"]
        assert worker["replicas"] == 8
        assert container["image"] == "own:1"
        assert " ".join(container["args"]) == (
            "dask worker --nthreads 1 --local-directory /tmp --death-timeout 120 "
            "--name $(DASK_WORKER_NAME) --dashboard --dashboard-address 8788"
        )
        assert {"name": "PREFECT_API_URL", "value": "http://prefect/api"} in container["env"]
        assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
        assert worker["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}]
        deaths = {"name": "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "value": "2"}
        assert deaths in scheduler["spec"]["containers"][0]["env"]  # the third death ends the task

    def test_each_pod_of_the_other_group_has_a_gpu_and_offers_it(self) -> None:
        spec = recipe("kubernetes.py")["gpu_group_spec"]("own:1", "claim", 4)
        [container] = spec["spec"]["containers"]
        assert spec["replicas"] == 4
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert " ".join(container["args"]).startswith("dask worker --nthreads 3 ")
        assert "--resources GPU=1 --name $(DASK_WORKER_NAME)" in " ".join(container["args"])
        assert spec["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "claim"}
