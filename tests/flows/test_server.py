"""The server that a killed run leaves behind is ended by the next run; that of a run which goes on is not."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import httpx
import psutil
import pytest
import uvicorn
from prefect.server.api import server as prefects
from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import PREFECT_API_URL, PREFECT_UI_API_URL, temporary_settings
from prefect.settings import PREFECT_SERVER_CORS_ALLOWED_ORIGINS as CORS_ALLOWED
from uvicorn.importer import import_from_string

from flows.runtime import prefect_app, server
from flows.runtime.prefect_app import APP, create_app
from toolformer_core.errors import UsageError
from warehouse.errors import LockHeldError
from warehouse.files.lock import FileLock

Start = Callable[[], subprocess.Popen[bytes]]
_popen = subprocess.Popen


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that waits until it is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start_() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        return started[-1]

    yield start_
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    return tmp_path / "server.json"


def entry(own: subprocess.Popen[bytes], parent: subprocess.Popen[bytes]) -> dict[str, float]:
    created, parent_created = (psutil.Process(p.pid).create_time() for p in (own, parent))
    return {"pid": own.pid, "created": created, "parent": parent.pid, "parent_created": parent_created}


def runs(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def test_a_server_lives_as_long_as_its_parent(note: Path, start: Start) -> None:
    orphan, gone, serving, parent = start(), start(), start(), start()
    told = [entry(orphan, gone), entry(serving, parent)]
    gone.kill()
    gone.wait()
    note.write_text(json.dumps(told), encoding="utf-8")
    server.end_orphaned_servers()
    assert [runs(p) for p in (orphan, serving, parent)] == [False, True, True]
    assert json.loads(note.read_text(encoding="utf-8")) == told[1:]
    parent.kill()
    parent.wait()
    server.end_orphaned_servers()
    assert not runs(serving)
    assert not note.exists()


def test_an_id_that_is_used_again_is_another_process(note: Path, start: Start) -> None:
    orphan, stranger, bystander = start(), start(), start()
    # the parent's id now belongs to a process of another time; so does the second server's
    told = [
        {**entry(orphan, stranger), "parent_created": 1000.0},
        {**entry(bystander, stranger), "created": 1000.0, "parent_created": 1000.0},
    ]
    note.write_text(json.dumps(told), encoding="utf-8")
    server.end_orphaned_servers()
    assert [runs(p) for p in (orphan, stranger, bystander)] == [False, True, True]
    assert not note.exists()


def test_a_run_writes_down_its_server_and_itself(note: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = start(), start()
    others = entry(other, other)
    note.write_text(json.dumps([others]), encoding="utf-8")
    monkeypatch.setattr(server, "_child_servers", lambda: [psutil.Process(own.pid)])
    server.record_server()
    server.record_server()  # a second flow of the same process
    me = psutil.Process()
    told = json.loads(note.read_text(encoding="utf-8"))
    assert [(t["pid"], t["parent"]) for t in told] == [(other.pid, other.pid), (own.pid, me.pid)]
    assert told[1]["parent_created"] == me.create_time()
    server.end_orphaned_servers()  # this process goes on
    assert runs(own)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"pid": 1, "created": 0.0}]'])
def test_a_note_that_says_nothing_is_thrown_away(note: Path, text: str) -> None:
    note.write_text(text, encoding="utf-8")
    server.end_orphaned_servers()
    assert not note.exists()


def test_one_start_at_a_time(note: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TOOLFORMER_WAIT_S", "0.3")
    with FileLock(note.parent / "starting.lock"), pytest.raises(LockHeldError, match=f"process {os.getpid()}"):
        server.prepare_start()
    assert "waiting at most 0 s" in capsys.readouterr().err
    server.prepare_start()
    server.prepare_start()  # the same process, for its next flow
    with pytest.raises(LockHeldError):
        FileLock(note.parent / "starting.lock")
    server.record_server()
    FileLock(note.parent / "starting.lock").close()


def test_a_database_whose_making_was_cut_short_is_set_aside(note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (note.parent / "prefect.db").write_bytes(b"half")
    server.prepare_start()
    assert not (note.parent / "prefect.db").exists()
    assert (note.parent / "prefect.db.half-made").read_bytes() == b"half"
    (note.parent / "prefect.db").write_bytes(b"whole")
    monkeypatch.setattr("flows.runtime.server._child_servers", lambda: [psutil.Process()])
    server.record_server()  # a server has started on it
    server.prepare_start()
    assert (note.parent / "prefect.db").read_bytes() == b"whole"
    server.record_server()


def test_what_is_imported_early_is_there() -> None:
    assert [name for name in server._FLOW_IMPORTS if find_spec(name) is None] == []


_BEGINS = """
import json, os, sqlite3, sys, httpx
from flows.runtime.server import wait_for_server, start_server
from tasks.environment import own_server_home, prepare_environment
prepare_environment(sys.argv[1])
start_server()
start_server()  # there is one already
home = own_server_home()
copied = (home / "prefect.db").exists() and sqlite3.connect(home / "prefect.db").execute(
    "SELECT count(*) FROM sqlite_master WHERE name = 'flow_run'").fetchone()[0] == 1
