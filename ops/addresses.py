"""Where the servers of a data folder are: `up/addresses.json` there, valid while the lock beside it is held."""

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from warehouse.errors import LockHeldError
from warehouse.files.lock import FileLock
from warehouse.store import Store

FILE = "addresses.json"


@dataclass(frozen=True, slots=True)
class Addresses:
    ui: str  # Prefect's
    api: str  # Prefect's
    mlflow: str
    warehouse: str  # the path of the snapshot, which exists after the first build
    logs: str
    pid: int  # of `toolformer up`
    seconds: float  # from the start until everything was healthy
    viewer: str  # of C*


def up_folder(store: Store) -> Path:
    return store.local_folder / "up"


def lock_path(store: Store) -> Path:
    return up_folder(store) / "lock"


def read_addresses(store: Store) -> Addresses | None:
    """Return what the last `toolformer up` of a data folder wrote down; it may have ended since."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Addresses(**json.loads((up_folder(store) / FILE).read_text(encoding="utf-8")))
    return None


def running_addresses(store: Store) -> Addresses | None:
    """Return the addresses of the servers that run for a data folder now; None if none run."""
    if not lock_path(store).exists():
        return None
    try:
        FileLock(lock_path(store)).close()
    except LockHeldError:
        return read_addresses(store)
    return None


def write_addresses(store: Store, addresses: Addresses) -> None:
    (up_folder(store) / FILE).write_text(json.dumps(asdict(addresses)), encoding="utf-8")
