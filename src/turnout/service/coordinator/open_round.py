"""The round that is open: reports as they come in, in memory alone; they count once the round is in the books."""

from __future__ import annotations

from enum import Enum

import numpy as np

from turnout.service.coordinator.roll import Roll
from turnout.service.rounds import MISSING, NO, YES, Codes


class Entry(Enum):
    """What became of a report, before its round is closed."""

    ACCEPTED = "accepted"
    CONFIRMED = "confirmed"
    CONFLICT = "conflict"
    LATE = "late"


class OpenRound:
    """The reports of one round.

    Args:
        number: of the round.
        roll: the devices.
        opened: when, on the coordinator's clock.

    Attributes:
        heard: how many have reported.
        due: how many it still waits for.
        closing: its books are being written: no report can be added any more.
    """

    def __init__(self, number: int, roll: Roll, opened: float) -> None:
        self.number, self.opened, self.closing = number, opened, False
        self._codes = bytearray(len(roll))
        self._roll = roll
        self.heard, self.due = 0, sum(map(roll.is_awaited, range(len(roll))))

    def put(self, slot: int, participates: bool) -> Entry:
        """A device's bit: the first stands."""
        code, known = (YES if participates else NO), self._codes[slot]
        if known == code:
            return Entry.CONFIRMED
        if known != MISSING:
            return Entry.CONFLICT
        if self.closing:
            return Entry.LATE
        self._codes[slot] = code
        self.heard += 1
        self.due -= self._roll.is_awaited(slot)
        return Entry.ACCEPTED

    def grow(self) -> None:
        """New devices have enrolled: it waits for them too."""
        new = len(self._roll) - len(self._codes)
        self._codes.extend(bytes(new))
        self.due += new

    def recount(self) -> None:
        """Devices have left: it waits for them no more."""
        self.grow()
        self.due = sum(code == MISSING and self._roll.is_awaited(slot) for slot, code in enumerate(self._codes))

    def codes(self) -> Codes:
        """A copy of the reports by slot."""
        return np.frombuffer(bytes(self._codes), dtype=np.uint8)

    def take(self, codes: Codes) -> None:
        """All reports that are known anywhere, this round's own included."""
        self._codes[: len(codes)] = codes.tobytes()
        self.heard = len(self._codes) - self._codes.count(MISSING)
        self.recount()
