"""A run in a PostgreSQL database: the store of several coordinators at once."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from turnout.errors import MissingExtra
from turnout.service import MISSING, ClosedRound, Codes, Position
from turnout.service.store import store
from turnout.service.store.schema import (
    ADDED_TO,
    POSTGRES_TYPES,
    Row,
    Tables,
    closed_of,
    closed_row,
    creation,
    migrate,
    selection,
)
from turnout.service.store.sql import SqlStore
from turnout.service.store.sqlite import back_up
from turnout.service.store.store import NotBegun, StoreProblem

if TYPE_CHECKING:
    import psycopg

SCHEMA_NAME = "turnout"
"""The tables' schema within the database; one run per database."""

FROZEN = "10s"
"""After this time the server ends an idle transaction: of a coordinator that was halted in the middle."""

HEARTBEAT = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""Seconds, seconds, times: after 25 s without a connection each side gives up the other, and the lead is free."""

REMEDIES = {
    "": "check that the server runs, that the database exists (`createdb`), and address, user and password",
    "25006": "the server only reads: give the address of the primary",
    "42501": "let this user create and use the schema `turnout` in the database",
    "53100": "make room on the server's disk: a coordinator that runs tries again by itself",
    "55P03": "another process keeps it locked: end that one",
}


class _Address:
    """Where a database is.

    Args:
        location: `postgresql://user:password@host:port/database`.

    Attributes:
        shown: it without user, password and options, for messages.

    Raises:
        StoreProblem: it cannot be read as an address.
    """

    def __init__(self, location: str) -> None:
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict

        self._location = location
        self.shown = _without_secrets(location)
        try:
            parts = conninfo_to_dict(location)
        except Error:
            parts = {"host": "@"}
        if any("@" in str(parts.get(name)) for name in ("host", "hostaddr", "port", "dbname")):
            raise StoreProblem(
                f"{self.shown}: not a PostgreSQL address: write postgresql://user:password@host:port/database, "
                "the password percent-encoded"
            ) from None
        self._secrets = [str(value) for name, value in parts.items() if "password" in name and value]

    def connect(self) -> psycopg.Connection[Any]:
        """A new connection, each statement of which is its own transaction unless one is begun.

        Raises:
            psycopg.Error: it cannot be made.
        """
        import psycopg

        heartbeat: dict[str, Any] = HEARTBEAT | {"tcp_user_timeout": 20_000}
        connection = psycopg.connect(
            self._location,
            autocommit=True,
            client_encoding="utf8",
            application_name="turnout",
            connect_timeout=5,
            **heartbeat,
        )
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path TO {SCHEMA_NAME}")
            cursor.execute(f"SET idle_in_transaction_session_timeout = '{FROZEN}'")
            cursor.execute("SET lock_timeout = '20s'")
            for name, value in HEARTBEAT.items():
                cursor.execute(f"SET tcp_{name} = {value}".encode())
            if cursor.execute("SHOW synchronous_commit").fetchone() == ("off",):
                cursor.execute("SET synchronous_commit = on")
        return connection

    def problem(self, error: Exception) -> StoreProblem:
        """What to raise in place of the library's error."""
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "…")
        remedy = REMEDIES.get(getattr(error, "sqlstate", None) or "", "the server's own log says more")
        return StoreProblem(f"{self.shown}: {text or 'no answer'}: {remedy}")


def _without_secrets(location: str) -> str:
    """A location for messages: without user, password and options.

    Example:
        >>> _without_secrets("postgresql://me:secret@db.example:5432/turnout?sslmode=require")
        'postgresql://db.example:5432/turnout'
    """
    return re.sub(r"//.*@", "//", location).split("?")[0]


RECONNECT_SECONDS = 10.0
"""Seconds for which a lost connection is tried again: a restart of the server is no failure."""

LEADER, BUILDER = 0x7475726E6F757401, 0x7475726E6F757402
"""Advisory locks: of the one that closes rounds; of the one that makes the tables."""

ALONE = "FOR UPDATE"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

