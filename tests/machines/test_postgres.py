"""A build on a real PostgreSQL that restarts."""

import subprocess
import sys
from pathlib import Path

from tests.machines.commands import started
from tests.machines.servers import Postgres
from tests.support.postgres import asked, schema
from warehouse.leases import Leases
from warehouse.store import Store

AWAY = "is away; it is waited for at most 60 s"


def test_a_build_outlasts_a_restart(
    prefect_server: None, postgres_machine: Postgres, database: str, few_documents: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    words = ["--corpus", str(few_documents), "--data", str(data), "--tools", "calculator,calendar"]
    words += ["--shard-documents", "2", "--top-k", "3", "--samples", "2"]
    environment = {"TOOLFORMER_CATALOG": database, "TOOLFORMER_REFRESH_S": "0.2"}
    with started(tmp_path / "output.txt", "build", *words, **environment) as build:
        build.await_(lambda: any(Store(data).names("commits/sample")))
        with postgres_machine.outage():
            build.await_(lambda: AWAY in build.text)
        assert build.ended() == 0, build.text
    store = Store(data)
    assert asked(database, f'SELECT count(*) FROM "{schema(data)}".commits') == [(len(list(store.commits())),)]
    assert asked(database, f'SELECT count(*) FROM "{schema(data)}".leases') == [(0,)]


def test_a_process_that_first_needs_the_server_in_an_outage_waits(
    postgres_machine: Postgres, database: str, tmp_path: Path
) -> None:
    taken = "import sys; from warehouse.leases import Leases; from warehouse.store import Store\n"
    taken += "print(Leases(sys.argv[1], Store(sys.argv[2])).take('work').name, flush=True)"
    with Leases(database, Store(tmp_path)):
        with postgres_machine.outage():
            words = [sys.executable, "-c", taken, database, str(tmp_path)]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert process.stderr is not None
            line = process.stderr.readline()
        assert "is away" in line
        assert postgres_machine.password not in line
        assert process.communicate(timeout=60)[0] == "work\n"
