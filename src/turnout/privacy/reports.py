"""What an observer of every report has seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnout.errors import invalid
from turnout.problem.costs import Array


@dataclass(frozen=True, eq=False)
class Reports:
    """The signals and all reports of a run.

    Args:
        signals: the signal that decided each round, shape (rounds,): with the paper's lag, that of the round before.
        bits: X_i(k), 0 or 1, shape (rounds, clients).

    Example:
        >>> Reports(np.array([0.35, 0.35]), np.array([[1, 1, 1], [1, 0, 1]])).rounds
        2
    """

    signals: Array
    bits: npt.NDArray[np.uint8]

    def __post_init__(self) -> None:
        bits = np.asarray(self.bits)
        if bits.ndim != 2 or np.shape(self.signals) != bits.shape[:1]:
            got = f"shapes {np.shape(self.signals)} and {bits.shape}"
            raise invalid("signals and bits", "of shapes (rounds,) and (rounds, clients)", got, "give one row a round")
        if np.any((bits != 0) & (bits != 1)):
            raise invalid("bits", "0 or 1", sorted(np.unique(bits).tolist())[:5], "give who took part")
        object.__setattr__(self, "bits", bits.astype(np.uint8, copy=False))
        object.__setattr__(self, "signals", np.asarray(self.signals, dtype=np.float64))

    def __repr__(self) -> str:
        return f"Reports({self.rounds} rounds of {self.clients} clients)"

    @property
    def rounds(self) -> int:
        """How many rounds were seen."""
        return int(self.bits.shape[0])

    @property
    def clients(self) -> int:
        """How many clients report."""
        return int(self.bits.shape[1])

    def first(self, rounds: int) -> Reports:
        """The first rounds alone."""
        return Reports(self.signals[:rounds], self.bits[:rounds])