REPORT = (
    "INSERT INTO reports SELECT ?, slot, code, (SELECT coalesce(max(batch), 0) + 1 FROM reports WHERE round = ?) "
    "FROM unnest(?::bigint[], ?::smallint[]) AS t (slot, code) ON CONFLICT DO NOTHING"
)
END_SILENT_LEAD = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
    "WHERE locktype = 'advisory' AND pg_locks.granted AND objsubid = 1 "
    f"AND classid = {LEADER >> 32} AND objid = {LEADER & 0xFFFFFFFF} "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND clock_timestamp() - state_change > make_interval(secs => ?)"
)

REPORTED = "SELECT max(batch), array_agg(slot), array_agg(code) FROM reports WHERE round = ? AND batch > ?"

T = TypeVar("T")


class _PostgresTables:
    """The tables of a PostgreSQL database within a transaction.

    Args:
        connection: that has begun one.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def _execute(self, sql: str, values: tuple[object, ...]) -> psycopg.Cursor[Any]:
        return self._connection.execute(_own(sql), values or None)

    def all(self, sql: str, *values: object) -> list[Row]:
        """Every row of a query."""
        return self._execute(sql, values).fetchall()

    def one(self, sql: str, *values: object) -> Row | None:
        """The first row of a query."""
        row: Row | None = self._execute(sql, values).fetchone()
        return row

    def do(self, sql: str, *values: object) -> int:
        """Carry out a statement; how many rows it changed."""
        return self._execute(sql, values).rowcount

    def many(self, sql: str, rows: Iterable[Row]) -> None:
        """Carry out a statement once for each row."""
        with self._connection.cursor() as cursor:
            cursor.executemany(_own(sql), rows)

    def stream(self, sql: str) -> Iterator[Row]:
        """The rows of a query that may be larger than memory."""
        with self._connection.cursor("turnout_stream") as cursor:
            cursor.execute(_own(sql))
            yield from cursor


@dataclass(frozen=True, eq=False)
class _Table:
    """What this process knows of a round's reports in the shared table: all up to a batch."""

    round: int
    batch: int = 0
    codes: Codes = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))


class _Lost(Exception):
    """The connection broke, and to try again is safe."""


