"""A stand-in for the Hugging Face hub on loopback: repositories in memory, by commits, behind the endpoints of a push.

Files travel in the commit itself. A commit whose parent is not the newest is refused, as the hub does.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from typing import Any

from tests.support.served_app import Answer, answered

TOKEN = "hf_of_these_tests"
_REPO = re.compile(r"/api/(?:datasets|models)/([^/]+/[^/]+?)(?:/(revision|preupload|commit)/main)?")
_FILE = re.compile(r"(?:/datasets)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class Repo:
    """A repository: its files now, and its commits."""

    private: bool
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b""})
    commits: list[dict[str, Any]] = field(default_factory=list)  # header, added and deleted paths
    kind: str = "dataset"

    @property
    def sha(self) -> str:
        return hashlib.sha1(repr((len(self.commits), sorted(self.files.items()))).encode()).hexdigest()


class HubServer:
    """What the hub holds and was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.repos: dict[str, Repo] = {}
        self.asked: list[str] = []  # method and path
        self.refuse: dict[str, int] = {}  # the end of a path -> the status with which it is answered
        self.before_commit: Any = None  # called first, with the repository

    def answer(self, method: str, path: str, headers: Message, body: bytes) -> Answer:
        path = path.partition("?")[0]
        self.asked.append(f"{method} {path}")
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b"{}"
        for end, status in self.refuse.items():
            if path.endswith(end):
                return status, {}, b'{"error": "so it was told"}'
        if path == "/api/validate-yaml":
            return _json({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if match := _FILE.fullmatch(path):
            return self._file(*match.groups())
        match = _REPO.fullmatch(path)
        if match is None or match[1] not in self.repos:
            return 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b"{}"
        repo = self.repos[match[1]]
        if match[2] == "preupload":
            return _json({"files": [self._mode(repo, file["path"]) for file in json.loads(body)["files"]]})
        if match[2] == "commit":
            return self._commit(match[1], repo, [json.loads(line) for line in body.splitlines()])
        siblings = [{"rfilename": name} for name in repo.files]
        return _json({"id": match[1], "sha": repo.sha, "private": repo.private, "siblings": siblings})

    def _create(self, asked: dict[str, Any]) -> Answer:
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.repos:
            return 409, {}, b'{"error": "You already created this repo"}'
        self.repos[name] = Repo(asked["visibility"] == "private", kind=asked.get("type", "model"))
        return _json({"url": f"{self.url}/datasets/{name}"})

    def _mode(self, repo: Repo, path: str) -> dict[str, Any]:
        held = repo.files.get(path)
        oid = None if held is None else hashlib.sha1(b"blob %d\0" % len(held) + held).hexdigest()
        return {"path": path, "uploadMode": "regular", "shouldIgnore": False, "oid": oid}

    def _commit(self, name: str, repo: Repo, lines: list[dict[str, Any]]) -> Answer:
        if self.before_commit is not None:
            self.before_commit(repo)
        header, *operations = lines
        if header["value"].get("parentCommit") not in (None, repo.sha):
            return 412, {}, b'{"error": "A commit has happened since."}'
        added = {one["value"]["path"]: one["value"]["content"] for one in operations if one["key"] == "file"}
        deleted = [one["value"]["path"] for one in operations if one["key"] == "deletedFile"]
        repo.files |= {path: base64.b64decode(content) for path, content in added.items()}
        for path in deleted:
            del repo.files[path]
        repo.commits.append({**header["value"], "added": sorted(added), "deleted": deleted})
        return _json({"commitUrl": f"{self.url}/datasets/{name}/commit/{repo.sha}", "commitOid": repo.sha})

    def _file(self, name: str, revision: str, path: str) -> Answer:
        repo = self.repos[name]
        assert revision == repo.sha  # these tests read nothing old
        data = repo.files[path]
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        return 200, {"ETag": etag, "X-Repo-Commit": revision}, data


def _json(value: Any) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


@contextmanager
def hub_server() -> Iterator[HubServer]:
    hub = HubServer()
    with answered(hub.answer) as hub.url:
        yield hub
