"""The short-lived Prefect server that a flow starts where PREFECT_API_URL names none: seeing that none is left behind.

Prefect ends its server with the process that started it, unless that process is killed. Then the server lives on with
nobody to serve. So a run writes down which server it has and who it is itself, and the next run in the same folder ends
that server if that run is gone. A process is known by its id and its time of creation, as ids are used again. It never
touches a process that was not written down.

Every server stands behind the door of `prefect_app`, also one that Prefect starts by itself (`guard_prefects_start`).

A server's first start makes its database, in many steps. Two at once in one folder would trip over each other, so they
take turns; and one that was killed before it was done leaves a database that no server starts on, so that is set aside.

Prefect starts its server when a flow first asks for one, and waits. A command that knows it will run a flow begins the
server itself (`begin_server`), imports what the flow needs meanwhile, and waits then (`await_server`). The first
database of a Prefect version is kept, empty, in the user's cache folder: the next data folder begins with a copy.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from flows.prefect_app import APP
from tasks.settings import cache_folder, environment, own_server_home, seconds, use_own_server
from toolformer_core.errors import ToolformerError
from warehouse.errors import LockHeldError, is_full
from warehouse.files import temporary_beside
from warehouse.folders import make_private, private_mode
from warehouse.lock import FileLock

__all__ = [
    "ServerError",
    "await_server",
    "begin_database",
    "begin_server",
    "end_children",
    "end_orphan",
    "guard_prefects_start",
    "make_way",
    "note_server",
]

_NOTE = "server.json"
_TURN = "starting.lock"
_READY = "ready"  # there once a server has started on the folder's database
_DATABASE = ("prefect.db", "prefect.db-wal", "prefect.db-shm")
_starting: list[FileLock] = []  # held by this process from `make_way` to `note_server`
_SAME_S = 1.0  # seconds by which one process's time of creation may seem to vary
_POLL_S = 0.05
_START_S = 180.0  # on a busy machine
_STOP_S = 5.0
_own: list[tuple[subprocess.Popen[bytes], str, Path]] = []  # the server begun by this process, its address, its log
# What tells Prefect's server that it serves one process, as Prefect's own start of such a server does; and that nobody
# here stores blocks: writing all their types into a new folder's database took 2 of the 6.8 s of a start.
_SERVER = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "0",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "0",
}


# What a flow imports at its beginning, once the server answers: until then the half second that it takes is free.
_LATER = (
    "pandas",  # pyarrow, at its first array
    "pyarrow.pandas_compat",
    "prefect.flow_engine",
    "prefect.task_engine",
    "fastapi.encoders",  # Prefect, to write a flow's parameters down
    "anyio._backends._asyncio",
    "duckdb_engine",  # SQLAlchemy, for the catalog
)


class ServerError(ToolformerError):
    """The server of a flow's own did not come up; the message names its log."""


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


def begin_server() -> None:
    """Start this process's own server and go on; `await_server` waits for it.

    Nothing is started where a server is named, where this process has one already, or where Prefect is imported: it
    has read its settings then, and starts one itself.

    Raises:
        LockHeldError: see `make_way`.
    """
    home = own_server_home()
    if home is None or (_own and _own[0][0].poll() is None):
        return
    make_way()
    if "prefect" in sys.modules or find_spec("prefect") is None:
        return
    begin_database()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, log = f"http://127.0.0.1:{port}/api", home / "server.log"
    make_private(log)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            _command(port),
            env={**environment(), **_SERVER},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            umask=0o777 & ~private_mode(home),  # of its database
        )
    _own[:] = [(process, address, log)]
    use_own_server(address)
    atexit.register(_stop, process)


def _command(port: int) -> list[str]:
    """Return what starts a guarded server; our own folder comes first, so that no file of the user's is taken for it.

    Its command line holds `uvicorn`, by which `_servers` knows it.
    """
    words = [sys.executable, "-m", "uvicorn", "--app-dir", str(Path(__file__).parents[1]), "--factory", APP]
    return [*words, "--host", "127.0.0.1", "--port", str(port), "--log-level", "error", "--lifespan", "on"]


