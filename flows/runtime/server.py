"""The short-lived Prefect server of a flow, where PREFECT_API_URL names none: it starts early, and none is left behind.

A run records its server and itself, each by process id and creation time, and the next run in the same folder ends an
orphan. First starts in one folder take turns, as each creates the database in many steps: what a killed one leaves is
set aside. The first database of each Prefect version is kept, empty, in the user's cache folder, and copied from there.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from flows.runtime.prefect_app import APP
from tasks.environment import environment, own_server_home, use_own_server
from tasks.settings import cache_folder, seconds
from toolformer_core.errors import ToolformerError
from toolformer_core.http_client import direct_client
from warehouse.errors import LockHeldError, is_disk_full
from warehouse.files.base import put_local, replace_file, temporary_beside
from warehouse.files.folders import make_private, private_mode
from warehouse.files.lock import FileLock

_NOTE = "server.json"
_START_LOCK = "starting.lock"
_READY = "ready"  # a file that exists once a server has started on the folder's database
_DATABASE = ("prefect.db", "prefect.db-wal", "prefect.db-shm")
_start_locks: list[FileLock] = []  # held by this process from `prepare_start` to `record_server`; at most one
_SAME_S = 1.0  # two creation times that differ by less are of the same process
_POLL_S = 0.05
_START_S = 180.0  # on a busy machine
_STOP_S = 5.0
_START_METHOD = "_run_uvicorn_command"  # private, of Prefect 3.8.8
_started: list[tuple[subprocess.Popen[bytes], str, Path]] = []  # the server of this process, its address and its log
# The first three tell Prefect's server that it serves one process, as Prefect does when it starts such a server. The
# others say that nobody stores blocks: writing all block types into a new database took 2 of the 6.8 s of a start.
_SERVER_VARIABLES = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "0",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "0",
}
# Modules that a flow imports at its beginning, or at its end. While the server starts, that time is free.
_FLOW_IMPORTS = (
    "pandas",  # pyarrow needs it for its first array
    "pyarrow.pandas_compat",
    "prefect.flow_engine",
    "prefect.task_engine",
    "fastapi.encoders",  # Prefect needs it to record a flow's parameters
    "anyio._backends._asyncio",
    "duckdb_engine",  # SQLAlchemy needs it for the catalog
    "tasks.tracking",  # MLflow takes seconds
)


class ServerError(ToolformerError):
    """The flow's Prefect server did not start; the message names its log."""


def _child_servers() -> list[psutil.Process]:
    servers = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "uvicorn" in " ".join(child.cmdline()):
                servers.append(child)
    return servers


def _process(pid: int, created: float) -> psutil.Process | None:
    """Return the process with this id and creation time; None if it is gone, even if its id is used again."""
    try:
        process = psutil.Process(pid)
        return process if abs(process.create_time() - created) < _SAME_S else None
    except psutil.NoSuchProcess:
        return None


def _read_note(note: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError, ValueError, TypeError):
        entries = json.loads(note.read_text(encoding="utf-8"))
        keys = {"pid", "created", "parent", "parent_created"}
        return [entry for entry in entries if isinstance(entry, dict) and entry.keys() == keys]
    return []


def prepare_start() -> None:
    """Wait for the turn to start a server (LockHeldError: in vain), end orphans, set a half-made database aside."""
    home = own_server_home()
    if home is None:
        return

    def warn(error: LockHeldError) -> None:
        print(f"waiting at most {seconds('wait'):.0f} s: {error}", file=sys.stderr, flush=True)  # noqa: T201 - no log yet

    if not _start_locks:
        _start_locks.append(FileLock(home / _START_LOCK, wait_s=seconds("wait"), on_wait=warn))
    end_orphaned_servers()
    if not (home / _READY).exists():
        for name in _DATABASE:
            with contextlib.suppress(FileNotFoundError):
                (home / name).replace(home / f"{name}.half-made")


def start_server() -> None:
    """Start a server for this process and return at once; `wait_for_server` waits for it. See `prepare_start`.

    If Prefect is imported already, it has read its settings, and starts a server itself.
    """
    home = own_server_home()
    if home is None or (_started and _started[0][0].poll() is None):
        return
    prepare_start()
    if "prefect" in sys.modules or find_spec("prefect") is None:
        return
    copy_template_database()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, log = f"http://127.0.0.1:{port}/api", home / "server.log"
    make_private(log)
    with log.open("wb") as stream:
        process = _start(port, home, {}, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT)
    _started[:] = [(process, address, log)]
    use_own_server(address)
    atexit.register(_stop, process)


