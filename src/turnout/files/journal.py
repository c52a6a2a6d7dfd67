"""An append-only file of sealed JSON lines: what has returned from `append` is on the disk.

Each line carries its number, the hash of the line before, and its own hash. One append is in flight
at a time and later lines come only after it is durable, so a crash can spoil the last line alone:
such a torn line is dropped on opening, because its `append` never returned. Damage anywhere else
is refused. The hashes show accidents and restored copies; they are no secret, and stop no owner
who forges his own file.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from turnout.errors import FileProblem, TurnoutError

LOCK_SECONDS = 10.0
"""Seconds to wait for another process that shares the file: a turn takes some milliseconds."""

_SEAL = len(', "hash": "') + 64 + len('"}')


class InUse(TurnoutError):
    """Another process (or another object of this one) has the file open.

    Example:
        >>> issubclass(InUse, TurnoutError)
        True
    """


class Head(NamedTuple):
    """The last line of a journal: its number and its hash; (-1, "") before the first."""

    number: int = -1
    hash: str = ""


class Disk:
    """The durable steps, one method each, so that a test can fail or crash at every one of them."""

    def write(self, descriptor: int, data: bytes) -> None:
        """Write all of the data."""
        while data:
            data = data[os.write(descriptor, data) :]

    def sync(self, descriptor: int) -> None:
        """Return once what was written is on the disk."""
        os.fsync(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Give a complete file its name, durably."""
        os.replace(source, target)
        self.sync_folder(target.parent)

    def sync_folder(self, folder: Path) -> None:
        """Return once the names in a folder are on the disk."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def put(self, path: Path, data: bytes) -> None:
        """Replace a whole small file, mode 0600: afterwards it is the old one or the new, never a part."""
        part = path.with_name(path.name + ".new")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self.write(descriptor, data)
            self.sync(descriptor)
        finally:
            os.close(descriptor)
        self.replace(part, path)


def seal(body: Mapping[str, Any], number: int, previous: str) -> tuple[bytes, Head]:
    """One line of a journal, and the head that it makes.

    Example:
        >>> line, head = seal({"entry": "reserved"}, 0, "")
        >>> line[:41], head.hash == json.loads(line)["hash"]
        (b'{"number": 0, "entry": "reserved", "previ', True)
    """
    text = json.dumps({"number": number, **body, "previous": previous}, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{text[:-1]}, "hash": "{digest}"}}\n'.encode(), Head(number, digest)


def unseal(line: bytes, before: Head) -> dict[str, Any] | None:
    """The entry in a line that follows `before`; None if it is damaged or out of place."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    digest = hashlib.sha256(line[:-_SEAL] + b"}").hexdigest()
    whole = isinstance(entry, dict) and entry.get("hash") == digest and entry.get("previous") == before.hash
    return entry if whole and isinstance(entry.get("number"), int) and entry["number"] > before.number else None


