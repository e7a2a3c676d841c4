"""The launcher for Kubernetes: posts the manifests of `manifests.py`, and reads the status of the job and its pods.

The job folder must lie on a PersistentVolumeClaim that this machine sees too. The official client is imported when it
is needed. This module does not know what the manifests contain, or what the program does.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks.launch import manifests
from tasks.launch.base import JobState, LaunchError, LaunchRequest, LostError, last_line, parse_handle
from tasks.launch.manifests import KubernetesSettings
from toolformer_core.errors import UsageError

_TIMEOUT_S = 30
_NOT_FOUND, _CONFLICT = 404, 409
_TAIL_LINES = 20  # of a failed pod's log, in which the last line that is not empty is looked for
_END_STATES = {"Complete": JobState.SUCCEEDED, "Failed": JobState.FAILED}


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The parts of the official client that are used; typed `Any`, as the client has no type annotations."""

    core: Any
    custom: Any
    to_dict: Any  # turns the client's object into the plain values that the API sent
    api_error: Any  # the exception for an answer that is not a success
    connection_errors: tuple[Any, ...]  # the exceptions when the cluster cannot be reached


@contextmanager
def _connect(kubeconfig: str, context: str) -> Iterator[_Cluster]:
    """Open a cluster: a named kubeconfig, else the client's usual places, else the account of the pod we run in.

    Raises:
        UsageError: the client is not installed, or no cluster is configured.
    """
    try:
        client = importlib.import_module("kubernetes.client")
        config = importlib.import_module("kubernetes.config")
        urllib3 = importlib.import_module("urllib3.exceptions")
    except ModuleNotFoundError as exc:
        raise UsageError(
            "the Kubernetes client is not installed: pip install 'toolformer-platform[kubernetes]'"
        ) from exc
    settings = client.Configuration()
    try:
        config.load_kube_config(kubeconfig or None, context=context or None, client_configuration=settings)
    except config.ConfigException as exc:
        try:
            if kubeconfig or context:
                raise exc
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            raise UsageError(f"no cluster to launch on: {exc} Give a kubeconfig, or set KUBECONFIG") from exc
    settings.retries = 2
    with client.ApiClient(settings) as connection:
        yield _Cluster(
            core=client.CoreV1Api(connection),
            custom=client.CustomObjectsApi(connection),
            to_dict=connection.sanitize_for_serialization,
            api_error=client.ApiException,
            connection_errors=(urllib3.HTTPError, OSError),
        )


