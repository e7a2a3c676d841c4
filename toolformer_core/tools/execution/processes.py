"""Carries jobs out in processes, for tools of pure Python that compute: threads would take turns, processes do not.

A worker here stands in a thread and has a process of its own, started when its first job comes: a fresh interpreter
(`child.py`), which gets the pickled tool once and loads it, and then one job after another. The time that a call may
take begins when the tool is loaded. A job that is given up has its process killed, and the next job gets a new one.
A process that ends by itself (killed for its memory, crashed in C code) fails the job that it was at, no other.

`multiprocessing` starts such processes, too, but not from the workers of a Dask cluster, which count as daemons; its
pipes are used here. The tool's class must lie in a module that can be imported, not in the script that is run.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
import sys
import threading
from multiprocessing.connection import Connection, Pipe

from toolformer_core.errors import ToolError, ToolformerError
from toolformer_core.records import ToolFailure
from toolformer_core.tools.base import Tool
from toolformer_core.tools.execution.asking import Job, Outcome

_CODE = (
    "import json, sys; fd, sys.path[:] = int(sys.argv[1]), json.loads(sys.argv[2]); "
    "from toolformer_core.tools.execution.child import main; main(fd)"
)
_STDERR = 2  # where a tool's own prints go: standard output is the command's


def pickled(tool: Tool) -> bytes:
    """Return a tool as its processes get it.

    Raises:
        ToolError: it cannot be pickled.
    """
    try:
        return pickle.dumps(tool)
    except Exception as exc:  # third-party code
        raise ToolError(
            f"tool {tool.key} asks for processes (its limits say pool='processes') but cannot be pickled: {exc}"
        ) from exc


class InProcess:
    """A worker that hands its jobs to a process.

    Args:
        tool: as `pickled` returns it.
    """

    def __init__(self, key: str, tool: bytes) -> None:
        self._key = key
        self._tool = tool
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
            pipe.send(list(job.questions))
            outcome: Outcome = pipe.recv()
            return outcome
        except (EOFError, OSError):
            code = self._end()
            return ToolFailure("crashed", f"the tool's process ended with exit code {code}", retryable=True)

    def _start(self) -> Connection | ToolformerError:
        """Start the process, and wait until it has loaded the tool."""
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
        ours.send_bytes(self._tool)
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
        """End the process; return its exit code."""
        with self._lock:
            process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
        if process is None:
            return None
        process.kill()
        return process.wait()
