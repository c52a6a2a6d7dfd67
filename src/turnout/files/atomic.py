"""Write files whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from turnout.errors import FileProblem


def check_writable(path: str | Path) -> Path:
    """Refuse an output path that cannot be written, before any work is done.

    Raises:
        FileProblem: the folder is missing, or the path is a folder or not writable.
    """
    path = Path(path)
    try:
        exists, folder = path.exists(), path.is_dir()
    except (OSError, ValueError) as error:
        raise FileProblem(f"{path}: cannot be written ({error}): choose another path") from error
    if not path.parent.is_dir():
        raise FileProblem(f"{path}: cannot be written (no folder {path.parent}): create it first")
    if folder:
        raise FileProblem(f"{path}: cannot be written (it is a folder): name a file in it")
    if exists and not path.is_file():
        raise FileProblem(f"{path}: cannot be written (not an ordinary file): name another")
    if not os.access(path.parent, os.W_OK) or (exists and not os.access(path, os.W_OK)):
        raise FileProblem(f"{path}: cannot be written (permission denied): choose another path")
    return path


def check_new(path: str | Path) -> Path:
    """Refuse an output path that is taken, too: for what cannot be made a second time.

    Raises:
        FileProblem: there is such a file, or as of `check_writable`.
    """
    if check_writable(path).exists():
        raise FileProblem(f"{path}: the file must be new, got one that exists: give another path")
    return Path(path)


@contextlib.contextmanager
def whole_file(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """A temporary file that takes the name `path` only once it is complete; `private`: for its owner alone."""
    import tempfile  # and with it what compresses: not for a device, which only appends to its journals

    handle, path = None, path.resolve()  # a link is followed, not replaced
    try:
        descriptor, handle = tempfile.mkstemp(dir=path.parent, prefix=".turnout-")
        with os.fdopen(descriptor, "wb") as file:
            yield file
        if not private:
            os.chmod(handle, 0o666 & ~_umask())  # mkstemp is stricter than an ordinary file
        os.replace(handle, path)
        handle = None
    except OSError as error:
        raise FileProblem(f"{path}: cannot be written ({error.strerror}): choose another path or free space") from error
    finally:
        if handle is not None and os.path.exists(handle):
            os.unlink(handle)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
