"""Groups of programs: small ones, that do nothing but stand there, listen, or start others."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ops.ports import LOOPBACK, free_port, port_holder
from ops.processes import GROUP_VARIABLE, ProcessGroup, Service, ServiceError, end_marked
from tests.support.waiting import soon
from toolformer_core.errors import UsageError

IDLE = "import time; time.sleep(600)"
# A child in a session of its own, as a worker's flow run or a training is; neither of the two cares for SIGTERM.
DEAF = (
    "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print(0, flush=True); time.sleep(600)'], start_new_session=True); time.sleep(600)"
)


@pytest.fixture
def group() -> Iterator[ProcessGroup]:
    own = ProcessGroup()
    yield own
    end_marked(own.mark, grace_s=0.0)
    own.close()


def service(folder: Path, code: str, name: str = "idler", healthy: Callable[[], bool] = lambda: True) -> Service:
    return Service(name, (sys.executable, "-c", code), folder / f"{name}.log", {}, healthy)


def test_all_that_a_group_began_ends_with_it_and_nothing_else(group: ProcessGroup, tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", IDLE], env=os.environ | {GROUP_VARIABLE: "another's"})
    deaf = service(tmp_path, DEAF)
    group.start(deaf)
    soon(lambda: deaf.log.read_text() == "0\n")
    assert len(group.processes()) == 2
    assert len({os.getsid(one.pid) for one in group.processes()}) == 2  # none in the other's session, or in ours
    end_marked(group.mark, grace_s=0.2)
    assert group.processes() == []
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_what_a_server_writes_its_owner_alone_may_read(group: ProcessGroup, tmp_path: Path) -> None:
    code = "open('database', 'w'); print(0, flush=True); import time; time.sleep(600)"
    server = Service("server", (sys.executable, "-c", code), tmp_path / "server.log", {}, lambda: True, umask=0o177)
    group.start(server)
    soon(lambda: server.log.read_text() == "0\n")
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in ("server.log", "database")] == ["0o600"] * 2


def test_what_its_holder_leaves_behind_when_killed_the_guard_ends(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from ops.processes import ProcessGroup, Service;"
            "group = ProcessGroup(); log = Path(sys.argv[1]);"
            "group.start(Service('idler', (sys.executable, '-c', sys.argv[2]), log, {}, lambda: True));"
            "print(group.mark, flush=True); time.sleep(600)",
            str(tmp_path / "log"),
            IDLE,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    left = ProcessGroup(mark=holder.stdout.readline().strip())
    assert len(left.processes()) == 1
    [guard] = [p for p in psutil.Process(holder.pid).children() if "ops.processes" in p.cmdline()]
    holder.kill()
    holder.wait()
    holder.stdout.close()
    soon(lambda: not left.processes())
    soon(lambda: not guard.is_running() or guard.status() == psutil.STATUS_ZOMBIE)


def test_what_does_not_come_up_is_told_with_its_last_words_and_its_log(group: ProcessGroup, tmp_path: Path) -> None:
    broken = service(tmp_path, "raise SystemExit('no such database')", healthy=lambda: False)
    group.start(broken)
    with pytest.raises(ServiceError, match=r"the idler did not start \(exit 1\): no such database \(see .*idler.log"):
        group.wait_until_healthy([broken], 30)
    slow = service(tmp_path, IDLE, "sleeper", healthy=lambda: False)
    group.start(slow)
    with pytest.raises(ServiceError, match=r"the sleeper was not ready after 0 s: see .*sleeper.log"):
        group.wait_until_healthy([slow], 0.0)


def kill_only_process(group: ProcessGroup) -> None:
    [process] = group.processes()
    process.kill()
    soon(lambda: process.status() == psutil.STATUS_ZOMBIE)  # which it is until the group looks at it


@pytest.fixture
def now(group: ProcessGroup) -> list[float]:
    """The time by the group's clock."""
    now = [0.0]
    group.clock = lambda: now[0]
    return now


