"""Where the servers of a data folder are: what `toolformer up` writes down for other commands to read.

The addresses are in `up/addresses.json` in the data folder. They are valid while the lock beside them is held: the
kernel frees it when its holder dies, so an old file misleads nobody.
"""

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from warehouse.errors import LockHeldError
from warehouse.files.lock import FileLock
from warehouse.store import Store

_FILE = "addresses.json"


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
        return Addresses(**json.loads((up_folder(store) / _FILE).read_text(encoding="utf-8")))
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
    (up_folder(store) / _FILE).write_text(json.dumps(asdict(addresses)), encoding="utf-8")


def delete_addresses(store: Store) -> None:
    with contextlib.suppress(OSError):
        (up_folder(store) / _FILE).unlink(missing_ok=True)
