"""`toolformer up`: Prefect's server, MLflow's server, the deployments and a worker for each pool, on loopback.

It checks ports, starts the programs, waits until each does its work, looks after them, and ends all they began. One
runs per data folder: a lock that the kernel frees with its holder says so, so nothing stale is ever in the way. Logs
and a note of the addresses lie in `up/` in the data folder. How processes are started and ended stands in `services`;
what a deployment is, in `deployments`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from flows.arrivals import Arrivals
from flows.server import begin_database, make_way, note_server
from flows.services import LOOPBACK, Group, Service, ServiceError, free_port, holder_of
from serving.origins import LOOPBACK_NAMES, origin_of
from tasks.launch.processes import MARK as TRAINING
from tasks.settings import allowed_hosts, allowed_origins, forget_server, host, prepare
from toolformer_core.errors import ToolformerError, UsageError
from warehouse.errors import LockHeldError
from warehouse.folders import private_mode
from warehouse.lock import FileLock
from warehouse.snapshot import SNAPSHOT
from warehouse.store import Store

__all__ = ["MLFLOW_PORT", "PREFECT_PORT", "Addresses", "Up", "UpError", "addresses_of", "running"]

PREFECT_PORT, MLFLOW_PORT = 4200, 5000
_POOLS = ("cpu", "gpu")
_FLOW_RUN = "PREFECT__FLOW_RUN_ID"  # in the environment of every process of a flow run
_START_S = 180.0  # on a busy machine, and the first start makes databases
_TEND_S = 0.5
_RUNS_S = 6.0  # for flow runs to stop; a thread of theirs that is inside a model or a tool cannot be interrupted
_CHECKPOINT_S = 30.0  # for trainings to save a checkpoint
_KILLED_SOON_S = 8.0  # ... after SIGTERM: whoever sends it sends SIGKILL soon after
_SERVERS_S = 3.0  # for workers, and as long for servers
_ASK_S = 3.0


class UpError(ToolformerError):
    """The servers cannot be started: something is in the way, or did not come up."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where everything is."""

    ui: str
    api: str
    mlflow: str
    warehouse: str  # the snapshot: there after the first build
    logs: str
    pid: int
    seconds: float  # from the start until all was healthy


def _folder(store: Store) -> Path:
    return store.beside / "up"


