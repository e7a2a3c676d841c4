"""A Slurm of one node, PostgreSQL, and Swift with its S3 interface, of Debian's packages, on loopback."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from ops.ports import free_port
from tests.support.waiting import soon

_PATIENCE_S = 300.0
_ROOT = Path(__file__).parents[2]
_SBIN = ("/usr/sbin", "/usr/bin")

_SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=2,sched_interval=2
ReturnToService=2
MinJobAge=60
KillWait=5
SlurmctldTimeout=10
SlurmdTimeout=10
InactiveLimit=0
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=16000 State=UNKNOWN
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverTimeLimit=0
PartitionName=short Nodes=ALL MaxTime=5 State=UP
"""


def need(programs: Mapping[str, str]) -> None:
    """Skip the test if this user is not root, or a program is missing; say which package has it."""
    if os.geteuid():
        pytest.skip("the servers of Debian's packages are started as root")
    path = os.pathsep.join((*_SBIN, os.environ["PATH"]))
    if missing := sorted({package for name, package in programs.items() if shutil.which(name, path=path) is None}):
        pytest.skip(f"not installed: {', '.join(missing)}; make test-machines installs them where it may")


@dataclass
class Server:
    """Programs of one server in a temporary folder; those started last end first."""

    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[str | Path], **variables: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **variables}, cwd="/"
            )

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        process = self.running.pop(name)
        process.send_signal(number)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def end_all(self) -> None:
        for name in reversed(list(self.running)):
            self.end(name)


