"""`toolformer up`: the servers of Prefect and MLflow, the viewer, the deployments, a worker for each pool, on loopback.

One `up` runs per data folder, by a file lock that the kernel frees when its holder dies; `services` has the programs.
"""

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from flows.runtime.server import copy_template_database, prepare_start, record_server
from ops.addresses import FILE, Addresses, lock_path, read_addresses, up_folder, write_addresses
from ops.arrivals import Arrivals
from ops.deployments import arrival_event
from ops.ports import LOOPBACK, choose_ports
from ops.processes import ProcessGroup, Service, ServiceError, end_processes, variables_of
from ops.services import FLOW_RUN_VARIABLE, Services, request_json
from tasks.environment import forget_server, prepare_environment
from tasks.launch.processes import LAUNCH_VARIABLE
from toolformer_core.errors import ToolformerError
from warehouse.errors import LockHeldError
from warehouse.files.lock import FileLock
from warehouse.snapshot.publish import SNAPSHOT
from warehouse.store import Store

_POOLS = ("cpu", "gpu")
_START_TIMEOUT_S = 180.0  # on a busy machine; the first start creates databases
_SUPERVISE_INTERVAL_S = 0.5
_FLOW_RUN_GRACE_S = 6.0  # for flow runs to stop; a thread inside a model or a tool cannot be interrupted
_CHECKPOINT_GRACE_S = 30.0  # for trainings to save a checkpoint
_CHECKPOINT_GRACE_TERMINATED_S = 8.0  # ... after SIGTERM, which is usually followed by SIGKILL soon
_END_TIMEOUT_S = 3.0  # for the workers to end, and as long again for the servers


class UpError(ToolformerError):
    """The servers cannot be started: they run already, or one did not start."""


