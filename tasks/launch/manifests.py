"""Manifests for Kubernetes: an indexed Job, and the headless Service by which its pods find the first one.

Manifests are plain dictionaries with the API's names. This module does not know where a cluster is or how it answers.

The container's main process is a shell that copies the program's output to the log in the job folder and exits with
the program's exit code. When a pod is told to end, a hook writes the job's stop file and waits, so that the program can
save a checkpoint within the grace period. When several machines append to one file on NFS, lines get lost; so only the
first node writes to `log.txt`, and node 3, for example, to `log-3.txt`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.launch.base import LOG, Accelerator, LaunchRequest, gpus_to_request, rank_variables
from toolformer_core.errors import UsageError

MASTER_PORT = 29500  # the same for every job, as each has pods of its own
FOLDER = "toolformer-platform/folder"  # the annotation that holds the job folder's path, by which a job is recognised
_LABEL = "app.kubernetes.io/name"
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_RUN = """\
log=$1; shift; [ "$NODE_RANK" = 0 ] || log="${log%.txt}-$NODE_RANK.txt"
exec 4>&1
code=$({ { "$@" 2>&1 3>&-; echo $? >&3; } | tee -a "$log" >&4; } 3>&1)
exit "$code"
"""
_STOP = 'echo "pod is being ended" >"$0"; while kill -0 1 2>/dev/null; do sleep 1; done'
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """A profile's settings for Kubernetes: one pod per node.

    Args:
        image: the container image, with this project and its extra `deepspeed` installed; required.
        claim: the PersistentVolumeClaim with the data folder (ReadWriteMany for several nodes); required.
        mount_path: where the pods mount the claim.
        local_root: path of the claim's root on this machine; default: `mount_path`.
        python: the interpreter in the image; default: the request's.
        namespace: the namespace in which the job is created.
        nodes: number of pods.
        gpus_per_node: -1: as many as there are processes on a node, none for the accelerator `cpu`; 0: requests none.
        gpu_resource: the cluster's name of the resource GPU.
        cpu: per pod, e.g. `32`; default: no request.
        memory: per pod, e.g. `400Gi`; default: no request.
        shared_memory: the size of /dev/shm, which NCCL and data loaders use; "": the container runtime's.
        node_selector: labels that nodes must have.
        tolerations: `key=value:NoSchedule`, or `key:NoSchedule` for any value.
        secrets: Secrets whose entries become variables.
        pull_secrets: Secrets for the image's registry.
        service_account: default: the namespace's.
        environment: variables for every rank; the request's have precedence.
        accelerator: `cpu` or `cuda`; `auto`: what the nodes have.
        grace_s: seconds that a pod has to end after it was told to; it must have time for a checkpoint.
        ttl_s: seconds after which the cluster removes a finished job; the default is a day.
        context: context of the kubeconfig; default: its current one.
        kubeconfig: default: the client's usual places, then the pod's own account.
    """

    image: str = ""
    claim: str = ""
    mount_path: str = "/data"
    local_root: str = ""
    python: str = ""
    namespace: str = "default"
    nodes: int = 1
    gpus_per_node: int = -1
    gpu_resource: str = "nvidia.com/gpu"
    cpu: str = ""
    memory: str = ""
    shared_memory: str = "8Gi"
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    accelerator: Accelerator = Accelerator.AUTO
    grace_s: int = 120
    ttl_s: int = 86400
    context: str = ""
    kubeconfig: str = ""


def service(request: LaunchRequest, settings: KubernetesSettings) -> dict[str, Any]:
    """Return the headless Service through which a Job's pods find the first pod, even before that is ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {_LABEL: request.name},
        "ports": [{"name": "torchrun", "port": MASTER_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(request, settings), "spec": spec}


def job(request: LaunchRequest, settings: KubernetesSettings) -> dict[str, Any]:
    """Return the Job: one pod per node, and no retries, as those are up to the caller."""
    rendezvous = [
        f"--nnodes={settings.nodes}",
        f"--nproc-per-node={request.processes}",
        "--node-rank=$(NODE_RANK)",
        f"--master-addr={request.name}-0.{request.name}",
        f"--master-port={MASTER_PORT}",
    ]
    template = _template(request, settings, _container(request, settings, rendezvous))
    template["spec"]["subdomain"] = request.name
    spec = {
        "completionMode": "Indexed",
        "completions": settings.nodes,
        "parallelism": settings.nodes,
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": settings.ttl_s,
        "template": template,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(request, settings), "spec": spec}


def _metadata(request: LaunchRequest, settings: KubernetesSettings) -> dict[str, Any]:
    return {
        "name": request.name,
        "namespace": settings.namespace,
        "labels": {_LABEL: request.name},
        "annotations": {FOLDER: str(_path_in_pod(request, settings))},
    }


def _template(request: LaunchRequest, settings: KubernetesSettings, container: dict[str, Any]) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [{"name": "data", "persistentVolumeClaim": {"claimName": settings.claim}}]
    if settings.shared_memory:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shared_memory}})
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.grace_s,
        "containers": [container],
        "volumes": volumes,
    }
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        spec["tolerations"] = [_parse_toleration(text) for text in settings.tolerations]
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.pull_secrets]
    return {"metadata": {"labels": {_LABEL: request.name}}, "spec": spec}


