"""A full disk, told in one line that names it: whichever program, library or server it was that found no room.

Who writes a file of ours says so itself (`warehouse.errors.told`). Prefect's server answers 500 when its database finds
no room, MLflow and DuckDB raise errors of their own, and a server that starts only ends. What was being done is not
known here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from flows.server import ServerError
from tasks.settings import cache_folder, own_server_home
from toolformer_core.errors import ToolformerError, UsageError
from warehouse.errors import LockHeldError, WarehouseError, is_full
from warehouse.store import Store

__all__ = ["DiskFullError", "naming_full_disk"]

_LITTLE = 1 << 20  # bytes: with fewer free, an error that is not ours is one of the disk's


class DiskFullError(ToolformerError):
    """A disk is full; the message says which."""


@contextmanager
def naming_full_disk(data: str, *servers: type[ToolformerError]) -> Iterator[None]:
    """Inside this block an error whose cause is a full disk becomes a `DiskFullError`.

    Args:
        data: the data folder or URL.
        servers: errors of ours that only say that a server did not come up, besides `ServerError`.
    """
    try:
        yield
    except (UsageError, LockHeldError, typer.Exit, BrokenPipeError):
        raise
    except Exception as exc:
        message = _message(exc, data, (ServerError, *servers))
        if message is None:
            raise
        raise DiskFullError(message) from exc


def _message(exc: BaseException, data: str, servers: tuple[type[ToolformerError], ...]) -> str | None:
    causes = list(_causes(exc))
    full = [cause for cause in causes if is_full(cause) or getattr(cause, "reason", "") == "disk_full"]
    named = [Path(cause.filename) for cause in full if isinstance(cause, OSError) and isinstance(cause.filename, str)]
    places = [*named, Store(data).beside, own_server_home(), Path(tempfile.gettempdir()), cache_folder()]
    folder, free, inodes = min(
        (_room(place) for place in places if place is not None), key=lambda room: room[2] > 0 and room[1] >= _LITTLE
    )
    ours = isinstance(exc, ToolformerError | WarehouseError) and not isinstance(exc, servers)
    if not full and (ours or (free >= _LITTLE and inodes > 0)):
        return None
    left = f"{free:,} bytes free" if inodes else "no inodes free"
    return (
        f"the disk of {folder} is full ({left}): free some space there and run the same command again, it goes on "
        "where it stopped"
    )


def _causes(exc: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        yield exc
        seen.add(id(exc))
        exc = exc.__cause__ or exc.__context__


def _room(place: Path) -> tuple[Path, int, int]:
    """Return the place or what of its parents is there, with the bytes and inodes that a user may still take there."""
    place = place.absolute()
    while not place.is_dir():
        place = place.parent
    found = os.statvfs(place)
    return place, found.f_bavail * found.f_frsize, found.f_favail if found.f_files else 1
