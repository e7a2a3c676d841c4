"""The nodes are 127.0.0.1 and localhost: a real sshd on loopback, real ssh, keys made for the occasion."""

import json
import os
import re
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ops.ports import free_port
from tasks.launch import processes
from tasks.launch.base import LaunchError, LaunchRequest
from tasks.launch.ssh import NODE_MARK, SshLauncher
from tests.support.waiting import soon
from tests.tasks.launch.launch_cases import job_in, stranger, wait_for_file, wait_until_ended
from toolformer_core.errors import UsageError

NODES = ("127.0.0.1", "localhost")
NOTE = 'it\'s "$HOME" `id` 50 % of %n \\ #1; exit 9'  # what a shell might take to pieces

ALL_REDUCE = """
import os, pathlib, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([10.0 + dist.get_rank()])
dist.all_reduce(total)
seen = [str(total.item()), str(dist.get_world_size()), *(os.environ[name] for name in ("DS_ACCELERATOR", "NOTE"))]
pathlib.Path(sys.argv[1], f"rank-{dist.get_rank()}").write_text(" ".join(seen))
dist.destroy_process_group()
"""

# In place of a python with torchrun, whose import takes seconds: a rank on each node.
QUICK_PYTHON = """\
#!/bin/sh
for word in "$@"; do
    case $word in --node-rank=*) exec sh rank.sh "${word#*=}" ;; esac
done
"""


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    """Serve the loopback addresses and yield the launcher that reaches them."""
    program = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")
    missing = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    if program is None or missing:
        pytest.skip(f"needs openssh-server and openssh-client; not found: {', '.join(missing) or 'sshd'}")
    folder = tmp_path_factory.mktemp("ssh")
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    port = free_port()
    public = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text("".join(f"[{node}]:{port} {public}" for node in NODES))
    files = {"HostKey": folder / "host", "AuthorizedKeysFile": folder / "user.pub", "PidFile": "none"}
    closed = dict.fromkeys(("StrictModes", "UsePAM", "PasswordAuthentication", "KbdInteractiveAuthentication"), "no")
    config = {"Port": port, "ListenAddress": "127.0.0.1", "PermitRootLogin": "prohibit-password", **files, **closed}
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in config.items()))
    chroot = Path("/run/sshd")  # only a root's sshd wants it; a package's service makes it at its start
    made = os.geteuid() == 0 and not chroot.exists()
    if made:
        chroot.mkdir(mode=0o755)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", folder / "config"], stderr=log)
    try:
        soon(lambda: answers(port) or server.poll() is not None, 15)
        assert server.poll() is None, (folder / "log").read_text()
        args = f"-p {port} -F none -i {folder}/user -o UserKnownHostsFile={folder}/known_hosts -o LogLevel=ERROR"
        environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NOTE": NOTE}
        own = {"master_address": "127.0.0.1", "accelerator": "cpu", "environment": environment, "grace_s": 5}
        yield SshLauncher(NODES, ssh_args=args, **own)
    finally:
        server.terminate()
        server.wait(15)
        if made:
            chroot.rmdir()


@pytest.fixture
def launched(sshd):
    """Submit jobs, and end what a failed test leaves of them."""
    handles = []

    def submit(request: LaunchRequest) -> str:
        handles.append(sshd.submit(request))
        return handles[-1]

    yield submit
    for handle in handles:
        sshd.cancel(handle)
        sshd.end(handle, 0)


@pytest.fixture
def quick(tmp_path):
    """Return how to make a request whose ranks are a few lines of shell; `$1` is the node's number."""
    folder = tmp_path / "job"
    folder.mkdir()

    def request(rank: str) -> LaunchRequest:
        (folder / "rank.sh").write_text(rank)
        python = tmp_path / "python"
        python.write_text(QUICK_PYTHON)
        python.chmod(0o755)
        return LaunchRequest("job", folder, python=str(python))

    return request


def ranks(handle: str) -> list[int]:
    """Return the processes on the "nodes" that belong to a job."""
    return [process.pid for process in processes.find(json.loads(handle)["mark"], NODE_MARK)]


