"""The server's book: signals and totals round by round, and the controller's state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Controller
from turnout.problem import Array


@dataclass
class Book:
    """What the server knows. `signal[k]` is Theta(k), `participants[k]` the total of round k.

    Attributes:
        controller: how the signal moves.
        capacity: what is needed in each round; set anew where a schedule changes it.
        signal: shape (rounds + 1,): the last is the next round's.
        participants: shape (rounds,).
        capacities: the capacity of each round, shape (rounds,).
        round: how many rounds are entered.
        state: the controller's.
    """

    controller: Controller
    capacity: float
    signal: Array
    participants: npt.NDArray[np.int64]
    capacities: Array
    round: int = 0
    state: Any = field(default=None)

    @classmethod
    def open(cls, controller: Controller, capacity: float, rounds: int) -> Book:
        """An empty book for so many rounds."""
        state = controller.start()
        book = cls(
            controller, capacity, np.zeros(rounds + 1), np.zeros(rounds, np.int64), np.zeros(rounds), state=state
        )
        book.signal[0] = state.signal
        return book

    def deciding(self, round: int) -> float:
        """The signal that decides a round: `lag` rounds old.

        Paper: Algorithms 2 and 3: X(k+1) is drawn from Theta(k).
        """
        return float(self.signal[max(0, round - self.controller.lag)])

    def enter(self, total: int) -> None:
        """Close a round with this total: the controller sets the next signal."""
        self.participants[self.round] = total
        self.capacities[self.round] = self.capacity
        self.state = self.controller.step(self.state, total, self.capacity)
        self.round += 1
        self.signal[self.round] = self.state.signal
