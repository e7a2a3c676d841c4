"""The launcher for a list of machines: torchrun on each of them, started over ssh by a script on this machine.

If a node fails or no longer answers, or its ssh is ended, the job is ended on the others: the processes with its mark.
"""

import re
import shlex
import uuid
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tasks.launch.base import LOG, JobState, LaunchError, LaunchRequest, LostError, last_line
from tasks.launch.processes import ProcessLauncher
from toolformer_core.errors import UsageError

NODE_MARK = "TOOLFORMER_JOB"
_HOST = re.compile(r"(\S+)(?:\s+slots=(\d+))?")

_NODE = """\
#!/bin/sh
# Runs on node $1: starts its $2 ranks, unless the job is being ended.
cd {folder} && [ ! -e launch/ending ] || exit 1
{exports}
exec {python} -m torch.distributed.run --nnodes={nodes} --node-rank="$1" \\
    --nproc-per-node="$2" --master-addr={address} --master-port={port} \\
    {arguments}
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
class SshLauncher(ProcessLauncher):
    """Starts the program on several machines that can be reached by ssh without a password.

    The job folder and `LaunchRequest.python` must have the same path on all. The ranks meet at a port in 20000-28999.
    """

    hosts: tuple[str, ...] = ()  # e.g. `node1 slots=8`; without `slots` a node runs the request's number of processes
    ssh_args: str = ""  # further options of ssh, e.g. `-p 2222 -i /home/me/.ssh/cluster`
    master_address: str = ""  # the first node's name or address as the others see it; default: as in `hosts`
    grace_s: int = 30  # seconds from SIGTERM to SIGKILL on the nodes when a job is cancelled

    name: ClassVar[str] = "ssh"
    hint: ClassVar[str] = "install an ssh client here (Debian: openssh-client)"
    poll_s: ClassVar[float] = 1.0

    def preview(self, request: LaunchRequest) -> str:
        parts = [f"# launch/{name}\n{text}" for name, text in self._files(request, "JOB").items()]
        return "\n".join([*parts, f"# command\n{shlex.join(_command(request.folder, 'run'))} >>{LOG} 2>&1\n"])

    def submit(self, request: LaunchRequest) -> str:
        request.check_folder()
        if running := self.find_job(request.folder):
            return running
        mark = uuid.uuid4().hex
        files = self._files(request, mark)
        self._check_nodes(request)
        for name, text in files.items():
            request.write(name, text)
        return self.start(_command(request.folder, "run"), request.folder, {}, mark)

    def cancel(self, handle: str) -> None:
        """End the job on all nodes, then its script here; see `Launcher`."""
        folder = self.parse_handle(handle)["folder"]
        if self.state(handle)[0] in (JobState.SUCCEEDED, JobState.FAILED):
            return
        completed = self.run(*_command(folder, "end"), str(self.grace_s), timeout=self.grace_s + 60)
        self.end(handle, 15.0)
        if completed.returncode != 0:
            reason = last_line(completed.stderr) or "no answer"
            raise LaunchError(f"the job may still run on a node that could not be reached: {reason}")

    def _files(self, request: LaunchRequest, mark: str) -> dict[str, str]:
        self.check_plain("job folder", str(request.folder))
        nodes, launch = self._nodes(request), request.folder / "launch"
        start, end = ["env", f"{NODE_MARK}={mark}", "sh", f"{launch}/node.sh"], ["sh", f"{launch}/end-node.sh", mark]
        runs = [
            f"run {node} {shlex.join(self._ssh(node, *start, str(rank), str(slots)))}"
            for rank, (node, slots) in enumerate(nodes.items())
        ]
        ends = [f'{shlex.join(self._ssh(node, *end))} "$1"' for node in nodes]
        node_script = _NODE.format(
            folder=request.folder,
            exports=self.exports(),
            python=shlex.quote(request.python),
            nodes=len(nodes),
            address=self.master_address or next(iter(nodes)).rpartition("@")[2],
            port=20000 + zlib.crc32(str(request.folder).encode()) % 9000,
            arguments=shlex.join(request.arguments),
        )
        return {
            "node.sh": node_script,
            "end-node.sh": _END_NODE,
            "end.sh": _END.format(folder=request.folder, nodes=_in_background(ends)),
            "run.sh": _RUN.format(folder=request.folder, grace=self.grace_s, nodes=_in_background(runs)),
        }

    def _ssh(self, *words: str) -> list[str]:
        return ["ssh", "-oBatchMode=yes", *shlex.split(self.ssh_args), "-oServerAliveInterval=30", *words]

    def _nodes(self, request: LaunchRequest) -> dict[str, int]:
        if not self.hosts:
            raise UsageError("name the nodes in `hosts`, e.g. 'node1 slots=8'")
        nodes: dict[str, int] = {}
        for host in self.hosts:
            match = _HOST.fullmatch(host.strip())
            slots = int(match[2] or request.processes) if match else 0
            if match is None or match[1] in nodes or slots < 1:
                raise UsageError(f"host {host!r}: name each node once, like 'node1 slots=8'")
            self.check_plain("node", match[1])
            nodes[match[1]] = slots
        return nodes

    def _check_nodes(self, request: LaunchRequest) -> None:
        folder, python = request.folder, shlex.quote(request.python)
        script = f"test -d {folder} || exit 91; command -v {python} >/dev/null || exit 92"

        def check(node: str) -> str:
            try:
                completed = self.run(*self._ssh("-oConnectTimeout=10", node, script))
            except LostError as exc:  # nothing was started
                return f"{node}: {exc}"
            if completed.returncode == 0:
                return ""
            if completed.returncode == 91:
                return f"{node} does not see the job folder {folder}: put the data folder on a shared file system"
            if completed.returncode == 92:
                return f"{node} has no {request.python}: install this project there under the same path"
            error = last_line(completed.stderr) or "no answer"
            return f"{node} cannot be reached by ssh ({error}): `ssh {node}` must work without a password"

        with ThreadPoolExecutor(max_workers=16) as pool:
            problems = [problem for problem in pool.map(check, self._nodes(request)) if problem]
        if problems:
            raise LaunchError("; ".join(problems))


def _command(folder: Path | str, script: str) -> list[str]:
    return ["sh", f"{folder}/launch/{script}.sh"]


def _in_background(commands: Iterable[str]) -> str:
    return "\n".join(f'{command} &\nall="$all $!"' for command in commands)
