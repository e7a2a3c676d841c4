"""Tools behind an HTTP endpoint, described by templates: one request for a call, one text from its response.

docs/tools.md shows a template. 2xx is a response; 204, 404, 410 and a path that leads to nothing are `no_result`. Other
failures are `bad_response` (no JSON, or over 1 MiB), `rejected` (3xx, other 4xx) and, to be retried, `rate_limited`
(429), `server_error` (5xx), `unreachable`, `timeout`. Redirects are not followed, so no other host is called.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import quote

from toolformer_core.config import canonical_json
from toolformer_core.errors import UsageError
from toolformer_core.http_client import HEADER_NAME, kept_client, read_at_most
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult, digest_of, unencodable
from toolformer_core.tools.base import REMOTE_TTL_S, ToolLimits
from toolformer_core.tools.custom.secrets import checked_address, fill, hide_secrets, secret, secret_names
from toolformer_core.tools.declaration import ToolDeclaration

_VERSION = "2"
_FIELD = re.compile(r"\{([^{}]+)\}")
_MAX_BYTES = 1 << 20
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class HTTPTemplate:
    """A request and what is read from its response, as templates; a `UsageError` if they cannot be used."""

    url: str
    method: Literal["GET", "POST", "PUT"] = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None  # a JSON value with `{input}` in its strings
    body: str | None = None
    response: str | None = None
    ttl_s: float = REMOTE_TTL_S  # seconds for which a response may be reused

    def __post_init__(self) -> None:
        if any(mark in checked_address(self.url).netloc for mark in "{}$"):
            raise UsageError(f"url: the host of {self.url!r} must be written out")
        if not self.ttl_s > 0:
            raise UsageError(f"ttl_s must be positive, got {self.ttl_s}")
        for name in self.headers:
            if not re.fullmatch(HEADER_NAME, name):
                raise UsageError(f"headers: {name[:40]!r} is not the name of an HTTP header")
        if self.json is not None and self.body is not None:
            raise UsageError("give json or body, not both")
        try:
            json.dumps(self.json, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as exc:
            raise UsageError(f"json: this cannot be written as JSON: {exc}") from exc

    def secrets(self) -> tuple[str, ...]:
        return secret_names(self.url, *self.headers.values(), self.body or "", canonical_json(self.json))

    @property
    def digest(self) -> str:
        """Digest of the templates; of a secret they hold only the variable's name."""
        return digest_of("http", canonical_json(replace(self, ttl_s=REMOTE_TTL_S)))


@dataclass(frozen=True, slots=True)
class HTTPTool:
    """A tool behind an HTTP endpoint; tools of one kind share their connections."""

    template: HTTPTemplate  # what is requested, and what is read from the response
    name: str
    key: str
    description: str
    version: str = ""  # raised when the service's answers change
    declaration: ToolDeclaration = field(default_factory=ToolDeclaration)  # prompt, filter and thresholds
    limits: ToolLimits = field(default_factory=lambda: ToolLimits(timeout_s=_TIMEOUT_S))  # also the request's

    @property
    def ttl_s(self) -> float:
        return self.template.ttl_s

    @property
    def fingerprint(self) -> str:
        return digest_of("HTTPTool", _VERSION, self.template.digest, self.version)

    def load(self) -> None:
        """Look whether every secret is set; a `UsageError` names the one that is missing."""
        for name in self.template.secrets():
            secret(name)

    def run(self, input: str, context: str = "") -> ToolResult:
        """Send one request; the module says what its response becomes."""
        import httpx2

        if problem := unencodable(input + context):
            return ToolFailure("invalid_input", problem)
        template, values = self.template, {"input": input, "context": context}
        url = fill(template.url, {name: quote(value, safe="") for name, value in values.items()})
        headers = {name: fill(value) for name, value in template.headers.items()}
        payload: dict[str, Any] = {}
        if template.json is not None:
            payload["json"] = _filled(template.json, values)
        elif template.body is not None:
            payload["content"] = fill(template.body, values).encode()
        client = kept_client(self.limits.at_once, self.limits.timeout_s or _TIMEOUT_S)
        try:
            with client.stream(template.method, url, headers=headers, **payload) as response:
                if (failure := _failure(response.status_code)) is not None:
                    return failure
                data = read_at_most(response, _MAX_BYTES)
        except httpx2.TimeoutException as exc:
            return ToolFailure("timeout", type(exc).__name__, retryable=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            detail = hide_secrets(f"{type(exc).__name__}: {exc}", template.secrets())
            return ToolFailure("unreachable", detail, retryable=isinstance(exc, httpx2.TransportError))
        if data is None:
            return ToolFailure("bad_response", f"more than {_MAX_BYTES:,} bytes")
        return _read(hide_secrets(data.decode("utf-8", "replace"), template.secrets()), template.response)


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return fill(value, values)
    if isinstance(value, Mapping):
        return {key: _filled(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    return value


def _failure(status: int) -> ToolFailure | None:
    if 200 <= status < 300 and status != 204:
        return None
    named = {204: "no_result", 404: "no_result", 410: "no_result", 429: "rate_limited"}
    reason = named.get(status, "server_error" if status >= 500 else "rejected")
    return ToolFailure(reason, f"HTTP {status}", retryable=reason in ("rate_limited", "server_error"))


def _read(text: str, template: str | None) -> ToolResult:
    if template is None:
        return ToolResponse(text) if text.strip() else ToolFailure("no_result")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        return ToolFailure("bad_response", f"no JSON: {exc}"[:200])
    missing: list[str] = []

    def follow(match: re.Match[str]) -> str:
        found = _at_path(value, match[1].strip())
        if found is None:
            missing.append(match[1])
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)

    read = _FIELD.sub(follow, template)
    if missing:
        return ToolFailure("no_result", f"the response has no {missing[0]}")
    return ToolResponse(read) if read.strip() else ToolFailure("no_result")


def _at_path(value: Any, path: str) -> Any:
    """Return what stands at `items.0.name` in a JSON value; None if nothing does. A key may hold dots itself."""
    if isinstance(value, list):
        value = {str(n): value[n] for n in range(-len(value), len(value))}
    if not isinstance(value, Mapping):
        return None
    steps = path.split(".")
    for n in range(1, len(steps) + 1):
        found = value.get(".".join(steps[:n]))
        if found is not None and n < len(steps):
            found = _at_path(found, ".".join(steps[n:]))
        if found is not None:
            return found
    return None
