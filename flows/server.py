"""The short-lived Prefect server that a flow starts where PREFECT_API_URL names none: seeing that none is left behind.

Prefect ends its server with the process that started it, unless that process is killed. Then the server lives on with
nobody to serve. So a run writes down which child it has, and the next run in the same folder ends that one process if
its parent is gone. It never touches a process it did not write down.
"""

from __future__ import annotations

import contextlib
import json

import psutil

from tasks.settings import own_server_home

__all__ = ["end_children", "end_orphan", "note_server"]


def _servers() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "uvicorn" in " ".join(child.cmdline()):
                found.append(child)
    return found


def note_server() -> None:
    """Write down the server this process has started."""
    home = own_server_home()
    servers = _servers()
    if home is not None and servers:
        told = [{"pid": s.pid, "created": s.create_time()} for s in servers]
        (home / "server.json").write_text(json.dumps(told), encoding="utf-8")


def end_orphan() -> None:
    """End the server of an earlier run that was killed, if it is still there and has lost its parent."""
    home = own_server_home()
    if home is None:
        return
    note = home / "server.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        for told in json.loads(note.read_text(encoding="utf-8")):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(told["pid"])
                same = abs(process.create_time() - told["created"]) < 1
                if same and process.ppid() in (0, 1):
                    process.terminate()
                    process.wait(10)
    note.unlink(missing_ok=True)


def end_children() -> None:
    """End the server this process has started: it is about to leave without saying goodbye."""
    for server in _servers():
        with contextlib.suppress(psutil.Error):
            server.terminate()
