"""Prefect's server as this project starts it: which application, behind which door, wherever it is started."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from prefect.server.api import server as prefects
from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_SERVER_CORS_ALLOWED_ORIGINS,
    PREFECT_UI_API_URL,
    temporary_settings,
)

from flows.runtime import prefect_app, server
from flows.runtime.prefect_app import APP, create_app
from toolformer_core.errors import UsageError


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """In place of Prefect's application one that says `in`; whose pages may read Prefect's answers is noted."""
    noted: list[set[str]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"in"})

    def made(final: bool = False) -> Any:
        noted.append(set(PREFECT_SERVER_CORS_ALLOWED_ORIGINS.value().split(",")))
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
        ("TOOLFORMER_ALLOWED_HOSTS", "http://prefect"),
        ("TOOLFORMER_ALLOWED_HOSTS", "prefect:4200"),
        ("TOOLFORMER_ALLOWED_ORIGINS", "prefect.example"),
        ("TOOLFORMER_ALLOWED_ORIGINS", "*"),
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


def test_the_command_serves_the_guarded_application_where_it_is_told(
    readers: list[set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert argv[argv.index("--port") + 1] == "8123"
    assert Path(argv[argv.index("--app-dir") + 1]) == Path(__file__).parents[2]


def test_the_application_has_the_name_that_uvicorn_is_told() -> None:
    from uvicorn.importer import import_from_string

    assert import_from_string(APP) is create_app
