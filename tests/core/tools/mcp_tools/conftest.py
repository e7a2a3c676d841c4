"""Servers to ask, and the promise that each test leaves no session behind."""

import asyncio
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.mcp_by_hand import ByHand, serving
from toolformer_core.tools.mcp import MCPTool, close, mcp_tool
from toolformer_core.tools.mcp.loop import loop_thread

SUPPORT = Path(__file__).resolve().parents[3] / "support"
BY_HAND = shlex.join([sys.executable, "-I", "-S", str(SUPPORT / "mcp_by_hand.py")])


def sessions_end() -> int:
    """Wait until the sessions that there are have closed; return how many."""

    async def work() -> int:
        owners = {task for task in asyncio.all_tasks() if task.get_name() == "mcp-session"}
        if not owners:
            return 0
        _, left = await asyncio.wait(owners, timeout=10)
        assert not left
        return len(owners)

    return loop_thread().run(work(), 20)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close()


@pytest.fixture
def by_hand() -> Callable[..., MCPTool]:
    """A tool of the server written by hand, on pipes."""
    return lambda tool, **more: mcp_tool(f"mcp+stdio:{BY_HAND}#{tool}", **more)


@pytest.fixture
def http_server() -> Iterator[ByHand]:
    with serving() as server:
        yield server


@pytest.fixture
def over_http(http_server: ByHand) -> Callable[..., MCPTool]:
    """A tool of the server written by hand, over HTTP."""
    return lambda tool, **more: mcp_tool(f"mcp+{http_server.url}#{tool}", **more)