class PostgresStore(SqlStore):
    """A `Store` that several coordinators share; a broken connection is made again.

    Args:
        location: `postgresql://user:password@host:port/database`.
        create: make the tables if they are missing; the database itself must exist.

    Raises:
        StoreProblem: it cannot be reached or used, holds no store, or one of a newer version.
        MissingExtra: psycopg is not installed.
    """

    shared = True

    def __init__(self, location: str, *, create: bool = False) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtra(feature="a PostgreSQL store", library="psycopg", extra="postgres") from error
        self._library = psycopg
        self._address = _Address(location)
        self.place = self._address.shown
        self._connection: psycopg.Connection[Any] | None = None
        self._leader: psycopg.Connection[Any] | None = None
        self._table = _Table(-1)
        self._closed = False
        try:
            self._connection = self._address.connect()
            self._prepare(create)
        except psycopg.Error as error:
            raise self._address.problem(error) from None
        except BaseException:
            self.close()
            raise

    def _prepare(self, create: bool) -> None:
        """Check that it is a store, and make or bring up to date its tables."""

        def work(tables: Tables) -> None:
            tables.do(f"SELECT pg_advisory_xact_lock({BUILDER})")
            exists = tables.one(f"SELECT to_regclass('{SCHEMA_NAME}.meta') IS NOT NULL") == (True,)
            if not exists and not create:
                raise NotBegun(f"{self.place}: no store in this database: `turnout serve` makes one")
            if not exists:
                for statement in _creation():
                    tables.do(statement)
                tables.do("INSERT INTO meta VALUES ('schema', ?)", str(store.SCHEMA))
            version = tables.one("SELECT value FROM meta WHERE name = 'schema' FOR UPDATE") or ("0",)
            migrate(tables, int(version[0]), store.SCHEMA, POSTGRES_TYPES, self.place, _TRIGGERS)

        self._transaction("BEGIN", work, again=True)

    def _write(self, work: Callable[[Tables], T], *, again: bool = False) -> T:
        def checked(tables: Tables) -> T:
            self._check_version(tables, ALONE)
            return work(tables)

        return self._transaction("BEGIN", checked, again=again)

    def _read(self, work: Callable[[Tables], T]) -> T:
        return self._transaction(SNAPSHOT, work, again=True)

    def _take_time(self, tables: Tables) -> None:
        """It writes nothing, and nobody waits for it: a copy to a slow disk may take longer than `FROZEN`."""
        tables.do("SET LOCAL idle_in_transaction_session_timeout = 0")

    def _transaction(self, begin: str, work: Callable[[Tables], T], *, again: bool) -> T:
        """Carry out work; again if the connection breaks, unless it may be done already and must not be done twice."""

        def attempt() -> T:
            committing = False
            try:
                if self._connection is None:
                    self._check_open()
                    self._connection, self._table = self._address.connect(), _Table(-1)  # a crash empties the table
                self._connection.execute(begin.encode())
                result = work(_PostgresTables(self._connection))
                committing = True
                self._connection.execute("COMMIT")
            except self._library.Error as error:
                if not self._gone():
                    self._roll_back()
                    raise self._address.problem(error) from None
                if committing and not again:
                    raise StoreProblem(
                        f"{self.place}: the connection broke at the commit: look whether it was done before "
                        "doing it again"
                    ) from None
                raise _Lost(error) from None
            except BaseException:
                self._roll_back()
                raise
            return result

        return self._patiently(attempt)

    def _patiently(self, attempt: Callable[[], T]) -> T:
        end = time.monotonic() + RECONNECT_SECONDS
        while True:
            try:
                return attempt()
            except _Lost as lost:
                if time.monotonic() > end:
                    raise self._address.problem(lost.args[0]) from None
            time.sleep(0.1)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreProblem(f"{self.place}: the store was closed: open it again")

    def _gone(self) -> bool:
        """Whether there is no connection any more; then the server has rolled back what was not committed."""
        if self._connection is not None and self._connection.closed:
            self._connection = None
        return self._connection is None

    def _roll_back(self) -> None:
        try:
            if self._connection is not None:
                self._connection.execute("ROLLBACK")
        except self._library.Error:  # without a connection the server does it
            self._gone()

    def _codes(self, tables: Tables, codes: Iterable[bytes]) -> dict[bytes, Row]:
        sql = selection("codes", "WHERE code = ANY(?)")
        return {bytes(row[0]): row for row in tables.all(sql, list(codes))}

    def merge(self, round: int, codes: Codes) -> Codes:
        """Add these reports to the shared table and return all in it; the first report of a device counts.

        A device gets no answer before the round is closed, so the table need not be durable.
        Only new reports are sent and read: coordinators ask many times a second.

        Returns:
            As many slots as were given, or more: other coordinators may know newer devices. For a round that is not
            open, what was given.
        """

        def work(tables: Tables) -> _Table | None:
            seen = self._table if self._table.round == round else _Table(round)
            before = _widened(seen.codes, len(codes))
            fresh = np.flatnonzero((codes != MISSING) & (before[: len(codes)] == MISSING))
            if len(fresh):
                self._check_version(tables, ALONE)  # one after the other: batches become visible in order
            if tables.one("SELECT round FROM state") != (round,):
                return None
            if len(fresh):
                tables.do("SET LOCAL synchronous_commit = off")
                tables.do(REPORT, round, round, fresh.tolist(), codes[fresh].tolist())
            batch, slots, values = tables.one(REPORTED, round, seen.batch) or (None, None, None)
            if batch is None:
                return _Table(round, seen.batch, before)
            together = _widened(before, max(slots) + 1)
            together[slots] = values
            return _Table(round, batch, together)

        table = self._transaction("BEGIN", work, again=True)
        if table is None:
            return codes
        self._table = table
        return table.codes.copy()

    def close_round(self, closed: ClosedRound, position: Position) -> None:
        """Store the closed round and open the next, in one transaction. In mode DRAINING or STOPPED it becomes PAUSED.

        If the connection breaks at the commit, the stored rounds show whether it was done.

        Raises:
            StaleRound: the round is not the open one.
        """
        tries = itertools.count()
        row = closed_row(closed)

        def work(tables: Tables) -> None:
            if next(tries):
                found = tables.one(selection("books", "WHERE round = ?"), row[0])
                if found is not None and closed_row(closed_of(found)) == row:
                    return
            self._close_round(tables, closed, position)
            tables.do("DELETE FROM reports WHERE round <= ?", row[0])

        self._write(work, again=True)

    def lead(self) -> bool:
        """Whether this process is the one that closes rounds: it has the lock, as long as its connection lives."""

        def attempt() -> bool:
            try:
                if self._leader is None or self._leader.closed:
                    self._check_open()
                    self._leader = self._address.connect()
                row = self._leader.execute(f"SELECT pg_try_advisory_lock({LEADER})").fetchone()
            except self._library.Error as error:
                raise _Lost(error) from None
            return row == (True,)

        return self._patiently(attempt)

    def end_lead(self, silent: float) -> bool:
        """End the session that has the lock, if it has asked for nothing for so many seconds: its process is halted.

        A process asks many times a second. A user may end its own sessions, so coordinators should share one.
        """
        return bool(self._transaction("BEGIN", lambda tables: tables.all(END_SILENT_LEAD, silent), again=True))

    def backup(self, path: Path) -> None:
        """A complete copy in one new SQLite file, while it runs."""
        back_up(self, path)

    def close(self) -> None:
        """Close it; the lead is given up first, so that the next one can take it."""
        if self._leader is not None:
            with contextlib.suppress(self._library.Error):
                self._leader.execute("SELECT pg_advisory_unlock_all()")
        for connection in (self._connection, self._leader):
            if connection is not None:
                connection.close()
        self._connection = self._leader = None
        self._closed = True


