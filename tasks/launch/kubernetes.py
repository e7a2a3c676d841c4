"""The launcher for Kubernetes: posts the manifests of `manifests.py`, and reads the job's and its pods' status.

The job folder must lie on a PersistentVolumeClaim that this machine sees too. The official client is imported when it
is needed; what the manifests hold, and what the program does, is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from tasks.launch import manifests
from tasks.launch.base import (
    Accelerator,
    JobState,
    LaunchError,
    LaunchRequest,
    LostError,
    accelerator_variables,
    parse_handle,
)
from tasks.launch.cluster import Cluster, connect, why
from toolformer_core.errors import UsageError

__all__ = ["KubernetesKind", "KubernetesLauncher"]

_TIMEOUT_S = 30
_NOT_FOUND, _CONFLICT = 404, 409
_LAST_WORDS = 20  # lines of a failed pod's log that are looked at
_PYTORCH = {"group": manifests.PYTORCH_GROUP, "version": manifests.PYTORCH_VERSION, "plural": "pytorchjobs"}
_ENDS = {"Complete": JobState.SUCCEEDED, "Succeeded": JobState.SUCCEEDED, "Failed": JobState.FAILED}


class KubernetesKind(StrEnum):
    """A plain `Job` runs on every cluster; a `PyTorchJob` wants Kubeflow's training operator, 1.7 or later."""

    JOB = "Job"
    PYTORCH_JOB = "PyTorchJob"


