"""The rounds that have closed, as far as memory needs them: for answers, and for restored databases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from turnout.service import ClosedRound
from turnout.service.store import Store

KEPT = 16
"""Closed rounds that are answered from memory."""

MOST_LOST = 1_000_000
"""Rounds that a restore may have lost; a device that claims more is not believed."""


class Answered(NamedTuple):
    """A closed round, ready to answer from.

    Attributes:
        codes: by slot.
        closed: when, on the coordinator's clock, or earlier: a lease must not become too long; None: nobody knows.
    """

    codes: bytes
    closed: float | None


class ClosedRounds:
    """The newest closed rounds.

    Args:
        store: where all of them are.
        open: the open round; another coordinator may have closed it and more since.

    Attributes:
        last: the last closed round, if there is one.
    """

    def __init__(self, store: Store, open: int) -> None:
        self.last = store.closed(open - 1) if open else None
        self._answered: dict[int, Answered] = {}

    def add(self, closed: ClosedRound, when: float) -> None:
        """One more has closed."""
        self.last = closed
        self._answered[closed.round] = Answered(closed.codes.tobytes(), when)
        self._answered.pop(closed.round - KEPT, None)

    def answered(self, round: int) -> Answered | None:
        """One to answer from; None if it is not in memory."""
        return self._answered.get(round)


class Replays:
    """How far each device said that it was, before it went back to our round. In memory: a restart forgets it.

    Example:
        >>> replays = Replays()
        >>> replays.note(slot=2, round=40, open=7)
        >>> replays.among(3, round=40), replays.among(3, round=41)
        (array([False, False,  True]), array([False, False, False]))
        >>> replays.most()
        40
    """

    def __init__(self) -> None:
        self._ahead: dict[int, int] = {}

    def note(self, slot: int, round: int, open: int) -> None:
        """A device has reported a round after the open one."""
        if open < round <= open + MOST_LOST:
            self._ahead[slot] = max(round, self._ahead.get(slot, 0))

    def among(self, slots: int, round: int) -> npt.NDArray[np.bool_]:
        """Whose report of a round was decided before the restore, under another signal, shape (slots,)."""
        found = np.zeros(slots, np.bool_)
        found[[slot for slot, last in self._ahead.items() if last >= round and slot < slots]] = True
        return found

    def most(self) -> int:
        """The round up to which any device says that it has reported: for an account, which must not be too small."""
        return max(self._ahead.values(), default=0)