def addresses_of(store: Store) -> Addresses | None:
    """Return what the newest `toolformer up` of a data folder noted; it may have ended since."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Addresses(**json.loads((_folder(store) / "addresses.json").read_text(encoding="utf-8")))
    return None


def running(store: Store) -> Addresses | None:
    """Return where the servers of a data folder are; None if they do not run."""
    folder = _folder(store)
    if not (folder / "lock").exists():
        return None
    try:
        FileLock(folder / "lock").close()
    except LockHeldError:
        return addresses_of(store)
    return None


class Up:
    """The servers of one data folder, from `start` to `stop`; a context manager.

    Args:
        data: the data folder or URL; of a URL, what needs a local disk lies in `toolformer-remote`.
        prefect_port: of Prefect's server; 0: any that is free.
        mlflow_port: of MLflow's server; 0: any that is free.
        corpus: what the build form begins with.
        schedule: times at which it is built, as a cron line in UTC; "": at none.
        watch: a folder; whatever file arrives there is built.
        tell: is told what a person should know meanwhile.

    Raises:
        UpError: it runs already for this data folder, or a port is taken.
        UsageError: an option is wrong, or the data folder cannot be written.
    """

    def __init__(
        self,
        data: str,
        *,
        prefect_port: int = PREFECT_PORT,
        mlflow_port: int = MLFLOW_PORT,
        corpus: str = "",
        schedule: str = "",
        watch: str = "",
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._begin = time.monotonic()
        self._tell = tell
        self._store = Store(data)
        self._data = self._store.root if self._store.is_local else data  # what is started runs in another folder
        self._folder = _folder(self._store)
        self._arrivals = Arrivals(Path(watch), self._folder / "arrived.json") if watch else None
        corpus = corpus if "://" in corpus or not corpus else str(Path(corpus).absolute())
        self._options = [f"--corpus={corpus}", f"--schedule={schedule}", *(["--on-arrival"] if watch else [])]
        try:
            self._lock = FileLock(self._folder / "lock")
        except LockHeldError as exc:
            raise UpError(_second(self._store, exc)) from exc
        try:
            ports = _checked({"--prefect-port": prefect_port, "--mlflow-port": mlflow_port})
        except BaseException:
            self._lock.close()
            raise
        root = f"http://{LOOPBACK}:{ports['--prefect-port']}"
        self.addresses = Addresses(
            ui=root,
            api=f"{root}/api",
            mlflow=f"http://{LOOPBACK}:{ports['--mlflow-port']}",
            warehouse=str(self._store.beside / SNAPSHOT),
            logs=str(self._folder),
            pid=os.getpid(),
            seconds=math.nan,
        )
        self._group = Group()
        self._workers: list[Service] = []
        self._servers: list[Service] = []
        self._hurry = threading.Event()
        self.starting = False
        self.terminated = False  # by SIGTERM: `stop` then takes less than 20 s

    def start(self) -> Addresses:
        """Start everything and wait until it is healthy.

        Raises:
            UpError: something did not come up; the message names its log.
            UsageError: the data folder cannot be written.
        """
        self.starting = True
        try:
            self._start()
        except ServiceError as exc:
            raise UpError(str(exc)) from exc
        finally:
            self.starting = False
        told = asdict(self.addresses) | {"seconds": round(time.monotonic() - self._begin, 1)}
        self.addresses = Addresses(**told)
        (self._folder / "addresses.json").write_text(json.dumps(told), encoding="utf-8")
        return self.addresses

    def _start(self) -> None:
        forget_server()  # of the user's environment: these flows run here
        prepare(self._data)
        make_way()
        begin_database()
        prefect, mlflow = self._servers = [self._prefect(), self._mlflow()]
        server = self._group.start(prefect)
        self._group.start(mlflow)
        deploying = self._deployments()
        self._group.start(deploying)
        self._group.wait([prefect], _START_S)
        note_server([psutil.Process(server.pid)])  # another flow's own server may start now
        self._group.wait([deploying], _START_S)
        self._end_dead_runs()
        self._workers = [self._worker(pool) for pool in _POOLS]
        for worker in self._workers:
            self._group.start(worker)
        self._group.wait([mlflow, *self._workers], _START_S)

    def tend(self, stop: threading.Event) -> None:
        """Look after everything until told to stop.

        Raises:
            UpError: something ended again and again.
        """
        try:
            while not stop.wait(_TEND_S):
                self._group.tend([*self._servers, *self._workers], self._tell)
                for path in self._arrivals.look() if self._arrivals else ():
                    self._tell(f"{path} has arrived and is built")
                    self._announce(path)
        except ServiceError as exc:
            raise UpError(str(exc)) from exc

    def hurry(self) -> None:
        """Have `stop` wait no longer: kill everything as it stands. Builds and trainings can go on from there, too."""
        self._hurry.set()
        for process in self._group.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def stop(self) -> None:
        """End everything: workers take no more runs, flow runs stop where they can go on, and then the servers."""
        self._group.ask(self._workers, signal.SIGINT)
        begin = time.monotonic()
        longest = _KILLED_SOON_S if self.terminated else _CHECKPOINT_S
        asked: set[int] = set()
        while not self._hurry.is_set() and (runs := self._runs()):
            if time.monotonic() - begin > (longest if self._trainings() else _RUNS_S):
                for process in runs:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
                break
            for process in runs:
                if process.pid not in asked:
                    asked.add(process.pid)
                    with contextlib.suppress(psutil.Error):
                        process.terminate()
            self._hurry.wait(0.1)
        if not self._hurry.is_set():
            self._group.ended(self._workers, _SERVERS_S)
            self._group.ask(self._servers, signal.SIGTERM)
            self._group.ended(self._servers, _SERVERS_S)
        for process, variables in self._environments():  # trainings have some seconds more
            if TRAINING not in variables:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        self._group.close()
        with contextlib.suppress(OSError):
            (self._folder / "addresses.json").unlink(missing_ok=True)
        self._lock.close()

    @contextmanager
    def held(self) -> Iterator[Addresses]:
        """Start everything, and end it with the block, however that ends."""
        try:
            yield self.start()
        finally:
            self.stop()

    def _prefect(self) -> Service:
        port = self.addresses.ui.rpartition(":")[2]
        return Service(
            "Prefect server",
            (sys.executable, "-m", "flows.prefect_app", "--host", LOOPBACK, "--port", port),
            self._folder / "prefect-server.log",
            {
                "PREFECT_SERVER_API_HOST": LOOPBACK,
                "PREFECT_SERVER_API_PORT": port,
                "PREFECT_API_URL": None,
                # The newer UI tells an analytics service that it was opened, whatever the server's settings say.
                "PREFECT_SERVER_UI_V2_ENABLED": "false",
            },
            lambda: _get(f"{self.addresses.api}/health") is not None,
            umask=0o777 & ~private_mode(self._folder),  # of its database
        )

    def _mlflow(self) -> Service:
        port = self.addresses.mlflow.rpartition(":")[2]
        home = self._store.beside
        words = ["--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}", "--no-serve-artifacts"]
        words += ["--default-artifact-root", str(home / "mlartifacts"), "--workers", "1"]
        return Service(
            "MLflow server",
            (sys.executable, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", port, *words),
            self._folder / "mlflow-server.log",
            {
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                "MLFLOW_TRACKING_URI": None,
                # Its own default lets any name in that begins like a private address: 10.evil.example.
                "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(_patterns((*LOOPBACK_NAMES, *allowed_hosts()))),
                "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(filter(None, map(origin_of, allowed_origins()))) or None,
            },
            lambda: _get(f"{self.addresses.mlflow}/health", text=True) is not None,
            umask=0o777 & ~private_mode(home),
        )

    def _deployments(self) -> Service:
        """The making of the deployments, which ends when it is done; it gets ready while the server starts."""
        done = self._folder / "deployments.txt"
        done.unlink(missing_ok=True)
        words = [f"--data={self._data}", f"--wait={_START_S:.0f}", f"--note={done}", *self._options]
        return Service(
            "deployments",
            (sys.executable, "-m", "flows.deployments", *words),
            self._folder / "deployments.log",
            {"PREFECT_API_URL": self.addresses.api},
            done.exists,
            Path.cwd(),  # below which builds keep what needs a local disk, if the data is at a URL
        )

    def _worker(self, pool: str) -> Service:
        since = datetime.now(UTC)
        name = f"{pool} on {host()}"
        words = ["--pool", pool, "--type", "process", "--name", name, *(["--limit", "1"] if pool == "gpu" else [])]

        def online() -> bool:
            told = _get(f"{self.addresses.api}/work_pools/{pool}/workers/filter", {}) or []
            beats = [one["last_heartbeat_time"] for one in told if one["name"] == name]
            return any(beat and datetime.fromisoformat(beat) > since for beat in beats)

        return Service(
            f"worker of pool {pool}",
            (sys.executable, "-m", "prefect", "worker", "start", *words),
            self._folder / f"worker-{pool}.log",
            {
                "PREFECT_API_URL": self.addresses.api,
                "MLFLOW_TRACKING_URI": self.addresses.mlflow,
                "PREFECT_LOGGING_LEVEL": "INFO",
                "PREFECT_WORKER_QUERY_SECONDS": "2",
            },
            online,
            work=_FLOW_RUN,
        )

    def _runs(self) -> list[psutil.Process]:
        """Return the processes in which flow runs go on; not their trainings, which they stop themselves."""
        return [
            process
            for process, variables in self._environments()
            if _FLOW_RUN in variables and TRAINING not in variables
        ]

    def _trainings(self) -> list[psutil.Process]:
        return [process for process, variables in self._environments() if TRAINING in variables]

    def _environments(self) -> Iterator[tuple[psutil.Process, set[str]]]:
        """Yield every living process of the group with the names of its environment's variables."""
        for process in self._group.processes():
            with contextlib.suppress(psutil.Error):
                yield process, set(process.environ())

    def _end_dead_runs(self) -> None:
        """Say of the runs that an earlier `up` was killed with that they are over: nobody else would."""
        wanted = {"state": {"type": {"any_": ["RUNNING", "CANCELLING", "PENDING"]}}}
        body = {"flow_runs": wanted, "work_pools": {"name": {"any_": list(_POOLS)}}}
        state = {"type": "CRASHED", "message": "toolformer up was killed; run it again, what is finished is found done"}
        for run in _get(f"{self.addresses.api}/flow_runs/filter", body) or []:
            if run["deployment_id"]:
                _get(f"{self.addresses.api}/flow_runs/{run['id']}/set_state", {"state": state, "force": True})
                self._tell(f"{run['name']} was running when toolformer up was killed, and is marked as crashed")

    def _announce(self, path: Path) -> None:
        from flows.deployments import announcement

        _get(f"{self.addresses.api}/events", [announcement(path)])


