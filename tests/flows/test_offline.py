"""Everything works with no network: a build in a network namespace of its own, in which there is only loopback.

Where the kernel does not allow that, the process is held to loopback by a guard of its own, which is less: programs
that it starts are not held.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Bring loopback up; see that there is nothing else; then be the command line.
_ALONE = """
import errno, fcntl, socket, struct, sys
if sys.argv[1] == "namespace":
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, 0x8914, struct.pack("16sH22x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up and running
else:
    connect = socket.socket.connect
    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(errno.ENETUNREACH, f"no network in this test: {address}")
        return connect(self, address)
    socket.socket.connect = guarded
with socket.socket() as probe:
    probe.settimeout(5)
    try:
        probe.connect(("192.0.2.1", 443))  # an address that is nobody's (RFC 5737)
    except OSError as exc:
        assert exc.errno == errno.ENETUNREACH, exc
    else:
        raise SystemExit("there is a network")
sys.argv[:] = ["toolformer", *sys.argv[2:]]
from cli.main import main
main()
"""
_NOT_THEIRS = ("HF_HUB_OFFLINE", "PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI")  # no help from outside


def alone(*words: str) -> list[str]:
    """Return the command line's command, with loopback alone."""
    for options in (["--net"], ["--map-root-user", "--net"]):
        unshare = [shutil.which("unshare") or "unshare", *options]
        try:
            allowed = subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0
        except OSError:
            allowed = False
        if allowed:
            return [*unshare, sys.executable, "-c", _ALONE, "namespace", *words]
    return [sys.executable, "-c", _ALONE, "guard", *words]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name not in _NOT_THEIRS}
    return subprocess.run(alone(*words), env=variables, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_build_needs_no_network(few_documents: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = ["--tools", "calculator,wikisearch,mt", "--limit", "6", "--top-k", "1", "--samples", "1", "--json"]
    done = run("build", "--corpus", str(few_documents), "--data", str(data), *options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] > 0
    assert (data / "warehouse.duckdb").is_file()
    private = [*data.glob("*.duckdb"), *data.rglob("prefect.db*"), *data.rglob("*.log"), *data.glob("runs/*.json")]
    assert {"catalog.duckdb", "prefect.db", "server.log"} <= {file.name for file in private}
    assert not [file for file in private if file.stat().st_mode & 0o077]  # others may not read them


def test_what_must_be_fetched_is_told_in_one_line(few_documents: Path, tmp_path: Path) -> None:
    options = ["--model", "nobody/has-this-model", "--tools", "calculator"]
    done = run("build", "--corpus", str(few_documents), "--data", str(tmp_path / "data"), *options)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "could not be downloaded from the hub" in done.stderr
