"""The floor: no mechanism with a given total epsilon has a smaller cost gap, and the channel that reaches it.

Any mechanism that is pure epsilon in total is, seen from outside, an epsilon-private channel from a client's
cost to its long-run average. The best such channel is a linear programme. Its dual gives a bound that holds
for *every* mechanism, and is what `floor` reports: solved for a few hundred types of clients, it is then
evaluated for every single client and for averages between the programme's levels, so that no approximation
can make it too high.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Channel, Memoized, best_channel, check_epsilon
from turnout.errors import invalid
from turnout.problem import Array, Optimum, Problem, optimum

_LEVELS = np.linspace(0.0, 1.0, 41)  # of the programme
_BETWEEN = np.linspace(0.0, 1.0, 401)  # where the bound is checked
_MOST_GROUPS = 12  # different weights, each with a channel of its own


@dataclass(frozen=True, eq=False)
class Floor:
    """The smallest cost gap that any mechanism can have, and a channel close to it.

    Attributes:
        epsilon: total, pure, against an observer of every report for ever.
        gap: no mechanism's long-run cost is closer to the optimum's than this, in parts of it.
        reached: the gap of the channels below; the true floor lies between the two.
        channels: the best channel found, one for each different weight.
        best: the optimum without privacy.

    Example:
        >>> from turnout import paper_population
        >>> found = floor(paper_population(clients=40).problem(20), epsilon=2.0)
        >>> 0.0 < found.gap <= found.reached
        True
    """

    epsilon: float
    gap: float
    reached: float
    channels: tuple[Channel, ...]
    best: Optimum

    def memoized(self) -> Memoized:
        """The best channel as a mechanism: the optimal `Memoized` for this population, and for those like it.

        Its levels and its price are computed from the costs of the problem that `floor` was given. No account covers
        what they reveal about these costs: use a population like the protected one, but not that one (the assumption
        `turnout.privacy.PUBLIC_DESIGN`).

        Raises:
            ValueError: clients have different weights, hence several channels.
        """
        if len(self.channels) > 1:
            remedy = "use learned-memoized, which needs one channel"
            raise invalid("weights", "the same for all clients", f"{len(self.channels)} different ones", remedy)
        (channel,) = self.channels
        # An average of 0 cannot be a surrogate's.
        levels = np.maximum(channel.levels.round(6), _LEVELS[1] / 4.0)
        found = tuple(levels.tolist()), tuple(channel.least.tolist())
        return Memoized(self.epsilon, channel.price, *found, designed=True)

    def __repr__(self) -> str:
        return (
            f"Floor(total epsilon {self.epsilon:g}: no mechanism within {100 * self.gap:.2f} % of the optimum; "
            f"reached: {100 * self.reached:.2f} %)"
        )


def floor(problem: Problem, epsilon: float, types: int = 200) -> Floor:
    """The smallest cost gap of any mechanism with this total epsilon, for clients drawn from this population.

    Args:
        problem: its clients stand for the distribution of costs. Weights are public: each different one is a group of
            its own.
        epsilon: total, pure, against an observer of every report.
        types: of clients in the linear programme; fewer are quicker, and make the bound a little lower.

    Raises:
        ValueError: epsilon is out of range, or there are too many different weights.

    Example:
        >>> from turnout import paper_population
        >>> floor(paper_population(seed=0).problem(600), epsilon=4.0)
        Floor(total epsilon 4: no mechanism within 23.00 % of the optimum; reached: 23.25 %)
    """
    weights, best = _weights(problem), optimum(problem)
    group = _groups(weights)
    channels, label = _best_release(problem, epsilon, types, weights, group)
    bound = _bound(problem, channels, weights, group, label)
    reached = _cost(problem, channels, weights, group)
    return Floor(epsilon, max(0.0, bound / best.cost - 1.0), reached / best.cost - 1.0, tuple(channels), best)


def best_release(problem: Problem, epsilon: float, types: int = 60) -> Floor:
    """The best single channel for a population, without the bound (left at 0): quicker than `floor`.

    Example:
        >>> from turnout import paper_population
        >>> round(best_release(paper_population(seed=0).problem(600), epsilon=4.0).reached, 2)
        0.23
    """
    weights, best = _weights(problem), optimum(problem)
    everyone = np.zeros(len(problem), np.int64)
    channels, _ = _best_release(problem, epsilon, types, weights, everyone)
    return Floor(epsilon, 0.0, _cost(problem, channels, weights, everyone) / best.cost - 1.0, tuple(channels), best)


def _weights(problem: Problem) -> Array:
    return np.broadcast_to(np.asarray(problem.unit_weights, dtype=np.float64), (len(problem),))


def _groups(weights: Array) -> npt.NDArray[np.int64]:
    """The group of each client: weights are public, so each different one may have a channel of its own."""
    different, group = np.unique(weights, return_inverse=True)
    if len(different) > _MOST_GROUPS:
        allowed = f"of at most {_MOST_GROUPS} different sizes for the best channel"
        raise invalid("weights", allowed, f"{len(different)} sizes", "round them to a few sizes")
    return group


def _best_release(
    problem: Problem, epsilon: float, types: int, weights: Array, group: npt.NDArray[np.int64]
) -> tuple[list[Channel], npt.NDArray[np.int64]]:
    """(the best channels, one per group; the type of each client)."""
    check_epsilon(epsilon, "total epsilon")
    shapes = values_at(problem, _LEVELS) / weights[:, None]
    label = types_of(shapes, group, types)
    return _channels(problem, epsilon, weights, group, label), label


def values_at(problem: Problem, levels: Array) -> Array:
    """What each level costs each client, shape (clients, levels)."""
    return np.stack([problem.costs.value(np.full(len(problem), level)) for level in levels], axis=1)


def _channels(
    problem: Problem, epsilon: float, weights: Array, group: npt.NDArray[np.int64], label: npt.NDArray[np.int64]
) -> list[Channel]:
    """The best channels, one per group, for the population reduced to types."""
    _, someone = np.unique(label, return_index=True)  # of each type, which are of one group
    found = best_channel(
        _by_type(values_at(problem, _LEVELS), label),
        np.bincount(label) / len(problem),
        _by_type(weights[:, None], label).ravel(),
        epsilon,
        _LEVELS,
        problem.capacity / len(problem),
        group[someone],
    )
    assert isinstance(found, list)  # groups were given
    return found


def _by_type(numbers: Array, label: npt.NDArray[np.int64]) -> Array:
    """The mean over each type's clients, shape (types, columns)."""
    sums = np.stack([np.bincount(label, column) for column in numbers.T], axis=1)
    return sums / np.bincount(label)[:, None]


