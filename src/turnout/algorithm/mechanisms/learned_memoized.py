"""Memoized without knowing the population: clients join in groups, and each group's levels teach the next."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm.learning import Learner
from turnout.algorithm.mechanisms.memoized import Memoized, OneRelease, surrogate
from turnout.algorithm.thresholds import check_epsilon
from turnout.errors import check_number, invalid
from turnout.problem.costs import Array, Costs, PolynomialCosts

FIRST_GROUP = 6
GROWTH = 0.3
"""Each group is this much of all before it: few act on a price that is not yet known well."""


@dataclass(frozen=True)
class LearnedMemoized(OneRelease):
    """Each client releases a level once, through the best channel known when it joins.

    Groups of clients join in a public random order. The first few get a channel for a guess of the costs and
    of the price; from their released levels the server estimates both, and so on: it learns from levels
    alone. Nobody releases twice: pure epsilon in total, as for `Memoized` (docs/proofs/learned-memoized.md).

    Args:
        epsilon: in total, above 0.
        price: a first guess of it; three times off costs little, and too high less than too low.
        levels, least: as for `Memoized`, of a channel to keep, so that the price alone is learned; left out, the
            channel is learned too.

    Example:
        >>> costs = PolynomialCosts(np.linspace(2.0, 40.0, 200)[:, None], powers=(2,))
        >>> joined = LearnedMemoized(epsilon=8.0, price=30.0).enrol(costs, np.linspace(0.0, 0.999, 200), share=0.5)
        >>> bool(0.4 < joined.inverse_slope(12.0).mean() < 0.6)
        True
    """

    epsilon: float
    price: float = 1.0
    levels: tuple[float, ...] = ()
    least: tuple[float, ...] = ()
    kind = "learned-memoized"
    needs_population = True

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        remedy = "give a rough guess of the price"
        check_number("price", self.price, "above 0 and finite", lambda price: price > 0.0, remedy)
        if len(self.levels):
            checked = Memoized(self.epsilon, self.price, self.levels, self.least)
            object.__setattr__(self, "levels", checked.levels)
            object.__setattr__(self, "least", checked.least)
        elif len(self.least):
            raise invalid("least", "given with levels only", self.least, "give both, or neither")

    def __repr__(self) -> str:
        given = f", {len(self.levels)} levels" if self.levels else ""
        return f"LearnedMemoized(epsilon={self.epsilon}, price={self.price:.6g}{given})"

    def enrol(self, costs: Costs, uniform: Array, weights: Any = 1, share: float | None = None) -> PolynomialCosts:
        """The public surrogate of each client, all joined one group after another."""
        if share is None or len(costs) < 2:
            remedy = "take memoized instead: each client is one, with the channel and the price of its group"
            raise invalid("learned-memoized", "joined by a whole population", "clients on their own", remedy)
        given = (np.array(self.levels), np.array(self.least)) if self.levels else None
        learner = Learner(self.epsilon, share, self.price, given)
        own = np.broadcast_to(np.asarray(weights, dtype=np.float64), (len(costs),))
        level, price = np.empty(len(costs)), np.empty(len(costs))
        for group in groups(len(costs)):
            channel = learner.channel
            current = Memoized(self.epsilon, channel.price, tuple(channel.levels), tuple(channel.least))
            released = current.release(costs[group], uniform[group], own[group])
            level[group], price[group] = channel.levels[released], channel.price
            brought = own[group] / own.mean()
            learner.see(channel, np.bincount(released, brought, len(channel.levels)).astype(np.float64))
        return surrogate(level, price, own)


def groups(clients: int) -> list[npt.NDArray[np.int64]]:
    """Who joins together, group after group, in a public order that has nothing to do with the clients' own.

    Example:
        >>> [len(group) for group in groups(40)]
        [6, 6, 6, 6, 7, 9]
    """
    order = np.argsort(
        (np.arange(clients, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20), kind="stable"
    )
    cuts = [0]
    while cuts[-1] < clients:
        size = max(FIRST_GROUP, int(GROWTH * cuts[-1]))
        rest = clients - cuts[-1]
        cuts.append(clients if rest < 1.5 * size else cuts[-1] + size)
    return [order[first:stop] for first, stop in itertools.pairwise(cuts)]
