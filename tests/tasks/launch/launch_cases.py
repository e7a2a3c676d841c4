"""What is previewed and compared with `golden/`, which running this file writes anew; helpers for launchers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.launch.base import Launcher, LaunchRequest
from tasks.launch.kubernetes import KubernetesLauncher
from tasks.launch.local import LocalLauncher
from tasks.launch.slurm import SlurmLauncher
from tasks.launch.ssh import SshLauncher
from tests.support.waiting import soon

_SLURM = Path(__file__).with_name("slurm_standin.py")
GOLDEN = Path(__file__).parent / "golden"
FOLDER = Path("/shared/finetunes/job-1")
PYTHON = "/opt/toolformer/bin/python"
VARIABLES = {"NCCL_SOCKET_IFNAME": "ib0", "NOTE": "it's $5 (50 %)"}


def fixed_request(processes: int = 8) -> LaunchRequest:
    return LaunchRequest("cc-7b-1", FOLDER, processes, python=PYTHON)


def cases() -> dict[str, str]:
    hosts = ("node1 slots=8", "train@node2 slots=4", "node3")
    ssh_args = "-p 2222 -i /home/me/.ssh/cluster -o StrictHostKeyChecking=accept-new"
    place = {"nodes": 4, "gpus_per_node": 0, "partition": "train", "time_limit": "24:00:00", "warn_s": 300}
    head = ("--gres=gpu:h100:8", "--cpus-per-task=96", "--mem=400G", "--exclusive")
    lines = {"directives": head, "setup": ("module load cuda/12.4",), "srun_args": ("--mpi=none",)}
    slurm = SlurmLauncher(accelerator="cuda", environment=VARIABLES, **place, **lines)
    launchers: dict[str, tuple[Launcher, int]] = {
        "local_one.txt": (LocalLauncher(), 1),
        "local_cpu.txt": (LocalLauncher(accelerator="cpu", environment={"OMP_NUM_THREADS": "3", "NOTE": "a b"}), 2),
        "local_gpus.txt": (LocalLauncher(accelerator="cuda"), 2),
        "ssh_cpu.txt": (SshLauncher(("node1",), accelerator="cpu"), 1),
        "ssh.txt": (SshLauncher(hosts, ssh_args=ssh_args, environment=VARIABLES), 8),
        "slurm_small.txt": (SlurmLauncher(), 1),
        "slurm.txt": (slurm, 8),
        "kubernetes_job.json": (full_kubernetes(), 8),
        "kubernetes_cpu.json": (KubernetesLauncher("trainer:1", "data", "/shared", gpus_per_node=0), 1),
    }
    return {file: launcher.preview(fixed_request(processes)) for file, (launcher, processes) in launchers.items()}


def full_kubernetes() -> KubernetesLauncher:
    pod = {
        **{"nodeSelector": {"gpu": "h100"}, "hostNetwork": True, "terminationGracePeriodSeconds": 600},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "scratch", "emptyDir": {}}],
    }
    container = {
        "resources": {"limits": {"cpu": "32", "memory": "400Gi"}},
        "env": [{"name": "PYTHONUNBUFFERED", "value": "0"}],  # in place of ours
        "envFrom": [{"secretRef": {"name": "hub-token"}}],
        # beside ours: what has its name is mounted elsewhere
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}, {"name": "data", "mountPath": "/again"}],
    }
    own = {"local_root": "/shared", "namespace": "nlp", "nodes": 3, "environment": VARIABLES}
    return KubernetesLauncher("registry.example/trainer:1", "finetunes", pod=pod, container=container, **own)


def slurm_commands(folder: Path) -> tuple[Path, Path]:
    """Make the stand-in's commands (see `slurm_standin`); return its table of jobs, and what to put on PATH."""
    table, commands = folder / "table", folder / "bin"
    table.mkdir()
    commands.mkdir()
    for name in ("sbatch", "squeue", "sacct", "scancel", "srun", "scontrol"):
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {_SLURM} {table} {name} "$@"\n')
        command.chmod(0o755)
    return table, commands


def job_in(folder: Path, text: str, processes: int = 1) -> LaunchRequest:
    """Return a request for a program given as text, whose job folder is made."""
    folder.mkdir(exist_ok=True)
    script = folder.with_name("program.py")
    script.write_text(text)
    return LaunchRequest("job", folder, processes, program=(str(script),))


def writing_its_rank(*names: str) -> str:
    """Return a program that writes these variables into the job folder, and exits as FAILS says."""
    return f"""
import os, pathlib, sys
told, rank = [os.environ.get(name, "-") for name in {names}], os.environ.get("RANK", "-")
pathlib.Path(sys.argv[1], f"rank-{{rank}}").write_text(" ".join(told))
print("rank", rank, "of", os.environ.get("WORLD_SIZE"))
sys.exit(int(os.environ.get("FAILS", "0")))
"""


@contextmanager
def stranger(**variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that belongs to no job, and must live until the end of the block."""
    command, env = [sys.executable, "-c", "input()"], {**os.environ, **variables}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=env) as process:
        yield process
        assert process.poll() is None
        process.communicate(b"\n")
        assert process.returncode == 0


def wait_until_ended(launcher: Launcher, handle: str, deadline_s: float = 300.0) -> tuple[str, str]:
    active = ("pending", "running", "ending")
    return soon(lambda: now if (now := launcher.state(handle))[0] not in active else None, deadline_s)


def wait_for_file(path: Path) -> str:
    return soon(lambda: path.exists() and path.read_text()) or ""


if __name__ == "__main__":
    for file, text in cases().items():
        (GOLDEN / file).write_text(text)