def types_of(features: Array, group: npt.NDArray[np.int64], number: int) -> npt.NDArray[np.int64]:
    """Sort clients into types: the type with the largest variance is cut in two at its mean, until there are enough.

    Args:
        features: of each client, shape (clients, features).
        group: a type has clients of one group only, shape (clients,).
        number: of types, about.

    Example:
        >>> types_of(np.array([[0.0], [0.1], [5.0], [5.1]]), np.zeros(4, int), 2).tolist()
        [0, 0, 1, 1]
        >>> types_of(np.full((4, 1), 0.1), np.zeros(4, int), 2).tolist()
        [0, 0, 0, 0]
    """
    label = np.zeros(len(features), np.int64)
    waiting: list[tuple[float, int, Any, int]] = []
    names = int(group.max()) + 1
    for name in range(names):
        label[group == name] = name
        _offer(waiting, features, np.flatnonzero(group == name), name)
    while names < number and waiting[0][0] < 0.0:
        _, name, members, axis = heapq.heappop(waiting)
        values = features[members, axis]
        high = values > np.clip(values.mean(), values.min(), np.nextafter(values.max(), -np.inf))  # none is empty
        label[members[high]] = names
        _offer(waiting, features, members[~high], name)
        _offer(waiting, features, members[high], names)
        names += 1
    return label


