"""What libraries find in the environment; what the user has set stays as it is.

`prepare_environment` is called before Prefect, MLflow and Arrow are imported.
"""

import contextlib
import ctypes
import os
from pathlib import Path

from tasks.provenance import host
from tasks.settings import shared_catalog
from toolformer_core.errors import UsageError
from warehouse.errors import LockHeldError
from warehouse.files.lock import FileLock

_DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout is for --json
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "90",  # its first start creates a database, maybe slowly
    "TOKENIZERS_PARALLELISM": "false",
    # A process of Python's that removes what a stopped command's Dask workers leave would say so after its last line.
    "PYTHONWARNINGS": "ignore::UserWarning:multiprocessing.resource_tracker",
    # Arrow's own allocator keeps memory that threads have freed: 150 of a build's 490 MB, and it keeps growing.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # glibc keeps what threads have freed in up to eight pools a core, whose holes grew by 200 MB for 300,000 documents.
    "MALLOC_ARENA_MAX": "2",
}
_ARENA_MAX = -8  # M_ARENA_MAX in glibc's malloc.h
_BUSY = 0.5  # processes that want to run, over the last minute
_SPINS, _SPINS_IF_BUSY = 20_000, 2_000
_own_server: list[str] = []  # the address of this process's own server, while it has one
_held: list[FileLock] = []  # on the folder of this process's own server, until it ends


def prepare_environment(data: str | None = None) -> None:
    """Set defaults for the environment, which the user's settings override.

    Unless PREFECT_API_URL names a server, each flow starts its own, whose database lies in `data`: flows of another
    data folder or on other machines must not share it. A UsageError: the folder cannot be written.
    """
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("GOMP_SPINCOUNT", str(spin_count()))
    # This process has not read the variable at its start, and glibc takes it only before there are threads.
    with contextlib.suppress(OSError, AttributeError, TypeError, ValueError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, int(os.environ["MALLOC_ARENA_MAX"]))
    _ask_loopback_directly()
    if data is not None and "PREFECT_API_URL" not in os.environ:
        home = Path(os.environ.setdefault("PREFECT_HOME", str(_server_home(data))))
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise UsageError(f"the data folder {data} cannot be written: {exc.strerror}") from exc


def spin_count() -> int:
    """Return how often OpenMP's threads look for work before they sleep: for 0.1 ms, or 0.01 ms beside other work.

    Where nothing else runs 2,000 takes up to 1.4 times as long, beside a busy process 20,000 twice as long.
    """
    return _SPINS_IF_BUSY if os.getloadavg()[0] > _BUSY else _SPINS


def _ask_loopback_directly() -> None:
    """Add loopback to NO_PROXY if there is a proxy; Prefect's and MLflow's clients have no other setting for this."""
    if not any(name.lower().endswith("_proxy") and name.lower() != "no_proxy" for name in os.environ):
        return
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""  # in this order, as the clients do
    names = [name.strip() for name in known.split(",") if name.strip()]
    names += [name for name in ("localhost", "127.0.0.1", "::1") if name not in names]
    if "*" not in names:
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(names)


def environment() -> dict[str, str]:
    """Return a copy of this process's environment, for a program that is to inherit it."""
    return dict(os.environ)


def forget_server() -> None:
    """Forget any server named in the environment: this process is about to start its own."""
    os.environ.pop("PREFECT_API_URL", None)


def use_own_server(address: str | None) -> None:
    """Make Prefect, which is not imported yet, use the server that this process starts; None: it has ended."""
    while _own_server:
        if os.environ.get("PREFECT_API_URL") == _own_server.pop():
            forget_server()
    if address is not None:
        os.environ["PREFECT_API_URL"] = address
        # The server ends with this process, so nobody could read its logs; sending one while it ends prints errors.
        os.environ.setdefault("PREFECT_LOGGING_TO_API_ENABLED", "false")
        _own_server.append(address)


def names_server() -> bool:
    """Return whether the environment names a Prefect server other than this process's own."""
    return os.environ.get("PREFECT_API_URL") not in (None, *_own_server)


def own_server_home() -> Path | None:
    """Return the folder of this process's own server; None where PREFECT_API_URL names another one."""
    home = os.environ.get("PREFECT_HOME")
    return Path(home) if home and not names_server() else None


def _server_home(data: str) -> Path:
    if "://" not in data and shared_catalog() is None:
        return Path(data).absolute() / "prefect"
    home = (Path.cwd() / "toolformer-remote" if "://" in data else Path(data).absolute()) / "prefect"
    number = 1
    while True:
        folder = home / f"{host()}-{number}"
        with contextlib.suppress(LockHeldError):
            _held.append(FileLock(folder.with_name(folder.name + ".lock")))
            return folder
        number += 1