@dataclass(frozen=True, slots=True)
class KubernetesLauncher:
    """Starts the program in pods, one a node.

    Args:
        image: the container image, with this project and its extra `deepspeed` installed; must be named.
        claim: the PersistentVolumeClaim with the data folder (ReadWriteMany for several nodes); must be named.
        mount_path: where pods mount it.
        local_root: where this machine has the claim's root; default: at `mount_path` too.
        python: the interpreter in the image; default: the request's.
        kind: `Job` or `PyTorchJob`.
        namespace: where the job is to live.
        nodes: how many pods.
        gpus_per_node: -1: as many as there are processes on a node; 0: none is asked for.
        gpu_resource: what GPUs are called in the cluster.
        cpu: per pod, e.g. `32`; default: no request.
        memory: per pod, e.g. `400Gi`; default: no request.
        shared_memory: the size of /dev/shm, which NCCL and data loaders use; "": the container runtime's.
        node_selector: labels that nodes must have.
        tolerations: `key=value:NoSchedule`, or `key:NoSchedule` for any value.
        secrets: Secrets whose entries become variables.
        pull_secrets: Secrets for the image's registry.
        service_account: default: the namespace's.
        environment: variables for every rank; the request's have precedence.
        accelerator: `cpu` or `cuda`; `auto`: what is there.
        grace_s: seconds a pod has to end; a checkpoint must fit in.
        ttl_s: seconds after which the cluster removes a finished job; the default is a day.
        context: of the kubeconfig; default: its current one.
        kubeconfig: default: the client's usual places, then the pod's own account.
    """

    image: str = ""
    claim: str = ""
    mount_path: str = "/data"
    local_root: str = ""
    python: str = ""
    kind: KubernetesKind = KubernetesKind.JOB
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

    name: ClassVar[str] = "kubernetes"
    poll_s: ClassVar[float] = 5.0

    def preview(self, request: LaunchRequest) -> str:
        """Return the manifests as JSON, which `kubectl apply -f` takes as well."""
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": self._manifests(request)}, indent=2) + "\n"

    def submit(self, request: LaunchRequest) -> str:
        """Post the manifests; the Service is made the Job's own, so that it goes when the Job goes."""
        request.check_folder()
        main, *others = self._manifests(request)
        held = None
        with self._api() as api:
            try:
                made = self._create(api, main)
            except api.refused as exc:
                held = self._held(api, main) if exc.status == _CONFLICT else None
                if held is None:
                    hint = self._hint(exc.status, request.name)
                    raise _error(exc)(f"the cluster refused the {self.kind} {request.name}: {why(exc)}{hint}") from exc
                made = held
            owner = {"apiVersion": main["apiVersion"], "kind": main["kind"], "name": request.name}
            for manifest in others:
                manifest["metadata"]["ownerReferences"] = [{**owner, "uid": made["metadata"]["uid"]}]
                try:
                    api.core.create_namespaced_service(self.namespace, manifest, _request_timeout=_TIMEOUT_S)
                except api.refused as exc:
                    if exc.status == _CONFLICT and self._owned(api, request.name, made["metadata"]["uid"]):
                        continue
                    if held is None:
                        self._delete(api, self.namespace, request.name, self.kind)
                    raise _error(exc)(f"the cluster refused the Service {request.name}: {why(exc)}") from exc
        where = {"kind": str(self.kind), "namespace": self.namespace, "job": request.name}
        return json.dumps({"launcher": self.name, **where, "uid": made["metadata"]["uid"]})

    def state(self, handle: str) -> tuple[JobState, str]:
        """Read the job's conditions and its pods; a failed pod's reason and last words go into the detail."""
        record = self._record(handle)
        try:
            return self._state(record)
        except LaunchError as exc:  # whatever a cluster says of our right to ask, the job may run
            raise LostError(str(exc)) from exc

    def _state(self, record: dict[str, Any]) -> tuple[JobState, str]:
        with self._api() as api:
            found = self._read(api, record)
            if found is None:
                return JobState.GONE, f"the cluster knows no {record['kind']} {record['job']} any more"
            if found["metadata"].get("deletionTimestamp"):
                return JobState.ENDING, "being deleted"  # until its last pod has ended
            pods = self._pods(api, record)
            condition = _ending(found)
            if condition is not None and _ENDS[condition["type"]] is JobState.SUCCEEDED:
                return JobState.SUCCEEDED, condition["type"]
            if condition is not None:
                own = condition.get("reason") or condition.get("message") or "Failed"
                return JobState.FAILED, self._autopsy(api, record["namespace"], pods) or own
            return _progress(pods)

    def cancel(self, handle: str) -> None:
        """Delete the job and, with it, its pods and its Service; `state` says `gone` when the last pod has ended."""
        record = self._record(handle)
        with self._api() as api:
            if self._read(api, record) is None:
                return
            try:
                self._delete(api, record["namespace"], record["job"], record["kind"])
            except api.refused as exc:
                if exc.status != _NOT_FOUND:
                    raise LaunchError(f"the cluster did not delete {record['job']}: {why(exc)}") from exc

    # Values.

    def _record(self, handle: str) -> dict[str, Any]:
        return parse_handle(handle, self.name, "kind", "namespace", "job", "uid")

    def _manifests(self, request: LaunchRequest) -> list[dict[str, Any]]:
        if not self.image or not self.claim:
            raise UsageError(
                "name the container `image` and the PersistentVolumeClaim `claim` that holds the data folder"
            )
        pods = self._settings(request)
        if self.kind == KubernetesKind.PYTORCH_JOB:
            return [manifests.pytorch_job(request, pods)]
        return [manifests.job(request, pods), manifests.service(request, pods)]

    def _settings(self, request: LaunchRequest) -> manifests.Pods:
        gpus = request.processes if self.gpus_per_node < 0 else self.gpus_per_node
        wanted = {self.gpu_resource: str(gpus) if gpus else "", "cpu": self.cpu, "memory": self.memory}
        variables = {"PYTHONUNBUFFERED": "1", **accelerator_variables(self.accelerator), **self.environment}
        return manifests.Pods(
            image=self.image,
            namespace=self.namespace,
            nodes=self.nodes,
            folder=self._inside(request.folder),
            claim=self.claim,
            mount_path=self.mount_path,
            python=self.python or request.python,
            resources={name: amount for name, amount in wanted.items() if amount},
            shared_memory=self.shared_memory,
            variables={**variables, **request.environment},
            secrets=self.secrets,
            pull_secrets=self.pull_secrets,
            node_selector=self.node_selector,
            tolerations=self.tolerations,
            service_account=self.service_account,
            grace_s=self.grace_s,
            ttl_s=self.ttl_s,
        )

    def _inside(self, folder: Path) -> Path:
        """Return the job folder's path in a pod.

        Raises:
            UsageError: the folder does not lie on the claim.
        """
        root = Path(self.local_root or self.mount_path)
        if not folder.is_relative_to(root):
            raise UsageError(
                f"the job folder {folder} is not on the claim {self.claim}: put the data folder under {root}"
            )
        return Path(self.mount_path) / folder.relative_to(root)

    # The API.

    @contextmanager
    def _api(self) -> Iterator[Cluster]:
        """Yield the cluster's API; say in one line that it does not let us, or that it cannot be reached."""
        with connect(self.kubeconfig, self.context) as api:
            try:
                yield api
            except api.refused as exc:
                raise _error(exc)(f"the cluster refused: {why(exc)}") from exc
            except api.unreachable as exc:
                reason = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
                raise LostError(f"the cluster cannot be reached, see `kubectl cluster-info`: {reason}") from exc

    def _create(self, api: Cluster, manifest: dict[str, Any]) -> dict[str, Any]:
        if self.kind == KubernetesKind.PYTORCH_JOB:
            made = api.custom.create_namespaced_custom_object(
                **_PYTORCH, namespace=self.namespace, body=manifest, _request_timeout=_TIMEOUT_S
            )
        else:
            made = api.batch.create_namespaced_job(self.namespace, manifest, _request_timeout=_TIMEOUT_S)
        value: dict[str, Any] = api.plain(made)
        return value

    def _held(self, api: Cluster, main: dict[str, Any]) -> dict[str, Any] | None:
        """Return the job that an earlier `submit` made without hearing of it; None if it is another's, or going."""
        where = main["metadata"]
        found = self._read(api, {"kind": main["kind"], "namespace": self.namespace, "job": where["name"]})
        if found is None or found["metadata"].get("deletionTimestamp"):
            return None
        own = (found["metadata"].get("annotations") or {}).get(manifests.FOLDER)
        return found if own == where["annotations"][manifests.FOLDER] else None

    def _owned(self, api: Cluster, service: str, uid: str) -> bool:
        """Whether a Service goes when the job with this uid goes."""
        found = api.plain(api.core.read_namespaced_service(service, self.namespace, _request_timeout=_TIMEOUT_S))
        return any(owner["uid"] == uid for owner in found["metadata"].get("ownerReferences") or [])

    def _hint(self, status: int, name: str) -> str:
        if status == _CONFLICT:
            return f"; it is going, or another's: see `kubectl -n {self.namespace} get {self.kind.lower()} {name}`"
        missing = self.kind == KubernetesKind.PYTORCH_JOB and status == _NOT_FOUND
        return "; is Kubeflow's training operator installed?" if missing else ""

    def _read(self, api: Cluster, record: dict[str, Any]) -> dict[str, Any] | None:
        """Return the job as it stands; None if there is none, or only one of the same name and another `uid`."""
        name, namespace = record["job"], record["namespace"]
        try:
            if record["kind"] == KubernetesKind.PYTORCH_JOB:
                found = api.custom.get_namespaced_custom_object(
                    **_PYTORCH, namespace=namespace, name=name, _request_timeout=_TIMEOUT_S
                )
            else:
                found = api.batch.read_namespaced_job(name, namespace, _request_timeout=_TIMEOUT_S)
        except api.refused as exc:
            if exc.status == _NOT_FOUND:
                return None
            raise
        value: dict[str, Any] = api.plain(found)
        return value if record.get("uid") in (None, value["metadata"]["uid"]) else None

    def _pods(self, api: Cluster, record: dict[str, Any]) -> list[dict[str, Any]]:
        label = "training.kubeflow.org/job-name" if record["kind"] == KubernetesKind.PYTORCH_JOB else "job-name"
        found = api.core.list_namespaced_pod(
            record["namespace"], label_selector=f"{label}={record['job']}", _request_timeout=_TIMEOUT_S
        )
        return sorted(api.plain(found)["items"], key=lambda pod: str(pod["metadata"]["name"]))

    def _delete(self, api: Cluster, namespace: str, name: str, kind: str) -> None:
        if kind == KubernetesKind.PYTORCH_JOB:
            api.custom.delete_namespaced_custom_object(
                **_PYTORCH, namespace=namespace, name=name, propagation_policy="Foreground", _request_timeout=_TIMEOUT_S
            )
        else:
            api.batch.delete_namespaced_job(
                name, namespace, propagation_policy="Foreground", _request_timeout=_TIMEOUT_S
            )

    def _autopsy(self, api: Cluster, namespace: str, pods: list[dict[str, Any]]) -> str:
        """Return why the first pod ended that ended badly, and the last line it logged; "" if none did."""
        ends = [(_end(pod), str(pod["metadata"]["name"])) for pod in pods]
        bad = sorted((end["finishedAt"] or "", name, end) for end, name in ends if end and end["exitCode"] != 0)
        if not bad:
            return next((str(p["status"]["reason"]) for p in pods if p["status"].get("reason")), "")
        _, name, end = bad[0]
        text = f"{name}: {end['reason'] or 'Error'}, exit code {end['exitCode']}"
        try:
            log = api.core.read_namespaced_pod_log(
                name, namespace, tail_lines=_LAST_WORDS, _request_timeout=_TIMEOUT_S, _preload_content=False
            )
            lines = log.data.decode("utf-8", errors="replace").splitlines()
        except (*api.unreachable, api.refused):  # the node, or the log, is gone
            return text
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{text}: {last[:300]}" if last else text


