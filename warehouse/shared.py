"""A database that several flow processes share, on PostgreSQL: which part of it belongs to which data.

One database serves any number of data folders. Each has a name of its own, drawn once and kept beside its commits in
`identity.json`, and its tables lie in the schema of that name: so two hosts that reach the same data find the same
tables, by whatever path or URL they know it, and two data folders never mix. It knows no table.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import sqlalchemy as sa
import sqlalchemy.exc

from warehouse.errors import CatalogError, told
from warehouse.store import Store

__all__ = ["database", "opened", "schema_of", "shown", "writing"]

_IDENTITY = "identity.json"
_LOCK = 7_305_180_411  # PostgreSQL's advisory lock for all writers of a database; any constant would do


def shown(url: sa.URL) -> str:
    """Return a database's URL as it may be shown: no password, nor what else libpq takes for one in the query."""
    return url.difference_update_query(["password", "passfile", "sslpassword"]).render_as_string(hide_password=True)


def database(url: str, schema: str | None = None) -> sa.Engine:
    """Return an engine whose tables lie in a schema; it connects when it is first used.

    Raises:
        CatalogError: it is no SQLAlchemy URL, or its driver is not installed.
    """
    try:
        engine = sa.create_engine(url, pool_pre_ping=schema is not None)
        return engine if schema is None else engine.execution_options(schema_translate_map={None: schema})
    except (sa.exc.SQLAlchemyError, ImportError) as exc:
        raise CatalogError(f"not a catalog's URL, or its driver is missing: {told(exc)}") from exc


@contextlib.contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction, one writer at a time among all processes that share the database.

    Raises:
        CatalogError: the database could not be used.
    """
    try:
        with engine.begin() as connection:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            yield connection
    except sa.exc.SQLAlchemyError as exc:
        raise CatalogError(f"the catalog {shown(engine.url)} could not be used: {told(exc)}") from exc


def schema_of(url: str, store: Store) -> str:
    """Return the schema of a store's tables, made if it is not there; the store is given a name if it has none.

    Raises:
        CatalogError: the database could not be used.
        StoreError: the store could not be read or written.
    """
    engine = database(url)
    try:
        with writing(engine) as connection:  # two hosts that begin at once agree on one name
            named = store.read_json(_IDENTITY)
            if named is None:
                named = {"id": uuid.uuid4().hex}
                store.write_json(_IDENTITY, named)
            schema = f"toolformer_{named['id'][:16]}"
            connection.execute(sa.schema.CreateSchema(schema, if_not_exists=True))
            return schema
    finally:
        engine.dispose()


def opened(url: str, store: Store) -> sa.Engine:
    """Return an engine on the part of a shared database that belongs to a store."""
    return database(url, schema_of(url, store))
