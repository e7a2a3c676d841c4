"""Who is at work on what, when several processes share one warehouse: a claim with a lease, in PostgreSQL.

A claim is one row: the work's name, a token of whoever took it, and when the lease ends, by the database's clock alone.
A thread renews the leases of its process; a process that dies renews nothing, and when its lease has ended another may
take the claim over. The old holder finds that out before it commits (`confirm`), and gives way. A claim is only there
to save work: that nothing is done twice is owed to commits, which are the same whoever writes them.
It does not know what the work is.
"""

from __future__ import annotations

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

from warehouse.errors import CatalogError, told
from warehouse.shared import opened, writing
from warehouse.store import Store

__all__ = ["Claim", "Claims"]

_log = logging.getLogger(__name__)

_POLL_S = (0.05, 1.0)  # between two looks at a claim that another process holds: the first, and the longest
_BEATS = 4  # renewals within one lease

_METADATA = sa.MetaData()
_CLAIMS = sa.Table(
    "claims",
    _METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("token", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("ends", sa.DateTime(timezone=True), nullable=False),
)
_NOW = sa.func.clock_timestamp()

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Claim:
    """Work that this process may do, as long as the lease is renewed."""

    name: str
    token: str  # of this taking alone, so that a claim lost and taken again is another one


class Claims:
    """The claims on one store's work. Threads of a process may share it.

    Args:
        url: a SQLAlchemy URL of PostgreSQL.
        store: whose work it is.
        lease_s: seconds after which a process that is not heard of counts as dead.

    Raises:
        CatalogError: the database cannot be reached.
    """

    def __init__(self, url: str, store: Store, *, lease_s: float = 60.0) -> None:
        self._engine = opened(url, store)
        self._lease_s = lease_s
        self._held: dict[str, Claim] = {}  # by token
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._heart: threading.Thread | None = None
        with writing(self._engine) as connection:
            _METADATA.create_all(connection)

    def take(self, name: str) -> Claim | None:
        """Return the claim, or None while another holds it.

        Raises:
            CatalogError: the database could not be used.
        """
        claim = Claim(name, uuid.uuid4().hex)
        row = {"token": claim.token, "host": socket.gethostname(), "pid": os.getpid(), "ends": self._end()}
        wish = insert(_CLAIMS).values(name=name, **row)
        wish = wish.on_conflict_do_update(index_elements=["name"], set_=row, where=_CLAIMS.c.ends < _NOW)
        if not self._tokens(wish.returning(_CLAIMS.c.token)):
            return None
        with self._turn:
            self._held[claim.token] = claim
            if self._heart is None:
                self._heart = threading.Thread(target=self._beat, name="claims", daemon=True)
                self._heart.start()
        return claim

    def wait_for(self, name: str, finished: Callable[[], Found | None]) -> Claim | Found:
        """Return what another has finished, or the claim as soon as it is free.

        Args:
            name: the work's.
            finished: looks whether the work is done; asked before the claim is taken, and again after.

        Raises:
            CatalogError: the database could not be used.
        """
        pause, longest = _POLL_S
        while True:
            if (done := finished()) is not None:
                return done
            claim = self.take(name)
            if claim is not None:
                try:
                    done = finished()  # between the first look and the taking, its holder may have finished
                except BaseException:
                    self.release(claim)
                    raise
                if done is None:
                    return claim
                self.release(claim)
                return done
            self._closed.wait(pause)
            pause = min(2 * pause, longest)

    def confirm(self, claim: Claim) -> bool:
        """Renew a claim, and say whether it is still this process's: ask before what is done is committed.

        Raises:
            CatalogError: the database could not be used.
        """
        return self._renew([claim.token]) == {claim.token}

    def release(self, claim: Claim) -> None:
        """Give a claim back; nothing happens if it was lost.

        A database that cannot be reached is no reason to fail: the lease ends by itself.
        """
        with self._turn:
            self._held.pop(claim.token, None)
        try:
            self._tokens(_CLAIMS.delete().where(_CLAIMS.c.token == claim.token).returning(_CLAIMS.c.token))
        except CatalogError as exc:
            _log.warning("the claim on %s ends with its lease: %s", claim.name, exc)

    def close(self) -> None:
        """Stop renewing; claims still held end with their leases."""
        self._closed.set()
        if self._heart is not None:
            self._heart.join()
        self._engine.dispose()

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self) -> sa.ColumnElement[object]:
        return _NOW + sa.func.make_interval(0, 0, 0, 0, 0, 0, self._lease_s)

    def _renew(self, tokens: list[str]) -> set[str]:
        still = _CLAIMS.update().where(_CLAIMS.c.token.in_(tokens)).values(ends=self._end())
        return self._tokens(still.returning(_CLAIMS.c.token))

    def _tokens(self, statement: sa.sql.dml.ReturningInsert[str] | sa.Executable) -> set[str]:
        try:
            with self._engine.begin() as connection:
                return set(connection.scalars(statement))
        except sa.exc.SQLAlchemyError as exc:
            raise CatalogError(f"the claims could not be used: {told(exc)}") from exc

    def _beat(self) -> None:
        while not self._closed.wait(self._lease_s / _BEATS):
            with self._turn:
                tokens = sorted(self._held)
            if tokens:
                try:
                    self._renew(tokens)
                except CatalogError as exc:  # the next beat may reach it; who commits asks first
                    _log.warning("the leases could not be renewed: %s", exc)
