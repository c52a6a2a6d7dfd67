"""Copies of a run: out of any store into one file, and back into any store."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from turnout.privacy.journal import Disk
from turnout.service.sql_store import SqlStore
from turnout.service.sqlite_store import SqliteStore
from turnout.service.store import Run, StoreProblem, open_store


def back_up(source: SqlStore, path: Path) -> None:
    """Write everything, as of one moment, to a new file; it has its name only once it is complete.

    Args:
        source: any store; it may be in use.
        path: of the copy, which is an SQLite file, whatever the source is.

    Raises:
        StoreProblem: the path is taken, or one of the two fails.
    """
    path = Path(path)
    if path.exists():
        raise StoreProblem(f"{path}: the file must be new, got one that exists: give another path")
    part = path.with_name(path.name + ".part")
    try:
        _forget(part)
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


def restore(copy: Path, location: str, who: str = "command line") -> Run:
    """Bring a run back from a copy into a store that has none: a new file, or an empty PostgreSQL database.

    The copy stays as it is. Rounds closed since it was made are lost to the coordinator; devices that were
    told of them send again what they have on file.

    Args:
        copy: what `back_up` wrote.
        location: as for `open_store`.
        who: for the audit log.

    Returns:
        The run.

    Raises:
        StoreProblem: the copy is damaged or of a newer version, the place is taken, or one of the two fails.
    """
    with tempfile.TemporaryDirectory() as folder:  # an older version is brought up to date here
        opened = SqliteStore(_working_copy(Path(copy), Path(folder)), called=str(copy))
        try:
            opened.check()
            run, position = opened.run(), opened.position()
            if run is None or [closed.round for closed in opened.history()] != list(range(position.round)):
                raise StoreProblem(f"{copy}: rounds are missing from its books: use another copy")
            target = open_store(location, create=True)
            try:
                if not isinstance(target, SqlStore):
                    raise StoreProblem("a run can be restored to SQLite or PostgreSQL only: give such a location")
                opened.pour(target, (who, "restored", f"as of round {position.round}"))
            finally:
                target.close()
        finally:
            opened.close()
    return run


def _working_copy(copy: Path, folder: Path) -> Path:
    log = copy.with_name(copy.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise StoreProblem(f"{copy}: it is in use, not a copy: make one with `turnout operate backup`")
    try:
        return Path(shutil.copyfile(copy, folder / "copy"))
    except OSError as error:
        raise StoreProblem(f"{copy}: {(error.strerror or str(error)).lower()}: give what a backup wrote") from error


def _forget(part: Path) -> None:
    for name in (part.name, f"{part.name}-wal", f"{part.name}-shm", f"{part.name}-journal"):
        try:
            os.unlink(part.with_name(name))
        except FileNotFoundError:
            continue