def _second(store: Store, held: LockHeldError) -> str:
    """Return what a second start is told."""
    known = addresses_of(store)
    where = f"Prefect at {known.ui}, MLflow at {known.mlflow}; use it" if known else "it is starting; wait for it"
    by = f"process {held.pid} since {held.since}" if held.pid else "another process"
    end = f"kill {held.pid}" if held.pid else "Ctrl-C"
    return f"toolformer up runs already for {store.beside} ({by}): {where}, or stop it first ({end})"


def _checked(asked: dict[str, int]) -> dict[str, int]:
    """Return the ports to take, by option.

    Raises:
        UpError: one is taken; the message says by whom.
        UsageError: two are the same, or one is reserved.
    """
    named = [port for port in asked.values() if port]
    if len(named) != len(set(named)):
        raise UsageError(f"{' and '.join(asked)} are both {named[0]}: give two ports")
    for option, port in asked.items():
        if port and (holder := holder_of(port)):
            raise UpError(f"port {port} is taken by {holder}: stop it, or choose another port with {option}")
    return {option: port or free_port() for option, port in asked.items()}


def _patterns(names: Iterable[str]) -> list[str]:
    """Return names as MLflow matches them against `Host`: with any port, and without one."""
    return [pattern for name in names for pattern in (name, f"{name.replace('[', '[[]')}:*")]


def _get(url: str, body: Any = None, *, text: bool = False) -> Any:
    """Ask a server of this machine (POST if there is a body); None if it does not answer, or not well."""
    told = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, told, {"Content-Type": "application/json"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with (
        contextlib.suppress(OSError, ValueError),
        direct.open(request, timeout=_ASK_S) as answer,
    ):
        raw = answer.read()
        return raw.decode() if text else json.loads(raw or b"null")
    return None
