"""A stand-in for the Hugging Face hub on loopback: repositories in memory, behind the endpoints of a push.

It holds what it was sent, by commits, and answers what a test tells it to. Files are small ones, which travel in the
commit itself. A commit whose parent is not the newest is refused, as the hub does.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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

    def answer(self, method: str, path: str, key: str | None, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body."""
        self.asked.append(f"{method} {path}")
        if key != f"Bearer {TOKEN}":
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

    def _create(self, asked: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.repos:
            return 409, {}, b'{"error": "You already created this repo"}'
        self.repos[name] = Repo(asked["visibility"] == "private", kind=asked.get("type", "model"))
        return _json({"url": f"{self.url}/datasets/{name}"})

    def _mode(self, repo: Repo, path: str) -> dict[str, Any]:
        held = repo.files.get(path)
        oid = None if held is None else hashlib.sha1(b"blob %d\0" % len(held) + held).hexdigest()
        return {"path": path, "uploadMode": "regular", "shouldIgnore": False, "oid": oid}

    def _commit(self, name: str, repo: Repo, lines: list[dict[str, Any]]) -> tuple[int, dict[str, str], bytes]:
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

    def _file(self, name: str, revision: str, path: str) -> tuple[int, dict[str, str], bytes]:
        repo = self.repos[name]
        assert revision == repo.sha  # these tests read nothing old
        data = repo.files[path]
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        return 200, {"ETag": etag, "X-Repo-Commit": revision}, data


def _json(value: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


@contextmanager
def hub_server() -> Iterator[HubServer]:
    """Run a hub while the block runs."""
    hub = HubServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = _chunked(self.rfile) if "chunked" in self.headers.get("Transfer-Encoding", "") else b""
            body = body or self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            status, headers, data = hub.answer(self.command, path, self.headers.get("Authorization"), body)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = _answer

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _chunked(stream: Any) -> bytes:
    data = b""
    while size := int(stream.readline().partition(b";")[0], 16):
        data += stream.read(size)
        stream.readline()
    stream.readline()
    return data
