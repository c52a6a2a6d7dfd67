"""A ledger's second file: a note of the newest entry, by which an older copy of the ledger is noticed."""

from __future__ import annotations

import json
from pathlib import Path

from turnout.errors import FileProblem
from turnout.privacy.journal import Disk, Head


class Witness:
    """The note, replaced as a whole each time.

    Args:
        path: the file, mode 0600.
        ledger: whose it is, for messages.
        disk: the durable steps.

    Attributes:
        path: as given.
        seen: the newest entry, as far as we know.
    """

    def __init__(self, path: Path, ledger: Path, disk: Disk) -> None:
        self.path, self._ledger, self._disk = path, ledger, disk
        self.seen = Head()

    def read(self) -> Head | None:
        """What the file says now; None if there is none.

        Raises:
            FileProblem: it cannot be read.
        """
        try:
            found = json.loads(self.path.read_bytes())
            return Head(int(found["number"]), str(found["hash"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileProblem(
                f"{self.path}: the witness of {self._ledger} cannot be read ({error}): bring it back"
            ) from error

    def write(self, head: Head) -> None:
        """Note this entry; on return it is on the disk.

        Raises:
            FileProblem: it cannot be written.
        """
        try:
            self._disk.put(self.path, json.dumps(head._asdict()).encode() + b"\n")
        except OSError as error:
            raise FileProblem(
                f"{self.path}: the witness cannot be written ({error.strerror}): free space or make it writable"
            ) from error
        self.seen = head
