"""A build on a real PostgreSQL that restarts."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from prefect.settings import PREFECT_API_URL

from tests.machines.servers import Postgres, wait_until
from tests.support.postgres import asked, schema
from tests.support.servers_up import toolformer, variables
from warehouse.leases import Leases
from warehouse.store import Store

OUTAGE_S = 5.0


@pytest.fixture
def database(postgres_machine: Postgres, tmp_path: Path) -> str:
    """The URL of a new, empty database."""
    name = f"test_{tmp_path.name}"[:60].lower()
    engine = sa.create_engine(postgres_machine.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f'CREATE DATABASE "{name}"'))
    engine.dispose()
    return sa.make_url(postgres_machine.url).set(database=name).render_as_string(hide_password=False)


def test_a_build_outlasts_a_restart(
    prefect_server: None, postgres_machine: Postgres, database: str, few_documents: Path, tmp_path: Path
) -> None:
    data, output = tmp_path / "data", tmp_path / "output.txt"
    words = ["--corpus", str(few_documents), "--data", str(data), "--tools", "calculator,calendar"]
    words += ["--shard-documents", "2", "--top-k", "3", "--draws", "2"]
    environment = {
        **variables(),
        "PREFECT_API_URL": str(PREFECT_API_URL.value()),
        "TOOLFORMER_CATALOG": database,
        "TOOLFORMER_REFRESH_S": "0.2",
    }
    with output.open("wb") as stream:
        process = subprocess.Popen(toolformer("build", *words), stdout=stream, stderr=stream, env=environment)
    try:
        wait_until(lambda: any(Store(data).names("commits/sample")) or process.poll() is not None, 300)
        assert process.poll() is None, output.read_text()
        postgres_machine.down()
        time.sleep(OUTAGE_S)  # a restart; the build goes on meanwhile
        postgres_machine.up()
        assert process.wait(300) == 0, output.read_text()
    finally:
        process.kill()
        process.wait()
    assert "is away; it is waited for at most 60 s" in output.read_text()
    store = Store(data)
    assert asked(database, f'SELECT count(*) FROM "{schema(data)}".commits') == [(len(list(store.commits())),)]
    assert asked(database, f'SELECT count(*) FROM "{schema(data)}".claims') == [(0,)]


def test_a_process_that_first_needs_the_server_in_an_outage_waits(
    postgres_machine: Postgres, database: str, tmp_path: Path
) -> None:
    taken = "import sys; from warehouse.leases import Leases; from warehouse.store import Store\n"
    taken += "print(Leases(sys.argv[1], Store(sys.argv[2])).take('work').name, flush=True)"
    with Leases(database, Store(tmp_path)):
        postgres_machine.down()
        try:
            words = [sys.executable, "-c", taken, database, str(tmp_path)]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert process.stderr is not None
            line = process.stderr.readline()
        finally:
            postgres_machine.up()
        assert "is away" in line
        assert postgres_machine.password not in line
        assert process.communicate(timeout=60)[0] == "work\n"
