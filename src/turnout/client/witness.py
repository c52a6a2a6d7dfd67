"""A ledger's second file: a note of the newest entry, by which an older copy of the ledger is noticed."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from turnout.errors import FileProblem
from turnout.files import Disk, Head
from turnout.privacy import Spending

PLACE = "TURNOUT_WITNESSES"
"""The environment variable that names the usual folder for witnesses."""


class NoPlace(FileProblem):
    """There is no place for a witness, and none was named."""


def usual_place(ledger: Path) -> Path:
    """Where the witness of a ledger is, unless told: outside the ledger's folder, which may be restored as a whole.

    In the folder that TURNOUT_WITNESSES names, or else in the user's folder for state ($XDG_STATE_HOME, or
    ~/.local/state), under a name made of the ledger's path.

    Raises:
        NoPlace: the user has no home.
    """
    named = os.environ.get(PLACE)
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError:
        state = None
    if not named and state is None:
        raise NoPlace(
            f"{ledger}: this user has no home, so that there is no place for the ledger's witness: name a file that "
            "outlives this process (witness=…, turnout join --witness FILE)"
        )
    folder = Path(named) if named else Path(str(state)) / "turnout" / "witnesses"
    path = Path(os.path.abspath(ledger))
    return folder / f"{path.parent.name}-{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True)
class Note:
    """What a witness has seen of its ledger.

    Attributes:
        head: the newest entry.
        spending: all that was spent up to it.
        runs: of each run, the last round that was reserved, and how many were.
    """

    head: Head = Head()  # noqa: RUF009 (frozen)
    spending: Spending = field(default_factory=Spending)
    runs: dict[str, tuple[int, int]] = field(default_factory=dict)


class Witness:
    """The note, replaced as a whole each time.

    Args:
        path: the file, mode 0600; its folder is made if it is missing.
        ledger: whose it is, for messages.
        disk: the durable steps.

    Attributes:
        path: as given.
        seen: the newest entry, as far as we know.
    """

    def __init__(self, path: Path, ledger: Path, disk: Disk) -> None:
        self.path, self._ledger, self._disk = path, ledger, disk
        self.seen = Head()

    def read(self) -> Note | None:
        """What the file says now; None if there is none.

        Raises:
            FileProblem: it cannot be read.
        """
        try:
            found = json.loads(self.path.read_bytes())
            runs = {str(run): (int(last), int(number)) for run, (last, number) in found["runs"].items()}
            return Note(Head(int(found["number"]), str(found["hash"])), Spending.read(found["spent"]), runs)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileProblem(
                f"{self.path}: the witness of {self._ledger} cannot be read ({error}): restore it"
            ) from error

    def check_folder(self) -> None:
        """Distinguish a lost witness from storage that is not mounted.

        Raises:
            FileProblem: its folder is not there.
        """
        if not self.path.parent.is_dir():
            raise FileProblem(
                f"{self.path}: the witness of {self._ledger} cannot be reached, its folder is missing: mount its "
                "storage again, then try again"
            )

    def write(self, note: Note) -> None:
        """Put the note on the disk.

        Raises:
            FileProblem: it cannot be written.
        """
        body = {**note.head._asdict(), "spent": note.spending.body(), "runs": note.runs}
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._disk.put(self.path, json.dumps(body).encode() + b"\n")
        except OSError as error:
            raise FileProblem(
                f"{self.path}: the witness cannot be written ({error.strerror}): free space, make it writable, or name "
                "another place (witness=…, turnout join --witness)"
            ) from error
        self.seen = note.head
