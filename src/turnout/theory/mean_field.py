"""The algorithm with its noise averaged out: probabilities in place of tosses.

A client's average after k rounds is itself random. Where the probability bends with it (rare
participation, costs with f'(0) > 0) its spread matters as well as its mean, so both are carried.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from turnout.algorithm import SMALLEST_AVERAGE, Mechanism, Public, SeededCoins, intent, released
from turnout.problem import Array, Costs, Problem, rising_root

_CHUNK = 1 << 14  # clients looked at together: their numbers stay in the cache


def _parts(clients: int) -> list[tuple[slice, slice]]:
    """(where, which clients) of each chunk; all clients are simply all where one chunk holds them."""
    if clients <= _CHUNK:
        return [(slice(0, clients), slice(None))]
    cuts = [slice(first, min(first + _CHUNK, clients)) for first in range(0, clients, _CHUNK)]
    return [(part, part) for part in cuts]


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and variance of each client's average, shape (clients,) each."""

    mean: Array
    variance: Array

    def points(self) -> list[tuple[Array, Array]]:
        """Two (weight, average) pairs with exactly this mean and variance, both inside [0, 1].

        Even at the middle; skewed near the bounds, as the truth is.
        """
        spread = np.sqrt(self.variance)
        with np.errstate(all="ignore"):
            reach = np.where(spread > 0.0, np.minimum(1.0, self.mean / spread), 1.0)
            reach = np.where(spread > 0.0, np.maximum(reach, spread / np.maximum(1.0 - self.mean, spread * 1e-6)), 1.0)
        low = np.clip(self.mean - spread * reach, SMALLEST_AVERAGE, 1.0)
        high = np.clip(self.mean + spread / np.maximum(reach, 1e-9), SMALLEST_AVERAGE, 1.0)
        share = 1.0 / (1.0 + reach * reach)
        return [(share, low), (1.0 - share, high)]

    def after(self, chance: Array, covariance: Array, tosses: Array, rounds: float) -> Moments:
        """The moments one round later, with `rounds` rounds behind the average: exact, given the other arguments."""
        kept, new = 1.0 - 1.0 / rounds, 1.0 / rounds
        variance = kept * kept * self.variance + 2.0 * kept * new * covariance + new * new * tosses
        return Moments(*_legal(self.mean + new * (chance - self.mean), variance))

    def moved(self, drift: tuple[Array, Array], length: float) -> Moments:
        """The moments after a step along a drift."""
        return Moments(*_legal(self.mean + length * drift[0], self.variance + length * drift[1]))


def _legal(mean: Array, variance: Array) -> tuple[Array, Array]:
    mean = np.clip(mean, SMALLEST_AVERAGE, 1.0)
    return mean, np.clip(variance, 0.0, mean * (1.0 - mean))


@dataclass(frozen=True, eq=False)
class MeanField:
    """A population and its mechanism, answering a signal without noise."""

    problem: Problem
    mechanism: Mechanism
    tosses: bool = True
    """Whether averages move by the bit, so that tosses spread them, or by the probability."""

    @cached_property
    def costs(self) -> Costs:
        """What the clients act on: their own costs, or a public surrogate (as one seed releases it)."""
        return released(self.problem, self.mechanism, SeededCoins(0)) or self.problem.costs

    def chances(self, signal: float, average: Array, clients: slice = slice(None)) -> Array:
        """The probability of each client to take part, shape (clients,), as in `client_step`."""
        weights = self.problem.unit_weights
        own: Any = weights[clients] if isinstance(weights, np.ndarray) else weights
        everyone = clients == slice(None)
        costs = self.costs if everyone else self.costs[clients]
        mechanism = self.mechanism if everyone else self.mechanism[clients]
        with np.errstate(all="ignore"):
            wanted = intent(signal, own, average, costs.slope(average))
        return mechanism.probability(wanted, Public(average=average, signal=signal))

    def expected(self, signal: float, moments: Moments) -> tuple[Array, Array]:
        """The mean probability of each client, and its covariance with the client's average."""
        chance, covariance = np.zeros(len(moments.mean)), np.zeros(len(moments.mean))
        for part, clients in _parts(len(moments.mean)):
            mean = moments.mean[part]
            for weight, average in Moments(mean, moments.variance[part]).points():
                share = weight * self.chances(signal, average, clients)
                chance[part] += share
                covariance[part] += share * (average - mean)
        return chance, covariance

    def toss_variance(self, chance: Array) -> Array:
        """The variance that one toss brings into what an average moves by, shape (clients,)."""
        return chance * (1.0 - chance) if self.tosses else np.zeros(len(chance))

    def after(self, moments: Moments, chance: Array, covariance: Array, rounds: float) -> Moments:
        """The moments one round later, with `rounds` rounds behind the averages."""
        return moments.after(chance, covariance, self.toss_variance(chance), rounds)

    def cost(self, moments: Moments) -> float:
        """The expected total cost of the clients' own averages."""
        return sum(float(np.sum(weight * self.problem.costs.value(x))) for weight, x in moments.points())

    def brought(self, chances: Array) -> float:
        """The turnout that these probabilities bring on average."""
        return float(np.sum(self.problem.unit_weights * chances))

    def noise(self, chances: Array) -> float:
        """The variance of the turnout that these probabilities make unavoidable."""
        weights = self.problem.unit_weights
        return float(np.sum(weights * weights * chances * (1.0 - chances)))

    def slope(self, signal: float, moments: Moments) -> float:
        """How fast the turnout rises with the signal while the averages stand still."""
        step = 1e-3 * signal if signal > 0.0 else 1e-9
        low, high = (self.brought(self.expected(signal + move, moments)[0]) for move in (-step, step))
        return (high - low) / (2.0 * step)

    def balancing_signal(self, moments: Moments, guess: float, precision: float = 1e-12) -> float:
        """The signal at which clients of these averages meet the capacity."""
        capacity = self.problem.capacity
        return rising_root(
            lambda signal: self.brought(self.expected(signal, moments)[0]) - capacity, guess, precision * capacity
        )

    def settled(self, signal: float, low: Array, high: Array) -> Array:
        """Each client's long-run average at a fixed signal: x = chance(x), searched in [low, high].

        chance(x) / x falls as x grows, so that chance(x) > x exactly below the answer. Bisection and
        regula falsi take turns: safe, and quick where the function is smooth.
        """
        found = np.empty(len(low))
        for part, clients in _parts(len(low)):
            found[part] = self._settled(signal, clients, low[part].copy(), high[part].copy())
        return found

    def _settled(self, signal: float, clients: slice, low: Array, high: Array) -> Array:
        below = self.chances(signal, low, clients) - low
        above = self.chances(signal, high, clients) - high
        for turn in range(200):
            if turn % 3 == 2:
                middle = 0.5 * (low + high)
            else:
                with np.errstate(all="ignore"):
                    share = np.nan_to_num(below / (below - above), nan=0.5)
                middle = low + np.clip(share, 0.01, 0.99) * (high - low)
            value = self.chances(signal, middle, clients) - middle
            up = value > 0.0
            low, below = np.where(up, middle, low), np.where(up, value, below)
            high, above = np.where(up, high, middle), np.where(up, above, value)
            # A root at an end of the bracket is approached from one side; its width then says nothing.
            if np.all((high - low <= 1e-13) | (np.abs(value) <= 1e-15)):
                break
        return np.where(np.abs(below) < np.abs(above), low, high)
