"""The witness of an aggregator: a small file outside its books, which says what copies of the books have forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from turnout.errors import FileProblem
from turnout.files import Disk
from turnout.service.hidden.rules import canonical

KEPT = 1000
"""Of so many rounds a witness has the hash of the record: older copies of the books cannot take up the chain again."""

OnStep = Callable[[str, bool], None]
"""Called with a step's name, before it (False) and after it (True); for tests."""


@dataclass(frozen=True)
class Done:
    """What an aggregator has done.

    Attributes:
        round: the open one.
        records: the hash of each record, up to that of the round before; at most `KEPT`.
        roll: the digest of the members with which verifiers were sent in the open round; "": none were.
        made: the commitment to the own share in it; "": none was made.
        taken: the other side's commitment; "": none was taken.
    """

    round: int = 0
    records: tuple[str, ...] = ()
    roll: str = ""
    made: str = ""
    taken: str = ""


class RoundWitness:
    """What an aggregator has done, in a small file outside its books, written before anything of it is sent.

    It must be on other storage than the books, and never be restored.

    Args:
        path: the file, mode 0600.
        new: begin it: the run has no round yet.
        disk: the durable step, and
        on_step: for tests.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     witness = RoundWitness(Path(folder, "witness"), new=True)
        ...     witness.close(0, "a hash")
        ...     witness.note(1, made="a commitment")
        ...     RoundWitness(Path(folder, "witness")).done
        Done(round=1, records=('a hash',), roll='', made='a commitment', taken='')
    """

    def __init__(
        self, path: Path, *, new: bool = False, disk: Disk | None = None, on_step: OnStep = lambda name, done: None
    ) -> None:
        self.path, self._disk, self.on_step, self.done = path, disk or Disk(), on_step, Done()
        if new and not path.exists():
            self._put(self.done)
        try:
            values = json.loads(path.read_bytes())
            self.done = Done(**values | {"records": tuple(values["records"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            remedy = "mount its storage; if it is lost, end this run and begin another"
            raise FileProblem(f"{path}: the witness of the books cannot be read ({error}): {remedy}") from error

    @property
    def round(self) -> int:
        """The open round."""
        return self.done.round

    def record(self, round: int) -> str:
        """The hash of the record of a closed round; "": it has none."""
        back = self.done.round - round
        return self.done.records[-back] if 1 <= back <= len(self.done.records) else ""

    def close(self, round: int, record: str) -> None:
        """Have on the disk that a round is closed, with this record."""
        if round >= self.done.round:
            records = self.done.records if round == self.done.round else ()
            self._step(Done(round + 1, (*records, record)[-KEPT:]))

    def note(self, round: int, **facts: str) -> None:
        """Have on the disk what was done in the open round; what it knows stays."""
        new = {name: fact for name, fact in facts.items() if fact and not getattr(self.done, name)}
        if round == self.done.round and new:
            self._step(Done(**vars(self.done) | new))

    def _step(self, done: Done) -> None:
        self.on_step("witness", False)
        self._put(done)
        self.on_step("witness", True)

    def _put(self, done: Done) -> None:
        self._disk.put(self.path, canonical(asdict(done)) + b"\n")
        self.done = done