class Up:
    """The servers of one data folder, from `start` to `stop`; corpora are built on `schedule` and from `watch`.

    Ports of 0 are any free ones. An UpError or PortTakenError: it runs already, or somebody listens on a port.
    """

    def __init__(
        self,
        data: str,
        prefect_port: int = 4200,
        mlflow_port: int = 5000,
        view_port: int = 8001,
        corpus: str = "",
        schedule: str = "",
        watch: str = "",
        notify: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._created = time.monotonic()
        self._notify = notify
        self._store = Store(data)
        self._data = self._store.root if self._store.is_local else data  # absolute: the services run in another folder
        folder = up_folder(self._store)
        self._arrivals = Arrivals(Path(watch), folder / "arrived.json") if watch else None
        corpus = corpus if "://" in corpus or not corpus else str(Path(corpus).absolute())
        self._options = [f"--corpus={corpus}", f"--schedule={schedule}", *(["--on-arrival"] if watch else [])]
        try:
            self._lock = FileLock(lock_path(self._store))
        except LockHeldError as exc:
            raise UpError(_already_running(self._store, exc)) from exc
        (folder / FILE).unlink(missing_ok=True)  # an earlier one's
        try:
            wanted = {"--prefect-port": prefect_port, "--mlflow-port": mlflow_port, "--view-port": view_port}
            ports = choose_ports(wanted).values()
        except BaseException:
            self._lock.close()
            raise
        ui, mlflow, viewer = (f"http://{LOOPBACK}:{port}" for port in ports)
        snapshot = str(self._store.local_folder / SNAPSHOT)
        self.addresses = Addresses(ui, f"{ui}/api", mlflow, snapshot, str(folder), os.getpid(), math.nan, viewer)
        self._group = ProcessGroup()
        self._servers: list[Service] = []
        self._workers: list[Service] = []
        self._killed = threading.Event()
        self.starting = False
        self.terminated = False  # by SIGTERM: `stop` then takes less than 20 s

    def _start(self) -> None:
        forget_server()  # flows must use the server started here, even if the user's environment names another
        prepare_environment(self._data)
        prepare_start()
        copy_template_database()
        folders = up_folder(self._store), self._store.local_folder, self._data
        services = Services(self.addresses, *folders, _START_TIMEOUT_S)
        self._servers = [services.prefect_server(), services.mlflow_server(), services.viewer()]
        prefect, *others = self._servers
        process, *_ = [self._group.start(server) for server in self._servers]
        deployments = services.deployments(self._options)
        self._group.start(deployments)
        self._group.wait_until_healthy([prefect], _START_TIMEOUT_S)
        record_server([psutil.Process(process.pid)])  # from now on another flow may start a server for itself
        self._group.wait_until_healthy([deployments], _START_TIMEOUT_S)
        self._mark_crashed_runs()
        self._workers = [services.worker(pool) for pool in _POOLS]
        for worker in self._workers:
            self._group.start(worker)
        self._group.wait_until_healthy([*others, *self._workers], _START_TIMEOUT_S)

    def supervise(self, stop: threading.Event) -> None:
        """Inside `running`: restart what ends and build what arrives, until the event is set."""
        while not stop.wait(_SUPERVISE_INTERVAL_S):
            self._group.supervise([*self._servers, *self._workers], self._notify)
            for path in self._arrivals.look() if self._arrivals else ():
                self._notify(f"{path} has arrived and is built")
                request_json(f"{self.addresses.api}/events", [arrival_event(path)])

    def kill_now(self) -> None:
        """Kill everything at once, and let `stop` wait no longer. Builds and trainings can still be continued."""
        self._killed.set()
        _kill(self._group.processes())

    def stop(self) -> None:
        """End everything: workers first, then flow runs, which stop where they can be continued, then servers."""
        self._group.send_signal(self._workers, signal.SIGINT)
        end_processes(self._runs, self._grace_s, self._killed)
        if not self._killed.is_set():
            self._group.wait_until_ended(self._workers, _END_TIMEOUT_S)
            self._group.send_signal(self._servers, signal.SIGTERM)
            self._group.wait_until_ended(self._servers, _END_TIMEOUT_S)
        # `close` gives trainings some more seconds
        _kill(process for process in self._group.processes() if LAUNCH_VARIABLE not in variables_of(process))
        self._group.close()
        self._lock.close()  # which ends the addresses, too

    @contextmanager
    def running(self) -> Iterator[Addresses]:
        """Start everything, and stop it at the end of the block; an UpError names the log of what did not start."""
        try:
            self.starting = True
            self._start()
            self.starting = False
            self.addresses = replace(self.addresses, seconds=round(time.monotonic() - self._created, 1))
            write_addresses(self._store, self.addresses)
            yield self.addresses
        except ServiceError as exc:
            raise UpError(str(exc)) from exc
        finally:
            self.starting = False
            self.stop()

    def _runs(self) -> list[psutil.Process]:
        """Return the processes of flow runs; their trainings are not among them, since flow runs stop those."""
        named = ((process, variables_of(process)) for process in self._group.processes())
        return [process for process, names in named if FLOW_RUN_VARIABLE in names and LAUNCH_VARIABLE not in names]

    def _grace_s(self) -> float:
        if not any(LAUNCH_VARIABLE in variables_of(process) for process in self._group.processes()):
            return _FLOW_RUN_GRACE_S
        return _CHECKPOINT_GRACE_TERMINATED_S if self.terminated else _CHECKPOINT_GRACE_S

    def _mark_crashed_runs(self) -> None:
        """Mark the runs as crashed that were running when an earlier `up` was killed; nothing else does."""
        active = {"state": {"type": {"any_": ["RUNNING", "CANCELLING", "PENDING"]}}}
        body = {"flow_runs": active, "work_pools": {"name": {"any_": list(_POOLS)}}}
        state = {"type": "CRASHED", "message": "toolformer up was killed; run it again, finished work is kept"}
        for run in request_json(f"{self.addresses.api}/flow_runs/filter", body) or []:
            if run["deployment_id"]:
                url = f"{self.addresses.api}/flow_runs/{run['id']}/set_state"
                request_json(url, {"state": state, "force": True})
                self._notify(f"{run['name']} was running when toolformer up was killed, and is marked as crashed")


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _already_running(store: Store, error: LockHeldError) -> str:
    advice = "it is starting; wait for it"
    if addresses := read_addresses(store):
        advice = f"Prefect at {addresses.ui}, MLflow at {addresses.mlflow}; use it"
    holder = f"process {error.pid} since {error.since}" if error.pid else "another process"
    stop = f"kill {error.pid}" if error.pid else "Ctrl-C"
    return f"toolformer up is already running for {store.local_folder} ({holder}): {advice}, or stop it first ({stop})"
