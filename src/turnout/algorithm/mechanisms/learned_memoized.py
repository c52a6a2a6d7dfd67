"""Memoized without knowing the population: clients join in groups, and each group's levels teach the next."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm.channel import Channel, best_channel
from turnout.algorithm.mechanism import Mechanism, Planned, Recipe
from turnout.algorithm.mechanisms.memoized import Memoized, OneRelease, surrogate
from turnout.algorithm.thresholds import check_epsilon
from turnout.errors import check_number, invalid
from turnout.problem import Array, Costs, PolynomialCosts, optimum, rising_root


def levels_around(share: float) -> Array:
    """What a channel may release: 25 levels; where few clients participate, close together around their averages.

    Example:
        >>> levels_around(0.5)[[0, -1]], levels_around(0.001)[[0, -1]].round(4)
        (array([0.04, 1.  ]), array([0.0001, 0.01  ]))
    """
    if share >= 0.2:
        return np.linspace(0.04, 1.0, 25)
    return np.geomspace(share / 10.0, min(1.0, 10.0 * share), 25)


RATIOS = np.geomspace(0.02, 50.0, 120)
"""Types of clients, by the average that each would choose at the price without a limit of 1, in parts of the mean. They
are so close together that nearly every level is best for one of them: else frequent levels would look like errors."""

REDESIGN_AFTER = (50, 150, 400, 1200, 4000)
"""Released levels after which the channel is designed again, by a linear programme."""

_NEAR = 1.35  # levels released at a very different price say little about this one: costs are not quadratic
_PRIOR_RELEASES = 6.0  # how many released levels the first guess is worth
_LEARNS = "must learn what memoized is given, and has a larger gap; use it (--guessed) where costs are unknown"
_TOO_HIGH = 3.0  # times the price: the first guess of a plan with unknown costs, as in docs/floor.md
_STEPS = 40  # of an estimate, which begins where the last one ended


def _guess() -> Array:
    """The first guess of the distribution of types: a decade to both sides."""
    weight = np.exp(-0.5 * np.log(RATIOS) ** 2)
    return weight / weight.sum()  # type: ignore[no-any-return]


class Learner:
    """The server's public knowledge while clients join.

    Args:
        epsilon: total, of each client's one release.
        share: the average that meets the capacity: capacity / the sum of all weights.
        price: a first guess of the price; better too high than too low.
        given: (levels, least) of a channel to keep, so that the price alone is learned; None learns the channel too.

    Example:
        >>> learner = Learner(epsilon=6.0, share=0.5, price=3.0)
        >>> everyone_released_the_lowest = np.eye(1, len(learner.channel.levels))[0] * 20
        >>> learner.see(learner.channel, everyone_released_the_lowest)
        >>> learner.price > 3.0
        True
    """

    def __init__(self, epsilon: float, share: float, price: float, given: tuple[Array, Array] | None = None) -> None:
        self._epsilon, self._share = epsilon, share
        first = _first_channel(epsilon, share) if given is None else Channel(epsilon, *given, price)
        self.channel = Channel(epsilon, first.levels, first.least, price)
        self._seen: list[tuple[Channel, Array]] = []
        self._shares = _guess()
        self._designed_at = 0.0 if given is None else np.inf

    @property
    def price(self) -> float:
        """The present reference price."""
        return self.channel.price

    def see(self, channel: Channel, released: Array) -> None:
        """Add the number (or weight) of clients that released each level of a channel, and set the next channel."""
        self._seen.append((channel, np.asarray(released, dtype=np.float64)))
        types = RATIOS * self._share / channel.price
        shares = self._estimate(types, channel.price)
        price = _balancing(channel, types, shares, self._share)
        levels, least = channel.levels, channel.least
        total = sum(float(np.sum(counts)) for _, counts in self._seen)
        if any(self._designed_at < mark <= total for mark in REDESIGN_AFTER):
            self._designed_at = total
            types = RATIOS * self._share / price
            designed = _design(types, self._estimate(types, price), self._epsilon, self._share)
            levels, least, price = designed.levels, designed.least, designed.price
        # Nine digits: the linear algebra of another processor rounds the rest differently.
        self.channel = Channel(self._epsilon, levels, least, float(f"{price:.9g}"))

    def _estimate(self, types: Array, price: float) -> Array:
        """The share of each type, by expectation and maximisation over what was released near this price."""
        near = [(channel, counts) for channel, counts in self._seen if 1.0 / _NEAR <= channel.price / price <= _NEAR]
        chances = [channel.chances(_burden(types, channel)) for channel, _ in near]
        guess, shares = _guess(), self._shares
        for _ in range(_STEPS):
            expected = _PRIOR_RELEASES * guess
            for table, (_, counts) in zip(chances, near, strict=True):
                joint = table * shares[:, None]
                expected = expected + (joint / joint.sum(axis=0)) @ counts
            after = expected / expected.sum()
            if np.max(np.abs(after - shares)) < 1e-6:
                break
            shares = after
        self._shares = shares  # where the next estimate begins
        return shares


def _burden(types: Array, channel: Channel) -> Array:
    """What each level costs quadratic types, less what it is worth, shape (types, levels)."""
    return channel.levels**2 / (2.0 * types[:, None]) - channel.price * channel.levels


def _balancing(channel: Channel, types: Array, shares: Array, share: float) -> float:
    """The price at which the channel's levels average the share."""

    def excess(price: float) -> float:
        at = Channel(channel.epsilon, channel.levels, channel.least, price)
        return float(shares @ (at.chances(_burden(types, at)) @ at.levels)) - share

    low, high = channel.price / 3.0, channel.price * 3.0  # a larger step would be a guess
    if excess(low) < 0.0 < excess(high):
        return rising_root(excess, channel.price, 1e-4 * share)
    farthest = low if excess(channel.price) > 0.0 else high
    # Where even that changes little in what is released, levels say nothing about the price.
    return farthest if abs(excess(farthest) - excess(channel.price)) > 0.05 * share else channel.price


