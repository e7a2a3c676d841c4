"""A PostgreSQL database that several flow processes share: which schema belongs to which data folder.

One database serves any number of data folders. Each has a random name, which is stored beside its commits in
`identity.json`, and its tables are in the schema of that name. So two hosts that reach the same data find the same
tables, whatever path or URL they use, and two data folders never mix. This module knows no table.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import sqlalchemy as sa
import sqlalchemy.exc

from warehouse.errors import CatalogError, error_line
from warehouse.store import Store

_IDENTITY = "identity.json"
_LOCK = 7_305_180_411  # the key of the advisory lock for all writers of a database; any constant would do


def without_secrets(url: sa.URL) -> str:
    """Return a database's URL for messages: without a password, and without the passwords of libpq's query options."""
    return url.difference_update_query(["password", "passfile", "sslpassword"]).render_as_string(hide_password=True)


def open_database(url: str | sa.URL, schema: str | None = None) -> sa.Engine:
    """Return an engine whose tables are in a schema; it connects when it is first used.

    Raises:
        CatalogError: this is not a SQLAlchemy URL, or its driver is not installed.
    """
    try:
        engine = sa.create_engine(url, pool_pre_ping=schema is not None)
        return engine if schema is None else engine.execution_options(schema_translate_map={None: schema})
    except (sa.exc.SQLAlchemyError, ImportError) as exc:
        raise CatalogError(f"not a catalog's URL, or its driver is missing: {error_line(exc)}") from exc


@contextlib.contextmanager
def write_transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Run one transaction; only one writer at a time among all processes that share the database.

    Raises:
        CatalogError: the database could not be used.
    """
    try:
        with engine.begin() as connection:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            yield connection
    except sa.exc.SQLAlchemyError as exc:
        raise CatalogError(f"the catalog {without_secrets(engine.url)} could not be used: {error_line(exc)}") from exc


def schema_of(url: str, store: Store) -> str:
    """Return the schema of a store's tables; create the schema, and the store's name, if there is none.

    Raises:
        CatalogError: the database could not be used.
        StoreError: the store could not be read or written.
    """
    engine = open_database(url)
    try:
        with write_transaction(engine) as connection:  # so that two hosts that start at once agree on one name
            identity = store.read_json(_IDENTITY)
            if identity is None:
                identity = {"id": uuid.uuid4().hex}
                store.write_json(_IDENTITY, identity)
            schema = f"toolformer_{identity['id'][:16]}"
            connection.execute(sa.schema.CreateSchema(schema, if_not_exists=True))
            return schema
    finally:
        engine.dispose()


def connect_schema(url: str, store: Store) -> sa.Engine:
    """Return an engine for the schema of a store in a shared database."""
    return open_database(url, schema_of(url, store))
