"""A full disk, reported in one line that names the disk, whichever program, library or server found it full.

A server that finds no room says nothing of it: then the free space of the servers' disk tells.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import typer

from flows.runtime.server import ServerError
from tasks.environment import own_server_home
from tasks.settings import cache_folder
from toolformer_core.errors import ToolformerError, UsageError
from warehouse.errors import LockHeldError, is_disk_full
from warehouse.store import Store

_LITTLE = 1 << 20  # bytes; if fewer are free, a server's failure is blamed on the disk


class DiskFullError(ToolformerError):
    """A disk is full; the message names it."""


@contextmanager
def explain_full_disk(data: str, *servers: type[ToolformerError]) -> Iterator[None]:
    """Turn errors caused by a full disk into a `DiskFullError`; `servers`: ours that say that none started."""
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
    full = [cause for cause in causes if is_disk_full(cause) or getattr(cause, "reason", "") == "disk_full"]
    refused = [cause for cause in causes if isinstance(cause, httpx.HTTPStatusError)]  # Prefect's errors are such
    of_server = isinstance(exc, servers) or any(cause.response.status_code >= 500 for cause in refused)
    if not full and not of_server:
        return None
    files = [Path(cause.filename) for cause in full if isinstance(cause, OSError) and isinstance(cause.filename, str)]
    places = [*files, Store(data).local_folder, own_server_home()]
    if full:
        places += [Path(tempfile.gettempdir()), cache_folder()]
    folder, free, inodes = min(
        (_space(place) for place in places if place is not None), key=lambda space: space[2] > 0 and space[1] >= _LITTLE
    )
    if not full and free >= _LITTLE and inodes > 0:
        return None
    left = f"{free:,} bytes free" if inodes else "no inodes free"
    return f"the disk of {folder} is full ({left}): free some space there and run the same command again to continue"


def _causes(exc: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        yield exc
        seen.add(id(exc))
        exc = exc.__cause__ or exc.__context__


def _space(place: Path) -> tuple[Path, int, int]:
    place = place.absolute()
    while not place.is_dir():
        place = place.parent
    stat = os.statvfs(place)
    return place, stat.f_bavail * stat.f_frsize, stat.f_favail if stat.f_files else 1
