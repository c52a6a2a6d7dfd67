"""What a rehearsal lets go wrong: devices that are late, and devices that are cut off for some rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from turnout.errors import invalid

Some = npt.NDArray[np.bool_]


@dataclass
class Rehearsal:
    """Drawn once for a fleet: who is late in every round, and who is cut off.

    Args:
        late: the share of devices that report late.
        late_seconds: by how much at the most; drawn anew for every report.
        cut: the share that is offline for some rounds, below 1: the others see the rounds go by.
        cut_first: the first of these rounds.
        cut_rounds: how many.

    Example:
        >>> rehearsal = Rehearsal(cut=0.95, cut_first=100, cut_rounds=100)
        >>> rehearsal.draw(1000, seed=1)
        >>> int(rehearsal.away(150).sum()), int(rehearsal.away(200).sum())
        (950, 0)
    """

    late: float = 0.0
    late_seconds: float = 5.0
    cut: float = 0.0
    cut_first: int = 0
    cut_rounds: int = 0
    _slow: Some = field(init=False, repr=False)
    _cut: Some = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.late <= 1.0:
            raise invalid("late", "a share from 0 to 1", self.late, "try 0.1")
        if not 0.0 <= self.late_seconds < np.inf:
            raise invalid("late seconds", "0 or more", self.late_seconds, "try 5")
        if not 0.0 <= self.cut < 1.0:
            raise invalid("cut", "a share from 0 to below 1", self.cut, "leave some devices online, such as 0.95")
        if self.cut_first < 0 or self.cut_rounds < 0:
            raise invalid("cut rounds", "0 or more", (self.cut_first, self.cut_rounds), "write 0.95:100:100")

    def draw(self, devices: int, seed: int | None) -> None:
        """Choose the devices."""
        self._random = np.random.default_rng(seed)
        self._slow = self._some(self.late, devices)
        self._cut = self._some(self.cut, devices)

    def delays(self, batch: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Seconds by which these devices' reports are late, shape (batch,); mostly 0."""
        if not self.late:
            return np.zeros(len(batch))
        return self._slow[batch] * self._random.uniform(0.0, self.late_seconds, len(batch))

    def away(self, round: int) -> Some:
        """Who is cut off in a round, shape (devices,)."""
        return self._cut if self.is_out(round) else np.zeros(len(self._cut), np.bool_)

    def is_out(self, round: int) -> bool:
        """Whether the outage holds in a round."""
        return bool(self.cut) and self.cut_first <= round < self.cut_first + self.cut_rounds

    def pause(self, seconds: float) -> float:
        """Such a time, half as much less or more, drawn: not everyone comes back in the same moment."""
        return seconds * float(self._random.uniform(0.5, 1.5))

    def _some(self, share: float, devices: int) -> Some:
        chosen = np.zeros(devices, np.bool_)
        chosen[self._random.permutation(devices)[: min(round(share * devices), devices)]] = True
        if share < 1.0 and devices and chosen.all():
            chosen[0] = False
        return chosen
