"""Open a store by its address, and restore a run from a copy into any kind of store."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from turnout.service.store.sql import SqlStore
from turnout.service.store.sqlite import SqliteStore
from turnout.service.store.store import Control, Run, Store, StoreProblem


def open_store(location: str, *, create: bool = False) -> Store:
    """The store at a location: `postgresql://…`, or else the path of an SQLite file.

    Args:
        location: where.
        create: make it if it is missing.

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
        from turnout.service.store.postgres import PostgresStore

        return PostgresStore(location, create=create)
    return SqliteStore(Path(location), create=create)


@dataclass(frozen=True)
class Restored:
    """What was restored from a copy.

    Attributes:
        run: what it is about.
        as_of: the wall clock at the copy's last entry, seconds since 1970: what was changed later is undone.
        round: the open one.
        control: capacity and mode, as the copy has them; the restored run itself is paused.
        members: devices that may report now.
    """

    run: Run
    as_of: float
    round: int
    control: Control
    members: int


def restore(copy: Path, location: str, who: str = "command line") -> Restored:
    """Restore a run from a copy into a store that has none: a new file, or an empty PostgreSQL database.

    The copy stays as it is. Rounds closed since it was made are lost to the coordinator; devices that know
    them send their stored reports again. Whatever the operator did since then is undone, too, also a
    revocation: so the run is paused until the operator has checked it and resumes it.

    Args:
        copy: what `Store.backup` wrote.
        location: as for `open_store`.
        who: for the audit log.

    Returns:
        What was restored.

    Raises:
        StoreProblem: the copy is damaged or of a newer version, the place is taken, or one of the two fails.
    """
    with tempfile.TemporaryDirectory() as folder:  # an older version is brought up to date here
        opened = SqliteStore(_working_copy(Path(copy), Path(folder)), called=str(copy))
        try:
            opened.check()
            found = _contents(opened)
            target = open_store(location, create=True)
            try:
                if not isinstance(target, SqlStore):
                    raise StoreProblem("a run can be restored to SQLite or PostgreSQL only: give such a location")
                opened.pour(target, restored_by=who)
            finally:
                target.close()
        finally:
            opened.close()
    return found


def _contents(copy: SqliteStore) -> Restored:
    """What a copy holds, after all of its rounds have been read."""
    run, position = copy.run(), copy.position()
    closed_at = {closed.round: closed.closed_at for closed in copy.history()}
    if run is None or list(closed_at) != list(range(copy.summary().first_kept, position.round)):
        raise StoreProblem(f"{copy.place}: closed rounds are missing from it: use another copy")
    as_of = max([run.begun_at, *closed_at.values(), *(change.at for change in copy.changes())])
    members = sum(device.left is None for device in copy.devices())
    return Restored(run, as_of, position.round, copy.control(), members)


def _working_copy(copy: Path, folder: Path) -> Path:
    log = copy.with_name(copy.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise StoreProblem(f"{copy}: it is in use, not a copy: make one with `turnout operate backup`")
    try:
        return Path(shutil.copyfile(copy, folder / "copy"))
    except OSError as error:
        raise StoreProblem(f"{copy}: {(error.strerror or str(error)).lower()}: give what a backup wrote") from error
