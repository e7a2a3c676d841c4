"""Programs that run side by side on this machine: start them, wait until they work, restart them, and end them all.

Processes of a group, and all that they start, carry its mark in their environment, those of a service that service's:
by these they are ended, wherever in the process tree. If the group's holder is killed, a guard does it: it waits on a
pipe that the kernel closes (`python -m ops.processes MARK`).
"""

import contextlib
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tasks.environment import environment
from tasks.launch.processes import find
from toolformer_core.errors import ToolformerError
from warehouse.files.folders import make_private

GROUP_VARIABLE = "TOOLFORMER_UP"  # the environment variable that holds the group's mark
_SERVICE = "TOOLFORMER_UP_SERVICE"  # ... and the one that holds the service's
_POLL_S = 0.1
_KILL_S = 5.0  # from SIGTERM to SIGKILL by default
_MAX_RESTARTS = 10  # of one service within an hour; then the group gives up
_HOUR_S = 3600.0
_MAX_WAIT_S = 60.0  # between a service's end and its restart
_LOG_LINE_CHARS = 300


class ServiceError(ToolformerError):
    """A service did not start, or did not keep running; the message names its log."""


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    argv: tuple[str, ...]
    log: Path
    variables: Mapping[str, str | None]  # additions to this process's environment; None removes a variable
    healthy: Callable[[], bool]  # returns whether the program does its work
    folder: Path | None = None  # None: the log's, where no file of the user's is imported as a module
    umask: int = -1  # of the files it creates; -1: this process's
    work: str = ""  # an environment variable of processes that carry on when the service dies (a worker's flow runs)


@dataclass(slots=True)
class ProcessGroup:
    """Services that share a mark, and their guard."""

    mark: str = field(default_factory=lambda: uuid.uuid4().hex)  # in the environment, as `GROUP_VARIABLE`
    clock: Callable[[], float] = time.monotonic
    _started: dict[str, tuple[Service, subprocess.Popen[bytes]]] = field(default_factory=dict)
    _ends: dict[str, list[float]] = field(default_factory=dict)  # when each service ended, within the last hour
    _restart_at: dict[str, float] = field(default_factory=dict)  # of services that have ended
    _guard: subprocess.Popen[bytes] | None = None

    def start(self, service: Service) -> subprocess.Popen[bytes]:
        """Start a service, or raise an OSError, in a session of its own: signals from the terminal do not reach it."""
        if self._guard is None:
            self._guard = subprocess.Popen(
                [sys.executable, "-m", "ops.processes", self.mark], stdin=subprocess.PIPE, start_new_session=True
            )
        variables = {**environment(), **service.variables, GROUP_VARIABLE: self.mark, _SERVICE: self._mark_of(service)}
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
        self._started[service.name] = (service, process)
        return process

    def wait_until_healthy(self, services: Iterable[Service], seconds: float) -> None:
        """Wait until all of the services are healthy; a ServiceError names one that has ended or takes too long."""
        deadline = time.monotonic() + seconds
        pending = list(services)
        while pending:
            for service in pending:
                code = self._started[service.name][1].poll()
                if code is not None and not service.healthy():  # a program that ends may just have done its work
                    raise ServiceError(f"the {service.name} did not start (exit {code}): {_last_line(service.log)}")
            pending = [service for service in pending if not service.healthy()]
            if pending and time.monotonic() > deadline:
                service = pending[0]
                raise ServiceError(f"the {service.name} was not ready after {seconds:.0f} s: {_last_line(service.log)}")
            time.sleep(_POLL_S if pending else 0)

    def supervise(self, services: Iterable[Service], notify: Callable[[str], None]) -> None:
        """Restart services that ended: at once, then after 1, 2, 4, ... 60 s; a ServiceError: too often."""
        for service in services:
            code = self._started[service.name][1].poll()
            if code is None:
                continue
            if service.name not in self._restart_at:
                self._plan_restart(service, code, notify)
            if self.clock() >= self._restart_at[service.name]:
                del self._restart_at[service.name]
                self.start(service)

    def _plan_restart(self, service: Service, code: int, notify: Callable[[str], None]) -> None:
        now = self.clock()
        ends = self._ends[service.name] = [t for t in self._ends.get(service.name, ()) if now - t < _HOUR_S] + [now]
        if len(ends) > _MAX_RESTARTS:
            problem = f"the {service.name} ended {len(ends)} times within an hour"
            raise ServiceError(f"{problem} (exit {code}): {_last_line(service.log)}")
        wait = min(2.0 ** (len(ends) - 2), _MAX_WAIT_S) if len(ends) > 1 else 0.0
        when = f" in {wait:.0f} s" if wait else ""
        notify(f"the {service.name} ended (exit {code}) and is restarted{when}; see {service.log}")
        end_marked(self._mark_of(service), variable=_SERVICE, spared=service.work)
        self._restart_at[service.name] = now + wait

    def _mark_of(self, service: Service) -> str:
        return f"{self.mark}/{service.name}"

    def processes(self) -> list[psutil.Process]:
        return find(self.mark, GROUP_VARIABLE)

    def send_signal(self, services: Iterable[Service], number: signal.Signals) -> None:
        for service in services:
            if service.name in self._started:
                self._started[service.name][1].send_signal(number)

    def wait_until_ended(self, services: Iterable[Service], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for service in services:
            if service.name in self._started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._started[service.name][1].wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End everything that is left of the group, and its guard."""
        end_marked(self.mark)
        for _, process in self._started.values():
            process.kill()
            process.wait()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None


def end_marked(mark: str, grace_s: float = _KILL_S, *, variable: str = GROUP_VARIABLE, spared: str = "") -> None:
    """End every process whose environment holds a mark in `variable`, but for those with the variable `spared`."""

    def living() -> list[psutil.Process]:
        return [process for process in find(mark, variable) if not (spared and spared in variables_of(process))]

    end_processes(living, lambda: grace_s)


def end_processes(
    living: Callable[[], list[psutil.Process]], grace_s: Callable[[], float], stop: threading.Event | None = None
) -> None:
    """Send SIGTERM to each of `living` once, SIGKILL after the grace period; return when none is left, or on `stop`."""
    stop = stop or threading.Event()
    begin = time.monotonic()
    terminated: set[psutil.Process] = set()
    while not stop.is_set() and (processes := living()):
        kill = time.monotonic() - begin > grace_s()
        for process in processes:
            with contextlib.suppress(psutil.Error):
                if kill:
                    process.kill()
                elif process not in terminated:
                    process.terminate()
        terminated.update(processes)
        stop.wait(_POLL_S)


def variables_of(process: psutil.Process) -> set[str]:
    """Return the names of a process's environment variables; none if it is gone."""
    with contextlib.suppress(psutil.Error):
        return set(process.environ())
    return set()


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
        if last := next((line for line in reversed(lines) if line), ""):
            return f"{last[:_LOG_LINE_CHARS]} (see {log})"
    return f"see {log}"


def _guard(words: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_marked(words[0])


if __name__ == "__main__":
    _guard(sys.argv[1:])
