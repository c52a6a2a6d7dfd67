"""Who can be counted on: what a server knows from who reports, never from what.

A part of the clients may be gone for a while: a network fails, a site loses power. Three things follow, all from public
data alone. While they are gone, the others are asked for more, as far as they can give it. When they return, they are
counted again little by little, since they decide by a signal that was raised without them, and their averages have
fallen meanwhile: without that, all would participate at once. And the signal is lowered for each of them in advance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

QUORUM = 0.5
"""The share of the members that must report, unless a run says otherwise: of fewer, the turnout says nothing."""

FORGIVEN = 2
"""Rounds that a client may miss and is still expected: one lost message changes nothing."""

RETURN_ROUNDS = 16
"""The rounds over which clients that return are counted again; fewer after a shorter absence."""

CAUTION = 4
"""A client whose average has fallen to the share t of what it was is expected to participate t^-CAUTION times as often.
With the cost x^4 its intent rises by t^-2; the rest is for those who stayed, whose signal has risen meanwhile. Measured
for 2 to 5 (decision 15): with less the turnout overshoots, with more it takes longer to recover."""

_GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, are spread evenly, whichever clients return."""

Mask = npt.NDArray[np.bool_]


class Attendance(NamedTuple):
    """What the server makes of one round's attendance.

    Attributes:
        counted: who reported and counts, shape (clients,). Who has just returned reports, and counts later.
        weight: of all that were expected, heard or not.
        share: the part of that weight that was heard: the part of the capacity that can be asked of it.
        scale: what to multiply the signal by, since others are expected in the next round.
    """

    counted: Mask
    weight: float
    share: float
    scale: float


@dataclass(frozen=True, eq=False)
class Presence:
    """Who was heard of late; all of shape (clients,).

    Attributes:
        missed: the rounds in a row that each client missed, until it is counted again.
        waits: the rounds that a client that has returned waits until then; 0 for others.
        basis: for whom the signal is set: who was expected when the signal last moved.

    Example:
        >>> presence = Presence.start(4)
        >>> presence.expected
        array([ True,  True,  True,  True])
    """

    missed: npt.NDArray[np.int64]
    waits: npt.NDArray[np.int64]
    basis: Mask

    @classmethod
    def start(cls, clients: int) -> Presence:
        """All are expected."""
        return cls(np.zeros(clients, np.int64), np.zeros(clients, np.int64), np.ones(clients, np.bool_))

    def __repr__(self) -> str:
        return f"Presence({int(self.expected.sum())} of {len(self.missed)} expected, {self.returning} returning)"

    @property
    def expected(self) -> Mask:
        """Who is expected in the next round, and counts."""
        return self.missed <= FORGIVEN

    @property
    def returning(self) -> int:
        """How many report and are not counted yet."""
        return int(np.count_nonzero(self.waits))

    @property
    def is_still(self) -> bool:
        """Whether another round with the same reports would change nothing but how long the missing are gone."""
        return bool(np.all((self.missed == 0) | (self.missed > FORGIVEN)) and not self.returning) and bool(
            np.all(self.basis == self.expected)
        )

    def grown(self, clients: int) -> Presence:
        """The same with newcomers, up to so many: they are expected at once."""
        new = Presence.start(max(0, clients - len(self.missed)))
        pairs = zip(self, new, strict=True)
        return Presence(*(np.concatenate([old, added]) for old, added in pairs))

    def __iter__(self) -> Any:
        return iter((self.missed, self.waits, self.basis))

    def after(
        self,
        reported: Mask,
        members: Mask,
        weights: Any,
        rounds: Any,
        cap: float = np.inf,
        *,
        capacity: float,
        high: Any = 1.0,
        enough: bool = True,
        over: int = RETURN_ROUNDS,
    ) -> tuple[Presence, Attendance]:
        """One round later.

        Args:
            reported: who did, shape (clients,).
            members: who is a member, shape (clients,); of the others nothing is expected.
            weights: shape (clients,) or 1.
            rounds: since each client's average began, shape (clients,) or one number.
            cap: the most rounds behind an average.
            capacity: what is needed.
            high: the highest probability of each client, shape (clients,) or one number.
            enough: whether a quorum reported; else the signal stays, and stays set for whom it was.
            over: the rounds over which who returns is counted again; 0: all from the next round on.

        Example:
            >>> everyone, half = np.ones(4, np.bool_), np.array([True, True, False, False])
            >>> presence = Presence.start(4)
            >>> for _ in range(3):
            ...     presence, seen = presence.after(half, everyone, 1, 30.0, capacity=2)
            >>> seen.share, seen.scale  # half are gone for good, it seems: the others are asked for twice as much
            (0.5, 2.0)
            >>> presence, seen = presence.after(everyone, everyone, 1, 30.0, capacity=2)
            >>> presence
            Presence(3 of 4 expected, 1 returning)
        """
        heard, expected = reported & members, self.expected & members
        gone = members & ~reported
        back = heard & ~expected & (self.waits == 0)
        most = np.minimum(self.missed, over)
        first = np.floor((np.arange(len(self.missed)) * _GOLDEN % 1.0) * most).astype(np.int64)
        waits = np.where(back, first, np.where(heard, np.maximum(self.waits - 1, 0), 0))
        admitted = heard & ~expected & (waits == 0)
        missed = np.where(gone, self.missed + 1, np.where(admitted | (heard & expected), 0, self.missed))
        weights = np.broadcast_to(np.asarray(weights, np.float64), len(missed))
        counted = heard & expected
        weight = float(weights[expected].sum())
        share = float(weights[counted].sum()) / weight if weight else 0.0
        after = Presence(missed, waits, self.basis)
        if not enough:
            return after, Attendance(counted, weight, share, 1.0)
        soon = after.expected & members
        pull = np.where(admitted, fallen(self.missed, rounds, cap) ** -CAUTION, 1.0)
        then = float((weights * pull)[soon].sum())
        scale = float(weights[self.basis & members].sum()) / then if then else 1.0
        brought = float((weights * high)[admitted].sum())  # by those who are new, at most: a few cannot do much harm
        now = min(capacity, float((weights * high)[expected].sum()))
        scale = max(scale, (now / (now + brought)) ** 2) if brought else scale
        return Presence(missed, waits, after.expected), Attendance(counted, weight, share, scale or 1.0)

    def skipped(self, rounds: int) -> Presence:
        """So many rounds later, all like the last, which is possible where it `is_still`."""
        return Presence(np.where(self.missed > 0, self.missed + rounds, 0), self.waits, self.basis)


def fallen(missed: Any, rounds: Any, cap: float) -> Any:
    """The share that is left of an average after rounds missed in a row.

    Args:
        missed: how many.
        rounds: since the average began, the missed ones included.
        cap: the most rounds behind an average.

    Example:
        >>> float(fallen(30, 40.0, np.inf)), round(float(fallen(30, 100.0, 20.0)), 3)
        (0.25, 0.215)
    """
    missed = np.asarray(missed, np.float64)
    before = np.minimum(np.maximum(1.0, rounds - missed), cap)
    growing = np.minimum(missed, cap - before)
    return before / (before + growing) * (1.0 - 1.0 / cap) ** (missed - growing)
