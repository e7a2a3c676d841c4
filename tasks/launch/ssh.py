"""The launcher for a list of machines: DeepSpeed's own launcher, which reaches them through pdsh and ssh.

This module closes three gaps in DeepSpeed's launcher. If one node fails, the others wait for it; here a shell script
watches the launch and ends it. If the launcher is ended, it ends every DeepSpeed launch of that python on the nodes,
those of other people too; here the ranks carry a mark, and a script on each node ends only processes with that mark.
It checks the nodes without the user's ssh options; here they are checked with these options, before the launch.

The module does not know which GPUs a node has: the hostfile says how many.
"""

from __future__ import annotations

import re
import shlex
import shutil
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
    accelerator_variables,
    check_plain_words,
    derived_port,
    last_line,
    parse_handle,
    run_command,
    write_file,
)
from toolformer_core.errors import UsageError

NODE_MARK = "TOOLFORMER_JOB"
_INSTALL = "install pdsh and an ssh client here (Debian: pdsh, openssh-client)"
_HOST = re.compile(r"(\S+)\s+slots=(\d+)")
_SIGNALLED = 3  # exit code of end.sh if it had to end a process

_END = f"""\
#!/bin/sh
# Ends the processes of this node that carry {NODE_MARK}=$1. They may end by themselves for $2 seconds; then SIGTERM,
# and $3 seconds later SIGKILL. Exits {_SIGNALLED} if a signal was needed.
mine() {{ grep -lzxF "{NODE_MARK}=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }}
wait_for() {{ n=$2; while [ -n "$(mine "$1")" ]; do [ "$n" -gt 0 ] || return 1; n=$((n - 1)); sleep 1; done; }}
wait_for "$1" "$2" && exit 0
kill -s TERM $(mine "$1") 2>/dev/null
wait_for "$1" "$3" && exit {_SIGNALLED}
kill -s KILL $(mine "$1") 2>/dev/null
wait_for "$1" 5
exit {_SIGNALLED}
"""

_RUN = """\
#!/bin/sh
# Runs DeepSpeed's launcher. If a node fails, or something is left when all is over, the job is ended on every node.
cd {folder} || exit 1
seen=$(($(wc -c <{log}) + 1))
failed() {{ tail -c "+$seen" {log} | grep -q '^pdsh@.*ssh exited with exit code'; }}
end() {{ {end} "$1" {grace}; }}

export {exports}
{command} &
runner=$!
while kill -0 "$runner" 2>/dev/null; do
    if failed; then
        end 2
        break
    fi
    sleep 1
done
wait "$runner"
code=$?
end 5
left=$?
if [ "$code" -eq 0 ] && [ "$left" -eq {left} ]; then
    echo "the launcher ended before its ranks did; they were ended" >&2
    code=1
fi
exit "$code"
"""


