"""The launcher for Kubernetes: an indexed Job, with one pod per node.

The first pod writes its address into the job folder, where the others wait for it; a hook writes the stop file when a
pod must end. As lines get lost when several machines append to one file on NFS, node 3 writes to `log-3.txt`.
"""

import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tasks.launch.base import LOG, BaseLauncher, JobState, LaunchError, LaunchRequest, LostError, last_line
from toolformer_core.errors import UsageError

_NOT_FOUND, _CONFLICT = 404, 409
# What the client calls a custom object stays as it is; of a Job of its own it would drop what it does not know.
_JOBS = {"group": "batch", "version": "v1", "plural": "jobs"}
_FOLDER = "toolformer-platform/folder"  # the annotation that holds the job folder's path, by which a job is recognised
_LABEL = "app.kubernetes.io/name"
_FIELDS = {  # variables of every pod; a job's uid is its own, whereas another attempt may have its name
    "NODE_RANK": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
    "POD_IP": "status.podIP",
    "JOB_UID": "metadata.labels['batch.kubernetes.io/controller-uid']",
}
_RUN = """\
log=$1 master=launch/master-$JOB_UID; shift
if [ "$NODE_RANK" = 0 ]; then
    mkdir -p launch && echo "$POD_IP" >"$master.part" && mv "$master.part" "$master" || exit 1
else
    log="${log%.txt}-$NODE_RANK.txt"
    until [ -s "$master" ]; do sleep 1; done
fi
export PET_MASTER_ADDR="$(cat "$master")"  # torchrun reads it
exec 4>&1
code=$({ { "$@" 2>&1 3>&-; echo $? >&3; } | tee -a "$log" >&4; } 3>&1)
exit "$code"
"""
_STOP = 'echo "pod is being ended" >"$0"; while kill -0 1 2>/dev/null; do sleep 1; done'

_Ask = Callable[..., Any]  # see `_connect`