@pytest.mark.slow
def test_two_nodes_meet(sshd, launched, tmp_path):
    folder = tmp_path / "job"
    request = job_in(folder, ALL_REDUCE)
    handle = launched(request)
    assert wait_until_ended(sshd, handle, 120) == ("succeeded", "exit code 0"), (folder / "log.txt").read_text()
    for rank in (0, 1):  # 10 + 11
        assert (folder / f"rank-{rank}").read_text() == f"21.0 2 cpu {NOTE}"
    # What was run is what the preview shows, with the job's mark in it.
    preview = re.sub(r"\bJOB\b", json.loads(handle)["mark"], sshd.preview(request))
    for path in (folder / "launch").glob("*.sh"):
        assert path.read_text() in preview, path.name


def test_when_one_node_fails_the_others_are_ended(sshd, launched, quick):
    request = quick('echo "node $1"; [ "$1" = 1 ] && exit 7; exec sleep 300')
    handle = launched(request)
    assert wait_until_ended(sshd, handle) == ("failed", "exit code 7")
    log = (request.folder / "log.txt").read_text()
    assert "node 1\n" in log
    assert "localhost: exit code 7; the job is ended on every node\n" in log
    assert ranks(handle) == []


def test_cancel_ends_the_ranks_on_every_node_and_other_jobs_live_on(sshd, launched, quick, tmp_path):
    request = quick('trap "" TERM; echo $$ >pid.$1; exec sleep 300')  # even those that do not listen
    launcher = replace(sshd, grace_s=1)
    handle = launched(request)
    for node in (0, 1):
        wait_for_file(request.folder / f"pid.{node}")
    with stranger(**{NODE_MARK: "of-another-job"}):
        assert launcher.state(handle)[0] == "running"
        assert len(ranks(handle)) == 2
        handle = launched(request)  # taken over, with what ends it on the nodes
        assert len(ranks(handle)) == 2
        launcher.cancel(handle)
    assert ranks(handle) == []
    assert processes.find(json.loads(handle)["mark"]) == []
    assert launcher.state(handle) == ("failed", "exit code 255")  # ssh's, where a command dies of a signal
    launcher.cancel(handle)


def test_ranks_do_not_outlive_their_ssh(sshd, launched, quick):
    request = quick("echo $$ >pid.$1; exec sleep 300")
    handle = launched(request)
    for node in (0, 1):
        wait_for_file(request.folder / f"pid.{node}")
    ssh = next(one for one in processes.find(json.loads(handle)["mark"]) if one.name() == "ssh")
    ssh.kill()
    assert wait_until_ended(sshd, handle) == ("failed", "exit code 137 (SIGKILL)")
    assert ranks(handle) == []


def test_a_node_that_is_late_starts_nothing_of_a_job_that_ends(sshd, quick, tmp_path):
    request = quick("echo $$ >pid.$1")
    files = sshd._files(request, "mark")
    (request.folder / "launch/ending").mkdir(parents=True)
    (request.folder / "launch/node.sh").write_text(files["node.sh"])
    assert subprocess.run(["sh", request.folder / "launch/node.sh", "0", "1"]).returncode == 1
    assert not (request.folder / "pid.0").exists()


def test_nodes_are_asked_before_anything_is_started(sshd, quick, tmp_path):
    request = quick("exit 0")
    unreachable = replace(sshd, ssh_args=f"-p {free_port()} {sshd.ssh_args}")
    with pytest.raises(LaunchError, match=r"127\.0\.0\.1 cannot be reached by ssh \(.*refused.*; localhost cannot"):
        unreachable.submit(request)
    with pytest.raises(LaunchError, match="has no /nowhere/python: install"):
        sshd.submit(replace(request, python="/nowhere/python"))
    assert sorted(path.name for path in request.folder.iterdir()) == ["rank.sh"]


@pytest.mark.parametrize(
    ("hosts", "folder", "told"),
    [
        ((), "/job", "name the nodes in `hosts`"),
        *((hosts, "/job", "each node once") for hosts in (("a b",), ("a", "a slots=2"), ("a slots=0",))),
        (("a;id",), "/job", "only letters, digits"),
        *((("a",), folder, "only letters, digits") for folder in ("/a b", "/a$b", "/a%n", "/a'b")),
    ],
)
def test_hosts_and_folders_that_make_no_sense(hosts, folder, told):
    with pytest.raises(UsageError, match=told):
        SshLauncher(hosts).preview(LaunchRequest("job", Path(folder)))
