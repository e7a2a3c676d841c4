"""A PostgreSQL database that several flow processes share: which schema belongs to which data folder.

Each data folder has a random name, stored beside its commits in `identity.json`, and its tables are in the schema of
that name, whatever path or URL a host has. A server that restarts is waited for, and transactions that it cut begin
again.
"""

import contextlib
import functools
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
import sqlalchemy.exc

from warehouse.errors import CatalogError, ConnectionLostError, error_line
from warehouse.store import Store

_IDENTITY = "identity.json"
LEASE_S = 60.0  # after which a process that renews nothing counts as dead, and for which a server is waited for
_POLL_S = 0.5  # between two attempts to reach a server
_LOCK = 7_305_180_411  # the key of the advisory lock for all writers of a database; any constant would do

_log = logging.getLogger(__name__)

Self_ = TypeVar("Self_")
P = ParamSpec("P")
T = TypeVar("T")


def without_secrets(url: sa.URL) -> str:
    """Return a database's URL for messages: without a password, and without the passwords of libpq's query options."""
    return url.difference_update_query(["password", "passfile", "sslpassword"]).render_as_string(hide_password=True)


def open_database(url: str | sa.URL, schema: str | None = None) -> sa.Engine:
    """Return an engine whose tables are in a schema; it connects when it is first used."""
    try:
        engine = sa.create_engine(url, pool_pre_ping=schema is not None)
        return engine if schema is None else engine.execution_options(schema_translate_map={None: schema})
    except (sa.exc.SQLAlchemyError, ImportError) as exc:
        raise CatalogError(f"not a catalog's URL, or its driver is missing: {error_line(exc)}") from exc


def wait_for_server(engine: sa.Engine, seconds: float) -> None:
    """From now on, wait so long for a server that does not answer when a connection is opened; a warning says so."""

    @sa.event.listens_for(engine, "do_connect")
    def connect(dialect: Any, record: object, arguments: Any, options: Any) -> Any:
        deadline, warned = time.monotonic() + seconds, False
        while True:
            try:
                return dialect.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError as exc:
                if time.monotonic() > deadline:
                    raise
                if not warned:
                    place = without_secrets(engine.url)
                    _log.warning("%s is away; it is waited for at most %.0f s: %s", place, seconds, error_line(exc))
                warned = True
            time.sleep(_POLL_S)


def again_if_lost(method: Callable[Concatenate[Self_, P], T]) -> Callable[Concatenate[Self_, P], T]:
    """Have a method that is one transaction begin again if the server cuts its connection."""

    @functools.wraps(method)
    def call(self: Self_, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except ConnectionLostError as exc:
            _log.warning("%s; it is tried again", exc)
            return method(self, *args, **kwargs)

    return call


def database_error(what: str, error: sa.exc.SQLAlchemyError) -> CatalogError:
    lost = isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated
    return (ConnectionLostError if lost else CatalogError)(f"{what} could not be used: {error_line(error)}")


@contextlib.contextmanager
def write_transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Run one transaction; only one writer at a time among all processes that share the database."""
    try:
        with engine.begin() as connection:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            yield connection
    except sa.exc.SQLAlchemyError as exc:
        raise database_error(f"the catalog {without_secrets(engine.url)}", exc) from exc


def connect_schema(url: str, store: Store, wait_s: float = LEASE_S, *, wait_now: bool = False) -> sa.Engine:
    """Return an engine for the schema of a store, which is created with the store's name if there is none.

    With `wait_now` this first connection waits for the server as well; else an URL with a slip is an error at once.
    Raises CatalogError or StoreError if the database or the store could not be used.
    """
    first = open_database(url)
    if wait_now:
        wait_for_server(first, wait_s)
    try:
        with write_transaction(first) as connection:  # so that two hosts that start at once agree on one name
            identity = store.read_json(_IDENTITY)
            if identity is None:
                identity = {"id": uuid.uuid4().hex}
                store.write_json(_IDENTITY, identity)
            schema = f"toolformer_{identity['id'][:16]}"
            connection.execute(sa.schema.CreateSchema(schema, if_not_exists=True))
    finally:
        first.dispose()
    engine = open_database(url, schema)
    wait_for_server(engine, wait_s)
    return engine