@contextmanager
def _folder(prefix: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


class Slurm(Server):
    """A cluster of one node with four cores, without accounting and without control groups."""

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    def ask(self, *command: str) -> str:
        """Run one of Slurm's commands; return what it prints."""
        environment = {**os.environ, "SLURM_CONF": str(self.conf), "LC_ALL": "C"}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    def jobs(self, *states: str) -> list[str]:
        """Return the ids of the jobs in these states; default: of those that have not ended."""
        chosen = [f"--states={','.join(states)}"] if states else []
        return self.ask("squeue", "--noheader", "--format=%i", *chosen).split()

    def node(self, state: str) -> None:
        """Set the node's state, e.g. DRAIN or RESUME, and wait until the controller knows it."""
        told = ("update", f"NodeName={_host()}", f"State={state}", "Reason=test")
        self.ask("scontrol", *told)
        soon(lambda: ("drain" in self.ask("sinfo", "--noheader", "--format=%T")) == (state == "DRAIN"))

    def up(self) -> None:
        self.start("munged", self._munged())
        soon((self.folder / "munge.sock").exists)
        self.start("slurmctld", ["/usr/sbin/slurmctld", "-D", "-f", self.conf])
        self.node_up()

    def node_up(self) -> None:
        """Start the node's daemon and wait until jobs can start."""
        self.start("slurmd", ["/usr/sbin/slurmd", "-D", "-f", self.conf, "-N", _host()])
        soon(lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%T"))

    def lose_node(self) -> None:
        """Kill the node's daemon and all that its jobs started, as when its power fails; wait until Slurm notices."""
        mine = [process for process in psutil.process_iter() if self._of_job(process)]
        daemons = {parent for one in mine if (parent := one.parent()) and parent.name() == "slurmstepd"}
        self.end("slurmd", signal.SIGKILL)
        for process in (*daemons, *mine):  # the daemons first: they would still report that a job's processes died
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        soon(lambda: not self.jobs("RUNNING", "COMPLETING"))

    def _of_job(self, process: psutil.Process) -> bool:
        """Return whether a process belongs to a job of this cluster."""
        with contextlib.suppress(psutil.Error):
            variables = process.environ()
            return "SLURM_JOB_ID" in variables and variables.get("SLURM_CONF") == str(self.conf)
        return False

    def _munged(self) -> list[str | Path]:
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid", "seed-file": "munge.seed"}
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        options = [f"--{option}={self.folder / name}" for option, name in files.items()]
        return ["/usr/sbin/munged", "--foreground", "--force", *options]


def _host() -> str:
    return socket.gethostname().partition(".")[0]


@contextmanager
def slurm() -> Iterator[Slurm]:
    """Start a cluster; cancel its jobs at the end."""
    need(dict.fromkeys(("slurmctld", "slurmd", "sbatch"), "slurm-wlm") | {"munged": "munge"})
    with _folder("slurm-") as folder:
        cluster = Slurm(folder)
        ports = {"controller_port": free_port(), "node_port": free_port()}
        cluster.conf.write_text(_SLURM_CONF.format(host=_host(), folder=folder, **ports))
        (folder / "spool").mkdir()
        try:
            cluster.up()
            yield cluster
            cluster.ask("scancel", "--user=root", "--signal=KILL", "--full")
            cluster.ask("scancel", "--user=root")
            soon(lambda: not cluster.jobs())
        finally:
            cluster.end_all()


class Postgres(Server):
    """A PostgreSQL with one superuser, `postgres`."""

    port: int
    programs: Path
    password = "p@ss:w/rd %41 'quoted'"

    @property
    def url(self) -> str:
        """The URL of the database `postgres`; SQLAlchemy's `set(database=...)` names another."""
        from sqlalchemy import URL

        url = URL.create("postgresql+psycopg", "postgres", self.password, "127.0.0.1", self.port, "postgres")
        return url.render_as_string(hide_password=False)

    def make(self) -> None:
        shutil.chown(self.folder, "postgres", "postgres")
        secret = self.folder / "password"
        secret.write_text(self.password)
        shutil.chown(secret, "postgres", "postgres")
        options = ["-A", "scram-sha-256", f"--pwfile={secret}", "-U", "postgres", "-E", "UTF8", "--locale=C"]
        command = [*_AS_POSTGRES, self.programs / "initdb", "-D", self.folder / "data", *options]
        subprocess.run(command, check=True, capture_output=True, cwd="/")

    def up(self) -> None:
        options = ["-c", "listen_addresses=127.0.0.1", "-p", str(self.port), "-k", self.folder]
        self.start("postgres", [*_AS_POSTGRES, self.programs / "postgres", "-D", self.folder / "data", *options])
        asked = [self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        soon(lambda: subprocess.run(asked).returncode == 0)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """End the server as its service does at a restart, and start it after the block: nothing is lost."""
        self.end("postgres", signal.SIGINT)  # which cuts connections
        try:
            yield
        finally:
            self.up()


@contextmanager
def prefect(database: str) -> Iterator[str]:
    """Start Prefect's server on a database of a PostgreSQL; yield the address of its API."""
    url = database.replace("postgresql+psycopg:", "postgresql+asyncpg:", 1)
    with _python("flows.runtime.prefect_app", (), {"PREFECT_SERVER_DATABASE_CONNECTION_URL": url}) as address:
        yield f"{address}/api"


@contextmanager
def mlflow(database: str, artifacts: Path) -> Iterator[str]:
    """Start MLflow's server on a database of a PostgreSQL; yield its address."""
    words = ("server", "--backend-store-uri", database, "--artifacts-destination", str(artifacts), "--workers", "1")
    with _python("mlflow", words, {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}) as address:
        yield address


@contextmanager
def _python(module: str, words: Sequence[str], variables: Mapping[str, str]) -> Iterator[str]:
    """Run a module that serves on --host and --port, with a home of its own; yield its address."""
    with _folder("server-") as folder:
        server, port = Server(folder), free_port()
        command = [sys.executable, "-m", module, *words, "--host", "127.0.0.1", "--port", str(port)]
        server.start(module, command, PYTHONPATH=str(_ROOT), PREFECT_HOME=str(folder), **variables)
        try:
            soon(lambda: _listens(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            server.end_all()


_AS_POSTGRES = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")


@contextmanager
def postgres() -> Iterator[Postgres]:
    need({"pg_ctlcluster": "postgresql", "setpriv": "util-linux"})
    with _folder("postgres-") as folder:
        server = Postgres(folder)
        server.port, server.programs = free_port(), max(Path("/usr/lib/postgresql").glob("*/bin"))
        server.make()
        try:
            server.up()
            yield server
        finally:
            server.end_all()


_SWIFT_CONF = """\
[swift-hash]
swift_hash_path_suffix = s
swift_hash_path_prefix = p
[storage-policy:0]
name = one
default = yes
"""
_SWIFT_SERVER = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = root
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
disable_fallocate = true
fallocate_reserve = 0
log_name = {name}
"""
_SWIFT_STORAGE = "[pipeline:main]\npipeline = {name}-server\n[app:{name}-server]\nuse = egg:swift#{name}\n"
_SWIFT_FILTERS = ("catch_errors", "proxy_logging", "listing_formats", "bulk", "slo", "dlo")
_SWIFT_PROXY = """\
[pipeline:main]
pipeline = catch_errors proxy_logging cache listing_formats bulk s3api tempauth slo dlo proxy_logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{cache_port}
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
check_bucket_owner = false
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
"""
_RUN_SWIFT = """
import sys
import swift.common.utils as utils
utils.SWIFT_CONF_FILE = sys.argv.pop(1)
program = sys.argv.pop(1)
exec(compile(open(program).read(), program, "exec"))
"""
SWIFT_KEYS = {"AWS_ACCESS_KEY_ID": "test:tester", "AWS_SECRET_ACCESS_KEY": "testing"}


@contextmanager
def swift() -> Iterator[str]:
    """Start Swift with one replica on one device; yield host:port of its S3 interface, for `SWIFT_KEYS`."""
    packages = {f"swift-{name}-server": f"swift-{name}" for name in ("proxy", "account", "container", "object")}
    need({**packages, "memcached": "memcached"})
    with _folder("swift-") as folder:
        server = Server(folder)
        ports = {name: free_port() for name in ("account", "container", "object", "proxy", "cache")}
        (folder / "devices/one").mkdir(parents=True)
        (folder / "swift.conf").write_text(_SWIFT_CONF)
        for name in ("account", "container", "object"):
            _make_ring(folder, name, ports[name])
            text = _SWIFT_SERVER + _SWIFT_STORAGE
            (folder / f"{name}.conf").write_text(text.format(name=name, port=ports[name], folder=folder))
        text = _SWIFT_SERVER.format(name="proxy", port=ports["proxy"], folder=folder)
        filters = "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in _SWIFT_FILTERS)
        (folder / "proxy.conf").write_text(text + _SWIFT_PROXY.format(cache_port=ports["cache"]) + filters)
        try:
            cache = ["memcached", "-l", "127.0.0.1", "-p", str(ports["cache"]), "-u", "nobody", "-m", "32"]
            server.start("memcached", cache)
            for name in ("account", "container", "object", "proxy"):
                words = [folder / "swift.conf", f"/usr/bin/swift-{name}-server", folder / f"{name}.conf"]
                server.start(name, ["/usr/bin/python3", "-c", _RUN_SWIFT, *words])
                soon(lambda name=name: _listens(ports[name]))
            yield f"127.0.0.1:{ports['proxy']}"
        finally:
            server.end_all()


def _make_ring(folder: Path, name: str, port: int) -> None:
    device = ["--region", "1", "--zone", "1", "--ip", "127.0.0.1", "--port", str(port), "--device", "one", "--weight"]
    for words in (["create", "4", "1", "1"], ["add", *device, "1"], ["rebalance"]):
        command = ["swift-ring-builder", str(folder / f"{name}.builder"), *words]
        subprocess.run(command, check=True, capture_output=True)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