def guard_prefects_start() -> None:
    """Have the server that Prefect starts by itself stand behind the door; nothing is done where one is named.

    Prefect starts one where a flow is called in a process in which no server was begun.
    """
    from prefect.settings import PREFECT_API_URL, get_current_settings

    if PREFECT_API_URL.value():
        return
    from prefect.server.api.server import SubprocessASGIServer

    def start(own: SubprocessASGIServer) -> subprocess.Popen[bytes]:
        settings = get_current_settings()
        variables = settings.to_environment_variables(exclude_unset=True)
        make_private(*(settings.home / name for name in _DATABASE), create=False)
        return subprocess.Popen(
            _command(int(own.port or 0)),
            env={**environment(), **_SERVER, **variables},
            umask=0o777 & ~private_mode(settings.home),  # of its database
        )

    setattr(SubprocessASGIServer, "_run_uvicorn_command", start)  # noqa: B010 - types hold methods to be constant


def begin_database() -> None:
    """Begin the folder's database, if there is none, with a copy of one that was made before: making it takes long."""
    home = own_server_home()
    if home is not None and not (home / _DATABASE[0]).exists():
        temporary = temporary_beside(home / _DATABASE[0])
        try:
            shutil.copyfile(_template(), temporary)
            make_private(temporary)
            os.replace(temporary, home / _DATABASE[0])
        except OSError:  # there is none yet, or there is no room for a copy, of which half is of no use
            temporary.unlink(missing_ok=True)


def await_server() -> None:
    """Wait until the server that `begin_server` started answers, if it started one.

    Raises:
        ServerError: it ended, or does not answer in time.
    """
    if not _own:
        return
    process, address, log = _own[0]
    for name in _LATER:
        with contextlib.suppress(ImportError):
            import_module(name)
    deadline = time.monotonic() + _START_S
    while not _answers(address):
        if process.poll() is not None or time.monotonic() > deadline:
            full = _found_no_room(log)
            if not full:
                _template().unlink(missing_ok=True)  # it may have begun with a copy that no server starts on
            _own.clear()
            use_own_server(None)
            while _starting:
                _starting.pop().close()
            why = f": {full}" if full else ""
            raise ServerError(f"Prefect's server did not come up{why}, see {log}; run the same command again")
        time.sleep(_POLL_S)
    _keep_template(log.parent / _DATABASE[0])
    note_server()


def _found_no_room(log: Path) -> str:
    """Return the last line of a log that tells of a full disk; "" if none does."""
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if is_full(OSError(line))), "")
    return ""


def _answers(address: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy, whatever the environment names
    with contextlib.suppress(OSError), direct.open(f"{address}/health", timeout=_STOP_S) as answer:
        return bool(answer.status == 200)
    return False


def _template() -> Path:
    """Where the empty database of this version of Prefect is kept."""
    return cache_folder() / f"prefect-{version('prefect')}.db"


def _keep_template(database: Path) -> None:
    """Keep the database of a server that has not served yet for other data folders, unless there is one."""
    kept = _template()
    if kept.exists() or (database.parent / _READY).exists():
        return
    with contextlib.suppress(OSError, sqlite3.Error):
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_beside(kept)
        with (
            contextlib.closing(sqlite3.connect(database)) as source,
            contextlib.closing(sqlite3.connect(temporary)) as to,
        ):
            source.backup(to)
        os.replace(temporary, kept)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def note_server(servers: Sequence[psutil.Process] | None = None) -> None:
    """Write down the server this process has started, beside those of others; the next one may start.

    Args:
        servers: what was started; None: Prefect started it for a flow.
    """
    home = own_server_home()
    servers = _servers() if servers is None else servers
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
