"""What a tool's process runs: it gets the tool, loads it, and answers one job after another.

It ends when the other end of its pipe is closed, also in the midst of a job: so it does not outlive the process that
started it, however that ends. An interrupt from the terminal is left to that process.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
from multiprocessing.connection import Connection

from toolformer_core.errors import ToolError, ToolformerError
from toolformer_core.tools.base import Tool
from toolformer_core.tools.execution.asking import Outcome, Question
from toolformer_core.tools.responses import run_questions


def main(handle: int) -> None:
    """Work until the pipe is closed.

    Args:
        handle: the file descriptor of this end of the pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Connection(handle)
    try:
        tool = _load(pipe.recv_bytes())
    except ToolformerError as exc:
        pipe.send(_sendable(exc))
        return
    pipe.send(None)
    jobs: queue.SimpleQueue[list[Question]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, jobs), daemon=True).start()
    while True:
        outcome: Outcome = run_questions(tool, jobs.get())
        pipe.send(_sendable(outcome) if isinstance(outcome, ToolformerError) else outcome)


def _load(data: bytes) -> Tool:
    try:
        tool: Tool = pickle.loads(data)  # from the process that started this one
    except Exception as exc:  # third-party code
        raise ToolError(
            f"a tool cannot be made again in a process of its own: {type(exc).__name__}: {exc}; its class must lie in "
            "a module that can be imported"
        ) from exc
    try:
        tool.load()
    except ToolformerError:
        raise
    except Exception as exc:  # third-party code
        raise ToolError(f"tool {tool.key} cannot be loaded: {type(exc).__name__}: {exc}") from exc
    return tool


def _sendable(error: ToolformerError) -> ToolformerError:
    """Return the error if it survives pickling, else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  third-party code
        return ToolError(str(error))
    return error


def _receive(pipe: Connection, jobs: queue.SimpleQueue[list[Question]]) -> None:
    """Hand on what comes; end the process when nothing can come any more."""
    while True:
        try:
            jobs.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(0)
