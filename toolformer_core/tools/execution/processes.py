"""Carries jobs out in processes, for tools of pure Python that compute: threads would take turns, processes do not.

A process ends when the other end of its pipe is closed, so it does not outlive who started it. `multiprocessing` cannot
start processes from the workers of a Dask cluster, which count as daemons; its pipes are used here.
"""

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Connection, Pipe

from toolformer_core.errors import ToolError, ToolformerError
from toolformer_core.records import ToolFailure
from toolformer_core.tools.base import Tool
from toolformer_core.tools.execution.asking import Job, Outcome, Question
from toolformer_core.tools.execution.threads import Worker
from toolformer_core.tools.responses import run_questions

_CODE = (
    "import json, sys; fd, sys.path[:] = int(sys.argv[1]), json.loads(sys.argv[2]); "
    "from toolformer_core.tools.execution.processes import main; main(fd)"
)
_STDERR = 2  # where a tool's own prints go: standard output is the command's


def pickled(tool: Tool) -> bytes:
    """Return a tool as its processes get it; a `ToolError` if it cannot be pickled."""
    try:
        return pickle.dumps(tool)
    except Exception as exc:  # third-party code
        raise ToolError(
            f"tool {tool.key} asks for processes (its limits say pool='processes') but cannot be pickled: {exc}"
        ) from exc


class InProcess(Worker):
    """A worker with a process, started when its first job comes: it gets the pickled tool once and loads it."""

    def __init__(self, tool: bytes) -> None:
        self._pickled = tool
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._stopped = False

    def answer(self, job: Job) -> Outcome:
        try:
            pipe = self._pipe or self._start()
            if isinstance(pipe, ToolformerError):
                return pipe
            job.begin()
            pipe.send(job.questions)
            outcome: Outcome = pipe.recv()
            return outcome
        except Exception:  # noqa: BLE001  the pipe's, or of an error of the tool's that cannot be made again here
            code = self._end()
            return ToolFailure("crashed", f"the tool's process ended with exit code {code}", retryable=True)

    def _start(self) -> Connection | ToolformerError:
        ours, theirs = Pipe()
        with theirs:
            arguments = [sys.executable, "-c", _CODE, str(theirs.fileno()), json.dumps(sys.path)]
            with self._lock:
                if self._stopped:
                    raise EOFError
                self._process = subprocess.Popen(
                    arguments, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=_STDERR
                )
        self._pipe = ours
        ours.send_bytes(self._pickled)
        problem: ToolformerError | None = ours.recv()
        if problem is None:
            return ours
        self.close()
        return problem

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        self._end()

    def _end(self) -> int | None:
        with self._lock:
            process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
        if process is None:
            return None
        process.kill()
        return process.wait()


def main(handle: int) -> None:
    """Work in the process until the pipe, a file descriptor, is closed; interrupts are left to who started it."""
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
        tool.load()
    except ToolformerError:
        raise
    except Exception as exc:  # third-party code
        raise ToolError(
            f"a tool cannot be made and loaded in a process of its own: {type(exc).__name__}: {exc}; "
            "its class must lie in a module that can be imported"
        ) from exc
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
