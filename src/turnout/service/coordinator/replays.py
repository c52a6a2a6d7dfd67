"""Devices that are ahead of the books: after a restore they send again what they had decided in the lost rounds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST_LOST = 1_000_000
"""Rounds that a restore may have lost; who says more is not believed."""


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
