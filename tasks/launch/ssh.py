"""The launcher for a list of machines: torchrun on each of them, started over ssh.

A script on this machine holds an ssh to every node. If a node fails or no longer answers, or its ssh is ended, it ends
the job on the others. The ranks carry the job's mark in their environment; only processes with that mark are ended.

The module does not know which GPUs a node has: the hostfile says how many.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tasks.launch import processes
from tasks.launch.base import (
    LOG,
    Accelerator,
    JobState,
    LaunchError,
    LaunchRequest,
    LostError,
    check_plain_words,
    derived_port,
    last_line,
    parse_handle,
    rank_variables,
    run_command,
    write_file,
)
from toolformer_core.errors import UsageError

NODE_MARK = "TOOLFORMER_JOB"
_INSTALL = "install an ssh client here (Debian: openssh-client)"
_HOST = re.compile(r"(\S+)\s+slots=(\d+)")

_NODE = """\
#!/bin/sh
# Runs on node $1: starts its $2 ranks, unless the job is being ended.
cd {folder} && [ ! -e launch/ending ] || exit 1
{exports}
exec {torchrun}
"""

_END_NODE = f"""\
#!/bin/sh
# Runs on a node: ends its processes that carry {NODE_MARK}=$1 by SIGTERM, and $2 seconds later by SIGKILL.
mine() {{ grep -lzxF "{NODE_MARK}=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }}
wait_for() {{ n=$2; while [ -n "$(mine "$1")" ]; do [ "$n" -gt 0 ] || return 1; n=$((n - 1)); sleep 1; done; }}
kill -s TERM $(mine "$1") 2>/dev/null
wait_for "$1" "$2" && exit 0
kill -s KILL $(mine "$1") 2>/dev/null
wait_for "$1" 5
"""

_END = """\
#!/bin/sh
# Ends the job on every node; $1: seconds between the two signals. Fails if a node cannot be reached.
mkdir -p {folder}/launch/ending
{nodes}
code=0
for one in $all; do wait "$one" || code=$?; done
exit "$code"
"""

_RUN = """\
#!/bin/sh
# Runs the ranks of all nodes. If one fails, the job is ended on the others, and its exit code is the job's.
cd {folder} || exit 1
rm -rf launch/ending
run() {{
    node=$1; shift
    "$@" && return
    code=$?
    mkdir launch/ending 2>/dev/null || exit "$code"
    echo "$code" >launch/ending/code
    echo "$node: exit code $code; the job is ended on every node" >&2
    sh launch/end.sh {grace}
}}
{nodes}
code=0
for one in $all; do wait "$one" || code=$?; done
exit "$(cat launch/ending/code 2>/dev/null || echo "$code")"
"""


@dataclass(frozen=True, slots=True)
class SshLauncher:
    """Starts the program on several machines that can be reached by ssh without a password.

    The job folder and `LaunchRequest.python` must have the same path on this machine and on all nodes.

    Args:
        hosts: the nodes, e.g. `node1 slots=8`; without `slots` a node runs the request's number of processes.
        hostfile: path of a file with such lines, instead of `hosts`.
        port: port of sshd on the nodes; 0: as in ssh's configuration.
        ssh_args: further options of ssh, e.g. `-i /home/me/.ssh/cluster -o StrictHostKeyChecking=accept-new`.
        master_address: the first node's name or address as the others see it; default: as in the hostfile.
        master_port: port on which rank 0 listens; 0: one derived from the job folder's path, in 20000-28999.
        network_interface: for NCCL and Gloo, e.g. `ib0`; default: they choose.
        accelerator: `cpu` or `cuda`; `auto`: what the nodes have.
        environment: variables for every rank, e.g. of NCCL; the request's have precedence.
        grace_s: seconds from SIGTERM to SIGKILL on the nodes when a job is cancelled.
        connect_s: seconds within which a node must answer.
    """

    hosts: tuple[str, ...] = ()
    hostfile: str = ""
    port: int = 0
    ssh_args: str = ""
    master_address: str = ""
    master_port: int = 0
    network_interface: str = ""
    accelerator: Accelerator = Accelerator.AUTO
    environment: dict[str, str] = field(default_factory=dict)
    grace_s: int = 30
    connect_s: int = 10

    name: ClassVar[str] = "ssh"
    poll_s: ClassVar[float] = 1.0

    def preview(self, request: LaunchRequest) -> str:
        """Return the files that would be written, and the command that runs them."""
        parts = [f"# {name}\n{text}" for name, text in self._files(request, "JOB").items()]
        return "\n".join([*parts, f"# command\n{shlex.join(_command(request.folder, 'run'))} >>{LOG} 2>&1\n"])

    def submit(self, request: LaunchRequest) -> str:
        """Check the nodes, then start the program on them; see `Launcher`."""
        request.check_folder()
        if shutil.which("ssh") is None:
            raise UsageError(f"ssh is not on this machine's PATH: {_INSTALL}")
        if (job := processes.find_job(request.folder, self.name)) is not None:
            return processes.make_handle(self.name, request.folder, *job)
        mark = processes.new_mark()
        files = self._files(request, mark)
        self._check_nodes(self._nodes(request), request)
        for name, text in files.items():
            write_file(request.folder / name, text)
        return processes.start(self.name, _command(request.folder, "run"), request.folder, {}, mark)

    def state(self, handle: str) -> tuple[JobState, str]:
        return processes.state(handle, self.name)

    def cancel(self, handle: str) -> None:
        """End the job on all nodes, then its script here; see `Launcher`."""
        folder = parse_handle(handle, self.name, "folder")["folder"]
        if processes.state(handle, self.name)[0] in (JobState.SUCCEEDED, JobState.FAILED):
            return
        end = [*_command(folder, "end"), str(self.grace_s)]
        completed = run_command(end, hint=_INSTALL, timeout=self.grace_s + 60)
        processes.cancel(handle, self.name, 15.0)
        if completed.returncode != 0:
            reason = last_line(completed.stderr) or "no answer"
            raise LaunchError(f"the job may still run on a node that could not be reached: {reason}")

    # Files and commands.

    def _files(self, request: LaunchRequest, mark: str) -> dict[str, str]:
        nodes = self._nodes(request)
        launch = request.folder / "launch"
        check_plain_words("job folder", str(request.folder))
        interface = self.network_interface
        network = {"NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface} if interface else {}
        variables = rank_variables(self.accelerator, network | self.environment, request)
        exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
        start = [["env", f"{NODE_MARK}={mark}", "sh", f"{launch}/node.sh"], ["sh", f"{launch}/end-node.sh", mark]]
        runs = [f"run {n} {self._ssh(n, *start[0], str(rank), str(s))}" for rank, (n, s) in enumerate(nodes.items())]
        ends = [f'{self._ssh(node, *start[1])} "$1"' for node in nodes]
        texts = {
            "node.sh": _NODE.format(folder=request.folder, exports=exports, torchrun=self._torchrun(request, nodes)),
            "end-node.sh": _END_NODE,
            "end.sh": _END.format(folder=request.folder, nodes=_in_background(ends)),
            "run.sh": _RUN.format(folder=request.folder, grace=self.grace_s, nodes=_in_background(runs)),
        }
        return {f"launch/{name}": text for name, text in texts.items()}

    def _ssh(self, node: str, *command: str) -> str:
        port = ("-p", str(self.port)) if self.port else ()
        options = ["-oBatchMode=yes", *shlex.split(self.ssh_args), "-oServerAliveInterval=30", *port]
        return shlex.join(["ssh", *options, node, *command])

    def _torchrun(self, request: LaunchRequest, nodes: dict[str, int]) -> str:
        address = self.master_address or next(iter(nodes)).rpartition("@")[2]
        port = self.master_port or derived_port(request.folder)
        return (
            f'{shlex.quote(request.python)} -m torch.distributed.run --nnodes={len(nodes)} --node-rank="$1" \\\n'
            f'    --nproc-per-node="$2" --master-addr={address} --master-port={port} \\\n'
            f"    {shlex.join(request.arguments)}"
        )

    def _nodes(self, request: LaunchRequest) -> dict[str, int]:
        """Return the number of processes of each node, in the hostfile's order."""
        if bool(self.hosts) == bool(self.hostfile):
            raise UsageError("name the nodes: either `hosts`, e.g. 'node1 slots=8', or the path of a `hostfile`")
        try:
            lines = Path(self.hostfile).read_text().splitlines() if self.hostfile else list(self.hosts)
        except OSError as exc:
            raise UsageError(f"the hostfile {self.hostfile} cannot be read: {exc.strerror}") from exc
        nodes: dict[str, int] = {}
        for line in (line.partition("#")[0].strip() for line in lines):
            match = _HOST.fullmatch(line if "slots=" in line else f"{line} slots={request.processes}")
            if line and (match is None or match[1] in nodes or int(match[2]) < 1):
                raise UsageError(f"hostfile line {line!r}: each node once, like 'node1 slots=8'")
            if line and match is not None:
                check_plain_words("node", match[1])
                nodes[match[1]] = int(match[2])
        if not nodes:
            raise UsageError(f"the hostfile {self.hostfile} names no node: add lines like 'node1 slots=8'")
        return nodes

    def _check_nodes(self, nodes: Iterable[str], request: LaunchRequest) -> None:
        """Check that every node can be reached, sees the job folder and has the interpreter.

        Raises:
            LaunchError: a node fails the check.
        """
        script = f"test -d {request.folder} || exit 91; command -v {shlex.quote(request.python)} >/dev/null || exit 92"
        timeout = f"-oConnectTimeout={self.connect_s}"

        def check(node: str) -> str:
            """Return what is wrong with a node; "" if nothing is."""
            try:
                ssh, *words = shlex.split(self._ssh(node, script))
                completed = run_command([ssh, timeout, *words], hint=_INSTALL, timeout=self.connect_s + 20)
            except LostError as exc:  # nothing was started
                return f"{node}: {exc}"
            if completed.returncode == 0:
                return ""
            error = last_line(completed.stderr) or "no answer"
            by_exit_code = {
                91: f"does not see the job folder {request.folder}: put the data folder on a shared file system",
                92: f"has no {request.python}: install this project there under the same path",
            }
            unreachable = f"cannot be reached by ssh ({error}): `ssh {node}` must work without a password"
            return f"{node} " + by_exit_code.get(completed.returncode, unreachable)

        with ThreadPoolExecutor(max_workers=16) as pool:
            problems = [problem for problem in pool.map(check, nodes) if problem]
        if problems:
            raise LaunchError("; ".join(problems))


def _command(folder: Path | str, script: str) -> list[str]:
    return ["sh", f"{folder}/launch/{script}.sh"]


def _in_background(commands: Iterable[str]) -> str:
    return "\n".join(f'{command} &\nall="$all $!"' for command in commands)
