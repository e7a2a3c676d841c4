"""Manifests for Kubernetes: an indexed Job with a headless Service, or a PyTorchJob of Kubeflow's training operator.

Manifests are plain dictionaries with the API's names. This module does not know where a cluster is or how it answers.

The container's main process is a shell that copies the program's output to the log in the job folder and exits with
the program's exit code. When a pod is told to end, a hook writes the job's stop file and waits, so that the program can
save a checkpoint within the grace period. When several machines append to one file on NFS, lines get lost; so only the
first node writes to `log.txt`, and node 3, for example, to `log-3.txt`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.launch.base import LOG, LaunchRequest
from toolformer_core.errors import UsageError

MASTER_PORT = 29500  # the same for every job, as each has pods of its own
PYTORCH_GROUP, PYTORCH_VERSION = "kubeflow.org", "v1"
FOLDER = "toolformer-platform/folder"  # the annotation that holds the job folder's path, by which a job is recognised
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
    """The settings that all pods of a job share.

    Args:
        image: the container image, with this project installed.
        namespace: the namespace in which the job is created.
        nodes: number of pods, one per node.
        folder: the job folder's path in the pods.
        claim: the PersistentVolumeClaim that holds it.
        mount_path: where the claim is mounted.
        python: the interpreter in the image.
        resources: limits, e.g. `{"nvidia.com/gpu": "8"}`.
        shared_memory: the size of /dev/shm; "": the container runtime's.
        variables: environment variables for every process.
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
    """Return the headless Service through which a Job's pods find the first pod, even before that is ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {_LABEL: request.name},
        "ports": [{"name": "torchrun", "port": MASTER_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(request, pods), "spec": spec}


def job(request: LaunchRequest, pods: Pods) -> dict[str, Any]:
    """Return the Job: one pod per node, and no retries, as those are up to the caller."""
    rank = {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
    rendezvous = [
        f"--nnodes={pods.nodes}",
        f"--nproc-per-node={request.processes}",
        "--node-rank=$(NODE_RANK)",
        f"--master-addr={request.name}-0.{request.name}",
        f"--master-port={MASTER_PORT}",
    ]
    template = _template(request, pods, _container("trainer", request, pods, rendezvous, [rank]))
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
    """Return the PyTorchJob. Its operator sets torchrun's rendezvous options, as PET_ environment variables."""
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
    return {
        "name": request.name,
        "namespace": pods.namespace,
        "labels": {_LABEL: request.name},
        "annotations": {FOLDER: str(pods.folder)},
    }


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
        spec["tolerations"] = [_parse_toleration(text) for text in pods.tolerations]
    if pods.service_account:
        spec["serviceAccountName"] = pods.service_account
    if pods.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pods.pull_secrets]
    return {"metadata": {"labels": {_LABEL: request.name}}, "spec": spec}


def _container(
    name: str, request: LaunchRequest, pods: Pods, rendezvous: list[str], first_variables: list[dict[str, Any]]
) -> dict[str, Any]:
    program = [_escape(word) for word in (*request.program, str(pods.folder))]
    torchrun = [pods.python, "-m", "torch.distributed.run", *rendezvous, *program]
    mounts = [{"name": "data", "mountPath": pods.mount_path}]
    if pods.shared_memory:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    container: dict[str, Any] = {
        "name": name,
        "image": pods.image,
        "workingDir": str(pods.folder),
        "command": ["sh", "-c", _escape(_RUN), "sh", _escape(str(pods.folder / LOG)), *torchrun],
        "env": [*first_variables, *({"name": n, "value": _escape(value)} for n, value in pods.variables.items())],
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _STOP, str(pods.folder / "stop")]}}},
        "volumeMounts": mounts,
    }
    if pods.secrets:
        container["envFrom"] = [{"secretRef": {"name": secret}} for secret in pods.secrets]
    if pods.resources:
        container["resources"] = {"limits": dict(pods.resources), "requests": dict(pods.resources)}
    return container


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
