"""One release at joining, and from then on only public data: a promise for a lifetime."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from turnout.algorithm.mechanism import Mechanism, Planned, Recipe
from turnout.algorithm.thresholds import WORDS, check_epsilon, growth
from turnout.errors import check_number, invalid
from turnout.problem import Array, Clients, Costs, PolynomialCosts

_CHUNK = 1 << 14  # clients looked at together
_DOWN = Context(prec=80, rounding=ROUND_FLOOR)  # not the caller's decimal context, which might round a bound up

STIFF = 0.25
"""How much of a surrogate's slope at its level comes from a sixth power: a client whose level was released at too
low a price does not go far beyond it (costs may rise steeply there); one at too high a price still goes down."""

HEADROOM = 0.85
"""A client that releases level 1 would mostly do so for less than the reference price: the surrogate's slope
there, in parts of that price."""


def usual_levels(epsilon: float) -> tuple[float, ...]:
    """Levels for a total epsilon: few where random errors are frequent, more for a larger epsilon.

    The number, e^(epsilon / 3.2), is the best of those tried on the paper's population for 4, 6, 8 and 10.

    Example:
        >>> [len(usual_levels(epsilon)) for epsilon in (2, 4, 6, 8, 10)]
        [3, 3, 7, 12, 23]
    """
    number = int(np.clip(np.rint(np.exp(epsilon / 3.2)), 3, 64))
    if number >= 6:
        return tuple(np.linspace(0.15, 1.0, number).tolist())
    reach, center = (
        min(0.35, 0.0875 * epsilon),
        0.5 + min(0.05, 0.0125 * epsilon),
    )  # errors are frequent: extreme levels cost most
    return tuple(np.linspace(center - reach, center + reach, number).tolist())


def surrogate(level: Array, price: Any, weights: Any = 1) -> PolynomialCosts:
    """The public cost that stands for a released level: its slope at the level is the price (times the weight).

    Example:
        >>> surrogate(np.array([0.25, 0.5]), price=10.0).inverse_slope(10.0).round(6)
        array([0.25, 0.5 ])
    """
    worth = np.asarray(price * np.asarray(weights, dtype=np.float64) * np.where(level >= 1.0, HEADROOM, 1.0))
    square, sixth = (1.0 - STIFF) * worth / (2.0 * level), STIFF * worth / (6.0 * level**5)
    return PolynomialCosts(np.stack([square, sixth], axis=1), (2, 6))


class OneRelease(Mechanism):
    """A mechanism that releases something once, at joining, and then acts on that alone: epsilon is for a lifetime."""

    epsilon: float

    @property
    def release_epsilon(self) -> float:
        """What it states."""
        return self.epsilon

    @staticmethod
    def response(intent: Any, average: Any, parameters: Any) -> Any:
        """The surrogate's intent, which is public."""
        return intent

    @staticmethod
    def limits(average: Any, parameters: Any) -> tuple[Any, Any]:
        """Anything from 0 to 1: the report holds nothing that was not released."""
        return 0.0, 1.0

    def __getitem__(self, clients: Clients) -> Self:
        """The same for every client: nothing of it differs by client."""
        return self