@dataclass(frozen=True, slots=True)
class SshLauncher:
    """Starts the program on several machines that can be reached by ssh without a password.

    The job folder and `LaunchRequest.python` must have the same path on this machine and on all nodes. DeepSpeed's
    own `~/.deepspeed_env` is not read: variables go into `environment` here or into the request's.

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
        files = self._files(request, "JOB")
        parts = [f"# {name}\n{text}" for name, text in files.items()]
        return "\n".join([*parts, f"# command\n{shlex.join(self._command(request))} >>{LOG} 2>&1\n"])

    def submit(self, request: LaunchRequest) -> str:
        """Check the nodes, then start the program on them; see `Launcher`."""
        request.check_folder()
        for program in ("pdsh", "ssh"):
            if shutil.which(program) is None:
                raise UsageError(f"{program} is not on this machine's PATH: {_INSTALL}")
        nodes = list(self._nodes(request))
        if (job := processes.find_job(request.folder, self.name)) is not None:
            lines = (request.folder / "launch/hostfile").read_text(encoding="utf-8").splitlines()
            job_nodes = [line.split()[0] for line in lines]  # the profile may name other nodes by now
            end = self._end_command(request.folder, job_nodes, job[0])
            return processes.make_handle(self.name, request.folder, *job, end=end)
        mark = processes.new_mark()
        files = self._files(request, mark)
        self._check_nodes(nodes, request)
        for name, text in files.items():
            write_file(request.folder / name, text)
        end = self._end_command(request.folder, nodes, mark)
        return processes.start(self.name, self._command(request), request.folder, {}, mark, end=end)

    def state(self, handle: str) -> tuple[JobState, str]:
        return processes.state(handle, self.name)

    def cancel(self, handle: str) -> None:
        """End the job on all nodes, then its launcher here; see `Launcher`."""
        record = parse_handle(handle, self.name, "end")
        if processes.state(handle, self.name)[0] in (JobState.SUCCEEDED, JobState.FAILED):
            return
        completed = run_command([*record["end"], "0", str(self.grace_s)], hint=_INSTALL, timeout=self.grace_s + 60)
        # DeepSpeed's launcher is not sent SIGTERM, on which it would end other jobs on the nodes.
        processes.cancel(handle, self.name, 15.0, terminate_first=False)
        if completed.returncode not in (0, _SIGNALLED):
            reason = last_line(completed.stderr) or "no answer"
            raise LaunchError(f"the job may still run on a node that could not be reached: {reason}")

    # Files and commands.

    def _files(self, request: LaunchRequest, mark: str) -> dict[str, str]:
        nodes = self._nodes(request)
        check_plain_words("job folder", str(request.folder))
        check_plain_words("python", request.python)
        check_plain_words("program", *request.program)
        run = _RUN.format(
            folder=request.folder,
            log=LOG,
            end=shlex.join(self._end_command(request.folder, list(nodes), mark)),
            grace=self.grace_s,
            exports=" ".join(f"{name}={shlex.quote(value)}" for name, value in self._exports(request).items()),
            command=" \\\n    ".join(shlex.join(words) for words in self._deepspeed(request, nodes)),
            left=_SIGNALLED,
        )
        variables = "".join(f"{name}={_quote(value)}\n" for name, value in self._variables(request, mark).items())
        hostfile = "".join(f"{node} slots={slots}\n" for node, slots in nodes.items())
        texts = {"hostfile": hostfile, "deepspeed_env": variables, "end.sh": _END, "run.sh": run}
        return {f"launch/{name}": text for name, text in texts.items()}

    def _command(self, request: LaunchRequest) -> list[str]:
        return ["sh", str(request.folder / "launch/run.sh")]

    def _deepspeed(self, request: LaunchRequest, nodes: dict[str, int]) -> list[list[str]]:
        """Return DeepSpeed's command, line by line. `--force_multi` makes it use ssh even for a single node."""
        address = self.master_address or next(iter(nodes)).rpartition("@")[2]
        module = ["--module", *request.program[1:]] if request.program[0] == "-m" else list(request.program)
        return [
            [request.python, "-m", "deepspeed.launcher.runner"],
            ["--hostfile", str(request.folder / "launch/hostfile"), "--launcher", "pdsh"],
            ["--force_multi", "--no_ssh_check", *(("--ssh_port", str(self.port)) if self.port else ())],
            ["--master_addr", address, "--master_port", str(self.master_port or derived_port(request.folder))],
            [*module, str(request.folder)],
        ]

    def _exports(self, request: LaunchRequest) -> dict[str, str]:
        """Return the variables for DeepSpeed's launcher and pdsh; DS_ENV_FILE may be an absolute path."""
        env_file = str(request.folder / "launch/deepspeed_env")
        variables = {"PDSH_SSH_ARGS_APPEND": self._ssh_args, "DS_ENV_FILE": env_file}
        return variables | accelerator_variables(self.accelerator)

    @property
    def _ssh_args(self) -> str:
        return f"-oBatchMode=yes {self.ssh_args}".strip()

    def _end_command(self, folder: Path, nodes: list[str], mark: str) -> list[str]:
        """Return the command that ends the job on all nodes; append the two numbers of seconds that end.sh takes."""
        args = self._ssh_args + (f" -p {self.port}" if self.port else "")
        pdsh = ["pdsh", "-R", "ssh", "-S", "-f", "1024", "-w", ",".join(nodes)]
        return ["env", f"PDSH_SSH_ARGS_APPEND={args}", *pdsh, "sh", str(folder / "launch/end.sh"), mark]

    def _variables(self, request: LaunchRequest, mark: str) -> dict[str, str]:
        interface = self.network_interface
        network = {"NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface} if interface else {}
        variables = accelerator_variables(self.accelerator) | network | self.environment
        return {**variables, **request.environment, NODE_MARK: mark}

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

    def _check_nodes(self, nodes: list[str], request: LaunchRequest) -> None:
        """Check that every node can be reached, sees the job folder and has the interpreter.

        Raises:
            LaunchError: a node fails the check.
        """
        options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={self.connect_s}", *shlex.split(self.ssh_args)]
        options += ["-p", str(self.port)] if self.port else []
        script = f"test -d {request.folder} || exit 91; command -v {request.python} >/dev/null || exit 92"

        def check(node: str) -> str:
            """Return what is wrong with a node; "" if nothing is."""
            try:
                completed = run_command(["ssh", *options, node, script], hint=_INSTALL, timeout=self.connect_s + 20)
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


def _quote(value: str) -> str:
    """Return a value escaped for DeepSpeed, which runs `export NAME="value"` in a remote shell through pdsh.

    pdsh replaces %n, %h and %u, and turns %% into %.
    """
    return re.sub(r'([\\"$`])', r"\\\1", value).replace("%", "%%")
