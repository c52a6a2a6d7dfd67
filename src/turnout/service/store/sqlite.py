"""A run in one SQLite file: the store of a coordinator on one machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from turnout.files import Disk
from turnout.service.store import store
from turnout.service.store.schema import ADDED_TO, SQLITE_TYPES, Row, Tables, creation, migrate
from turnout.service.store.sql import SqlStore
from turnout.service.store.store import NotBegun, StoreProblem

LOCK_SECONDS = 10.0
"""Seconds to wait for another process that is writing."""

ALONE = "BEGIN IMMEDIATE"

GOES_ON = "everything acknowledged is there, and a coordinator that runs tries again by itself"
REMEDIES = {
    "SQLITE_FULL": f"make room on the disk: {GOES_ON}",
    "SQLITE_IOERR": f"check the disk and its free space: {GOES_ON}",
    "SQLITE_READONLY": "make the file and its folder writable to this user",
    "SQLITE_CANTOPEN": "make the file and its folder readable and writable to this user",
    "SQLITE_PERM": "make the file and its folder readable and writable to this user",
    "SQLITE_CORRUPT": "restore a copy with `turnout operate restore`",
    "SQLITE_NOTADB": "give the path of a store, or a new one",
    "SQLITE_BUSY": "another process keeps it locked: end that one",
    "SQLITE_LOCKED": "another process keeps it locked: end that one",
}

T = TypeVar("T")


class SqliteTables:
    """The tables of an SQLite file within a transaction.

    Args:
        connection: that has begun one.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def all(self, sql: str, *values: object) -> list[Row]:
        """Every row of a query."""
        return self._connection.execute(sql, values).fetchall()

    def one(self, sql: str, *values: object) -> Row | None:
        """The first row of a query."""
        rows = self.all(sql, *values)
        return rows[0] if rows else None

    def do(self, sql: str, *values: object) -> int:
        """Carry out a statement; how many rows it changed."""
        return self._connection.execute(sql, values).rowcount

    def many(self, sql: str, rows: Iterable[Row]) -> None:
        """Carry out a statement once for each row."""
        self._connection.executemany(sql, rows)

    def stream(self, sql: str) -> Iterator[Row]:
        """The rows of a query that may be larger than memory."""
        yield from self._connection.execute(sql)


