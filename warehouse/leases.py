"""Leases in PostgreSQL: which process works on what, when several processes share one warehouse.

A lease is a row: the name of the work, its holder's token, and when it ends, by the database's clock. A thread renews a
process's leases; others take ended ones over, which the old holder notices before it commits (`confirm`). Leases only
save work: a commit is the same from every writer. Methods raise `CatalogError` if the database could not be used.
"""

import contextlib
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import sqlalchemy as sa
import sqlalchemy.exc
from sqlalchemy.dialects.postgresql import insert

from warehouse.errors import CatalogError
from warehouse.shared import LEASE_S, again_if_lost, connect_schema, database_error, write_transaction
from warehouse.store import Store

_log = logging.getLogger(__name__)

RENEWALS = 4  # within one lease
_POLL_S = (0.05, 1.0)  # between two attempts at a lease that another process holds: at first, and at most

_METADATA = sa.MetaData()
_LEASES = sa.Table(
    "leases",
    _METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("token", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("ends", sa.DateTime(timezone=True), nullable=False),
)
_NOW = sa.func.clock_timestamp()

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to do some work, as long as it is renewed."""

    name: str
    token: str  # unique, so that a lease that was lost and taken again is another lease


class Leases(contextlib.AbstractContextManager["Leases"]):
    """The leases on the work of one store; they end after `lease_s` seconds without renewal. Threads may share it."""

    def __init__(self, url: str, store: Store, *, lease_s: float = LEASE_S) -> None:
        self._engine = connect_schema(url, store, lease_s, wait_now=True)  # the flow has reached it with this URL
        self._lease_s = lease_s
        self._held: dict[str, Lease] = {}  # by token
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._renewer: threading.Thread | None = None
        with write_transaction(self._engine) as connection:
            _METADATA.create_all(connection)

    def take(self, name: str) -> Lease | None:
        """Return the lease; None if another process holds it."""
        lease = Lease(name, uuid.uuid4().hex)
        row = {"token": lease.token, "host": socket.gethostname(), "pid": os.getpid(), "ends": self._lease_end()}
        free = sa.or_(_LEASES.c.ends < _NOW, _LEASES.c.token == lease.token)  # ours, if the answer got lost
        statement = insert(_LEASES).values(name=name, **row)
        statement = statement.on_conflict_do_update(index_elements=["name"], set_=row, where=free)
        if not self._execute(statement.returning(_LEASES.c.token)):
            return None
        with self._lock:
            self._held[lease.token] = lease
            if self._renewer is None:
                self._renewer = threading.Thread(target=self._renew_leases, name="leases", daemon=True)
                self._renewer.start()
        return lease

    def wait_for(self, name: str, finished: Callable[[], Result | None]) -> Lease | Result:
        """Wait until another process has finished the work or the lease is free; return the result or the lease.

        `finished` returns the result if the work is done; it is called before the lease is taken, and again afterwards.
        """
        pause, longest = _POLL_S
        while True:
            if (result := finished()) is not None:
                return result
            if (lease := self.take(name)) is not None:
                with contextlib.ExitStack() as stack:
                    stack.callback(self.release, lease)
                    if (result := finished()) is not None:  # between the first call and `take`
                        return result
                    stack.pop_all()
                    return lease
            self._closed.wait(pause)
            pause = min(2 * pause, longest)

    def confirm(self, lease: Lease) -> bool:
        """Renew a lease and return whether this process still holds it; call this before committing."""
        return self._renew([lease.token]) == {lease.token}

    def release(self, lease: Lease) -> None:
        """Release a lease, unless it was lost; if the database cannot be reached, it ends by itself."""
        with self._lock:
            self._held.pop(lease.token, None)
        try:
            self._execute(_LEASES.delete().where(_LEASES.c.token == lease.token).returning(_LEASES.c.token))
        except CatalogError as exc:
            _log.warning("the lease on %s is not released and ends by itself: %s", lease.name, exc)

    def close(self) -> None:
        """Stop renewing; leases that are still held end by themselves."""
        self._closed.set()
        if self._renewer is not None:
            self._renewer.join()
        self._engine.dispose()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lease_end(self) -> sa.ColumnElement[object]:
        return _NOW + sa.func.make_interval(0, 0, 0, 0, 0, 0, self._lease_s)

    def _renew(self, tokens: list[str]) -> set[str]:
        statement = _LEASES.update().where(_LEASES.c.token.in_(tokens)).values(ends=self._lease_end())
        return self._execute(statement.returning(_LEASES.c.token))

    @again_if_lost
    def _execute(self, statement: sa.Executable) -> set[str]:
        try:
            with self._engine.begin() as connection:
                return set(connection.scalars(statement))
        except sa.exc.SQLAlchemyError as exc:
            raise database_error("the leases", exc) from exc

    def _renew_leases(self) -> None:
        while not self._closed.wait(self._lease_s / RENEWALS):
            with self._lock:
                tokens = sorted(self._held)
            if tokens:
                try:
                    self._renew(tokens)
                except CatalogError as exc:  # the next renewal may succeed; `confirm` is called before every commit
                    _log.warning("the leases could not be renewed: %s", exc)