def _offer(waiting: list[tuple[float, int, Any, int]], features: Array, members: Any, name: int) -> None:
    found = features[members]
    spread = np.where(np.ptp(found, axis=0) > 0.0, found.var(axis=0), 0.0) * len(members)  # rounding is no spread
    heapq.heappush(waiting, (-float(spread.sum()), name, members, int(np.argmax(spread))))


def _bound(
    problem: Problem,
    channels: list[Channel],
    weights: Array,
    group: npt.NDArray[np.int64],
    label: npt.NDArray[np.int64],
) -> float:
    """A lower bound on the cost of any channel: the programme's dual, made feasible for every client and average.

    With g_i(o) = f_i(o) - price w_i o and any numbers mu_i, sum mu_i + price C is a lower bound if for every o
    sum_i phi(g_i(o) - mu_i) >= 0, where phi(r) = r above 0 and e^epsilon r below. Each mu_i is its type's, moved
    by how much the client differs from the type, and all are a little lower where that is needed.
    """
    price = _price(channels)
    total = price * problem.capacity
    for name, channel in enumerate(channels):
        members = np.flatnonzero(group == name)
        part, own = Problem(problem.costs[members], 1.0), weights[members][:, None]
        kinds, local = np.unique(label[members], return_inverse=True)
        burden = values_at(part, channel.levels) - price * own * channel.levels
        typical = _by_type(burden, local)
        moved = np.sum(channel.chances(typical)[local] * (burden - typical[local]), axis=1)
        assert channel.worth is not None  # designed here
        margin = channel.worth[kinds][local] + moved
        rest = values_at(part, _BETWEEN) - price * own * _BETWEEN - margin[:, None]
        total += float(margin.sum()) - len(members) * _shift(rest, channel.epsilon)
    return total


def _price(channels: list[Channel]) -> float:
    """What a unit of participation is worth: the programme has one price for all groups."""
    (price,) = {channel.price for channel in channels}
    return price


def _shift(rest: Array, epsilon: float) -> float:
    """How much all mu_i of a group must decrease for the bound to hold at every average."""

    def worst(shift: float) -> float:
        lower = rest + shift
        return float(np.min(np.sum(np.where(lower > 0.0, lower, np.exp(epsilon) * lower), axis=0)))

    if worst(0.0) >= 0.0:
        return 0.0
    low, high = 0.0, float(-rest.min())
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if worst(middle) < 0.0 else (low, middle)
    return high


def _cost(problem: Problem, channels: list[Channel], weights: Array, group: npt.NDArray[np.int64]) -> float:
    """The expected cost of the channels, at the price at which they meet the capacity."""
    parts = [(np.flatnonzero(group == name), channel) for name, channel in enumerate(channels)]
    values = [values_at(Problem(problem.costs[members], 1.0), channel.levels) for members, channel in parts]

    def outcome(price: float) -> tuple[float, float]:
        cost = brought = 0.0
        for (members, channel), table in zip(parts, values, strict=True):
            own = weights[members][:, None]
            chances = channel.chances(table - price * own * channel.levels)
            cost += float(np.sum(chances * table))
            brought += float(np.sum(chances * own * channel.levels))
        return cost, brought

    price = _price(channels)
    low, high = 0.5 * price, 2.0 * price
    for _ in range(50):  # keep both ends: the result mixes them, as a random choice between two prices would
        middle = 0.5 * (low + high)
        low, high = (middle, high) if outcome(middle)[1] < problem.capacity else (low, middle)
    (cheap, few), (expensive, many) = outcome(low), outcome(high)
    mix = 0.0 if many == few else float(np.clip((problem.capacity - few) / (many - few), 0.0, 1.0))
    return (1.0 - mix) * cheap + mix * expensive
