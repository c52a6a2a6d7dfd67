"""What a server learns from released levels alone: the price, and the best channel for those who join later.

It models the costs as quadratics x^2 / (2 c) and estimates how c is distributed, by maximum likelihood of
the levels that were released so far (each through a known channel). Everything here is public: it sees
levels, never costs. So a client that releases once through the channel of its moment has spent epsilon,
whatever was learned before (docs/proofs/learned-memoized.md).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from turnout.algorithm.channel import Channel, best_channel
from turnout.problem.costs import Array
from turnout.problem.rising_root import rising_root


def levels_around(share: float) -> Array:
    """What a channel may release: 25 levels; where few take part, close together around what they do.

    Example:
        >>> levels_around(0.5)[[0, -1]], levels_around(0.001)[[0, -1]].round(4)
        (array([0.04, 1.  ]), array([0.0001, 0.01  ]))
    """
    if share >= 0.2:
        return np.linspace(0.04, 1.0, 25)
    return np.geomspace(share / 10.0, min(1.0, 10.0 * share), 25)


RATIOS = np.geomspace(0.02, 50.0, 120)
"""Types of clients: what each would bring at the price if it could come more than always, in parts of the mean. So
close together that nearly every level is best for one of them: else levels that many release look like lies."""

REDESIGN_AFTER = (50, 150, 400, 1200, 4000)
"""Released levels after which the channel is designed anew: each is worth a linear programme."""

_NEAR = 1.35  # levels released at a price further off tell little about this one: costs are no quadratics
_PRIOR_RELEASES = 6.0  # how many the first guess is worth
_STEPS = 40  # of an estimate, which begins where the last one ended


def _guess() -> Array:
    """The first guess of the distribution of types: a decade to both sides."""
    weight = np.exp(-0.5 * np.log(RATIOS) ** 2)
    return weight / weight.sum()  # type: ignore[no-any-return]


class Learner:
    """The server's public knowledge while clients join.

    Args:
        epsilon: total, of each client's one release.
        share: the average that meets the capacity: capacity / what all bring.
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
        """Take in how many (or how much weight) released each level of a channel, and set the next channel."""
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
        self.channel = Channel(self._epsilon, levels, least, price)

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

    low, high = channel.price / 3.0, channel.price * 3.0  # a step further would be a guess
    if excess(low) < 0.0 < excess(high):
        return rising_root(excess, channel.price, 1e-4 * share)
    farthest = low if excess(channel.price) > 0.0 else high
    # Where even that hardly changes what is released, levels say nothing about the price.
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