def _error(refusal: Any) -> type[LaunchError]:
    """Return what an API error means: from 500 on, or without a status, the cluster may have done what was asked."""
    return LaunchError if 400 <= (refusal.status or 0) < 500 else LostError


def _ending(found: dict[str, Any]) -> dict[str, Any] | None:
    """Return the condition that says how a job ended; None if it has not."""
    conditions = found.get("status", {}).get("conditions") or []
    return next((c for c in conditions if c["type"] in _ENDS and c["status"] == "True"), None)


def _statuses(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return list(pod["status"].get("containerStatuses") or [])


def _end(pod: dict[str, Any]) -> dict[str, Any] | None:
    """Return how a pod's container ended; None if it has not."""
    ends = [status["state"]["terminated"] for status in _statuses(pod) if status.get("state", {}).get("terminated")]
    return {"finishedAt": None, "reason": None, **ends[0]} if ends else None


def _progress(pods: list[dict[str, Any]]) -> tuple[JobState, str]:
    """Return how an unfinished job stands: it waits as long as one of its pods does."""
    if not pods:
        return JobState.PENDING, "no pod yet"
    for pod in pods:
        if pod["status"].get("phase") == "Pending":
            return JobState.PENDING, f"{pod['metadata']['name']}: {_waiting(pod)}"
    return JobState.RUNNING, f"{len(pods)} pods" if len(pods) > 1 else str(pods[0]["metadata"]["name"])


def _waiting(pod: dict[str, Any]) -> str:
    for status in _statuses(pod):
        waiting = status.get("state", {}).get("waiting")
        if waiting:
            return ": ".join(part for part in (waiting.get("reason"), waiting.get("message")) if part)
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return ": ".join(part for part in (condition.get("reason"), condition.get("message")) if part)
    return "Pending"