@dataclass(frozen=True, slots=True)
class KubernetesLauncher(KubernetesSettings):
    """Starts the program in pods, one per node."""

    name: ClassVar[str] = "kubernetes"
    poll_s: ClassVar[float] = 5.0

    def preview(self, request: LaunchRequest) -> str:
        """Return the manifests as JSON, which `kubectl apply -f` takes as well."""
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": self._manifests(request)}, indent=2) + "\n"

    def submit(self, request: LaunchRequest) -> str:
        """Post the manifests. The Job owns the Service, so that the cluster deletes both together."""
        request.check_folder()
        main, service = self._manifests(request)
        existing = None
        with self._api() as api:
            try:
                created = api.custom.create_namespaced_custom_object(**_jobs(self.namespace), body=main)
            except api.api_error as exc:
                existing = self._find_job(api, main) if exc.status == _CONFLICT else None
                if existing is None:
                    see = f"; it is going, or another's: see `kubectl -n {self.namespace} get job {request.name}`"
                    hint = see if exc.status == _CONFLICT else ""
                    raise _refusal(exc, f" the Job {request.name}", hint) from exc
                created = existing
            uid = created["metadata"]["uid"]
            owner = {"apiVersion": main["apiVersion"], "kind": main["kind"], "name": request.name, "uid": uid}
            service["metadata"]["ownerReferences"] = [owner]
            try:
                api.core.create_namespaced_service(self.namespace, service, _request_timeout=_TIMEOUT_S)
            except api.api_error as exc:
                if exc.status != _CONFLICT or not self._is_owned_by(api, request.name, uid):
                    if existing is None:
                        self._delete(api, self.namespace, request.name)
                    raise _refusal(exc, f" the Service {request.name}") from exc
        location = {"namespace": self.namespace, "job": request.name}
        return json.dumps({"launcher": self.name, **location, "uid": uid})

    def state(self, handle: str) -> tuple[JobState, str]:
        """Return the job's state; the detail of a failed job is its failed pod's reason and last log line."""
        record = self._parse_handle(handle)
        try:
            return self._read_state(record)
        except LaunchError as exc:  # even if the cluster denies us the answer, the job may run
            raise LostError(str(exc)) from exc

    def _read_state(self, record: dict[str, Any]) -> tuple[JobState, str]:
        with self._api() as api:
            job = self._read_job(api, record)
            if job is None:
                return JobState.CANCELLED, "deleted"  # by a person: a lost node takes pods along, not their job
            if job["metadata"].get("deletionTimestamp"):
                return JobState.ENDING, "being deleted"  # until its last pod has ended
            pods = self._list_pods(api, record)
            condition = _end_condition(job)
            if condition is not None and _END_STATES[condition["type"]] is JobState.SUCCEEDED:
                return JobState.SUCCEEDED, condition["type"]
            if condition is not None:
                reason = condition.get("reason") or condition.get("message") or "Failed"
                return JobState.FAILED, self._explain_failure(api, record["namespace"], pods) or reason
            return _unfinished_state(pods)

    def cancel(self, handle: str) -> None:
        """Delete the job, its pods and its Service; `state` says `cancelled` when the last pod has ended."""
        record = self._parse_handle(handle)
        with self._api() as api:
            if self._read_job(api, record) is None:
                return
            try:
                self._delete(api, record["namespace"], record["job"])
            except api.api_error as exc:
                if exc.status != _NOT_FOUND:
                    raise LaunchError(f"the cluster did not delete {record['job']}: {_error_message(exc)}") from exc

    # Handles and manifests.

    def _parse_handle(self, handle: str) -> dict[str, Any]:
        return parse_handle(handle, self.name, "namespace", "job", "uid")

    def _manifests(self, request: LaunchRequest) -> list[dict[str, Any]]:
        if not self.image or not self.claim:
            raise UsageError(
                "name the container `image` and the PersistentVolumeClaim `claim` that holds the data folder"
            )
        return [manifests.job(request, self), manifests.service(request, self)]

    # The API.

    @contextmanager
    def _api(self) -> Iterator[_Cluster]:
        """Yield the cluster's API; turn its errors into a LaunchError or LostError of one line."""
        with _connect(self.kubeconfig, self.context) as api:
            try:
                yield api
            except api.api_error as exc:
                raise _refusal(exc) from exc
            except api.connection_errors as exc:
                reason = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
                raise LostError(f"the cluster cannot be reached, see `kubectl cluster-info`: {reason}") from exc

    def _find_job(self, api: _Cluster, main: dict[str, Any]) -> dict[str, Any] | None:
        """Return the job that an earlier `submit`, whose answer got lost, has created.

        None if the job of this name belongs to another folder, or is being deleted.
        """
        metadata = main["metadata"]
        job = self._read_job(api, {"namespace": self.namespace, "job": metadata["name"]})
        if job is None or job["metadata"].get("deletionTimestamp"):
            return None
        folder = (job["metadata"].get("annotations") or {}).get(manifests.FOLDER)
        return job if folder == metadata["annotations"][manifests.FOLDER] else None

    def _is_owned_by(self, api: _Cluster, name: str, uid: str) -> bool:
        """Return whether the Service of this name belongs to the job with this uid."""
        service = api.to_dict(api.core.read_namespaced_service(name, self.namespace, _request_timeout=_TIMEOUT_S))
        return any(owner["uid"] == uid for owner in service["metadata"].get("ownerReferences") or [])

    def _read_job(self, api: _Cluster, record: dict[str, Any]) -> dict[str, Any] | None:
        """Return the job as the cluster describes it; None if there is none, or only one with another `uid`."""
        jobs = _jobs(record["namespace"])
        try:
            job: dict[str, Any] = api.custom.get_namespaced_custom_object(**jobs, name=record["job"])
        except api.api_error as exc:
            if exc.status == _NOT_FOUND:
                return None
            raise
        return job if record.get("uid") in (None, job["metadata"]["uid"]) else None

    def _list_pods(self, api: _Cluster, record: dict[str, Any]) -> list[dict[str, Any]]:
        answer = api.core.list_namespaced_pod(
            record["namespace"], label_selector=f"job-name={record['job']}", _request_timeout=_TIMEOUT_S
        )
        return sorted(api.to_dict(answer)["items"], key=lambda pod: str(pod["metadata"]["name"]))

    def _delete(self, api: _Cluster, namespace: str, name: str) -> None:
        api.custom.delete_namespaced_custom_object(**_jobs(namespace), name=name, propagation_policy="Foreground")

    def _explain_failure(self, api: _Cluster, namespace: str, pods: list[dict[str, Any]]) -> str:
        """Return why the pod that failed first failed, and its last log line; "" if no pod says why."""
        ends = [(_container_end(pod), str(pod["metadata"]["name"])) for pod in pods]
        failures = sorted((end["finishedAt"] or "", name, end) for end, name in ends if end and end["exitCode"] != 0)
        if not failures:
            return next((str(pod["status"]["reason"]) for pod in pods if pod["status"].get("reason")), "")
        _, name, end = failures[0]
        text = f"{name}: {end['reason'] or 'Error'}, exit code {end['exitCode']}"
        try:
            log = api.core.read_namespaced_pod_log(
                name, namespace, tail_lines=_TAIL_LINES, _request_timeout=_TIMEOUT_S, _preload_content=False
            )
            last = last_line(log.data.decode("utf-8", errors="replace"))
        except (*api.connection_errors, api.api_error):  # e.g. the node or the log is gone
            return text
        return f"{text}: {last[:300]}" if last else text


