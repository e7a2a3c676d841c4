"""One connection to an MCP server: opened, used by many calls at once, and closed, all on one event loop.

The task `_own` opens and closes a session: the SDK's contexts may only be left by the task that entered them. The
stream of what the server says is watched, so its death is noticed when its output ends, not when the next call is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from toolformer_core.errors import UsageError
from toolformer_core.tools.mcp.reference import Server
from toolformer_core.tools.mcp.streams import Tail, watched
from toolformer_core.tools.schema_check import Check, lenient_checker

if TYPE_CHECKING:
    import ssl

    from mcp.client import Client, Transport
    from mcp.types import CallToolResult, Tool

CLOSE_S = 10.0  # the SDK ends a stubborn process after about 7 s
MAX_MESSAGE_BYTES = 64 * 2**20  # of a streamed HTTP response
_CLIENT = "toolformer-platform"  # our name for servers
_GRACE_S = 0.5  # the SDK's own timeout comes first: it tells the server to stop
_NO_ANSWER = (401, 403, 407, 429, 502, 503, 504)  # HTTP statuses that say nothing of the call
_FORGOTTEN = ((404, -32600), (404, -32001), (400, -32000))  # HTTP status and code: the session is unknown, a restart
_ENDED = ("Connection closed", "SSE stream")  # how the SDK begins where no answer comes; its code is servers', too

_statuses: ContextVar[list[int]] = ContextVar("_statuses")  # HTTP statuses that were errors, of the call in progress


class Unreachable(Exception):
    """The server could not be reached, or the connection ended while it was at a call."""


class ServerSilent(Unreachable):
    """The server did not answer while it was connected to."""


class SessionGone(Exception):
    """The session had ended before the server took the call; another session may take it."""


class Overdue(Exception):
    """No answer in time."""


class Session:
    """A connection in the making, in use, or closing. Everything here runs on the loop's thread.

    `on_change` is called when the session has opened, and again when its server is gone or it has closed.
    """

    def __init__(self, server: Server, on_change: Callable[[Session], None]) -> None:
        self.in_flight = 0
        self.tools: dict[str, Tool] = {}
        self.server = "", ""  # its name and version, if it tells
        self.problem: Exception | None = None  # why it could not open
        self.is_open = False
        self.gone = asyncio.get_running_loop().create_future()  # done when no call can be answered any more
        self._server = server
        self._on_change = on_change
        self._client: Client | None = None
        self._closing = asyncio.Event()
        self._http_status = 0  # the last one that was an error
        self._tail: Tail | None = None
        self._checks: dict[str, Check] = {}  # of what tools answer, by tool
        self._calls: set[asyncio.Task[CallToolResult]] = set()
        self.owner = asyncio.create_task(self._own(), name="mcp-session")  # ends when the session is closed

    def close(self) -> None:
        self._closing.set()

    async def call(self, tool: str, arguments: dict[str, Any], deadline: float) -> CallToolResult:
        """Ask the server, until a time of the loop's clock.

        `SessionGone` if the server never took the call, `Unreachable` if the connection ended, `Overdue` without an
        answer in time, an `MCPError` if the server refused the call; any other exception if its answer is not of the
        protocol.
        """
        client = self._client
        if client is None or self.gone.done():
            raise SessionGone
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        statuses: list[int] = []
        _statuses.set(statuses)
        task = asyncio.create_task(client.call_tool(tool, arguments, read_timeout_seconds=left))
        self._calls.add(task)
        task.add_done_callback(self._forget)
        try:
            await asyncio.wait({task, self.gone}, timeout=left + _GRACE_S, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and self.gone.done():
                await asyncio.wait({task}, timeout=_GRACE_S)  # the SDK tells its callers in its own time
            if task.done():
                return self._answer(task, deadline, statuses[-1] if statuses else 0)
            raise Unreachable("the connection ended during the call") if self.gone.done() else Overdue
        finally:
            task.cancel()  # never awaited: a call that cannot be cancelled must not hold up its caller

    def _answer(self, task: asyncio.Task[CallToolResult], deadline: float, http_status: int) -> CallToolResult:
        """Return a call's answer. The SDK's codes for a lost connection and a timeout are also used by servers."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT

        try:
            return task.result()
        except asyncio.CancelledError:
            raise Unreachable("the connection ended during the call") from None
        except MCPError as exc:
            if (http_status, exc.code) in _FORGOTTEN:
                raise SessionGone from exc
            if exc.code == REQUEST_TIMEOUT and asyncio.get_running_loop().time() >= deadline:
                raise Overdue from exc
            if exc.code == CONNECTION_CLOSED and exc.message.startswith(_ENDED):
                raise Unreachable(f"the connection ended during the call ({exc})") from exc
            if exc.code == INTERNAL_ERROR and http_status in _NO_ANSWER:
                raise Unreachable(f"the server answered HTTP {http_status}") from exc
            raise

    async def _check(self, name: str, result: CallToolResult) -> None:
        """Compare an answer with the tool's output schema, in place of the SDK, which sets its patterns no bound."""
        schema = self.tools[name].output_schema if name in self.tools else None
        if schema is None:
            return
        if name not in self._checks:
            self._checks[name] = lenient_checker(schema)
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            raise ValueError("the tool has an output schema, and its answer no structured content")
        if problem := self._checks[name](result.structured_content):
            raise ValueError(f"not what the tool's output schema says: {problem}")

    def _forget(self, task: asyncio.Task[CallToolResult]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # read, so that asyncio does not report it as overlooked

    async def _own(self) -> None:
        """Open the session, keep it until it is to be closed, close it.

        The SDK first asks which protocol the server speaks. Some older servers end when anything but `initialize` comes
        first; they are started once more, and greeted as they expect.
        """
        try:
            await self._keep("auto")
            if self._server.command and type(self.problem) is Unreachable and not self._closing.is_set():
                await self._keep("legacy")
        finally:
            self._lost()
            for task in self._calls:
                task.cancel()

    async def _keep(self, mode: str) -> None:
        from mcp import Client, Implementation

        self.problem = None
        try:
            async with asyncio.timeout(self._server.limits.connect_s) as deadline, AsyncExitStack() as stack:
                transport = watched(await self._transport(stack), self._ended, self._print)
                who = Implementation(name=_CLIENT, version="1")
                async with Client(transport, client_info=who, mode=mode, cache=None) as client:
                    client.session.validate_tool_result = self._check  # type: ignore[method-assign]
                    self.tools = await _list_tools(client)
                    if (info := client.server_info) is not None:
                        self.server = info.name, info.version
                    deadline.reschedule(None)
                    self._client, self.is_open, self._http_status = client, True, 0
                    self._on_change(self)
                    await self._closing.wait()
                    deadline.reschedule(asyncio.get_running_loop().time() + CLOSE_S)
        except BaseException as exc:  # noqa: BLE001  whatever ends it is the reason why it ended
            if not self.is_open:
                self.problem = self._explained(exc)
        finally:
            if self._tail is not None:
                self._tail.close()

    def _ended(self) -> None:
        """The server says no more. While the session opens, the SDK raises the reason; wait for it."""
        if self.is_open:
            self._lost()

    def _print(self, line: str) -> None:
        """Keep a line that is no message, to be shown if the session cannot open."""
        if self._tail is not None:
            self._tail.add(f"{line}\n".encode("utf-8", "replace"))

    def _lost(self) -> None:
        self._closing.set()
        if not self.gone.done():
            self.gone.set_result(None)
            self._on_change(self)

    async def _transport(self, stack: AsyncExitStack) -> Transport:
        server = self._server
        logging.getLogger("mcp.client").setLevel(logging.CRITICAL)  # what it logs, with tracebacks, failures say
        if server.command:
            from mcp import StdioServerParameters
            from mcp.client.stdio import stdio_client

            self._tail = Tail()
            program, *words = server.command
            # not validated: it knows fewer error handlers than Python
            parameters = StdioServerParameters.model_construct(
                command=program,
                args=words,
                env=server.settings.process_environment(),
                encoding_error_handler="surrogateescape",  # type: ignore[arg-type]  # bad UTF-8 fails its own call only
            )
            return stdio_client(parameters, errlog=self._tail.file)
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async def note(response: httpx2.Response) -> None:
            if response.status_code >= 400:
                self._http_status = response.status_code
                if (statuses := _statuses.get(None)) is not None:
                    statuses.append(response.status_code)

        client = httpx2.AsyncClient(
            headers=server.settings.header_values(),
            timeout=httpx2.Timeout(self._server.limits.connect_s, read=None),  # calls have deadlines of their own
            verify=_certificates(),
            trust_env=not server.is_local,  # no proxy between this machine and itself
            event_hooks={"response": [note]},
        )
        await stack.enter_async_context(client)
        return streamable_http_client(server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES)

    def _explained(self, exc: BaseException) -> Exception:
        reason = exc
        while isinstance(reason, BaseExceptionGroup):
            reason = reason.exceptions[0]
        if isinstance(reason, UsageError):
            return reason
        if isinstance(reason, (FileNotFoundError, PermissionError, NotADirectoryError)) and self._server.command:
            program, text = self._server.command[0], self._server.text
            return UsageError(f"there is no program {program!r} that could be started; check the command of {text}")
        if isinstance(reason, TimeoutError):
            said = f"it did not answer within {self._server.limits.connect_s:g} s"
        elif self._http_status:
            said = f"it answered HTTP {self._http_status}"
        else:
            said = " ".join(str(reason).split())[:300] or type(reason).__name__
        if self._tail is not None and (wrote := self._server.settings.hidden(self._tail.last_line())):
            said += f"; its last words: {wrote}"
        return ServerSilent(said) if isinstance(reason, TimeoutError) else Unreachable(said)


@lru_cache(maxsize=1)  # to read them takes longer than to connect
def _certificates() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


async def _list_tools(client: Client) -> dict[str, Tool]:
    """Return all tools of a server, page by page; the SDK remembers what their results look like."""
    page, seen = await client.list_tools(), set[str]()
    tools = list(page.tools)
    while page.next_cursor and page.next_cursor not in seen:  # as long as connecting may take
        seen.add(page.next_cursor)
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return {tool.name: tool for tool in tools}
