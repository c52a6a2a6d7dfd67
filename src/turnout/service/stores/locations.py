"""Stores by where they are."""

from __future__ import annotations

from pathlib import Path

from turnout.service.stores.sqlite_store import SqliteStore
from turnout.service.stores.store import Store


def open_store(location: str, *, create: bool = False) -> Store:
    """The store at a location: `postgresql://…`, or else the path of an SQLite file.

    Args:
        location: where.
        create: make it if it is not there.

    Raises:
        StoreProblem: there is none, or it cannot be used.
        MissingExtra: PostgreSQL's library is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = open_store(f"{folder}/run.db", create=True)
        ...     print(store.run())
        ...     store.close()
        None
    """
    if location.startswith(("postgresql://", "postgres://")):
        from turnout.service.stores.postgres_store import PostgresStore

        return PostgresStore(location, create=create)
    return SqliteStore(Path(location), create=create)
