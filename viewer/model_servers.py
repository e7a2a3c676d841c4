"""The models that answer prompts: servers whose addresses are given, and processes that are started when one is asked.

A process (`model_process`) has one model, and is used by all who ask it. It ends when nobody has asked it for some
minutes, when another model needs its place, and with the viewer. All of this is used in one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tasks.training.registry import model_label, trained_model
from toolformer_core.errors import ModelError

_COMMAND = (sys.executable, "-m", "viewer.model_process")
_MODELS = 2  # processes at a time: two models stand side by side
_IDLE_S = 600.0
_POLL_S = 0.1
_END_S = 15.0  # for a process to end by itself


@dataclass(slots=True, eq=False)
class _Started:
    """A process with a model."""

    model: str
    process: asyncio.subprocess.Process
    url: asyncio.Task[str]  # done once the model is loaded, or cannot be
    users: int = 0
    used: float = 0.0  # when it was asked last, on the clock of `time.monotonic`

    @property
    def lives(self) -> bool:
        return self.process.returncode is None


class ModelServers:
    """Servers of models, by the models' names.

    Args:
        given: name -> address of a server that somebody else has started.
        idle_s: seconds after which a process that nobody asks is ended.
        most: processes at a time.
        command: the program that serves a model, to which the model is added.
    """

    def __init__(
        self,
        given: Mapping[str, str] | None = None,
        *,
        idle_s: float = _IDLE_S,
        most: int = _MODELS,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self.given = dict(given or {})
        self._idle_s = idle_s
        self._most = most
        self._command = command
        self._started: dict[str, _Started] = {}
        self._turn = asyncio.Lock()  # to look for a process, and to start one
        self._ending: set[asyncio.Task[None]] = set()

    def runs(self, name: str) -> bool:
        """Return whether a model can be asked without being loaded first."""
        if name in self.given:
            return True
        started = self._started.get(trained_model(name))
        return started is not None and started.lives

    @asynccontextmanager
    async def serving(self, name: str) -> AsyncIterator[str]:
        """Yield the address of a model's server, which stays there while the block runs; it is started if need be.

        Args:
            name: of a given server, or a model as `toolformer generate --model` takes it.

        Raises:
            ModelError: the model cannot be loaded, or too many others are in use.
        """
        if name in self.given:
            yield self.given[name]
            return
        model = trained_model(name)
        async with self._turn:
            started = self._started.get(model)
            if started is None or not started.lives:
                started = await self._start(model)
            started.users += 1
        try:
            yield await asyncio.shield(started.url)  # others may wait for the same model
        finally:
            started.users -= 1
            started.used = time.monotonic()
            if started.lives:
                asyncio.get_running_loop().call_later(self._idle_s, self._end_if_idle, started)
            else:
                self._end(started)

    async def close(self) -> None:
        """End all processes."""
        for started in list(self._started.values()):
            self._end(started)
        await asyncio.gather(*self._ending)

    async def _start(self, model: str) -> _Started:
        for one in [one for one in self._started.values() if not one.lives]:
            self._end(one)
        while len(self._started) >= self._most:
            idle = [one for one in self._started.values() if not one.users]
            if not idle:
                names = " and ".join(map(model_label, self._started))
                raise ModelError(f"{names} are writing: another model can be asked when one of them is done")
            self._end(min(idle, key=lambda one: one.used))
        pipe = asyncio.subprocess.PIPE
        place = Path(__file__).parents[1]  # where no file of the user's is imported as a module
        process = await asyncio.create_subprocess_exec(*self._command, model, stdin=pipe, stdout=pipe, cwd=place)
        started = _Started(model, process, asyncio.ensure_future(_url_of(process, model)))
        self._started[model] = started
        return started

    def _end_if_idle(self, started: _Started) -> None:
        if not started.users and time.monotonic() - started.used >= self._idle_s:
            self._end(started)

    def _end(self, started: _Started) -> None:
        """Have a process end; no new request goes to it."""
        if self._started.get(started.model) is started:
            del self._started[started.model]
        task = asyncio.ensure_future(_ended(started))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _url_of(process: asyncio.subprocess.Process, model: str) -> str:
    """Return the address of a process's server once the model is loaded.

    Raises:
        ModelError: it cannot be loaded.
    """
    said = await _said(process)
    if url := said.get("url", ""):
        await _until_ready(url, process)
        if process.returncode is None:
            return url
        said = await _said(process)
    await process.wait()
    raise ModelError(said.get("problem") or f"the process of {model} ended; the viewer's log says why")


async def _said(process: asyncio.subprocess.Process) -> dict[str, str]:
    """Return what a process says next: its address, or its problem; nothing if it has ended."""
    try:
        said: dict[str, str] = json.loads(await process.stdout.readline()) if process.stdout is not None else {}
    except ValueError:
        return {}
    return said


async def _until_ready(url: str, process: asyncio.subprocess.Process) -> None:
    """Return when the server has loaded its model, or its process has ended."""
    import httpx2

    async with httpx2.AsyncClient(trust_env=False) as client:
        while process.returncode is None:
            with contextlib.suppress(httpx2.HTTPError):
                if (await client.get(f"{url}/health/ready")).status_code == 200:
                    return
            await asyncio.sleep(_POLL_S)


async def _ended(started: _Started) -> None:
    """Close a process's input, at which it ends, and kill it if it does not."""
    started.url.cancel()
    await asyncio.wait([started.url])
    process = started.process
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
