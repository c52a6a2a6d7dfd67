"""One release at joining, and from then on only public data: a promise for a lifetime."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING
from typing import Any, Self

import numpy as np

from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.thresholds import WORDS, check_epsilon, growth
from turnout.errors import invalid
from turnout.problem.costs import Array, Clients, Costs, PolynomialCosts, inverse_slope


def usual_levels(epsilon: float) -> tuple[float, ...]:
    """Levels for a total epsilon: few while lies are frequent, more as the truth gets through.

    The number, e^(epsilon / 3.2), is the best of those tried on the paper's population for 4, 6, 8 and 10.

    Example:
        >>> [len(usual_levels(epsilon)) for epsilon in (2, 4, 6, 8, 10)]
        [3, 3, 7, 12, 23]
    """
    number = int(np.clip(np.rint(np.exp(epsilon / 3.2)), 3, 64))
    ends = (0.2, 0.9) if number < 6 else (0.15, 1.0)  # where lies are frequent, the extremes cost most
    return tuple(np.linspace(*ends, number).tolist())


@dataclass(frozen=True)
class Memoized(Mechanism):
    """At joining the client releases a target level once, through randomized response; then it acts on that alone.

    Its target is the average it would have at a public reference price. It names the nearest of the
    public levels with probability e^epsilon / (e^epsilon + levels - 1), else another. From then on it takes
    part with the intent of a *surrogate*, the quadratic cost whose slope at the released level is the reference
    price, never with that of its own cost. Pure epsilon in total, however many rounds
    (docs/proofs/memoized.md), as long as the cost is released once across all runs and servers.

    Args:
        epsilon: in total, above 0.
        price: the public reference price, above 0: near where the signal settles.
        levels: public averages to choose from, in (0, 1]; the usual ones for epsilon, unless given.

    Example:
        >>> costs = PolynomialCosts([[5.0], [50.0]], powers=(2,))
        >>> Memoized(epsilon=8.0, price=10.0).enrol(costs, np.array([0.5, 0.5])).inverse_slope(10.0)
        array([1.  , 0.15])
    """

    epsilon: float
    price: float
    levels: tuple[float, ...] = ()
    kind = "memoized"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not (np.isfinite(self.price) and self.price > 0.0):
            raise invalid("price", "above 0 and finite", self.price, "give where the signal is expected to settle")
        levels = tuple(sorted(float(level) for level in self.levels)) or usual_levels(self.epsilon)
        if len(levels) < 2 or not 0.0 < levels[0] <= levels[-1] <= 1.0:
            raise invalid("levels", "two or more averages in (0, 1]", self.levels, "leave them out for the usual ones")
        object.__setattr__(self, "levels", levels)

    def enrol(self, costs: Costs, uniform: Array, weights: Any = 1) -> PolynomialCosts:
        """The released level of each client, as the public surrogate cost to act on."""
        levels = np.array(self.levels)
        target = inverse_slope(costs, self.price * np.asarray(weights, dtype=np.float64))
        truth = np.argmin(np.abs(target[:, None] - levels[None, :]), axis=1)
        # Of 2^53 words each other level has the same number, and the nearest all the rest: exact integers.
        others, each = len(levels) - 1, self.words_of_another_level()
        word = np.floor(uniform * WORDS).astype(np.int64)
        released = levels[(truth + np.where(word < others * each, 1 + word // each, 0)) % len(levels)]
        # The surrogate a x^2 has slope 2 a x: at the released level it is the reference price (times the weight).
        surrogate = self.price * np.asarray(weights, dtype=np.float64) / (2.0 * released)
        return PolynomialCosts(np.broadcast_to(surrogate, released.shape)[:, None], (2,))

    def words_of_another_level(self) -> int:
        """How many of the 2^53 words of the coin release one given other level than the nearest; rounded up."""
        share = WORDS / (growth(self.epsilon) + len(self.levels) - 1)
        return int(share.to_integral_value(ROUND_CEILING))

    @staticmethod
    def response(intent: Any, average: Any, parameters: Any) -> Any:
        """The surrogate's intent, which is public."""
        return intent

    @staticmethod
    def limits(average: Any, parameters: Any) -> tuple[Any, Any]:
        """Anything: the report holds nothing that was not released."""
        return 0.0, 1.0

    def __getitem__(self, clients: Clients) -> Self:
        """The same for every client: nothing of it differs by client."""
        return self