def test_what_ends_is_started_again_not_for_ever(group: ProcessGroup, now: list[float], tmp_path: Path) -> None:
    told: list[str] = []
    one = service(tmp_path, IDLE)

    def ends() -> None:
        kill_only_process(group)
        group.supervise([one], told.append)

    group.start(one)
    # At once, then after 2**0, 2**1, ... seconds, 60 at most: 2**6 is more
    for wait in (0, 1, 2, 4, 8, 16, 32, 60, 60, 60):
        ends()
        if wait:
            now[0] += wait - 0.5
            group.supervise([one], told.append)
            assert group.processes() == []
            now[0] += 0.5
            group.supervise([one], told.append)
        assert len(group.processes()) == 1
    assert len(told) == 10
    assert told[0].startswith("the idler ended (exit -9) and is restarted; see ")
    assert told[2].startswith("the idler ended (exit -9) and is restarted in 2 s; see ")
    with pytest.raises(ServiceError, match="the idler ended 11 times within an hour"):
        ends()


def test_what_ended_more_than_an_hour_ago_does_not_count(group: ProcessGroup, now: list[float], tmp_path: Path) -> None:
    told: list[str] = []
    one = service(tmp_path, IDLE)
    group.start(one)
    for _ in range(12):  # more than an hour would allow
        kill_only_process(group)
        group.supervise([one], told.append)
        now[0] += 3600
    assert [line for line in told if " in " in line] == []


# It starts a child that holds a port, and waits for it, as MLflow's server does; work has a variable of its own.
LISTENS = (
    "import os, subprocess, sys, time;"
    'child = \'import socket, sys; s = socket.create_server(("127.0.0.1", int(sys.argv[1])));'
    'print("listens", flush=True); s.accept()\';'
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], env=os.environ | {'ITS_WORK': '1'});"
    "subprocess.Popen([sys.executable, '-c', child, '{port}']).wait()"
)


def test_what_a_dead_service_leaves_behind_is_ended_first(group: ProcessGroup, tmp_path: Path) -> None:
    told: list[str] = []
    code = LISTENS.replace("{port}", str(free_port()))
    one = replace(service(tmp_path, code, "listener"), work="ITS_WORK")
    bystander = service(tmp_path, IDLE, "bystander")
    group.start(bystander)
    first = group.start(one)

    def work() -> list[psutil.Process]:
        return [process for process in group.processes() if "ITS_WORK" in process.environ()]

    soon(lambda: "listens" in one.log.read_text() and work())
    kept = {process.pid for process in group.processes()} - {p.pid for p in psutil.Process(first.pid).children()}
    kept = kept - {first.pid} | {process.pid for process in work()}
    first.kill()
    first.wait()
    group.supervise([bystander, one], told.append)
    soon(lambda: one.log.read_text().split() == ["listens", "listens"])  # an error would stand there
    assert len(told) == 1
    assert kept <= {process.pid for process in group.processes()}  # the other service, and the work that was begun


def test_a_service_is_asked_and_waited_for(group: ProcessGroup, tmp_path: Path) -> None:
    polite = service(
        tmp_path,
        "import signal, sys, time; signal.signal(signal.SIGINT, lambda *a: sys.exit(7));"
        "print('ready', flush=True); time.sleep(600)",
        healthy=lambda: "ready" in (tmp_path / "idler.log").read_text(),
    )
    process = group.start(polite)
    group.wait_until_healthy([polite], 30)
    group.wait_until_ended([polite], 0.0)  # nobody has asked it to
    group.send_signal([polite], signal.SIGINT)
    group.wait_until_ended([polite], 30)
    assert process.returncode == 7


def test_who_holds_a_port_is_named() -> None:
    port = free_port()
    assert port_holder(port) == ""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, port))
        listener.listen()
        assert port_holder(port).startswith(f"process {os.getpid()} (")
    assert port_holder(port) == ""


def test_a_port_just_left_is_free() -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        client = socket.create_connection((LOOPBACK, port))
        server, _ = listener.accept()
        server.close()  # it waits in TIME_WAIT on this port from now on
        client.close()
    assert port_holder(port) == ""


def test_a_reserved_port_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: object) -> None:  # the tests may run as root, who may take every port
        raise PermissionError

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(UsageError, match="port 80 is reserved for the system: choose one above 1023"):
        port_holder(80)
