"""Noise on the sum: what a server sees where it does not see reports.

The sum of a round is opened with discrete Gaussian noise, a whole number Z with P(Z = z) proportional to
exp(-z^2 / (2 sigma^2)). Clients then need no coin of their own: their bits are hidden by the noise.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.errors import check_number, invalid
from turnout.problem import NOISE, Array, philox4x32
from turnout.settings import Table

_LARGEST = 2.0**40
"""Of sigma: sums with noise stay below 2^53, and floating point holds them exactly."""

_LARGEST_BOUND = 2**53
"""Of bounded noise: a larger number is no whole number of floating point's."""

_TABLE = 2.0**15
"""Up to this sigma a simulation looks its noise up in a table."""

_REACH = 9.0
"""Standard deviations that a table holds: beyond them lie 2e-19 of the noise."""


@dataclass(frozen=True)
class SumNoise:
    """How noisy the sums are that the server sees.

    Args:
        sigma: of the noise of one round, from 1 up.
        early: the first rounds, in which the noise may be smaller: the server then finds the price sooner.
        early_sigma: of the noise in these rounds; as later, unless given.
        aggregators: 1, or 2 that do not trust each other: each adds all the noise, since it knows its own.
        every: a sum is opened in every so many rounds; in the others the signal stays.
        bound: bounded noise: each aggregator draws its noise again until it is from -bound to bound. So the true sum is
            at most the opened one plus aggregators * bound, for certain. It costs some delta; `sigma_for(…,
            bounded=True)` finds one that costs little. None: no bound.

    Example:
        >>> noise = SumNoise(400.0, early=30, early_sigma=60.0)
        >>> noise.opened(0, 100)
        {60.0: 30, 400.0: 70}
        >>> noise.seeded(seed=1, first=28, stop=33).tolist()
        [39, 87, -3, -20, -205]
    """

    sigma: float
    early: int = 0
    early_sigma: float | None = None
    aggregators: int = 1
    every: int = 1
    bound: int | None = None

    def __post_init__(self) -> None:
        for name, sigma in (("sigma", self.sigma), ("early_sigma", self.early_sigma)):
            if sigma is not None:
                remedy = "leave the noise out for exact sums; turnout plan finds the sigma for a budget"
                check_number(f"noise.{name}", sigma, "from 1 to 2^40", lambda given: 1.0 <= given <= _LARGEST, remedy)
        for name, least, most in (("early", 0, 2**31), ("every", 1, 2**31), ("aggregators", 1, 2)):
            given = getattr(self, name)
            if not isinstance(given, (int, np.integer)) or not least <= given <= most:
                raise invalid(
                    f"noise.{name}", f"a whole number from {least} to {most}", repr(given), "choose such a one"
                )
        if (self.early > 0) != (self.early_sigma is not None):
            told = f"early {self.early}, early_sigma {self.early_sigma}"
            raise invalid("noise.early and early_sigma", "given together", told, "give both, or none")
        largest = max(self.sigma, self.early_sigma or 0.0)
        is_whole = isinstance(self.bound, (int, np.integer)) and not isinstance(self.bound, bool)
        if self.bound is not None and not (is_whole and largest <= self.bound <= _LARGEST_BOUND):
            allowed = f"a whole number from {largest:g} (the largest sigma) to 2^53, or left out"
            raise invalid("noise.bound", allowed, repr(self.bound), "sigma_for(…, bounded=True) finds one for a budget")

    def is_opened(self, round: int) -> bool:
        """Whether the sum of a round is opened."""
        return (round + 1) % self.every == 0

    def sigmas(self, first: int, stop: int) -> Array:
        """Of the noise that one aggregator adds in each round; infinite where nothing is opened."""
        rounds = np.arange(first, stop)
        early = self.sigma if self.early_sigma is None else self.early_sigma
        found = np.where(rounds < self.early, float(early), float(self.sigma))
        return np.where((rounds + 1) % self.every == 0, found, math.inf)

    def opened(self, first: int, stop: int) -> dict[float, int]:
        """How many sums are opened with which sigma, in these rounds."""
        found, cut = Counter[float](), min(max(self.early, first), stop)
        early = self.sigma if self.early_sigma is None else self.early_sigma
        for sigma, begin, end in ((early, first, cut), (self.sigma, cut, stop)):
            found[float(sigma)] += end // self.every - begin // self.every
        return {sigma: number for sigma, number in found.items() if number > 0}

    @property
    def factor(self) -> float:
        """The deviation of an opened sum's noise, in sigmas: the noise of all aggregators adds up."""
        return math.sqrt(self.aggregators)

    def seeded(self, seed: int, first: int, stop: int) -> npt.NDArray[np.int64]:
        """The noise of these rounds in a simulation: a function of the seed and the round; 0 where nothing is opened.

        The counter's words are the aggregator, the round, the turn, and what the draw is for. The turn is 0. With a
        bound, what lies beyond it is drawn again at turn 1, 2, …: all other noise is what it is without a bound.

        Each draw is off by less than 1e-9 in total variation, which a simulation cannot notice: for real use there
        is `draw`.
        """
        sigmas, total = self.sigmas(first, stop), np.zeros(stop - first, np.int64)
        rounds = np.arange(first, stop, dtype=np.uint64)
        for aggregator in range(self.aggregators):
            turn, open_still = 0, np.flatnonzero(np.isfinite(sigmas))
            while open_still.size:
                counter = (aggregator, rounds[open_still], turn, NOISE)
                high, low, _, _ = philox4x32(counter, (int(seed) & 0xFFFFFFFF, int(seed) >> 32))
                words = (high.astype(np.uint64) << np.uint64(32) | low) >> np.uint64(11)
                drawn = _at(sigmas[open_still], words.astype(np.float64) * 2.0**-53)
                beyond = np.zeros(len(drawn), bool) if self.bound is None else np.abs(drawn) > self.bound
                total[open_still[~beyond]] += drawn[~beyond]
                turn, open_still = turn + 1, open_still[beyond]
        return total

    def draw(self, round: int, below: Callable[[int], int] = secrets.randbelow) -> int:
        """The noise that one aggregator adds in a round, exactly distributed, from the system's entropy."""
        (sigma,) = self.sigmas(round, round + 1)
        if not math.isfinite(sigma):
            raise invalid("round", f"one in which a sum is opened (every {self.every})", round, "wait for the next")
        while True:
            drawn = discrete_gaussian(float(sigma), below)
            if self.bound is None or abs(drawn) <= self.bound:
                return drawn

    @property
    def words(self) -> str:
        """What one aggregator adds, for a line of text.

        Example:
            >>> SumNoise(497.4, early=300, early_sigma=133.6).words
            'sigma 133.6 in the first 300 rounds, then 497.4'
        >>> SumNoise(422.0, bound=2500).words
        'sigma 422, bounded by 2,500'
        """
        early = f"{self.early_sigma:g} in the first {self.early:,} rounds, then " if self.early else ""
        bounded = "" if self.bound is None else f", bounded by {self.bound:,}"
        return f"sigma {early}{self.sigma:g}{bounded}"

    def settings(self) -> dict[str, Any]:
        """Everything that makes this noise again, as `noise_from_settings` takes it."""
        found: dict[str, Any] = {"sigma": float(self.sigma)}
        if self.early_sigma is not None:
            found |= {"early": int(self.early), "early_sigma": float(self.early_sigma)}
        found |= {"aggregators": int(self.aggregators)} if self.aggregators != 1 else {}
        found |= {"every": int(self.every)} if self.every != 1 else {}
        return found | ({"bound": int(self.bound)} if self.bound is not None else {})