def _design(types: Array, shares: Array, epsilon: float, mean: float) -> Channel:
    # Two neighbours count as one: the programme takes long, and needs no such detail.
    types, shares = np.sqrt(types.reshape(-1, 2).prod(axis=1)), shares.reshape(-1, 2).sum(axis=1)
    here = shares > 1e-6
    levels = levels_around(mean)
    values = levels**2 / (2.0 * types[here][:, None])
    found = best_channel(values, shares[here] / shares[here].sum(), np.ones(int(here.sum())), epsilon, levels, mean)
    assert isinstance(found, Channel)  # one group
    return found


@lru_cache(maxsize=64)
def _first_channel(epsilon: float, share: float) -> Channel:
    return _design(RATIOS * share, _guess(), epsilon, share)


FIRST_GROUP = 6
GROWTH = 0.3
"""The size of each group relative to all before it: few clients act on a price that is not yet known well."""


@dataclass(frozen=True)
class LearnedMemoized(OneRelease):
    """Each client releases a level once, through the best channel known when it joins.

    Groups of clients join in a public random order. The first few get a channel for a guess of the costs and
    of the price; from their released levels the server estimates both, and so on: it learns from levels
    alone. Nobody releases twice: pure epsilon in total, as for `Memoized` (docs/proofs/learned-memoized.md).

    Args:
        epsilon: in total, above 0.
        price: a first guess; an error by a factor of three costs little, and too high costs less than too low.
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
    unsaid = ("least",)

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

    @classmethod
    def recipes(cls, given: Planned) -> Iterable[Recipe]:
        """With the best channel, if the costs are a guess; else from the price alone, to compare with `Memoized`."""

        def guess(epsilon: float) -> Mechanism:
            channel, _ = given.channel(epsilon)
            return cls(epsilon, channel.price, channel.levels, channel.least)

        def nothing(epsilon: float) -> Mechanism:
            return cls(epsilon, _TOO_HIGH * optimum(given.problem).price)

        yield Recipe(guess, cls.kind) if given.guessed else Recipe(nothing, cls.kind, against_it=_LEARNS)

    def enrol(self, costs: Costs, uniform: Array, weights: Any = 1, share: float | None = None) -> PolynomialCosts:
        """The public surrogate of each client, all joined one group after another."""
        if share is None or len(costs) < 2:
            remedy = "use memoized instead, with the channel and the price of the group"
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
    """The clients of each group, in a public random order that does not depend on the clients.

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
