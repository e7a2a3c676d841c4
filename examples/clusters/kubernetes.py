"""Dask workers for builds in Kubernetes, by dask-kubernetes: a group of CPU pods, and one of pods with a GPU each.

    python examples/clusters/kubernetes.py --image registry.example/toolformer:1 --cpus 8 --gpus 4
    toolformer build --corpus /data/c4.jsonl --data /data/c4 --runner tcp://toolformer-scheduler.NAMESPACE:8786 --gpus 4

The second command runs in a pod of the same namespace, with the same image and the same claim. Dask's operator must be
installed there. A pod that ends or is evicted is no failure: workers join and leave while the build runs, and the
operator starts another in its place.
"""

import argparse
from typing import Any

NAME = "toolformer"
DEATHS = 3  # of workers with the same task among theirs, after which the scheduler gives it up
_WORKER = "dask worker --nthreads {threads} --local-directory /tmp --death-timeout 120"


def cluster_spec(image: str, claim: str, workers: int, variables: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the DaskCluster: the scheduler, and a group of workers with one thread each.

    Args:
        image: this project's Dockerfile, in a registry of yours.
        claim: the PersistentVolumeClaim that all pods mount at /data.
        workers: pods of the group.
        variables: for all pods, e.g. TOOLFORMER_CATALOG and PREFECT_API_URL.
    """
    from dask_kubernetes.operator import make_cluster_spec

    own = {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(DEATHS - 1),
        "OMP_NUM_THREADS": "1",
        **(variables or {}),
    }
    size = {"requests": {"cpu": "1", "memory": "8Gi"}, "limits": {"memory": "8Gi"}}
    spec: dict[str, Any] = make_cluster_spec(
        NAME, image=image, n_workers=workers, resources=size, env=own, worker_command=_WORKER.format(threads=1)
    )
    _mount(spec["spec"]["worker"]["spec"], claim)
    return spec


def gpu_group_spec(image: str, claim: str, workers: int, variables: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a group of workers with a GPU each, for `KubeCluster.add_worker_group`.

    Args:
        image: see `cluster_spec`, as for the rest.
        claim: where the data is.
        workers: pods of the group.
        variables: for all pods.
    """
    from dask_kubernetes.operator import make_worker_spec

    size = {"requests": {"cpu": "3", "memory": "64Gi"}, "limits": {"memory": "64Gi", "nvidia.com/gpu": "1"}}
    command = f"{_WORKER.format(threads=3)} --resources GPU=1"
    spec: dict[str, Any] = make_worker_spec(
        image=image, n_workers=workers, resources=size, env=dict(variables or {}), worker_command=command
    )
    _mount(spec["spec"], claim)
    return spec


def _mount(pod: dict[str, Any], claim: str) -> None:
    pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    for container in pod["containers"]:
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]


def main() -> None:
    from dask_kubernetes.operator import KubeCluster

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", required=True)
    parser.add_argument("--claim", default="data")
    parser.add_argument("--cpus", type=int, default=2, help="workers without a GPU")
    parser.add_argument("--gpus", type=int, default=0, help="workers with a GPU each")
    parser.add_argument("--adapt", action="store_true", help="1 to --cpus workers, as there is work; without GPUs")
    args = parser.parse_args()
    if args.adapt and args.gpus:
        parser.error("--adapt is for a cluster without a GPU group")
    cluster = KubeCluster(custom_cluster_spec=cluster_spec(args.image, args.claim, args.cpus), shutdown_on_close=False)
    if args.gpus:
        cluster.add_worker_group("gpu", custom_spec=gpu_group_spec(args.image, args.claim, args.gpus))
    if args.adapt:
        cluster.adapt(minimum=1, maximum=args.cpus)
    print(f"toolformer build ... --runner tcp://{NAME}-scheduler:8786; kubectl delete daskcluster {NAME} ends it")


if __name__ == "__main__":
    main()