@dataclass(frozen=True, slots=True)
class KubernetesLauncher(BaseLauncher):
    """Starts the program in pods, one per node."""

    image: str = ""  # with this project and its extra `deepspeed` installed; required
    claim: str = ""  # PersistentVolumeClaim with the data folder, mounted here, too; ReadWriteMany for several nodes
    mount_path: str = "/data"  # where the pods mount the claim
    local_root: str = ""  # path of the claim's root on this machine; default: `mount_path`
    namespace: str = "default"
    nodes: int = 1  # number of pods
    # `nvidia.com/gpu` of a pod; -1: one for each process, for the accelerator `cpu` none; 0: none, as `container` may
    # name another resource
    gpus_per_node: int = -1
    # Fields of the pod's spec, in the API's form, e.g. `{"nodeSelector": {"gpu": "h100"}}`, and of its container, e.g.
    # `{"resources": {"limits": {"cpu": "32"}}}`. They are merged over ours: objects by field, lists by the elements'
    # names. A pod that must end has 120 s for a checkpoint (`terminationGracePeriodSeconds`), the volume `shm` 8Gi.
    pod: dict[str, Any] = field(default_factory=dict)
    container: dict[str, Any] = field(default_factory=dict)
    ttl_s: int = 86400  # seconds after which the cluster removes a finished job
    context: str = ""  # of the kubeconfig; default: its current one
    kubeconfig: str = ""  # default: the client's usual places, then the pod's own account

    name: ClassVar[str] = "kubernetes"
    poll_s: ClassVar[float] = 5.0

    def preview(self, request: LaunchRequest) -> str:
        """Return the manifest as JSON, which `kubectl apply -f` takes as well."""
        return json.dumps(self._manifest(request), indent=2) + "\n"

    def submit(self, request: LaunchRequest) -> str:
        request.check_folder()
        manifest = self._manifest(request)
        with _connect(self.kubeconfig, self.context) as ask:
            job = ask("create_namespaced_custom_object", namespace=self.namespace, body=manifest)
            if job is None:  # an earlier request whose answer got lost may have created it
                job = _read_job(ask, {"namespace": self.namespace, "job": request.name}) or {"metadata": {}}
                folder = job["metadata"].get("annotations", {}).get(_FOLDER)
                ours = folder == manifest["metadata"]["annotations"][_FOLDER]
                if not ours or job["metadata"].get("deletionTimestamp"):
                    see = f"see `kubectl -n {self.namespace} get job {request.name}`"
                    raise LaunchError(f"there is a Job {request.name}, which is going, or is another's: {see}")
        return self.make_handle(namespace=self.namespace, job=request.name, uid=job["metadata"]["uid"])

    def state(self, handle: str) -> tuple[JobState, str]:
        """Return the job's state; the detail of a failed job is its failed pod's reason and last log line."""
        record = self.parse_handle(handle)
        try:
            with _connect(self.kubeconfig, self.context) as ask:
                return _read_state(ask, record)
        except LaunchError as exc:  # even if the cluster denies us the answer, the job may run
            raise LostError(str(exc)) from exc

    def cancel(self, handle: str) -> None:
        """Delete the job and its pods; `state` says `cancelled` when the last pod has ended."""
        record = self.parse_handle(handle)
        options = {"name": record["job"], "namespace": record["namespace"], "propagation_policy": "Foreground"}
        with _connect(self.kubeconfig, self.context) as ask:
            if _read_job(ask, record) is not None:
                ask("delete_namespaced_custom_object", **options)

    def _manifest(self, request: LaunchRequest) -> dict[str, Any]:
        """Return the Job: one pod per node, and no retries, as those are up to the caller; or raise a UsageError."""
        if not self.image or not self.claim:
            raise UsageError("name the container `image` and the PersistentVolumeClaim `claim` with the data folder")
        root = Path(self.local_root or self.mount_path)
        if not request.folder.is_relative_to(root):
            problem = f"the job folder {request.folder} is not on the claim {self.claim}"
            raise UsageError(f"{problem}: put the data folder under {root}")
        folder = str(Path(self.mount_path) / request.folder.relative_to(root))
        place, labels = {"name": request.name, "namespace": self.namespace}, {_LABEL: request.name}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {**place, "labels": labels, "annotations": {_FOLDER: folder}},
            "spec": {
                "completionMode": "Indexed",
                "completions": self.nodes,
                "parallelism": self.nodes,
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": self.ttl_s,
                "template": {"metadata": {"labels": labels}, "spec": self._pod(request, folder)},
            },
        }

    def _pod(self, request: LaunchRequest, folder: str) -> dict[str, Any]:
        options = [f"--nnodes={self.nodes}", f"--nproc-per-node={request.processes}", "--node-rank=$(NODE_RANK)"]
        torchrun = [request.python, "-m", "torch.distributed.run", *options, "--master-port=29500"]
        program = [_escape(word) for word in (*request.program, folder)]
        fields = [{"name": n, "valueFrom": {"fieldRef": {"fieldPath": path}}} for n, path in _FIELDS.items()]
        gpus = self.gpus_to_request(self.gpus_per_node, request.processes)
        container = {
            "name": "trainer",
            "image": self.image,
            "workingDir": folder,
            "command": ["sh", "-c", _escape(_RUN), "sh", _escape(f"{folder}/{LOG}"), *torchrun, *program],
            "env": [*fields, *({"name": n, "value": _escape(value)} for n, value in self.variables().items())],
            "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _STOP, f"{folder}/stop"]}}},
            "volumeMounts": [{"name": "data", "mountPath": self.mount_path}, {"name": "shm", "mountPath": "/dev/shm"}],
            **({"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}),
        }
        pod = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 120,
            "containers": [_merge(container, self.container)],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": self.claim}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},  # for NCCL and data loaders
            ],
        }
        return _merge(pod, self.pod)


def _escape(text: str) -> str:
    """Escape a text so that Kubernetes does not replace $(NAME) in it."""
    return text.replace("$(", "$$(")


