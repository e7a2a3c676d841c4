"""Programs that run side by side on this machine: started, waited for, looked after, ended with all they began.

Every process of a group carries the group's mark in its environment, and so does whatever it starts. When the group is
to end, everything with the mark is ended, wherever it hangs in the tree of processes; nothing without it is touched. A
service's processes carry a mark of its own as well: what a dead one leaves behind is ended before it is started again.
Should the process that holds the group be killed, a guard does the same in its place: it waits for the end of a pipe
that the kernel closes with its holder (`python -m flows.services MARK`). It knows no Prefect, MLflow or flow.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tasks.launch.processes import find
from tasks.settings import environment
from toolformer_core.errors import ToolformerError, UsageError
from warehouse.folders import make_private

__all__ = ["LOOPBACK", "MARK", "Group", "Service", "ServiceError", "end", "free_port", "holder_of"]

LOOPBACK = "127.0.0.1"
MARK = "TOOLFORMER_UP"
_POLL_S = 0.1
_KILL_S = 5.0  # from SIGTERM to SIGKILL, where nothing else is said
_RESTARTS = 10  # of one service within an hour; at one more end the group gives up
_HOUR_S = 3600.0
_LONGEST_S = 60.0  # between a service's end and its next start
_SERVICE = "TOOLFORMER_UP_SERVICE"
_TAIL_CHARS = 300


class ServiceError(ToolformerError):
    """A service did not come up, or did not stay up; the message names its log."""


@dataclass(frozen=True, slots=True)
class Service:
    """A program of a group.

    Args:
        name: as messages call it.
        argv: the command.
        log: where its output goes.
        variables: on top of this process's environment; None takes one away.
        healthy: whether it does its work.
        folder: where it runs; None: where its log lies, so that no file of the user's is taken for a module.
        umask: of the files it makes; -1: this process's.
        work: a variable in the environment of the work that it has begun, which goes on without it; "": it has none.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    variables: Mapping[str, str | None]
    healthy: Callable[[], bool]
    folder: Path | None = None
    umask: int = -1
    work: str = ""


