"""The commands `up` and `doctor`: start the servers of one machine, and check an installation."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from cli.options import AsJson, Data
from cli.terminal import print_json, say
from tasks.environment import prepare_environment
from tasks.settings import data_folder

if TYPE_CHECKING:
    from ops.up import Up


def up(
    data: Data = None,
    prefect_port: Annotated[int, Option(min=0, max=65535, help="Port of Prefect; 0 takes a free one")] = 4200,
    mlflow_port: Annotated[int, Option(min=0, max=65535, help="Port of MLflow; 0 takes a free one")] = 5000,
    view_port: Annotated[int, Option(min=0, max=65535, help="Port of the viewer; 0 takes a free one")] = 8001,
    corpus: Annotated[str, Option(help="Corpus for the build form and for --schedule")] = "",
    schedule: Annotated[str, Option(help="When to build it: a cron line in UTC, e.g. '0 2 * * *'")] = "",
    watch: Annotated[str, Option(help="A folder; every corpus file that arrives in it is built")] = "",
    as_json: AsJson = False,
) -> None:
    """Start Prefect, MLflow, the viewer, all forms and a worker for each pool on loopback. Ctrl-C stops all.

    Flows that are running are stopped at a point from which they can continue: run them again. A second Ctrl-C does
    not wait for that. With --json one line of JSON is printed when everything is healthy. Web pages of other origins
    and other host names than localhost are refused; TOOLFORMER_ALLOWED_HOSTS and TOOLFORMER_ALLOWED_ORIGINS allow more.

    Example: toolformer up --data runs/c4
    """
    from flows.runtime.disk import explain_full_disk
    from ops.up import Up, UpError

    folder, notify = data_folder(data), partial(say, error=True)
    servers = Up(folder, prefect_port, mlflow_port, view_port, corpus, schedule, watch, notify)
    if not as_json:
        notify(f"starting; logs in {servers.addresses.logs}")
    with explain_full_disk(folder, UpError), _until_stopped(servers) as stop, servers.running() as addresses:
        if as_json:
            print_json(addresses, indent=None)
        else:
            places = {"Prefect UI": addresses.ui, "Prefect API": addresses.api, "MLflow": addresses.mlflow}
            places |= {"viewer": addresses.viewer, "DuckDB": addresses.warehouse, "logs": addresses.logs}
            print("\n".join(f"{name:<12} {place}" for name, place in places.items()))
            print(f"\nhealthy after {addresses.seconds:.0f} s; Ctrl-C ends everything", flush=True)
        servers.supervise(stop)
        if not as_json:
            notify("stopping; press Ctrl-C again to stop at once")


class _Stopped(BaseException):
    """Raised when a stop is requested before everything is up; its argument is the signal."""


@contextmanager
def _until_stopped(servers: Up) -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM or the end of the terminal sets; during the start they end it at once."""
    stop = threading.Event()

    def handle_signal(number: int, frame: object) -> None:
        if stop.is_set():
            servers.kill_now()
        servers.terminated = servers.terminated or number == signal.SIGTERM
        stop.set()
        if servers.starting:
            raise _Stopped(number)

    before = {n: signal.signal(n, handle_signal) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    except _Stopped as exc:
        say("stopped before everything was up", error=True)
        raise Exit(128 + exc.args[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def doctor(
    data: Data = None,
    model: Annotated[str, Option(help="Model to look for: 'embedded', a folder, or a hub name")] = "embedded",
    profile: Annotated[str, Option(help="Where trainings are to run; what it needs is checked")] = "auto",
    passages: Annotated[str, Option(help="JSONL of title, section, text for wikisearch and qa")] = "",
    as_json: AsJson = False,
) -> None:
    """Check this installation and say how to fix what is wrong. Changes nothing.

    Ends with exit 1 if a check fails; a warning is only worth knowing.

    Example: toolformer doctor --data runs/c4 --profile gpu
    """
    prepare_environment()
    from ops.doctor import DoctorOptions, run_checks

    findings = []
    for finding in run_checks(DoctorOptions(data_folder(data), model, profile, passages)):
        findings.append(finding)
        if not as_json:
            say(f"{finding.level:<5} {finding.check:<9} {finding.message}")
            if finding.remedy:
                say(f"{'':<15} -> {finding.remedy}")
    failed = sum(finding.level == "fail" for finding in findings)
    warned = sum(finding.level == "warn" for finding in findings)
    print_json(findings) if as_json else print(f"\n{failed} failed, {warned} to know of")
    if failed:
        raise Exit(1)
