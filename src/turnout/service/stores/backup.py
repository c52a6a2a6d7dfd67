"""Bring a run back from a copy, into any kind of store."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from turnout.service.stores.locations import open_store
from turnout.service.stores.sql_store import SqlStore
from turnout.service.stores.sqlite_store import SqliteStore
from turnout.service.stores.store import Run, StoreProblem


def restore(copy: Path, location: str, who: str = "command line") -> Run:
    """Bring a run back from a copy into a store that has none: a new file, or an empty PostgreSQL database.

    The copy stays as it is. Rounds closed since it was made are lost to the coordinator; devices that were
    told of them send again what they have on file.

    Args:
        copy: what `Store.backup` wrote.
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