def entries_of(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a journal that may be growing, up to the first that is not whole; no lock is taken."""
    head = Head()
    try:
        with open(path, "rb") as file:
            for line in file:
                entry = unseal(line[:-1], head) if line.endswith(b"\n") else None
                if entry is None:
                    return
                head = Head(entry["number"], entry["hash"])
                yield entry
    except OSError:
        return


class Journal:
    """An open journal, locked for this object alone; mode 0600; made empty if it is not there.

    Where several processes share a file, `let_go` gives the lock back, and each takes it for a moment with `turn`.

    Args:
        path: the file; its folder must exist.
        what: what it is, for messages: "ledger".
        disk: the durable steps.
        patience: seconds to wait for another process that has it.

    Attributes:
        entries: the whole entries found on opening.
        head: the last line.
        torn: whether a torn last line was found; `mend` drops it.

    Raises:
        InUse: it is open elsewhere.
        FileProblem: it cannot be opened, or is damaged before its last line.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Journal(Path(folder, "a.jsonl"), "diary") as diary:
        ...         diary.append({"entry": "hello"})
        ...     with Journal(Path(folder, "a.jsonl"), "diary") as diary:
        ...         [entry["entry"] for entry in diary.entries]
        ['hello']
    """

    def __init__(self, path: Path, what: str, disk: Disk | None = None, patience: float = 0.0) -> None:
        self.path, self.what, self._disk = path, what, disk or Disk()
        self._broken = ""
        self._process = os.getpid()
        self._holds, self._size = True, 0
        self.head, self.entries, self.torn = Head(), list[dict[str, Any]](), False
        self._descriptor = self._open(time.monotonic() + patience)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether it was not closed yet, by the process that opened it."""
        return self._descriptor >= 0 and os.getpid() == self._process

    def let_go(self) -> None:
        """Give the lock back: from now on the file is shared, and written in a `turn` only."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._holds = False

    @contextmanager
    def turn(self, patience: float = LOCK_SECONDS) -> Iterator[list[dict[str, Any]]]:
        """Hold a shared file for a moment; gives the entries that others have added since.

        Raises:
            InUse: somebody else has held it for longer than `patience` seconds.
            FileProblem: it was changed in another way than by added lines.
        """
        self._check_open()
        if self._holds:  # a turn within a turn, or a file that is not shared
            yield []
            return
        self._wait_for_lock(self._descriptor, time.monotonic() + patience)
        self._holds = True
        try:
            yield self._catch_up()
        finally:
            if self._descriptor >= 0:
                self.let_go()

    def _catch_up(self) -> list[dict[str, Any]]:
        """Read what others have added; a line that one has left torn is dropped, since its `append` did not return."""
        try:
            here, there = os.fstat(self._descriptor), os.stat(self.path)
            if not os.path.samestat(here, there) or here.st_size < self._size:
                raise self._replaced()
            if here.st_size == self._size:
                return []
            self._disk.sync(self._descriptor)
            data = os.pread(self._descriptor, here.st_size - self._size, self._size)
        except OSError as error:
            raise self._problem("read", error) from error
        before = self._size
        news = self._whole_lines(data)
        rest = data[self._size - before :]
        if b"\n" in rest[:-1]:
            raise self._replaced()
        self.torn = bool(rest)
        self.mend()
        return news

    def _whole_lines(self, data: bytes) -> list[dict[str, Any]]:
        """The entries at the beginning of the data that follow the head, which moves on."""
        found = []
        for line in io.BytesIO(data):
            entry = unseal(line[:-1], self.head) if line.endswith(b"\n") else None
            if entry is None:
                break
            found.append(entry)
            self.head, self._size = Head(entry["number"], entry["hash"]), self._size + len(line)
        return found

    def _open(self, end: float) -> int:
        if not self.path.parent.is_dir():
            raise FileProblem(f"{self.path}: no folder {self.path.parent} for the {self.what}: create it first")
        if self.path.exists() and not self.path.is_file():  # a device could be read for ever
            raise FileProblem(f"{self.path}: cannot be opened as a {self.what} (it is no ordinary file): name another")
        while True:
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise self._problem("opened for writing", error) from error
            try:
                self._wait_for_lock(descriptor, end)
                if os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                    os.fchmod(descriptor, 0o600)
                    return descriptor
                os.close(descriptor)  # it was rewritten in between: take the new one
            except OSError as error:
                os.close(descriptor)
                raise self._problem("locked", error) from error
            except InUse:
                os.close(descriptor)
                raise

    def _wait_for_lock(self, descriptor: int, end: float) -> None:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise InUse(
                        f"{self.path}: this {self.what} is in use elsewhere: another process holds it. Stop that one, "
                        "and try again"
                    ) from None
                time.sleep(0.002)

    def _read(self) -> None:
        try:
            with open(self._descriptor, "rb", closefd=False) as file:
                data = file.read()
            if data:
                self._disk.sync(self._descriptor)  # what was read may not be on the disk yet
        except OSError as error:
            raise self._problem("read", error) from error
        self.entries = self._whole_lines(data)
        rest = data[self._size :]
        self.torn = bool(rest)
        if b"\n" in rest[:-1]:
            raise FileProblem(
                f"{self.path}: this {self.what} is damaged after line {len(self.entries)} "
                f"(a crash can spoil the last line only): restore its newest copy"
            )

    def mend(self) -> None:
        """Drop a torn last line; its `append` never returned, so nobody has relied on it."""
        if self.torn:
            try:
                os.ftruncate(self._descriptor, self._size)
                self._disk.sync(self._descriptor)
            except OSError as error:
                raise self._problem("mended", error) from error
            self.torn = False

    def append(self, body: Mapping[str, Any], number: int | None = None) -> None:
        """Add one entry; on return it is on the disk.

        Raises:
            FileProblem: it could not be written (full, read-only), and nothing was added; or
                the file was changed by somebody else.
        """
        self._check_ours()
        line, head = seal(body, self.head.number + 1 if number is None else number, self.head.hash)
        try:
            if self._size == 0:
                self._disk.sync_folder(self.path.parent)
            self._disk.write(self._descriptor, line)
            self._disk.sync(self._descriptor)
        except OSError as error:
            self._undo()
            raise self._problem("written", error) from error
        self.head, self._size = head, self._size + len(line)

    def rewrite(self, bodies: Iterable[Mapping[str, Any]]) -> None:
        """Replace the whole content by these entries: afterwards it is the old one or the new."""
        self._check_ours()
        lines, head = [], Head()
        for body in bodies:
            line, head = seal(body, head.number + 1, head.hash)
            lines.append(line)
        data, part = b"".join(lines), self.path.with_name(self.path.name + ".new")
        try:
            descriptor = os.open(part, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._disk.write(descriptor, data)
                self._disk.sync(descriptor)
                self._disk.replace(part, self.path)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise self._problem("rewritten", error) from error
        os.close(self._descriptor)
        self._descriptor, self.head, self._size = descriptor, head, len(data)

    def close(self) -> None:
        """Release the lock and the file; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _check_open(self) -> None:
        if self._descriptor < 0:
            raise FileProblem(f"{self.path}: this {self.what} is closed: open it again")
        if os.getpid() != self._process:
            raise InUse(f"{self.path}: this {self.what} belongs to the process that opened it: open it after the fork")
        if self._broken:
            raise FileProblem(f"{self.path}: this {self.what} could not be put right ({self._broken}): open it again")

    def _check_ours(self) -> None:
        self._check_open()
        assert self._holds  # a shared file is written in a turn only
        try:
            here, there = os.fstat(self._descriptor), os.stat(self.path)
        except OSError as error:
            raise self._problem("found", error) from error
        if not os.path.samestat(here, there) or here.st_size != self._size:  # a torn line is longer
            raise self._replaced()

    def _replaced(self) -> FileProblem:
        return FileProblem(f"{self.path}: this {self.what} was changed or replaced while in use: open it again")

    def _undo(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._size)
            self._disk.sync(self._descriptor)
        except OSError as error:
            self._broken = str(error.strerror)

    def _problem(self, done: str, error: OSError) -> FileProblem:
        return FileProblem(
            f"{self.path}: this {self.what} cannot be {done} ({error.strerror}): "
            "free space, or make it and its folder writable, then try again"
        )