@dataclass(frozen=True)
class Memoized(OneRelease):
    """At joining the client releases a level once, through a private channel; then it acts on that alone.

    Whatever its cost, each public level is released with a probability between its `least` and e^epsilon times
    that. Inside these limits the client prefers the levels that are best for it at a public reference price:
    those with the smallest f(level) - price w level get their largest probability first. From then on it
    participates with the intent of a *surrogate*, whose slope at the released level is the reference price, never
    with that of its own cost. Pure epsilon in total, however many rounds (docs/proofs/memoized.md), as long as the
    cost is released once across all runs and servers.

    Args:
        epsilon: in total, above 0.
        price: the public reference price, above 0: near where the signal settles.
        levels: public averages to choose from, in (0, 1]; by default those for epsilon.
        least: the least probability of each level; by default the same for all: then the best level is released with
            probability e^epsilon / (e^epsilon + levels - 1). `turnout.privacy.floor` finds the best for a population.
        designed: whether price, levels or probabilities were computed from costs: then these reveal something about
            them, too, and the promise says so.

    Example:
        >>> costs = PolynomialCosts([[5.0], [50.0]], powers=(2,))
        >>> Memoized(epsilon=8.0, price=10.0).release(costs, np.array([0.5, 0.5]))
        array([11,  0])
    """

    epsilon: float
    price: float
    levels: tuple[float, ...] = ()
    least: tuple[float, ...] = ()
    designed: bool = False
    kind = "memoized"
    unsaid = ("least", "designed")  # the numbers behind the levels; and what the promise says in words

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        remedy = "give where the signal is expected to settle"
        check_number("price", self.price, "above 0 and finite", lambda price: price > 0.0, remedy)
        levels = tuple(float(level) for level in self.levels) or usual_levels(self.epsilon)
        if not 2 <= len(set(levels)) == len(levels) <= 64 or not all(0.0 < level <= 1.0 for level in levels):
            raise invalid(
                "levels", "2 to 64 different averages in (0, 1]", self.levels, "leave them out for the default"
            )
        same = 1.0 / (float(growth(self.epsilon)) + len(levels) - 1)
        least = tuple(float(chance) for chance in self.least) or (same,) * len(levels)
        if len(least) != len(levels) or not all(0.0 < chance <= 1.0 for chance in least):
            raise invalid("least", f"{len(levels)} probabilities above 0, one per level", self.least, "leave them out")
        order = np.argsort(levels)
        object.__setattr__(self, "levels", tuple(levels[i] for i in order))
        object.__setattr__(self, "least", tuple(least[i] for i in order))
        least_words, most_words = self.words()
        if not least_words.sum() <= WORDS <= most_words.sum():
            allowed = f"a sum between e^-epsilon = {np.exp(-self.epsilon):.4g} and 1"
            raise invalid("least", allowed, sum(least), "take them from turnout.privacy.floors, or leave them out")

    def __repr__(self) -> str:
        return f"Memoized(epsilon={self.epsilon}, price={self.price:.6g}, {len(self.levels)} levels)"

    def settings(self) -> dict[str, Any]:
        """As for every mechanism; `designed` only where it is true."""
        found = super().settings()
        return found if self.designed else {name: value for name, value in found.items() if name != "designed"}

    @classmethod
    def recipes(cls, given: Planned) -> Iterable[Recipe]:
        """With the best channel for the costs, unless these are a guess: it needs the price."""

        def best(epsilon: float) -> Mechanism:
            return given.channel(epsilon)[0]  # type: ignore[no-any-return]

        if not given.guessed:
            yield Recipe(best, cls.kind, gap=lambda epsilon: given.channel(epsilon)[1])

    def words(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(least, most): of the 2^53 words of the coin, how many release each level, for any cost. Exact integers.

        most <= e^epsilon least holds exactly, which is the promise.
        """
        factor = growth(self.epsilon)
        least = [int(_DOWN.multiply(Decimal(chance), WORDS).to_integral_value(ROUND_CEILING)) for chance in self.least]
        most = [min(WORDS, int(_DOWN.multiply(factor, words).to_integral_value(ROUND_FLOOR))) for words in least]
        return np.array(least, np.int64), np.array(most, np.int64)

    def enrol(self, costs: Costs, uniform: Array, weights: Any = 1, share: float | None = None) -> PolynomialCosts:
        """The released level of each client, as the public surrogate cost to act on."""
        return surrogate(np.array(self.levels)[self.release(costs, uniform, weights)], self.price, weights)

    def release(self, costs: Costs, uniform: Array, weights: Any = 1) -> npt.NDArray[np.int64]:
        """Which level each client releases, from 0 up, shape (clients,)."""
        released = np.empty(len(costs), np.int64)
        for first in range(0, len(costs), _CHUNK):
            part = slice(first, first + _CHUNK)
            own = weights[part] if np.ndim(weights) else weights
            stops = np.cumsum(self.words_by_level(costs[part], own), axis=1)[:, :-1]
            word = (np.asarray(uniform)[part] * WORDS).astype(np.int64)
            released[part] = np.sum(word[:, None] >= stops, axis=1)
        return released

    def released_words(self, costs: Costs) -> dict[str, npt.NDArray[np.int64]]:
        """Of each level."""
        return {f"{level:.4g}": words for level, words in zip(self.levels, self.words_by_level(costs).T, strict=True)}

    def words_by_level(self, costs: Costs, weights: Any = 1) -> npt.NDArray[np.int64]:
        """How many of the 2^53 words release each level, for each client, shape (clients, levels): rows sum to 2^53."""
        clients = len(costs)
        worth = self.price * np.asarray(weights, dtype=np.float64)
        burden = np.stack([costs.value(np.full(clients, level)) - worth * level for level in self.levels], axis=1)
        least, most = self.words()
        order = np.argsort(burden, axis=1, kind="stable")  # a cost that is not a number comes last: still a legal row
        extra = (most - least)[order]
        before = np.cumsum(extra, axis=1) - extra
        found = np.empty_like(order)
        np.put_along_axis(found, order, least[order] + np.clip(WORDS - least.sum() - before, 0, extra), axis=1)
        return found
