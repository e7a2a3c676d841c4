"""The programs that `toolformer up` runs: their commands, environments, logs, and how to tell that they are healthy."""

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from ops.addresses import Addresses
from ops.ports import LOOPBACK
from ops.processes import Service
from serving.origins import LOOPBACK_NAMES, origin_of
from tasks.provenance import host
from tasks.settings import allowed_hosts, allowed_origins, viewer_url
from toolformer_core.http_client import direct_client
from warehouse.files.folders import private_mode
from warehouse.files.paths import sqlite_url

FLOW_RUN_VARIABLE = "PREFECT__FLOW_RUN_ID"  # an environment variable of every process of a flow run
_REQUEST_S = 3.0


@dataclass(frozen=True, slots=True)
class Services:
    addresses: Addresses
    logs: Path
    home: Path  # the local folder of MLflow's database and artifacts
    data: str
    wait_s: float  # seconds for which the deployments wait for Prefect's server

    def prefect_server(self) -> Service:
        port = self.addresses.ui.rpartition(":")[2]
        return Service(
            "Prefect server",
            (sys.executable, "-m", "flows.runtime.prefect_app", "--host", LOOPBACK, "--port", port),
            self.logs / "prefect-server.log",
            {
                "PREFECT_SERVER_API_HOST": LOOPBACK,
                "PREFECT_SERVER_API_PORT": port,
                "PREFECT_API_URL": None,
                # The newer UI tells an analytics service that it was opened, whatever the server's settings are.
                "PREFECT_SERVER_UI_V2_ENABLED": "false",
            },
            lambda: request_json(f"{self.addresses.api}/health") is not None,
            umask=0o777 & ~private_mode(self.logs),  # of its database
        )

    def mlflow_server(self) -> Service:
        port = self.addresses.mlflow.rpartition(":")[2]
        words = ["--backend-store-uri", sqlite_url(self.home / "mlflow.db"), "--no-serve-artifacts"]
        words += ["--default-artifact-root", (self.home.absolute() / "mlartifacts").as_uri(), "--workers", "1"]
        names = (*LOOPBACK_NAMES, *allowed_hosts())
        hosts = [*names, *(f"{name.replace('[', '[[]')}:*" for name in names)]  # without a port, and with one
        return Service(
            "MLflow server",
            (sys.executable, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", port, *words),
            self.logs / "mlflow-server.log",
            {
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                "MLFLOW_TRACKING_URI": None,
                # MLflow's default allows every name that begins like a private address: 10.evil.example.
                "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(hosts),
                "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(filter(None, map(origin_of, allowed_origins()))) or None,
            },
            lambda: answer_of(f"{self.addresses.mlflow}/health") is not None,
            umask=0o777 & ~private_mode(self.home),
        )

    def viewer(self) -> Service:
        port = self.addresses.viewer.rpartition(":")[2]
        words = [f"--data={self.data}", "--host", LOOPBACK, "--port", port]
        return Service(
            "viewer",
            (sys.executable, "-m", "viewer.server", *words),
            self.logs / "viewer.log",
            {"PREFECT_API_URL": self.addresses.api},
            lambda: answer_of(f"{self.addresses.viewer}/health") is not None,
            Path.cwd() if "://" in self.data else None,  # below which lies what needs a local disk
        )

    def deployments(self, options: Sequence[str]) -> Service:
        """Return the program that makes the deployments and ends; it prepares them while the server starts."""
        done = self.logs / "deployments.txt"
        done.unlink(missing_ok=True)
        words = [f"--data={self.data}", f"--wait={self.wait_s:.0f}", f"--note={done}", *options]
        return Service(
            "deployments",
            (sys.executable, "-m", "ops.deployments", *words),
            self.logs / "deployments.log",
            {"PREFECT_API_URL": self.addresses.api},
            done.exists,
            Path.cwd(),  # builds of data at a URL keep what needs a local disk below this folder
        )

    def worker(self, pool: str) -> Service:
        """Return the worker of a pool; a worker of the pool `gpu` runs one flow at a time."""
        created = datetime.now(UTC)
        name = f"{pool} on {host()}"
        words = ["--pool", pool, "--type", "process", "--name", name, *(["--limit", "1"] if pool == "gpu" else [])]

        def online() -> bool:
            workers = request_json(f"{self.addresses.api}/work_pools/{pool}/workers/filter", {}) or []
            heartbeats = [worker["last_heartbeat_time"] for worker in workers if worker["name"] == name]
            return any(beat and datetime.fromisoformat(beat) > created for beat in heartbeats)

        return Service(
            f"worker of pool {pool}",
            (sys.executable, "-m", "prefect", "worker", "start", *words),
            self.logs / f"worker-{pool}.log",
            {
                "PREFECT_API_URL": self.addresses.api,
                "MLFLOW_TRACKING_URI": self.addresses.mlflow,
                "PREFECT_LOGGING_LEVEL": "INFO",
                "TOOLFORMER_VIEWER": viewer_url() or self.addresses.viewer,
                "PREFECT_WORKER_QUERY_SECONDS": "2",
            },
            online,
            work=FLOW_RUN_VARIABLE,
        )


def request_json(url: str, body: Any = None) -> Any:
    """Send a request to a server of this machine, a POST if there is a body; return its JSON, None if it failed."""
    with contextlib.suppress(ValueError):
        return response.json() if (response := answer_of(url, body)) is not None else None
    return None


def answer_of(url: str, body: Any = None) -> httpx2.Response | None:
    with contextlib.suppress(httpx2.HTTPError):
        method = "GET" if body is None else "POST"
        response = direct_client().request(method, url, json=body, timeout=_REQUEST_S)
        return response if response.is_success else None
    return None
