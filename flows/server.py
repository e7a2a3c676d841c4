"""The short-lived Prefect server that a flow starts where PREFECT_API_URL names none: seeing that none is left behind.

Prefect ends its server with the process that started it, unless that process is killed. Then the server lives on with
nobody to serve. So a run writes down which server it has and who it is itself, and the next run in the same folder ends
that server if that run is gone. A process is known by its id and its time of creation, as ids are used again. It never
touches a process that was not written down.

A server's first start makes its database, in many steps. Two at once in one folder would trip over each other, so they
take turns; and one that was killed before it was done leaves a database that no server starts on, so that is set aside.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import psutil

from tasks.settings import own_server_home, seconds
from warehouse.errors import LockHeldError
from warehouse.lock import FileLock

__all__ = ["end_children", "end_orphan", "make_way", "note_server"]

_NOTE = "server.json"
_TURN = "starting.lock"
_READY = "ready"  # there once a server has started on the folder's database
_DATABASE = ("prefect.db", "prefect.db-wal", "prefect.db-shm")
_starting: list[FileLock] = []  # held by this process from `make_way` to `note_server`
_SAME_S = 1.0  # seconds by which one process's time of creation may seem to vary


def _servers() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "uvicorn" in " ".join(child.cmdline()):
                found.append(child)
    return found


def _process(pid: int, created: float) -> psutil.Process | None:
    """Return the process that was created then; None if it is gone, though its id be used again."""
    try:
        process = psutil.Process(pid)
        return process if abs(process.create_time() - created) < _SAME_S else None
    except psutil.NoSuchProcess:
        return None


def _noted(note: Path) -> list[dict[str, Any]]:
    """Return what was written down: servers and their parents, each as id and time of creation."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        told = json.loads(note.read_text(encoding="utf-8"))
        return [t for t in told if isinstance(t, dict) and t.keys() == {"pid", "created", "parent", "parent_created"}]
    return []


def make_way() -> None:
    """Get ready for a server of this process's own: its turn to start, no orphan, and a database that is whole.

    Raises:
        LockHeldError: another process is starting one, and still was after $TOOLFORMER_WAIT_S.
    """
    home = own_server_home()
    if home is None:
        return

    def waiting(held: LockHeldError) -> None:
        print(f"waiting at most {seconds('wait'):.0f} s: {held}", file=sys.stderr, flush=True)  # noqa: T201 - no log yet

    if not _starting:
        _starting.append(FileLock(home / _TURN, wait_s=seconds("wait"), waiting=waiting))
    end_orphan()
    if not (home / _READY).exists():
        for name in _DATABASE:
            with contextlib.suppress(FileNotFoundError):
                (home / name).replace(home / f"{name}.half-made")


def note_server() -> None:
    """Write down the server this process has started, beside those of others; the next one may start."""
    home = own_server_home()
    servers = _servers()
    if home is not None and servers:
        me, note = psutil.Process(), home / _NOTE
        own = [
            {"pid": s.pid, "created": s.create_time(), "parent": me.pid, "parent_created": me.create_time()}
            for s in servers
        ]
        others = [told for told in _noted(note) if told["parent"] != me.pid]
        note.write_text(json.dumps(others + own), encoding="utf-8")
        (home / _READY).touch()
    while _starting:
        _starting.pop().close()


def end_orphan() -> None:
    """End the servers of earlier runs that are gone; those of runs that go on stay, and stay written down."""
    home = own_server_home()
    if home is None:
        return
    note = home / _NOTE
    kept = []
    for told in _noted(note):
        if _process(told["parent"], told["parent_created"]) is not None:
            kept.append(told)
        elif (server := _process(told["pid"], told["created"])) is not None:
            with contextlib.suppress(psutil.Error):
                server.terminate()
                server.wait(10)
    if kept:
        note.write_text(json.dumps(kept), encoding="utf-8")
    else:
        note.unlink(missing_ok=True)


def end_children() -> None:
    """End the server this process has started: it is about to leave without saying goodbye."""
    for server in _servers():
        with contextlib.suppress(psutil.Error):
            server.terminate()