def _merge(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Merge objects of the API by field, and lists of them by name (and path, of mounts); other values are replaced."""
    merged = {**ours, **theirs}
    for key in ours.keys() & theirs.keys():
        if isinstance(ours[key], dict) and isinstance(theirs[key], dict):
            merged[key] = _merge(ours[key], theirs[key])
        elif isinstance(theirs[key], list) and isinstance(ours[key], list) and key != "command":
            names = [(item.get("name"), item.get("mountPath")) for item in theirs[key] if isinstance(item, dict)]
            kept = [item for item in ours[key] if (item.get("name"), item.get("mountPath")) not in names]
            merged[key] = [*kept, *theirs[key]]
    return merged


@contextmanager
def _connect(kubeconfig: str, context: str) -> Iterator[_Ask]:
    """Yield what calls a method of the client; it returns None if there is no such object, or no room for its name."""
    try:
        names = "kubernetes.client", "kubernetes.config", "urllib3.exceptions"
        client, config, errors = map(importlib.import_module, names)
    except ModuleNotFoundError as exc:
        raise UsageError("there is no Kubernetes client: pip install 'toolformer-platform[kubernetes]'") from exc
    settings = client.Configuration()
    try:
        try:
            config.load_kube_config(kubeconfig or None, context=context or None, client_configuration=settings)
        except config.ConfigException as exc:
            problem = exc
            if kubeconfig or context:
                raise
            config.load_incluster_config(client_configuration=settings)
    except config.ConfigException as exc:
        raise UsageError(f"no cluster to launch on: {problem} Give a kubeconfig, or set KUBECONFIG") from exc
    settings.retries = 2
    with client.ApiClient(settings) as connection:
        core, custom = client.CoreV1Api(connection), client.CustomObjectsApi(connection)

        def ask(method: str, **options: Any) -> Any:
            api, kind = (custom, _JOBS) if method.endswith("custom_object") else (core, {})
            try:
                answer = getattr(api, method)(**kind, **options, _request_timeout=30)
                return answer.data if "_preload_content" in options else connection.sanitize_for_serialization(answer)
            except client.ApiException as exc:
                if exc.status == (_CONFLICT if "body" in options else _NOT_FOUND):
                    return None
                raise _refusal(exc, options.get("body")) from exc
            except (errors.HTTPError, OSError) as exc:
                reason = " ".join(str(exc).split())
                raise LostError(f"the cluster cannot be reached, see `kubectl cluster-info`: {reason}") from exc

        yield ask


def _refusal(exc: Any, body: dict[str, Any] | None) -> LaunchError:
    """Return the error for what the cluster refused: a LostError if it may have done it all the same."""
    message = ""
    with suppress(ValueError, TypeError, AttributeError):
        message = json.loads(exc.body).get("message", "")
    what = f" the {body['kind']} {body['metadata']['name']}" if body else ""
    text = " ".join(f"the cluster refused{what}: {exc.status} {exc.reason}: {message}".split())
    return LaunchError(text) if 400 <= (exc.status or 0) < 500 else LostError(text)


def _read_job(ask: _Ask, record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the job as the cluster describes it; None if there is none, or only one with another `uid`."""
    job: dict[str, Any] | None = ask("get_namespaced_custom_object", namespace=record["namespace"], name=record["job"])
    return job if job and record.get("uid") in (None, job["metadata"]["uid"]) else None


def _read_state(ask: _Ask, record: dict[str, Any]) -> tuple[JobState, str]:
    job = _read_job(ask, record)
    if job is None:
        return JobState.CANCELLED, "deleted"  # by a person: a lost node takes pods along, not their job
    if job["metadata"].get("deletionTimestamp"):
        return JobState.ENDING, "being deleted"  # until its last pod has ended
    conditions = job.get("status", {}).get("conditions") or []
    end = next((c for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"), None)
    if end is not None and end["type"] == "Complete":
        return JobState.SUCCEEDED, end["type"]
    answer = ask("list_namespaced_pod", namespace=record["namespace"], label_selector=f"job-name={record['job']}")
    pods = sorted(answer["items"] if answer else [], key=lambda pod: str(pod["metadata"]["name"]))
    if end is None:
        return _unfinished_state(pods)
    reason = end.get("reason") or end.get("message") or "Failed"
    return JobState.FAILED, _explain_failure(ask, record["namespace"], pods) or reason


def _explain_failure(ask: _Ask, namespace: str, pods: list[dict[str, Any]]) -> str:
    """Return why the pod that failed first failed, and its last log line; "" if no pod says why."""
    ends = [(end, pod["metadata"]["name"]) for pod in pods for end in _container_states(pod, "terminated")]
    failures = [(end, name) for end, name in ends if end["exitCode"] != 0]
    if not failures:
        return next((str(pod["status"]["reason"]) for pod in pods if pod["status"].get("reason")), "")
    end, name = min(failures, key=lambda failure: (failure[0].get("finishedAt") or "", failure[1]))
    text = f"{name}: {end.get('reason') or 'Error'}, exit code {end['exitCode']}"
    log = None
    with suppress(LaunchError):  # e.g. the node is gone
        log = ask("read_namespaced_pod_log", name=name, namespace=namespace, tail_lines=20, _preload_content=False)
    last = last_line((log or b"").decode("utf-8", errors="replace"))
    return f"{text}: {last[:300]}" if last else text


def _container_states(pod: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    states = [status.get("state", {}).get(kind) for status in pod["status"].get("containerStatuses") or []]
    return [state for state in states if state]


def _unfinished_state(pods: list[dict[str, Any]]) -> tuple[JobState, str]:
    for pod in pods:
        if pod["status"].get("phase") == "Pending":
            conditions = pod["status"].get("conditions") or []
            unscheduled = [one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"]
            reason = [*_container_states(pod, "waiting"), *unscheduled, {"reason": "Pending"}][0]
            why = ": ".join(reason[key] for key in ("reason", "message") if reason.get(key))
            return JobState.PENDING, f"{pod['metadata']['name']}: {why}"
    return (JobState.RUNNING, f"pods: {len(pods)}") if pods else (JobState.PENDING, "no pod yet")