def noise_from_settings(table: Table) -> SumNoise:
    """The noise from its table.

    Example:
        >>> noise_from_settings(Table({"sigma": 422.0, "aggregators": 2}, "noise"))
        SumNoise(sigma=422.0, early=0, early_sigma=None, aggregators=2, every=1, bound=None)
    """
    early_sigma = table.number("early_sigma", None)
    noise = SumNoise(
        table.number("sigma"),
        table.whole("early", 0),
        early_sigma,
        table.whole("aggregators", 1),
        table.whole("every", 1),
        table.whole("bound", None),
    )
    table.finish()
    return noise


def _at(sigmas: Array, uniform: Array) -> npt.NDArray[np.int64]:
    """The noise of rounds with these sigmas at these quantiles."""
    found = np.zeros(len(sigmas), np.int64)
    for sigma in np.unique(sigmas):
        found[sigmas == sigma] = _by_inversion(float(sigma), uniform[sigmas == sigma])
    return found


def _by_inversion(sigma: float, uniform: Array) -> npt.NDArray[np.int64]:
    """The noise at these quantiles."""
    if sigma > _TABLE:  # a rounded normal number is as good: off by 0.04 / sigma^2
        normal = NormalDist(0.0, sigma)
        inside = np.minimum(uniform + 2.0**-54, 1.0 - 2.0**-53)  # 0 and 1 have no quantile
        return np.array([round(normal.inv_cdf(value)) for value in inside.tolist()], dtype=np.int64)
    reach = math.ceil(_REACH * sigma)
    mass = np.exp(-0.5 * np.square(np.arange(-reach, reach + 1) / sigma))
    below = np.cumsum(mass)
    return np.minimum(np.searchsorted(below / below[-1], uniform, side="right"), 2 * reach) - reach


def discrete_gaussian(sigma: float, below: Callable[[int], int] = secrets.randbelow) -> int:
    """One draw of discrete Gaussian noise, exact for this sigma: whole numbers alone, no rounding, some 50 µs.

    By rejection from a discrete Laplace distribution (Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential
    Privacy", 2020, Algorithms 1 to 3).

    Args:
        sigma: 1 or more.
        below: gives a whole number from 0 to before its argument, all equally likely.
    """
    square = Fraction(sigma) ** 2
    scale = math.floor(sigma) + 1
    while True:
        laplace = _discrete_laplace(scale, below)
        if _with_chance_exp((abs(laplace) - square / scale) ** 2 / (2 * square), below):
            return laplace


def _discrete_laplace(scale: int, below: Callable[[int], int]) -> int:
    """A whole number x with a chance proportional to exp(-|x| / scale)."""
    while True:
        rest = below(scale)
        if not _with_chance_exp(Fraction(rest, scale), below):
            continue
        whole = 0
        while _with_chance_exp(Fraction(1), below):
            whole += 1
        size, is_negative = rest + scale * whole, below(2) == 1
        if not (is_negative and size == 0):  # zero once, not twice
            return -size if is_negative else size


def _with_chance_exp(exponent: Fraction, below: Callable[[int], int]) -> bool:
    """True with the chance exp(-exponent), for an exponent of 0 or more."""
    while exponent > 1:
        if not _with_chance_exp(Fraction(1), below):
            return False
        exponent -= 1
    turn = 1  # von Neumann: the number of successes of chances exponent / 1, exponent / 2, … is even so often
    while below(exponent.denominator * turn) < exponent.numerator:
        turn += 1
    return turn % 2 == 1
