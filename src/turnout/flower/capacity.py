"""How many are wanted: so many on average, or at least so many with a given confidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from turnout.errors import invalid

SPREAD = 1.07
"""Turnouts spread so many times as far as independent coins with a constant mean would, because the signal
wanders: measured for `SelfTuningController` (see turnout.algorithm.self_tuning)."""


@dataclass(frozen=True)
class AtLeast:
    """So many volunteers or more, in this share of the rounds. Make it with `at_least`.

    Attributes:
        number: the least turnout that will do.
        confidence: the share of rounds in which it must be reached, in (0, 1).
    """

    number: int
    confidence: float

    def __post_init__(self) -> None:
        if isinstance(self.number, bool) or not isinstance(self.number, int) or self.number < 1:
            raise invalid("at_least number", "a whole number from 1", repr(self.number), "give the least turnout")
        if not 0.0 < self.confidence < 1.0:
            raise invalid("at_least confidence", "above 0 and below 1", self.confidence, "try 0.95")

    def capacity(self, clients: int) -> float:
        """The average turnout to aim at, so that the least one is reached often enough.

        Clients toss independently, so the turnout S is a sum of coins with mean C. By Hoeffding (1956), among all
        such sums of `clients` coins, P(S < number) is greatest for equal ones as long as number <= C: the binomial
        tail is a bound, whoever the clients are. C is the least mean whose exact binomial tail is 1 - confidence;
        its distance from the number is then stretched by SPREAD, for the signal's own wandering.

        Raises:
            ValueError: more are wanted than there are clients.

        Example:
            >>> round(at_least(15, confidence=0.95).capacity(clients=50), 2)
            20.49
        """
        if self.number >= clients:
            remedy = "lower it, or wait for more clients (min_available_nodes)"
            raise invalid("at_least number", f"below {clients} (clients)", self.number, remedy)
        low, high = float(self.number), float(clients)
        for _ in range(60):
            middle = 0.5 * (low + high)
            short = binomial_below(self.number, clients, middle / clients) > 1.0 - self.confidence
            low, high = (middle, high) if short else (low, middle)
        return min(self.number + SPREAD * (high - self.number), float(clients))


def at_least(number: int, confidence: float = 0.95) -> AtLeast:
    """Capacity as "at least so many, with this confidence": the over-selection is computed from the spread.

    It is about volunteers. Those that fail on the way are not made up for: add what you expect to lose.

    Example:
        >>> at_least(15)
        AtLeast(number=15, confidence=0.95)
    """
    return AtLeast(number, confidence)


def binomial_below(number: int, coins: int, chance: float) -> float:
    """P(fewer than `number` of `coins` fall), each with this chance, summed exactly.

    Example:
        >>> round(binomial_below(2, 3, 0.5), 12)
        0.5
    """
    if chance <= 0.0 or chance >= 1.0:
        return float(chance <= 0.0 and number > 0) if number <= coins else 1.0
    logs = (
        math.lgamma(coins + 1) - math.lgamma(k + 1) - math.lgamma(coins - k + 1)
        + k * math.log(chance) + (coins - k) * math.log1p(-chance)
        for k in range(min(number, coins + 1))
    )  # fmt: skip
    return min(1.0, math.fsum(math.exp(log) for log in logs))