def _widened(codes: Codes, slots: int) -> Codes:
    return np.concatenate([codes, np.full(max(0, slots - len(codes)), MISSING, dtype=np.uint8)])


def _own(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


def _creation() -> list[str]:
    return [
        f"CREATE SCHEMA IF NOT EXISTS {SCHEMA_NAME}",
        *creation(POSTGRES_TYPES),
        "CREATE UNLOGGED TABLE reports "
        "(round BIGINT, slot BIGINT, code SMALLINT, batch BIGINT NOT NULL, PRIMARY KEY (round, slot))",
        "CREATE INDEX reports_by_batch ON reports (round, batch)",
        "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'this table is only ever added to'; END $$",
        _REFUSE_UNSUMMED,
        *_only_added_to(),
    ]


_REFUSE_UNSUMMED = (
    "CREATE OR REPLACE FUNCTION refuse_unsummed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    f"IF OLD.round >= (SELECT coalesce(max(first_kept), 0) FROM {SCHEMA_NAME}.trimmed) THEN "
    "RAISE EXCEPTION 'this table is only ever added to'; END IF; RETURN OLD; END $$"
)


def _only_added_to(*tables: str) -> list[str]:
    """The triggers of these tables, of all unless given; rounds that are summed up may be deleted."""
    refuse, statements = "EXECUTE FUNCTION refuse_change()", []
    for table in tables or ADDED_TO:
        on = "UPDATE" if table == "books" else "UPDATE OR DELETE"
        statements += [
            f"CREATE TRIGGER unchanged BEFORE {on} ON {table} FOR EACH ROW {refuse}",
            f"CREATE TRIGGER untruncated BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {refuse}",
        ]
        if table == "books":
            statements.append(
                "CREATE TRIGGER undeleted BEFORE DELETE ON books FOR EACH ROW EXECUTE FUNCTION refuse_unsummed()"
            )
    return statements


_TRIGGERS = {
    1: [
        *(
            f"DROP TRIGGER IF EXISTS {name} ON {table}"
            for table in ("books", "rules", "trimmed")
            for name in ("unchanged", "untruncated", "undeleted")
        ),
        _REFUSE_UNSUMMED,
        *_only_added_to("books", "rules", "trimmed"),
    ]
}
"""What `migrate` does beside the shared statements."""
