"""Where a flow's own server keeps its records; memory pools; requests on loopback."""

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import httpx
import pytest
import requests
from websockets.sync.client import connect

from tasks import environment as module
from tasks.environment import environment, own_server_home, prepare_environment, spin_count
from tasks.provenance import host

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
SHARED = "postgresql+psycopg://db.example/toolformer"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TOOLFORMER_CATALOG", "PREFECT_HOME", "PREFECT_API_URL", "NO_PROXY", "no_proxy", *PROXIES):
        monkeypatch.setenv(name, "x")  # so that it is restored, whatever a test does
        monkeypatch.delenv(name)
    monkeypatch.setattr(module, "_held", [])
    monkeypatch.chdir(tmp_path)


def test_a_flow_alone_keeps_its_servers_records_with_the_data(tmp_path: Path) -> None:
    prepare_environment(str(tmp_path / "data"))
    assert own_server_home() == tmp_path / "data" / "prefect"
    assert not {"NO_PROXY", "no_proxy"} & os.environ.keys()  # without a proxy


@pytest.mark.parametrize(("data", "below"), [("data", "data/prefect"), ("s3://bucket/c4", "toolformer-remote/prefect")])
def test_flows_that_may_run_at_once_have_a_server_each(
    data: str, below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLFORMER_CATALOG", SHARED)
    homes = []
    for _ in range(2):
        monkeypatch.delenv("PREFECT_HOME", raising=False)  # another process
        prepare_environment(data)
        homes.append(own_server_home())
    assert homes == [tmp_path / below / f"{host()}-{n}" for n in (1, 2)]
    for lock in module._held:  # both have ended: the first one's folder is used again
        lock.close()
    monkeypatch.delenv("PREFECT_HOME")
    prepare_environment(data)
    assert own_server_home() == homes[0]


def test_arrow_gives_memory_back_and_a_user_may_choose() -> None:
    asked = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    for given, used in (({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")):
        assert told(asked, **given) == f"{used}\n"


def told(program: str, *words: object, **variables: str) -> str:
    """Return what a program prints in a process whose environment is prepared."""
    whole = f"from tasks.environment import prepare_environment; prepare_environment()\n{program}"
    own = {k: v for k, v in environment().items() if k not in ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX")}
    command = [sys.executable, "-c", whole, *map(str, words)]
    done = subprocess.run(command, env={**own, **variables}, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_many_threads_share_two_pools_of_memory_unless_a_user_chooses(tmp_path: Path) -> None:
    """Twelve threads hold memory at the same time; by itself glibc gives each a pool, up to eight a core."""
    asked = """
import ctypes, sys, threading
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
together = threading.Barrier(13)
def hold():
    held = [bytes(5_000) for _ in range(100)]
    together.wait()
    together.wait()
for _ in range(12):
    threading.Thread(target=hold).start()
together.wait()
file = ctypes.c_void_p(library.fopen(sys.argv[1].encode(), b"w"))
library.malloc_info(0, file)
library.fclose(file)
together.wait()
"""
    for given, pools in (({}, {1, 2}), ({"MALLOC_ARENA_MAX": "5"}, {3, 4, 5})):
        told(asked, tmp_path / "info", **given)
        assert (tmp_path / "info").read_text().count("<heap nr=") in pools


def test_nothing_on_loopback_is_asked_by_way_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Urllib, httpx (Prefect), requests (MLflow) and websockets (Prefect) ask a port on which nobody listens."""
    monkeypatch.setattr(urllib.request, "_opener", None)  # urllib keeps the proxies of its first request for good
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        proxy.setblocking(False)
        for name in PROXIES:
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        prepare_environment()
        for host in ("127.0.0.1", "localhost"):
            at = f"{host}:{free.getsockname()[1]}"
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"http://{at}", timeout=5)
            with pytest.raises(requests.ConnectionError):
                requests.get(f"http://{at}", timeout=5)
            with pytest.raises(urllib.error.URLError, match="refused"):
                urllib.request.urlopen(f"http://{at}", timeout=5)
            with pytest.raises(ConnectionRefusedError):
                connect(f"ws://{at}", open_timeout=5)
        with pytest.raises(BlockingIOError):  # nobody has asked the proxy
            proxy.accept()


LOOPBACK = "localhost,127.0.0.1,::1"


@pytest.mark.parametrize(
    ("named", "expected"),
    [("", LOOPBACK), ("in.example, 127.0.0.1", "in.example,127.0.0.1,localhost,::1"), ("*", None)],
)
def test_what_a_user_asks_directly_stays_so(named: str, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", named)
    for _ in range(2):  # twice changes nothing
        prepare_environment()
        assert environment()["NO_PROXY"] == (named if expected is None else expected)
        assert environment().get("no_proxy") == expected


@pytest.mark.parametrize(("load", "spins"), [(0.0, 20_000), (0.5, 20_000), (0.6, 2_000), (15.0, 2_000)])
def test_threads_spin_less_beside_other_work(load: float, spins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert spin_count() == spins
