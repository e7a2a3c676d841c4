"""What a user writes to name a tool of an MCP server (docs/tools.md), and what the server receives.

Secrets stand in no reference, because references are printed and stored: `MCPSettings` has the names of variables.
"""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from toolformer_core.endpoints import SECRET_NAME, is_loopback
from toolformer_core.errors import UsageError
from toolformer_core.http_client import HEADER_NAME
from toolformer_core.tools.custom.secrets import checked_address, hide_secrets, secret

PREFIX = "mcp+"
_FORMS = "mcp+stdio:COMMAND#TOOL or mcp+https://HOST/PATH#TOOL"
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")  # what a server's process always gets
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(SECRET_NAME, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MCPSettings:
    """What a server receives besides its calls, as names of environment variables; their values are read on connecting.

    A server's process gets `PATH`, `HOME`, the language, `TMPDIR`, `TZ`, what the SDK adds (`LOGNAME`, `SHELL`, `TERM`,
    `USER`), and the variables named here. A `UsageError` if a name cannot be one of a variable or a header.
    """

    env: tuple[str, ...] = ()  # variables handed to the process of a `mcp+stdio` server
    # HTTP header -> the variable that holds its value; an Authorization of one word is sent as `Bearer WORD`
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for variable in (*self.env, *self.headers.values()):
            if not _VARIABLE.fullmatch(variable):
                raise UsageError(
                    f"{variable[:40]!r} is not the name of an environment variable (never write its value)"
                )
        for header in self.headers:
            if not re.fullmatch(HEADER_NAME, header):
                raise UsageError(f"{header[:40]!r} is not the name of an HTTP header")

    def process_environment(self) -> dict[str, str]:
        """Return the environment of a server's process; a `UsageError` if a named variable is not set."""
        kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return kept | {name: secret(name) for name in self.env}

    def header_values(self) -> dict[str, str]:
        """Return the headers with their values; a `UsageError` if a named variable is not set."""
        values = {header: secret(variable) for header, variable in self.headers.items()}
        tokens = {h: v for h, v in values.items() if h.lower() == "authorization" and " " not in v}
        return values | {header: f"Bearer {token}" for header, token in tokens.items()}

    def hidden(self, text: str) -> str:
        """Return a text with the names of all named variables in place of their values, so that it can be shown."""
        return hide_secrets(text, (*self.env, *self.headers.values()))


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The number of sessions with a server, and what each may take."""

    sessions: int = 4  # at a time (of a `mcp+stdio` server: processes)
    calls_at_once: int = 8  # calls in progress on one session
    connect_s: float = 60.0  # for connecting and listing the tools (`npx` may have to download the server)


@dataclass(frozen=True, slots=True)
class Server:
    """An MCP server with all that it takes to connect to it."""

    command: tuple[str, ...] = ()  # the words of its command, if it is started here
    url: str = ""  # its address, if it is not; exactly one of the two is set
    settings: MCPSettings = field(default_factory=MCPSettings)
    limits: SessionLimits = field(default_factory=SessionLimits)  # its number of sessions

    @property
    def text(self) -> str:
        """The reference as it is written, without a tool."""
        return f"{PREFIX}stdio:{shlex.join(self.command)}" if self.command else PREFIX + self.url

    @property
    def is_local(self) -> bool:
        return bool(self.command) or is_loopback(urlsplit(self.url).hostname or "")


def parse_reference(text: str) -> tuple[Server, str]:
    """Return the server and the name of its tool; a `UsageError` for another form, a secret or open HTTP."""
    server, hash_, tool = text.strip().rpartition("#")
    if not hash_ or not tool.strip():
        raise UsageError(f"{_shown(text)!r} names no tool: write {_FORMS}")
    if server.startswith(f"{PREFIX}stdio:"):
        return _stdio(server.removeprefix(f"{PREFIX}stdio:")), tool.strip()
    if server.startswith((f"{PREFIX}https://", f"{PREFIX}http://")):
        return _http(server.removeprefix(PREFIX)), tool.strip()
    raise UsageError(f"{_shown(text)!r} names no MCP server: write {_FORMS}")


def _stdio(command: str) -> Server:
    try:
        words = tuple(shlex.split(command))
    except ValueError as exc:
        raise UsageError(f"the command of {PREFIX}stdio: cannot be split into words ({exc}); check its quotes") from exc
    if not words or not words[0]:
        raise UsageError(f"{PREFIX}stdio: has no command: write {_FORMS}")
    return Server(command=words)


def _http(url: str) -> Server:
    parts = checked_address(url)
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET.search(name):
            raise UsageError(
                f"the address of {parts.hostname} holds {name!r}, which looks like a secret; name an environment "
                "variable that holds it in the tool's headers instead"
            )
    return Server(url=url)


def _shown(text: str) -> str:
    """Return the start of a reference that is wrong, without what stands before an `@` (it may be a password)."""
    return re.sub(r"//[^/]*@", "//***@", text.strip())[:80]
