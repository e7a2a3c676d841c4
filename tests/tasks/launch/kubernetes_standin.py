"""An HTTP server that answers in the shapes of the Kubernetes API; what a cluster would do, a test does."""

from __future__ import annotations

import json
import re
import uuid
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.served_app import Answer, answered

_PATH = re.compile(
    r"/(?P<group>api/v1|apis/batch/v1)/namespaces/(?P<space>[^/]+)"
    r"/(?P<kind>jobs|pods)(/(?P<name>[^/]+))?(?P<log>/log)?"
)
_GROUPS = {"pods": "api/v1", "jobs": "apis/batch/v1"}
NOW = "2026-01-02T03:04:05Z"


class Refusal(Exception):
    def __init__(self, code: int, reason: str, message: str) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self.body = {**status, "message": message, "reason": reason, "code": code}


class StandInCluster:
    """One cluster; use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.logs: dict[str, str] = {}
        self.requests: list[tuple[str, str, Any]] = []  # method, path with query, body
        self.refuse: dict[str, Refusal] = {}  # what is created -> how it is refused
        self.kubeconfig = folder / "kubeconfig"

    def __enter__(self) -> StandInCluster:
        self._served = answered(self._reply)
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "here"}
        config["clusters"] = [{"name": "here", "cluster": {"server": self._served.__enter__()}}]
        config["users"] = [{"name": "me", "user": {"token": "not-a-secret"}}]
        config["contexts"] = [{"name": "here", "context": {"cluster": "here", "user": "me"}}]
        self.kubeconfig.write_text(json.dumps(config))
        return self

    def __exit__(self, *raised: Any) -> None:
        self._served.__exit__(*raised)

    def _reply(self, method: str, url: str, headers: Message, body: bytes) -> Answer:
        assert headers["Authorization"] == "Bearer not-a-secret"
        status = 201 if method == "POST" else 200
        try:
            answer = self.answer(method, url, json.loads(body) if body else None)
        except Refusal as refusal:
            status, answer = refusal.body["code"], refusal.body
        if isinstance(answer, str):
            return status, {"Content-Type": "text/plain"}, answer.encode()
        return status, {"Content-Type": "application/json"}, json.dumps(answer).encode()

    # What the API does.

    def answer(self, method: str, url: str, body: Any) -> Any:
        self.requests.append((method, url, body))
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match = _PATH.fullmatch(parts.path)
        if match is None or _GROUPS[match["kind"]] != match["group"]:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        kind, space, name = match["kind"], match["space"], match["name"]
        if method == "POST":
            return self._create(kind, space, body)
        if name is None:
            key, _, value = query["labelSelector"].partition("=")
            found = [o for (k, s, _), o in self.objects.items() if (k, s) == (kind, space)]
            items = [o for o in found if o["metadata"].get("labels", {}).get(key) == value]
            return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
        if (kind, space, name) not in self.objects:
            raise Refusal(404, "NotFound", f'{kind} "{name}" not found')
        if match["log"]:
            if name not in self.logs:
                raise Refusal(400, "BadRequest", f'container in pod "{name}" is waiting to start')
            return "\n".join(self.logs[name].splitlines()[-int(query["tailLines"]) :]) + "\n"
        if method == "DELETE":
            assert query["propagationPolicy"] == "Foreground", query
            self.objects[kind, space, name]["metadata"]["deletionTimestamp"] = NOW
            return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return self.objects[kind, space, name]

    def _create(self, kind: str, space: str, body: dict[str, Any]) -> dict[str, Any]:
        if kind in self.refuse:
            raise self.refuse[kind]
        name = body["metadata"]["name"]
        if (kind, space, name) in self.objects:
            raise Refusal(409, "AlreadyExists", f'{kind} "{name}" already exists')
        made = json.loads(json.dumps(body))
        made["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": NOW, "namespace": space}
        self.objects[kind, space, name] = made
        return made

    # What a cluster does by itself.

    def job(self) -> dict[str, Any]:
        (found,) = (o for (k, _, _), o in self.objects.items() if k == "jobs")
        return found

    def set_condition(self, type_: str, **more: str) -> None:
        condition = {"type": type_, "status": "True", "lastTransitionTime": NOW, "lastProbeTime": NOW, **more}
        self.job().setdefault("status", {}).setdefault("conditions", []).append(condition)

    def set_pod(self, name: str, phase: str, state: dict[str, Any] | None = None, **more: Any) -> None:
        """Make a pod of the one job, or change it; `state` is its container's."""
        job = self.job()["metadata"]
        status: dict[str, Any] = {"phase": phase, **more}
        if state is not None:
            waiting = {"name": "trainer", "ready": False, "restartCount": 0, "image": "i", "imageID": "i"}
            status["containerStatuses"] = [{**waiting, "state": state}]
        metadata = {"name": name, "namespace": job["namespace"], "labels": {"job-name": job["name"]}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}
        self.objects["pods", job["namespace"], name] = {**pod, "spec": {"containers": [{"name": "trainer"}]}}

    def collect(self) -> None:
        """Remove the one job, which is being deleted, and its pods."""
        assert "deletionTimestamp" in self.job()["metadata"]
        self.objects.clear()


def command(manifest: dict[str, Any], index: int) -> tuple[list[str], dict[str, str]]:
    """Return what a pod of an indexed Job executes, and the variables it has: references are replaced as there."""
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    variables: dict[str, str] = {}
    fields = {
        "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index),
        "metadata.labels['batch.kubernetes.io/controller-uid']": "0-1-2",
        "status.podIP": f"127.0.0.{index + 1}",
    }

    def expanded(text: str) -> str:
        pattern = r"\$\$\(|\$\([A-Za-z_][A-Za-z0-9_]*\)"
        return re.sub(pattern, lambda m: "$(" if m[0] == "$$(" else variables.get(m[0][2:-1], m[0]), text)

    for entry in container["env"]:
        field = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        variables[entry["name"]] = fields[field] if field else expanded(entry["value"])
    return [expanded(word) for word in container["command"]], variables
