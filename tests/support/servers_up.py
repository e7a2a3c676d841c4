"""A real `toolformer up` in a process of its own, and what tests ask of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ops.processes import GROUP_VARIABLE
from tasks.launch.processes import find
from tests.support.waiting import soon

_NOT_THEIRS = ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI")  # what a user need not have set
_OFTEN = {"PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2"}  # Prefect looks at schedules once a minute


def toolformer(*words: str) -> list[str]:
    return [sys.executable, "-m", "cli.main", *words]


def variables() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in _NOT_THEIRS}
    return {**own, **_OFTEN, "PREFECT_LOGGING_LEVEL": "WARNING", "PREFECT_SERVER_LOGGING_LEVEL": "WARNING"}


@dataclass
class Running:
    """It is up."""

    process: subprocess.Popen[str]
    told: dict[str, Any]
    mark: str
    errors: Path

    def processes(self) -> list[psutil.Process]:
        return find(self.mark, GROUP_VARIABLE)

    def ask(self, path: str, body: Any = None) -> Any:
        told = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.told['api']}{path}", told, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.loads(answer.read() or b"null")

    def submit(self, name: str, parameters: dict[str, Any]) -> str:
        deployment = self.ask(f"/deployments/name/{name}/{name}")
        told = {"parameters": {"parameters": parameters}, "state": {"type": "SCHEDULED"}}
        return str(self.ask(f"/deployments/{deployment['id']}/create_flow_run", told)["id"])

    def ended(self, run: str) -> dict[str, Any]:
        def state() -> dict[str, Any] | None:
            found = self.ask(f"/flow_runs/{run}")["state"]
            return dict(found) if found["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") else None

        return soon(state)

    def working(self) -> bool:
        """Whether a flow run's own process is there."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if "PREFECT__FLOW_RUN_ID" in process.environ():
                    return True
        return False

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)


@contextmanager
def started(data: Path, *options: str) -> Iterator[Running]:
    """Start it on free ports, beside its data folder, and see that nothing of it is left, however the test ends."""
    errors = data.with_name(f"{data.name}-errors.txt")
    words = ["up", "--data", data.name, *"--prefect-port 0 --mlflow-port 0 --view-port 0 --json".split(), *options]
    with errors.open("w") as stream:
        process = subprocess.Popen(
            toolformer(*words), env=variables(), stdout=subprocess.PIPE, stderr=stream, text=True, cwd=data.parent
        )
    assert process.stdout is not None
    mark = ""
    try:
        line = process.stdout.readline()
        assert line, errors.read_text() + "".join(p.read_text() for p in (data / "up").glob("*.log"))
        told = json.loads(line)
        mark = next(
            e[GROUP_VARIABLE]
            for child in psutil.Process(process.pid).children()
            if GROUP_VARIABLE in (e := child.environ())
        )
        yield Running(process, told, mark, errors)
    finally:
        process.kill()  # its guard ends the rest
        process.wait()
        process.stdout.close()
        if mark:
            soon(lambda: not find(mark, GROUP_VARIABLE))
