"""What Kubernetes is given: an indexed Job with a headless Service, or a PyTorchJob of Kubeflow's training operator.

Manifests are plain values in the API's own words. Where a cluster is and how it answers, this file does not know.

The container's main process is a shell that copies the program's output to the log in the job folder and keeps its
exit code. When a pod is told to end, a hook writes the job's stop file and waits: within the grace period the
program can leave a checkpoint. Only the first node writes to `log.txt`, as appending from several machines to one
file on NFS loses lines; node 3 writes `log-3.txt`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.launch.base import LOG, LaunchRequest
from toolformer_core.errors import UsageError

__all__ = ["FOLDER", "MASTER_PORT", "PYTORCH_GROUP", "PYTORCH_VERSION", "Pods", "job", "pytorch_job", "service"]

MASTER_PORT = 29500  # every job has pods, and so ports, of its own
PYTORCH_GROUP, PYTORCH_VERSION = "kubeflow.org", "v1"
FOLDER = "toolformer-platform/folder"  # the annotation that says whose job it is
_LABEL = "app.kubernetes.io/name"
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_RUN = """\
log=$1; shift; [ "${NODE_RANK:-${PET_NODE_RANK:-0}}" = 0 ] || log="${log%.txt}-${NODE_RANK:-$PET_NODE_RANK}.txt"
exec 4>&1
code=$({ { "$@" 2>&1 3>&-; echo $? >&3; } | tee -a "$log" >&4; } 3>&1)
exit "$code"
"""
_STOP = 'echo "pod is being ended" >"$0"; while kill -0 1 2>/dev/null; do sleep 1; done'
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Pods:
    """What all nodes of a job have in common.

    Args:
        image: the container image, with this project installed.
        namespace: where the job is to live.
        nodes: how many pods.
        folder: the job folder as the pods see it.
        claim: the PersistentVolumeClaim that holds it.
        mount_path: where the claim is mounted.
        python: the interpreter in the image.
        resources: limits, e.g. `{"nvidia.com/gpu": "8"}`.
        shared_memory: the size of /dev/shm; "": the container runtime's.
        variables: for every process.
        secrets: names of Secrets whose entries become variables.
        pull_secrets: names of Secrets for the image's registry.
        node_selector: labels that nodes must have.
        tolerations: `key=value:NoSchedule`, or `key:NoSchedule` for any value.
        service_account: "": the namespace's default.
        grace_s: `terminationGracePeriodSeconds`.
        ttl_s: seconds after which a finished job is removed.
    """

    image: str
    namespace: str
    nodes: int
    folder: Path
    claim: str
    mount_path: str
    python: str
    resources: Mapping[str, str]
    shared_memory: str
    variables: Mapping[str, str]
    secrets: tuple[str, ...]
    pull_secrets: tuple[str, ...]
    node_selector: Mapping[str, str]
    tolerations: tuple[str, ...]
    service_account: str
    grace_s: int
    ttl_s: int


def service(request: LaunchRequest, pods: Pods) -> dict[str, Any]:
    """Return the headless Service through which a Job's pods find the first one, before it is ready too."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {_LABEL: request.name},
        "ports": [{"name": "torchrun", "port": MASTER_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(request, pods), "spec": spec}


def job(request: LaunchRequest, pods: Pods) -> dict[str, Any]:
    """Return the Job: one pod a node, and no second try, as trying again is the caller's decision."""
    rank = {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
    meet = [
        f"--nnodes={pods.nodes}",
        f"--nproc-per-node={request.processes}",
        "--node-rank=$(NODE_RANK)",
        f"--master-addr={request.name}-0.{request.name}",
        f"--master-port={MASTER_PORT}",
    ]
    template = _template(request, pods, _container("trainer", request, pods, meet, [rank]))
    template["spec"]["subdomain"] = request.name
    spec = {
        "completionMode": "Indexed",
        "completions": pods.nodes,
        "parallelism": pods.nodes,
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": pods.ttl_s,
        "template": template,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(request, pods), "spec": spec}


def pytorch_job(request: LaunchRequest, pods: Pods) -> dict[str, Any]:
    """Return the PyTorchJob. The operator says in PET_ variables, which torchrun reads, who meets whom and where."""
    container = _container("pytorch", request, pods, [], [])
    template = _template(request, pods, container)

    def replicas(count: int) -> dict[str, Any]:
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    spec = {
        "nprocPerNode": str(request.processes),
        "runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "Running", "ttlSecondsAfterFinished": pods.ttl_s},
        "pytorchReplicaSpecs": {
            "Master": replicas(1),
            **({"Worker": replicas(pods.nodes - 1)} if pods.nodes > 1 else {}),
        },
    }
    metadata = _metadata(request, pods)
    return {
        "apiVersion": f"{PYTORCH_GROUP}/{PYTORCH_VERSION}",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": spec,
    }


def _metadata(request: LaunchRequest, pods: Pods) -> dict[str, Any]:
    named = {"name": request.name, "namespace": pods.namespace, "labels": {_LABEL: request.name}}
    return {**named, "annotations": {FOLDER: str(pods.folder)}}


def _template(request: LaunchRequest, pods: Pods, container: dict[str, Any]) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [{"name": "data", "persistentVolumeClaim": {"claimName": pods.claim}}]
    if pods.shared_memory:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": pods.shared_memory}})
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": pods.grace_s,
        "containers": [container],
        "volumes": volumes,
    }
    if pods.node_selector:
        spec["nodeSelector"] = dict(pods.node_selector)
    if pods.tolerations:
        spec["tolerations"] = [_toleration(text) for text in pods.tolerations]
    if pods.service_account:
        spec["serviceAccountName"] = pods.service_account
    if pods.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pods.pull_secrets]
    return {"metadata": {"labels": {_LABEL: request.name}}, "spec": spec}


def _container(
    name: str, request: LaunchRequest, pods: Pods, meet: list[str], first: list[dict[str, Any]]
) -> dict[str, Any]:
    program = [_literal(word) for word in (*request.program, str(pods.folder))]
    torchrun = [pods.python, "-m", "torch.distributed.run", *meet, *program]
    mounts = [{"name": "data", "mountPath": pods.mount_path}]
    if pods.shared_memory:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    container: dict[str, Any] = {
        "name": name,
        "image": pods.image,
        "workingDir": str(pods.folder),
        "command": ["sh", "-c", _literal(_RUN), "sh", _literal(str(pods.folder / LOG)), *torchrun],
        "env": [*first, *({"name": name, "value": _literal(value)} for name, value in pods.variables.items())],
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _STOP, str(pods.folder / "stop")]}}},
        "volumeMounts": mounts,
    }
    if pods.secrets:
        container["envFrom"] = [{"secretRef": {"name": secret}} for secret in pods.secrets]
    if pods.resources:
        container["resources"] = {"limits": dict(pods.resources), "requests": dict(pods.resources)}
    return container


def _literal(text: str) -> str:
    """Return a text such that Kubernetes, which replaces $(NAME), leaves it as it was."""
    return text.replace("$(", "$$(")


def _toleration(text: str) -> dict[str, str]:
    """Return what `key=value:NoSchedule` means.

    Raises:
        UsageError: it means nothing.
    """
    taint, _, effect = text.rpartition(":")
    key, equals, value = taint.partition("=")
    if not key or effect not in _EFFECTS:
        raise UsageError(f"toleration {shlex.quote(text)}: write it as key=value:NoSchedule or key:NoSchedule")
    return {"key": key, "effect": effect} | (
        {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    )