def _jobs(namespace: str) -> dict[str, Any]:
    """Return the arguments by which the client finds Jobs as plain values, without its own classes."""
    return {"group": "batch", "version": "v1", "plural": "jobs", "namespace": namespace, "_request_timeout": _TIMEOUT_S}


def _refusal(api_error: Any, what: str = "", hint: str = "") -> LaunchError:
    """Return the error for what the cluster refused.

    It is a LostError if the cluster may have done it all the same: for a status of 500 or more, or without a status.
    """
    kind = LaunchError if 400 <= (api_error.status or 0) < 500 else LostError
    return kind(f"the cluster refused{what}: {_error_message(api_error)}{hint}")


def _end_condition(job: dict[str, Any]) -> dict[str, Any] | None:
    conditions = job.get("status", {}).get("conditions") or []
    return next((c for c in conditions if c["type"] in _END_STATES and c["status"] == "True"), None)


def _container_statuses(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return list(pod["status"].get("containerStatuses") or [])


def _container_end(pod: dict[str, Any]) -> dict[str, Any] | None:
    states = [status.get("state", {}) for status in _container_statuses(pod)]
    ends = [state["terminated"] for state in states if state.get("terminated")]
    return {"finishedAt": None, "reason": None, **ends[0]} if ends else None


def _unfinished_state(pods: list[dict[str, Any]]) -> tuple[JobState, str]:
    """Return the state of a job that has not ended: it is pending as long as one of its pods is."""
    if not pods:
        return JobState.PENDING, "no pod yet"
    for pod in pods:
        if pod["status"].get("phase") == "Pending":
            return JobState.PENDING, f"{pod['metadata']['name']}: {_pending_reason(pod)}"
    return JobState.RUNNING, f"{len(pods)} pods" if len(pods) > 1 else str(pods[0]["metadata"]["name"])


def _pending_reason(pod: dict[str, Any]) -> str:
    for status in _container_statuses(pod):
        waiting = status.get("state", {}).get("waiting")
        if waiting:
            return ": ".join(part for part in (waiting.get("reason"), waiting.get("message")) if part)
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return ": ".join(part for part in (condition.get("reason"), condition.get("message")) if part)
    return "Pending"


def _error_message(exc: Any) -> str:
    """Return an API error's status, reason and message, in one line."""
    message = ""
    with suppress(ValueError, TypeError, AttributeError):
        message = json.loads(exc.body).get("message", "")
    status = f"{getattr(exc, 'status', '')} {getattr(exc, 'reason', '') or ''}".strip() or type(exc).__name__
    return " ".join(f"{status}: {message}".split()) if message else status