class SqliteStore(SqlStore):
    """A `turnout.service.store.store.Store` in a file of mode 0600, with its write-ahead log and lock beside it.

    A commit is on the disk when it returns. Other processes may read and write it at the same time.

    Args:
        path: of the file.
        create: make it if it is missing.
        called: its name in messages, if not the path.

    Raises:
        StoreProblem: there is none, it is something else, of a newer version, or cannot be written.
    """

    def __init__(self, path: Path, *, create: bool = False, called: str = "") -> None:
        self._path = Path(path).resolve()  # two names of one file have one lock
        self.place = called or str(path)
        self._leading: int | None = None
        self._is_new = False
        self._connection = self._opened(create)
        try:
            self._prepare(create)
        except BaseException:
            self.close()
            raise

    def _opened(self, create: bool) -> sqlite3.Connection:
        try:
            if create:
                self._is_new = _made(self._path)
            self._inode = self._path.stat().st_ino
        except FileNotFoundError:
            what = "make its folder first" if create else "begin a run there with `turnout serve --capacity …`"
            raise NotBegun(f"{self.place}: no such file: check the path, or {what}") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StoreProblem(f"{self.place}: {reason}: give a path that this user may write") from error
        if not os.access(self._path, os.R_OK | os.W_OK):  # SQLite itself would say so at the first change only
            raise StoreProblem(f"{self.place}: may not be written: {REMEDIES['SQLITE_READONLY']}")
        try:
            return sqlite3.connect(
                f"{self._path.as_uri()}?mode=rw",
                uri=True,
                timeout=LOCK_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def _prepare(self, create: bool) -> None:
        """Check that it is a store before anything is written to it; make or bring up to date its tables."""

        def names(tables: Tables) -> set[str]:
            return {row[0] for row in tables.all("SELECT name FROM sqlite_master")}

        found = self._read(names)
        if not {"meta", "run", "books"} <= found and (found or not create):
            what, kind = ("a database of another kind", StoreProblem) if found else ("an empty file", NotBegun)
            raise kind(f"{self.place}: it must be a coordinator's store, got {what}: give another path")
        self._set("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON")

        def work(tables: Tables) -> None:
            if "meta" not in names(tables):
                for statement in [*creation(SQLITE_TYPES), *_only_added_to()]:
                    tables.do(statement)
                tables.do("INSERT INTO meta VALUES ('schema', ?)", str(store.SCHEMA))
            version = tables.one("SELECT value FROM meta WHERE name = 'schema'") or ("0",)
            migrate(tables, int(version[0]), store.SCHEMA, SQLITE_TYPES, self.place, _TRIGGERS)

        self._transaction(ALONE, work)

    def _set(self, *pragmas: str) -> None:
        try:
            for pragma in pragmas:
                self._connection.execute(f"PRAGMA {pragma}")
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def _write(self, work: Callable[[Tables], T], *, again: bool = False) -> T:
        def checked(tables: Tables) -> T:
            self._check_version(tables)
            return work(tables)

        return self._transaction(ALONE, checked)

    def _read(self, work: Callable[[Tables], T]) -> T:
        return self._transaction("BEGIN", work)

    def _transaction(self, begin: str, work: Callable[[Tables], T]) -> T:
        connection = self._connection
        self._check_still_there()
        try:
            connection.execute(begin)
            result = work(SqliteTables(connection))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._problem(error) from error
        except BaseException:
            self._roll_back()
            raise
        return result

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # SQLite has rolled back by itself, or the next opening does
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _check_still_there(self) -> None:
        """A commit to a file that was removed or replaced would be lost."""
        try:
            same = self._path.stat().st_ino == self._inode
        except OSError:
            same = False
        if not same:
            raise StoreProblem(f"{self.place}: the file was removed or replaced while in use: start again")

    def _problem(self, error: sqlite3.Error) -> StoreProblem:
        code = getattr(error, "sqlite_errorname", None) or ""
        remedy = REMEDIES.get("_".join(code.split("_")[:2]), "`turnout operate restore` restores a copy")
        return StoreProblem(f"{self.place}: {error}: {remedy}")

    def lead(self) -> bool:
        """Whether this process is the one that closes rounds: it holds the lock file beside the store."""
        if self._leading is not None:
            return True
        lock = _lock_of(self._path)
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StoreProblem(f"{lock}: {reason}: make the folder writable to this user") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._leading = descriptor
        return True

    def check(self) -> None:
        """Read the whole file.

        Raises:
            StoreProblem: a part of it is damaged.
        """
        found = self._read(lambda tables: tables.all("PRAGMA integrity_check(1)"))
        if found != [("ok",)]:
            raise StoreProblem(f"{self.place}: the file is damaged ({found[0][0]}): use another copy")

    def backup(self, path: Path) -> None:
        """A complete copy in one new file, while it runs."""
        back_up(self, path)

    def seal(self) -> None:
        """Make it one file that can be read from a read-only place, and close it."""
        self._set("journal_mode = DELETE")
        self.close()

    def close(self) -> None:
        """Let go of it. A file that this process has made, and in which no run was begun, is removed again."""
        if self._is_new:
            self._remove_if_empty()
        self._connection.close()
        if self._leading is not None:
            os.close(self._leading)
            self._leading = None

    def _remove_if_empty(self) -> None:
        """What a refused command made is of no use; a file that another process has open stays."""
        self._is_new = False

        def work(tables: Tables) -> None:
            has_table = tables.one("SELECT name FROM sqlite_master WHERE name = 'run'")
            if has_table and tables.one("SELECT name FROM run"):
                return
            self._path.unlink()
            if self._leading is not None:
                _lock_of(self._path).unlink()

        with contextlib.suppress(StoreProblem, OSError):
            # Without a write-ahead log, so that closing deletes no file by a name that is somebody else's by then.
            self._set("busy_timeout = 0", "journal_mode = DELETE")
            self._transaction("BEGIN EXCLUSIVE", work)


def _made(path: Path) -> bool:
    """Whether there was no such file; then it is made."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    Disk().sync_folder(path.parent)
    return True


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def back_up(source: SqlStore, path: Path) -> None:
    """Write a snapshot of everything to a new file; it gets its name when it is complete.

    Args:
        source: any store; it may be in use.
        path: of the copy, which is an SQLite file, whatever the source is.

    Raises:
        StoreProblem: the path is taken, or one of the two fails.
    """
    path = Path(path)
    if path.exists():
        raise StoreProblem(f"{path}: the file must be new, got one that exists: give another path")
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")  # its own: there may be two at once
    try:
        copy = SqliteStore(part, create=True)
        try:
            source.pour(copy)
            copy.check()
            copy.seal()
        finally:
            copy.close()
        Disk().replace(part, path)
    except OSError as error:
        raise StoreProblem(f"{path}: {error.strerror}: give a path that this user may write") from error
    finally:
        _forget(part)


def _forget(part: Path) -> None:
    for name in (part.name, f"{part.name}-wal", f"{part.name}-shm", f"{part.name}-journal"):
        try:
            os.unlink(part.with_name(name))
        except FileNotFoundError:
            continue


_REFUSAL = "BEGIN SELECT RAISE(ABORT, 'this table is only ever added to'); END"


def _only_added_to(*tables: str) -> list[str]:
    """The triggers of these tables, of all unless given; rounds that are summed up may be deleted."""
    statements = []
    for table in tables or ADDED_TO:
        key = ADDED_TO[table]
        taken = f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key})"  # INSERT OR REPLACE deletes silently
        summed = "WHEN OLD.round >= (SELECT coalesce(max(first_kept), 0) FROM trimmed)" if table == "books" else ""
        statements += [
            f"CREATE TRIGGER {table}_unchanged BEFORE UPDATE ON {table} {_REFUSAL}",
            f"CREATE TRIGGER {table}_undeleted BEFORE DELETE ON {table} {summed} {_REFUSAL}",
            f"CREATE TRIGGER {table}_unreplaced BEFORE INSERT ON {table} {taken} {_REFUSAL}",
        ]
    return statements


_TRIGGERS = {
    1: [
        *(
            f"DROP TRIGGER IF EXISTS {table}_{name}"
            for table in ("books", "rules", "trimmed")
            for name in ("unchanged", "undeleted", "unreplaced")
        ),
        *_only_added_to("books", "rules", "trimmed"),
    ]
}
"""What `migrate` does beside the shared statements."""