def _container(request: LaunchRequest, settings: KubernetesSettings, rendezvous: list[str]) -> dict[str, Any]:
    folder = _path_in_pod(request, settings)
    program = [_escape(word) for word in (*request.program, str(folder))]
    torchrun = [settings.python or request.python, "-m", "torch.distributed.run", *rendezvous, *program]
    mounts = [{"name": "data", "mountPath": settings.mount_path}]
    if settings.shared_memory:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    rank = {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
    variables = rank_variables(settings.accelerator, settings.environment, request)
    container: dict[str, Any] = {
        "name": "trainer",
        "image": settings.image,
        "workingDir": str(folder),
        "command": ["sh", "-c", _escape(_RUN), "sh", _escape(str(folder / LOG)), *torchrun],
        "env": [rank, *({"name": n, "value": _escape(value)} for n, value in variables.items())],
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _STOP, str(folder / "stop")]}}},
        "volumeMounts": mounts,
    }
    if settings.secrets:
        container["envFrom"] = [{"secretRef": {"name": secret}} for secret in settings.secrets]
    gpus = gpus_to_request(settings.gpus_per_node, settings.accelerator, request.processes)
    amounts = {settings.gpu_resource: str(gpus) if gpus else "", "cpu": settings.cpu, "memory": settings.memory}
    if resources := {name: amount for name, amount in amounts.items() if amount}:
        container["resources"] = {"limits": resources, "requests": dict(resources)}
    return container


def _path_in_pod(request: LaunchRequest, settings: KubernetesSettings) -> Path:
    """Return the job folder's path in a pod.

    Raises:
        UsageError: the folder does not lie on the claim.
    """
    root = Path(settings.local_root or settings.mount_path)
    if not request.folder.is_relative_to(root):
        raise UsageError(
            f"the job folder {request.folder} is not on the claim {settings.claim}: put the data folder under {root}"
        )
    return Path(settings.mount_path) / request.folder.relative_to(root)


def _escape(text: str) -> str:
    """Escape a text so that Kubernetes does not replace $(NAME) in it."""
    return text.replace("$(", "$$(")


def _parse_toleration(text: str) -> dict[str, str]:
    """Return the toleration that a text such as `key=value:NoSchedule` describes.

    Raises:
        UsageError: the text has another form.
    """
    taint, _, effect = text.rpartition(":")
    key, equals, value = taint.partition("=")
    if not key or effect not in _EFFECTS:
        raise UsageError(f"toleration {shlex.quote(text)}: write it as key=value:NoSchedule or key:NoSchedule")
    return {"key": key, "effect": effect} | (
        {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    )