early = "prefect" in sys.modules
wait_for_server()
from prefect.client.orchestration import get_client
with get_client(sync_client=True) as client:
    flows = len(client.read_flows())
    used = str(client.api_url)
foreign = [httpx.post(used.rstrip("/") + "/flows/filter", json={}, headers=headers).status_code
           for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"})]
print(json.dumps({"copied": copied, "early": early, "used": used, "named": os.environ["PREFECT_API_URL"],
                  "foreign": foreign, "flows": flows, "noted": json.loads((home / "server.json").read_text())}))
"""


@pytest.mark.slow
def test_a_server_begun_early_is_the_one_that_is_used_and_ends_with_its_process(tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    for number, copied in enumerate([False, True]):  # the second data folder begins with the first one's database
        said = subprocess.run(
            [sys.executable, "-c", _BEGINS, str(tmp_path / f"a%20b [{number}]*")],
            env={**variables, "XDG_CACHE_HOME": str(tmp_path / "cache")},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr
        told = json.loads(said.stdout.splitlines()[-1])
        assert told["copied"] is copied
        assert not told["early"]
        assert told["used"].rstrip("/") == told["named"]
        assert told["flows"] == 0
        assert told["foreign"] == [200, 403, 403, 403]
        (noted,) = told["noted"]
        assert not psutil.pid_exists(noted["pid"])
    assert len(list((tmp_path / "cache" / "toolformer").iterdir())) == 1


def test_a_server_of_ones_own_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens there
        proxy.setblocking(False)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setattr(server, "_STOP_S", 1.0)  # so long it would wait for the proxy's answer
        assert not server._answers(f"http://127.0.0.1:{free.getsockname()[1]}/api")
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_a_server_that_cannot_start_leaves_nothing_in_the_way(note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(note.parent / "cache"))
    kept = server._template()
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"no database")
    monkeypatch.delitem(sys.modules, "prefect")
    monkeypatch.setattr("flows.runtime.server.subprocess.Popen", lambda *_, **more: failing(more["stdout"]))
    server.start_server()
    assert (note.parent / "prefect.db").read_bytes() == b"no database"
    assert os.environ["PREFECT_API_URL"].startswith("http://127.0.0.1:")
    with pytest.raises(server.ServerError, match=r"did not start, see .*server\.log"):
        server.wait_for_server()
    assert "PREFECT_API_URL" not in os.environ
    assert not kept.exists()
    server.prepare_start()  # the database is half made: set aside
    assert not (note.parent / "prefect.db").exists()
    server.record_server()


def failing(log: IO[bytes]) -> subprocess.Popen[bytes]:
    """A server that ends at once."""
    process = _popen([sys.executable, "-c", "raise SystemExit(3)"], stdout=log)
    process.wait()
    return process


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """In place of Prefect's application one that says `in`; whose pages may read Prefect's answers is noted."""
    noted: list[set[str]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"in"})

    def made(final: bool = False) -> Any:
        noted.append(set(CORS_ALLOWED.value().split(",")))
        return application

    monkeypatch.setattr(prefects, "create_app", made)
    for name in ("TOOLFORMER_ALLOWED_HOSTS", "TOOLFORMER_ALLOWED_ORIGINS"):
        monkeypatch.delenv(name, raising=False)
    return noted


def asked(**headers: str) -> int:
    """Ask what `create_app` makes; return the status."""

    async def answer() -> int:
        transport = httpx.ASGITransport(create_app())  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport) as client:
            found = await client.post("http://127.0.0.1:4200/api/flow_runs/filter", headers=headers)
            return found.status_code

    return asyncio.run(answer())


def test_prefect_stands_behind_the_door(readers: list[set[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    with temporary_settings({PREFECT_UI_API_URL: "http://127.0.0.1:4200/api"}):
        assert asked() == 200
        assert asked(origin="http://localhost:4200") == 200
        assert [asked(origin=origin) for origin in ("http://evil.example", "null", "http://127.0.0.1:1")] == [403] * 3
        assert [asked(host=host) for host in ("evil.example", "prefect:4200")] == [403] * 2
        own = {f"http://{name}:4200" for name in ("127.0.0.1", "localhost", "[::1]")}
        assert readers[-1] == own
        monkeypatch.setenv("TOOLFORMER_ALLOWED_HOSTS", "prefect, 10.0.0.5")
        monkeypatch.setenv("TOOLFORMER_ALLOWED_ORIGINS", "https://Prefect.example/")
        assert [asked(host=host) for host in ("prefect:4200", "10.0.0.5", "prefect.example")] == [200] * 3
        assert asked(origin="https://prefect.example") == 200
        assert asked(host="evil.example") == 403
        assert readers[-1] == {*own, "https://prefect.example"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOOLFORMER_ALLOWED_HOSTS", "prefect,*"),
        ("TOOLFORMER_ALLOWED_HOSTS", "prefect:4200"),
        ("TOOLFORMER_ALLOWED_ORIGINS", "prefect.example"),
    ],
)
def test_what_cannot_be_allowed_is_told_in_one_line(
    name: str, value: str, readers: list[set[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"{name}: .* cannot be allowed; write e.g. "):
        create_app()
    with pytest.raises(SystemExit) as left:
        prefect_app.main([])
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_command_serves_the_guarded_application(readers: list[set[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(uvicorn, "run", lambda app, **how: served.append((app, how)))
    prefect_app.main(["--host", "0.0.0.0", "--port", "4300"])
    [(app, how)] = served
    assert isinstance(app, prefect_app.OwnOriginOnly)
    assert (how["host"], how["port"], how["timeout_keep_alive"], how["ws_ping_interval"]) == ("0.0.0.0", 4300, 5, 20.0)


def test_a_server_that_prefect_starts_by_itself_is_guarded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    prefects_own = SubprocessASGIServer._run_uvicorn_command
    monkeypatch.setattr(SubprocessASGIServer, "_run_uvicorn_command", prefects_own)  # is put back after the test
    started: list[list[Any]] = []
    monkeypatch.setattr(server.subprocess, "Popen", lambda argv, umask, **_: started.append([*argv, umask]))
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:4200/api"}):
        server.guard_prefect_server()
        assert SubprocessASGIServer._run_uvicorn_command is prefects_own  # a server is named: there is none to start
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        server.guard_prefect_server()
    own = object.__new__(SubprocessASGIServer)
    own.port = 8123
    own._run_uvicorn_command()
    [[*argv, umask]] = started
    assert umask == 0o177  # its database is its owner's alone
    assert APP in argv
    assert import_from_string(APP) is create_app
    assert argv[argv.index("--port") + 1] == "8123"
    assert Path(argv[argv.index("--app-dir") + 1]) == Path(__file__).parents[2]