@dataclass(slots=True)
class Group:
    """Services under one mark, and their guard.

    Args:
        mark: what all its processes carry.
        clock: seconds that pass, for the restarts.
    """

    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    clock: Callable[[], float] = time.monotonic
    _running: dict[str, tuple[Service, subprocess.Popen[bytes]]] = field(default_factory=dict)
    _ends: dict[str, list[float]] = field(default_factory=dict)  # of each service within the last hour
    _due: dict[str, float] = field(default_factory=dict)  # when a service that has ended is to be started again
    _guard: subprocess.Popen[bytes] | None = None

    def start(self, service: Service) -> subprocess.Popen[bytes]:
        """Start a service, in a session of its own: what the terminal sends to this process does not reach it.

        Raises:
            OSError: it cannot be started, or its log cannot be written.
        """
        if self._guard is None:
            self._guard = subprocess.Popen(
                [sys.executable, "-m", "flows.services", self.mark], stdin=subprocess.PIPE, start_new_session=True
            )
        variables = {**environment(), **service.variables, MARK: self.mark, _SERVICE: self._mark_of(service)}
        make_private(service.log)
        with service.log.open("ab") as log:
            process = subprocess.Popen(
                service.argv,
                cwd=service.folder or service.log.parent,
                env={name: value for name, value in variables.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=service.umask,
            )
        self._running[service.name] = (service, process)
        return process

    def wait(self, services: Iterable[Service], seconds: float) -> None:
        """Wait until services are healthy.

        Raises:
            ServiceError: one ended, or is not healthy in time.
        """
        deadline = time.monotonic() + seconds
        waiting = list(services)
        while waiting:
            for service in waiting:
                code = self._running[service.name][1].poll()
                if code is not None and not service.healthy():  # what ends when its work is done may have done it
                    raise ServiceError(f"the {service.name} did not come up (exit {code}): {_why(service.log)}")
            waiting = [service for service in waiting if not service.healthy()]
            if waiting and time.monotonic() > deadline:
                service = waiting[0]
                raise ServiceError(f"the {service.name} was not up after {seconds:.0f} s: {_why(service.log)}")
            time.sleep(_POLL_S if waiting else 0)

    def tend(self, services: Iterable[Service], tell: Callable[[str], None]) -> None:
        """Start services again that have ended: the first time at once, then after 1, 2, 4, ... 60 seconds.

        Args:
            services: those that should run.
            tell: is told of each.

        Raises:
            ServiceError: one has ended too often within an hour.
        """
        for service in services:
            code = self._running[service.name][1].poll()
            if code is None:
                continue
            if service.name not in self._due:
                self._note_end(service, code, tell)
            if self.clock() >= self._due[service.name]:
                del self._due[service.name]
                self.start(service)

    def _note_end(self, service: Service, code: int, tell: Callable[[str], None]) -> None:
        """End what a service has left behind, and set the time of its next start."""
        now = self.clock()
        ends = self._ends[service.name] = [t for t in self._ends.get(service.name, ()) if now - t < _HOUR_S] + [now]
        if len(ends) > _RESTARTS:
            told = f"the {service.name} ended {len(ends)} times within an hour"
            raise ServiceError(f"{told} (exit {code}): {_why(service.log)}")
        wait = min(2.0 ** (len(ends) - 2), _LONGEST_S) if len(ends) > 1 else 0.0
        when = f" in {wait:.0f} s" if wait else ""
        tell(f"the {service.name} ended (exit {code}) and is started again{when}; see {service.log}")
        end(self._mark_of(service), variable=_SERVICE, spared=service.work)
        self._due[service.name] = now + wait

    def _mark_of(self, service: Service) -> str:
        return f"{self.mark}/{service.name}"

    def processes(self) -> list[psutil.Process]:
        """Return every living process of the group, oldest first."""
        return find(self.mark, MARK)

    def ask(self, services: Iterable[Service], number: signal.Signals) -> None:
        """Send services a signal."""
        for service in services:
            if service.name in self._running:
                self._running[service.name][1].send_signal(number)

    def ended(self, services: Iterable[Service], seconds: float) -> None:
        """Wait for services to end, at most so long."""
        deadline = time.monotonic() + seconds
        for service in services:
            if service.name in self._running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._running[service.name][1].wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End what is left of the group, and its guard."""
        end(self.mark)
        for _, process in self._running.values():
            process.kill()
            process.wait()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None


def end(mark: str, grace_s: float = _KILL_S, *, variable: str = MARK, spared: str = "") -> None:
    """End every process that carries a mark: SIGTERM, and SIGKILL for those still there after the grace period.

    Args:
        mark: of the processes.
        grace_s: seconds between the two signals.
        variable: which holds the mark.
        spared: whoever has this variable in its environment stays; "": nobody.
    """
    number, deadline = signal.SIGTERM, time.monotonic() + grace_s
    asked: set[int] = set()
    while left := [process for process in find(mark, variable) if not (spared and _has(process, spared))]:
        if time.monotonic() > deadline:
            number, asked = signal.SIGKILL, set()
        for process in left:
            if process.pid not in asked:
                asked.add(process.pid)
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
        time.sleep(_POLL_S)


def _has(process: psutil.Process, variable: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return variable in process.environ()
    return False


def free_port() -> int:
    """Return a port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def holder_of(port: int) -> str:
    """Return who listens on a port of this machine, in words; "" if it is free.

    Raises:
        UsageError: it is a port that this user may not take.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            return ""
        except PermissionError as exc:
            raise UsageError(f"port {port} is reserved for the system: choose one above 1023") from exc
        except OSError:
            pass
    with contextlib.suppress(psutil.Error):
        for found in psutil.net_connections("tcp"):
            if found.status == psutil.CONN_LISTEN and found.laddr[1:] == (port,) and found.pid:
                return f"process {found.pid} ({' '.join(psutil.Process(found.pid).cmdline())[:120]})"
    return "a process of another user"


def _why(log: Path) -> str:
    """Return the last line of a log, and where it lies."""
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
        if told := next((line for line in reversed(lines) if line), ""):
            return f"{told[:_TAIL_CHARS]} (see {log})"
    return f"see {log}"


def _guard(words: Sequence[str]) -> None:
    """Wait until the pipe on standard input ends, then end what carries the mark."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end(words[0])


if __name__ == "__main__":
    _guard(sys.argv[1:])