def _start(port: int, home: Path, variables: Mapping[str, str], **streams: Any) -> subprocess.Popen[bytes]:
    """Start a server with our middleware; `_child_servers` recognises it by `uvicorn`."""
    words = [sys.executable, "-m", "uvicorn", "--app-dir", str(Path(__file__).parents[2]), "--factory", APP]
    words += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error", "--lifespan", "on"]
    own = {**environment(), **_SERVER_VARIABLES, **variables}
    return subprocess.Popen(words, env=own, umask=0o777 & ~private_mode(home), **streams)  # its database is private


def guard_prefect_server() -> None:
    """Give the server that Prefect starts by itself, where none is named, our middleware; it has no setting for how.

    An AttributeError: this version of Prefect starts its servers in another way, which would answer foreign pages.
    """
    from prefect.settings import PREFECT_API_URL, get_current_settings

    if PREFECT_API_URL.value():
        return
    from prefect.server.api.server import SubprocessASGIServer

    getattr(SubprocessASGIServer, _START_METHOD)

    def start(server: Any) -> subprocess.Popen[bytes]:
        settings = get_current_settings()
        variables = settings.to_environment_variables(exclude_unset=True)
        make_private(*(settings.home / name for name in _DATABASE), create=False)
        return _start(server.port or 0, settings.home, variables)

    setattr(SubprocessASGIServer, _START_METHOD, start)


def copy_template_database() -> None:
    """Copy the kept empty database into the folder, unless it has a database: creating one takes long."""
    home = own_server_home()
    if home is not None and not (database := home / _DATABASE[0]).exists():
        temporary = temporary_beside(database)
        try:
            shutil.copyfile(_template(), temporary)
            make_private(temporary)
            replace_file(temporary, database)
        except OSError:  # there is no template yet, or no room for a whole copy
            temporary.unlink(missing_ok=True)


def wait_for_server() -> None:
    """Wait until the server that `start_server` has started, if any, answers; raise a ServerError if it does not."""
    if not _started:
        return
    process, address, log = _started[0]
    for name in _FLOW_IMPORTS:
        with contextlib.suppress(ImportError):
            import_module(name)
    deadline = time.monotonic() + _START_S
    while not _answers(address):
        if process.poll() is not None or time.monotonic() > deadline:
            full = _disk_full_line(log)
            if not full:
                _template().unlink(missing_ok=True)  # perhaps it is a database on which no server starts
            _started.clear()
            use_own_server(None)
            _let_next_start()
            why = f": {full}" if full else ""
            raise ServerError(f"Prefect's server did not start{why}, see {log}; run the same command again")
        time.sleep(_POLL_S)
    _keep_template(log.parent / _DATABASE[0])
    record_server()


def _disk_full_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if is_disk_full(OSError(line))), "")
    return ""


def _answers(address: str) -> bool:
    import httpx2

    with contextlib.suppress(httpx2.HTTPError):
        return direct_client().get(f"{address}/health", timeout=_STOP_S).status_code == 200
    return False


def _template() -> Path:
    return cache_folder() / f"prefect-{version('prefect')}.db"


def _keep_template(database: Path) -> None:
    template = _template()
    if template.exists() or (database.parent / _READY).exists():
        return
    with contextlib.suppress(OSError, sqlite3.Error):
        template.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_beside(template)
        with (
            contextlib.closing(sqlite3.connect(database)) as source,
            contextlib.closing(sqlite3.connect(temporary)) as target,
        ):
            source.backup(target)
        replace_file(temporary, template)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    process.kill()  # if it has not ended
    process.wait()


def record_server(servers: Sequence[psutil.Process] | None = None) -> None:
    """Record the server that this process has started (None: find it), beside others', and let the next one start."""
    home = own_server_home()
    servers = _child_servers() if servers is None else servers
    if home is not None and servers:
        me, note = psutil.Process(), home / _NOTE
        mine = {"parent": me.pid, "parent_created": me.create_time()}
        ours = [{"pid": one.pid, "created": one.create_time(), **mine} for one in servers]
        others = [entry for entry in _read_note(note) if entry["parent"] != me.pid]
        put_local(note, json.dumps(others + ours).encode())
        (home / _READY).touch()
    _let_next_start()


def _let_next_start() -> None:
    while _start_locks:
        _start_locks.pop().close()


def end_orphaned_servers() -> None:
    """End the servers of runs that are gone; those of living runs stay, and stay recorded."""
    home = own_server_home()
    if home is None:
        return
    note = home / _NOTE
    kept = []
    for entry in _read_note(note):
        if _process(entry["parent"], entry["parent_created"]) is not None:
            kept.append(entry)
        elif (server := _process(entry["pid"], entry["created"])) is not None:
            with contextlib.suppress(psutil.Error):
                server.terminate()
                server.wait(10)
    if kept:
        put_local(note, json.dumps(kept).encode())
    else:
        note.unlink(missing_ok=True)


def end_child_servers() -> None:
    """End the server that this process has started; for a process that is about to exit without cleaning up."""
    for server in _child_servers():
        with contextlib.suppress(psutil.Error):
            server.terminate()
