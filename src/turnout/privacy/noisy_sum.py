"""What sums with noise give away, to an observer of the opened sums who chooses the signals during the run.

Given the signals, one client moves the centre of an opened sum by at most its weight. So the rounds are an adaptive
sequence of discrete Gaussian mechanisms, whatever the client's cost, history and coin, and whoever colludes. Every
number is an upper bound and is rounded upwards. The theorems are in docs/proofs/noisy-sum.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from turnout.algorithm import Classical, SumNoise
from turnout.errors import check_number, invalid
from turnout.privacy.accounting import UNIT, UP, Account, check_delta, check_rounds, least_epsilon, shown_delta
from turnout.privacy.observer import NOISY_SUM, OWN_BIT, Observer
from turnout.problem import Array

SMALL = 1000.0
"""Up to this variance the sum of the noise of equal rounds is taken on its lattice; above it, from a normal number."""

SPREAD = 1.5
"""The variance that is spent on making a whole number of a normal one: see `_ripple`."""

LEFT_OUT = 1e-9
"""Tails of the lattice with this share of delta count as a loss without bound."""

BOUND_SHARE = 0.1
"""Of delta: what the bound of bounded noise costs at most, where it is chosen here."""

_BLOCKS = 2**16
"""So many terms of a sum at an edge are taken one by one; beyond, in blocks."""

_FAR = 37.0
"""Beyond it a normal tail underflows."""

_ROOT = math.sqrt(2.0)

_DIGITS, _LARGEST = 4, 1e12
"""Significant digits of a sigma that `sigma_for` finds, and the largest one."""


def total_epsilon_noisy_sum(noise: SumNoise, rounds: int, delta: float, weight: int = 1, first: int = 0) -> Account:
    """The total epsilon at delta of sums that are opened with noise, for one client of a weight.

    It holds for any averaging and any two private inputs (costs, history, coins), in both directions, against an
    observer who chooses the signals and knows everything about all other clients; and for any mechanism and costs in
    which one client's report depends on no other client's input. Of two aggregators, it holds against either of them:
    each knows its own noise, so that only the other's counts.

    Args:
        noise: how noisy the sums are.
        rounds: how many rounds.
        delta: the slack (see `Account`); at 0 there is no bound.
        weight: the client's, a whole number.
        first: the round from which on.

    Example:
        >>> total_epsilon_noisy_sum(SumNoise(422.0), rounds=10_000, delta=1e-6)
        total epsilon 1.002 at delta 1e-06 over 10,000 opened sums, for a client of weight 1, against an observer of the
        sums with noise (sigma 422), if an aggregator that you trust adds the noise and shows nothing else (nothing in
        turnout does), and each round's noise is drawn once, and its sum is opened once, and nothing else that is seen
        (settings, who is a member) depends on a client's input, and each client's report depends on no other client's
        input, as it does in turnout's own mechanisms and costs (Gaussian curve)
        >>> total_epsilon_noisy_sum(SumNoise(3.0), rounds=2, delta=1e-6).how
        'discrete Gaussian curve'
        >>> total_epsilon_noisy_sum(SumNoise(422.0, bound=2600), rounds=10_000, delta=1e-6).how
        'Gaussian curve; the bound costs 5.41e-08 of delta'
    """
    check_rounds(rounds)
    check_delta(delta)
    _check_weight(weight)
    opened = noise.opened(first, first + rounds)
    number, left = sum(opened.values()), _left_of_delta(opened, noise.bound, weight, delta)
    if left <= 0.0 < delta:
        least = least_bound(noise, first + rounds, delta, weight)
        allowed = f"large enough for a total at delta {delta:g} over {number:,} opened sums at weight {weight:,}"
        remedy = f"{least:,} costs at most a tenth of delta; a smaller weight, fewer rounds or a larger delta need less"
        raise invalid("noise.bound", allowed, f"{noise.bound:,}", remedy)
    over = f"{number:,} opened sum{'' if number == 1 else 's'}, for a client of weight {weight:,}"
    epsilon, how = _total(opened, left, weight)
    if noise.bound is not None and opened and delta > 0.0:
        how += f"; the bound costs {shown_delta(delta - left)} of delta"
    observer = Observer(NOISY_SUM, noise=noise, assuming=(OWN_BIT,))
    return Account(epsilon, delta, rounds, str(observer), how, observer.assumptions(Classical()), over=over)


def sigma_for(
    budget: float,
    delta: float,
    rounds: int,
    weight: int = 1,
    early: int = 0,
    share: float = 0.0,
    aggregators: int = 1,
    every: int = 1,
    bounded: bool = False,
) -> SumNoise:
    """The least noise that keeps a total epsilon at delta over so many rounds: the inverse of the account.

    The budget is split by 1 / sigma^2, which adds up over rounds: a share of it goes to the first rounds.

    Args:
        budget: the largest total epsilon.
        delta: the slack (see `Account`), above 0.
        rounds: how many rounds, from the first one.
        weight: of the heaviest client, a whole number.
        early: the first rounds, which get the share.
        share: of the budget for these rounds; 0: the same noise in all rounds.
        aggregators: 1, or 2 of which either may be the observer.
        every: a sum is opened in every so many rounds.
        bounded: bounded noise, with its `least_bound`: it needs a little more noise.

    Example:
        >>> sigma_for(1.0, 1e-6, rounds=10_000)
        SumNoise(sigma=422.5, early=0, early_sigma=None, aggregators=1, every=1, bound=None)
        >>> sigma_for(1.0, 1e-6, rounds=10_000, bounded=True).words
        'sigma 424.7, bounded by 2,574'
        >>> sigma_for(1.0, 1e-6, rounds=10_000, early=30, share=0.3).early_sigma
        42.25
    """
    counts = _counts(budget, delta, rounds, weight, early, share, every)

    kept = _kept(delta) if bounded else delta

    def made(scale: float) -> SumNoise:
        """The noise that spends a sum of 1 / sigma^2 of 1 / scale^2."""
        sigma, first = (_up(scale * math.sqrt(n / part)) if n else None for n, part in _parts(counts, share))
        assert sigma is not None  # a later sum is opened
        return SumNoise(sigma, early, first, aggregators, every)

    def suffices(scale: float) -> bool:
        return _Curve.of(made(scale).opened(0, rounds), weight, kept).delta(budget) <= kept

    most = _LARGEST / max(math.sqrt(n / part) for n, part in _parts(counts, share) if n)
    if not suffices(most):
        raise invalid("budget", f"one that a sigma of {_LARGEST:g} keeps", budget, "raise budget or delta")
    low, high = 1e-9, most
    while high > low * (1.0 + 0.1**_DIGITS / 8.0):  # finer than the digits
        middle = math.sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    found = made(high)
    return replace(found, bound=least_bound(found, rounds, delta, weight)) if bounded else found


def least_bound(noise: SumNoise, rounds: int, delta: float, weight: int = 1) -> int:
    """The smallest bound of this noise that costs at most a tenth of delta.

    Args:
        noise: its sigmas; a bound that it has does not matter.
        rounds: how many, from the first one.
        delta: the slack of the total (see `Account`), above 0.
        weight: of the heaviest client, a whole number.

    Example:
        >>> least_bound(SumNoise(422.5), rounds=10_000, delta=1e-6)
        2561
        >>> least_bound(SumNoise(422.5), rounds=10_000, delta=1e-6, weight=20)
        2772
    """
    check_rounds(rounds)
    _check_weight(weight)
    opened = noise.opened(0, rounds)
    largest = max(noise.sigma, noise.early_sigma or 0.0)

    def suffices(bound: int) -> bool:
        return _left_of_delta(opened, bound, weight, delta) >= _kept(delta)

    low, high = math.ceil(largest) - 1, math.ceil(largest)
    while not suffices(high):
        if high > weight + 64.0 * largest:  # there the noise is rarer than any delta that a float can tell from 0
            raise invalid("delta", "one of which a bound costs a tenth at most", delta, "try 1e-6")
        low, high = high, 2 * high + weight
    while high > low + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _kept(delta: float) -> float:
    """What a bound that is chosen here leaves of delta, at least."""
    return (1.0 - BOUND_SHARE) * delta


def _left_of_delta(opened: Mapping[float, int], bound: int | None, weight: int, delta: float) -> float:
    """The delta at which noise without a bound has the total that bounded noise has at this one, rounded downwards.

    Delta with a bound is at most (delta without + edge) / (1 - cut). The edge is the chance that some noise is so near
    the bound that a client's weight would move it beyond; the cut, that some is beyond it. 0: there is no such delta.
    """
    if bound is None:
        return delta
    edge = math.fsum(n * _edge(sigma, bound, weight) for sigma, n in opened.items())
    cut = math.fsum(n * _beyond(sigma, bound) for sigma, n in opened.items())
    return max(0.0, (delta * (1.0 - cut) - edge) * (1.0 - 1e-12))


def _edge(sigma: float, bound: int, weight: int) -> float:
    """P(bound - weight < Z <= bound), rounded upwards: term by term, or by blocks at the height of their inner end.

    Example:
        >>> exact = math.exp(-0.5 * 36) + math.exp(-0.5 * 49)
        >>> round(_edge(1.0, bound=7, weight=2) / exact * 2.50662828, 6)
        1.0
    """
    if weight > bound:
        return 1.0
    size = -(-weight // _BLOCKS)
    inner = (bound - weight + 1) + size * np.arange(-(-weight // size))
    return _rounded_up(size * float(np.sum(np.exp(-0.5 * np.square(inner / sigma)))), sigma)


def _beyond(sigma: float, bound: int) -> float:
    """P(|Z| > bound), rounded upwards: (a + j)^2 is at least a^2 + 2 a j, so the rest is below a geometric series.

    Example:
        >>> exact = 2.0 * sum(math.exp(-0.5 * (z / 3.0) ** 2) for z in range(13, 99)) / (3.0 * math.sqrt(2.0 * math.pi))
        >>> 1.0 < _beyond(3.0, bound=12) / exact < 1.05
        True
    """
    first = math.exp(-0.5 * ((bound + 1) / sigma) ** 2)
    return _rounded_up(2.0 * first / -math.expm1(-(bound + 1) / sigma**2), sigma)


def _rounded_up(terms: float, sigma: float) -> float:
    """Terms of exp(-z^2 / (2 sigma^2)) as a chance: all of them add up to more than sigma sqrt(2 pi), by Poisson."""
    return min(1.0, terms / (sigma * math.sqrt(2.0 * math.pi)) * (1.0 + 1e-10) + 1e-290)  # what underflows


def _counts(
    budget: float, delta: float, rounds: int, weight: int, early: int, share: float, every: int
) -> tuple[int, int]:
    """(early, later) sums that are opened, once everything that `sigma_for` was given is checked."""
    check_rounds(rounds)
    _check_weight(weight)
    check_number(
        "budget", budget, "a total epsilon above 0", lambda given: given > 0.0, "values from 0.5 to 8 are usual"
    )
    check_number("delta", delta, "above 0 and below 1", lambda given: 0.0 < given < 1.0, "try 1e-6")
    check_number("share", share, "from 0 to below 1", lambda given: 0.0 <= given < 1.0, "0.3 is usual")
    if (early > 0) != (share > 0.0) or not 0 <= early < rounds:
        allowed = f"both 0, or a share above 0 for at least 1 and fewer than {rounds:,} rounds"
        raise invalid("early and share", allowed, f"{early}, {share}", "30 and 0.3 are usual")
    first, all_of_them = (number // max(1, every) for number in (early, rounds))
    if every < 1 or all_of_them == first or (early and first == 0):
        raise invalid("every", "such that a sum is opened, early and later", every, "open sums more often")
    return first, all_of_them - first


def _parts(counts: tuple[int, int], share: float) -> tuple[tuple[int, float], tuple[int, float]]:
    """(number, share of the budget) of the later sums, and of the early ones."""
    return (counts[1], 1.0 - share), (counts[0], share)


def _up(sigma: float) -> float:
    """Rounded upwards to a few digits; at least 1."""
    step = 10.0 ** (math.floor(math.log10(sigma)) + 1 - _DIGITS)
    return max(1.0, float(f"{math.ceil(sigma / step) * step:.{_DIGITS}g}"))


@dataclass(frozen=True)
class _Curve:
    """Delta as a function of a total epsilon: of a discrete part, and a Gaussian part independent of it.

    Attributes:
        losses: of the discrete part, rounded upwards, shape (outcomes,).
        masses: of these, shape (outcomes,); correct to `rounding`.
        mu: of the Gaussian part, rounded upwards; 0 without one.
        ripple: the true masses are those of this pair times the same number, up to a factor e^(+-ripple).
        lost: mass that is left out: a loss without bound.
        rounding: a bound on the relative error of the masses.
    """

    losses: Array
    masses: Array
    mu: float
    ripple: float
    lost: float
    rounding: float

    @classmethod
    def of(cls, opened: Mapping[float, int], weight: int, delta: float) -> _Curve:
        """Of so many sums with which sigma. At most two small groups are discrete, or the product would be large."""
        small = sorted((n * s * s, s, n) for s, n in opened.items() if n * s * s <= SMALL)[:2]
        exact = {s for _, s, _ in small}
        tail = max(LEFT_OUT * delta, 1e-300)
        square = 2.0 * math.log(4.0 / tail)  # of the reach: P(|Z| >= z) <= 2 exp(-z^2 / (2 variance))
        losses, masses = np.zeros(1), np.ones(1)
        for variance, sigma, number in small:
            reach = math.ceil(math.sqrt(square * variance))
            steps = np.arange(-reach, reach + 1)
            mass = np.exp(-0.5 * np.square(steps) / variance)
            loss = (weight / sigma) * ((steps + 0.5 * number * weight) / sigma)
            losses = np.add.outer(losses, loss + 8.0 * UNIT * np.abs(loss)).ravel()
            masses = np.multiply.outer(masses, mass / mass.sum()).ravel()
        rest = [(s, n) for s, n in opened.items() if s not in exact]
        mu = weight * math.sqrt(math.fsum(n / (s * s - SPREAD / n) for s, n in rest))
        ripple = math.fsum(_ripple_of_sum(s, n) for s, n in opened.items()) + len(rest) * _ripple(SPREAD)
        lost = tail if small else 0.0
        return cls(losses, masses, mu * UP, ripple, lost, 64.0 * UNIT * (square + 20.0))

    @property
    def how(self) -> str:
        """The method, in words."""
        if len(self.losses) == 1:
            return "Gaussian curve"
        return "discrete Gaussian curve" if self.mu == 0.0 else "discrete Gaussian and Gaussian curves"

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at a total epsilon, the same in both directions, rounded upwards."""
        rounded = 8.0 * UNIT * (abs(epsilon) + float(np.abs(self.losses).max()))
        places = (epsilon - 2.0 * self.ripple - rounded) - self.losses
        if self.mu == 0.0:
            gains = -np.expm1(np.minimum(0.0, places))
        else:
            gains = np.array([_gaussian_delta(self.mu, place) for place in places.tolist()])
        found = float(np.sum(self.masses * gains)) * (1.0 + self.rounding) * math.exp(min(2.0 * self.ripple, 700.0))
        return min(1.0, found * UP + self.lost + 1e-290)  # what underflows


def _total(opened: Mapping[float, int], delta: float, weight: int) -> tuple[float, str]:
    """(the total epsilon at delta, how) of so many sums with which sigma."""
    if not opened:
        return 0.0, "no sum is opened"
    if delta == 0.0:
        return math.inf, "Gaussian noise has no pure bound"
    rho = 0.5 * weight * weight * math.fsum(n / (s * s) for s, n in opened.items())
    highest = (rho + 2.0 * math.sqrt(-rho * math.log(delta))) * UP  # concentrated differential privacy: always holds
    curve = _Curve.of(opened, weight, delta)
    if curve.delta(highest) > delta:
        return highest, "zero-concentrated"
    return least_epsilon(curve.delta, highest, delta), curve.how


def _gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta of a normal number whose mean moves by mu standard deviations, for any real epsilon, rounded upwards.

    Q(a) - e^epsilon Q(b) with a = epsilon / mu - mu / 2, b = a + mu and Q(x) = P(N > x). Since e^epsilon is
    phi(a) / phi(b), the second term is phi(a) times Mills' ratio at b, which is at least 2 / (b + sqrt(b^2 + 4)).

    Example:
        >>> round(_gaussian_delta(1.0, 0.0), 6), _gaussian_delta(100.0, 5000.0) < 0.5
        (0.382925, True)
    """
    a, b = epsilon / mu - 0.5 * mu, epsilon / mu + 0.5 * mu
    rounding = 8.0 * UNIT * (2.0 + (abs(a) + min(abs(b), _FAR) + 1.0) * (abs(epsilon / mu) + mu + 1.0))
    first = 0.5 * math.erfc(a / _ROOT)
    if b < _FAR:
        second = math.exp(epsilon) * 0.5 * math.erfc(b / _ROOT)
    else:
        second = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi) * 2.0 / (b + math.sqrt(b * b + 4.0))
    return min(1.0, max(0.0, first * (1.0 + rounding) - second * max(0.0, 1.0 - rounding)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The distance, in standard deviations, of two normal numbers with this epsilon at delta, rounded upwards.

    Example:
        >>> round(gaussian_mu(1.0, 1e-6), 3)
        0.237
    """
    low, high = 1e-6, 2.0 * math.sqrt(2.0 * (epsilon + 750.0)) + epsilon
    while high > low * (1.0 + 1e-12):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _gaussian_delta(middle, epsilon) <= delta else (low, middle)
    return high * (1.0 + 1e-6)  # a delta that is rounded upwards ends the search a little early


def _ripple(variance: float) -> float:
    """How far ln of the sum of a normal density over all whole numbers is from 0, wherever its mean is.

    The sum is 1 + 2 sum over k of e^(-2 pi^2 k^2 variance) cos(2 pi k mean), by Poisson.

    Example:
        >>> 5e-9 < _ripple(1.0) < 6e-9
        True
    """
    first = math.exp(-2.0 * math.pi**2 * variance)
    return -math.log1p(-2.0 * first / (1.0 - first)) * UP


def _ripple_of_sum(sigma: float, number: int) -> float:
    """How far ln of the law of a sum of discrete Gaussian numbers is from that of one discrete Gaussian number.

    One factor for each number added to k before: the sum over whole numbers of a density of variance
    sigma^2 k / (k + 1). The factors fall with k; from 64 on they are counted as the one at 64.
    """
    factors = [_ripple(sigma * sigma * k / (k + 1)) for k in range(1, min(number, 65))]
    return (math.fsum(factors) + max(0, number - 65) * _ripple(sigma * sigma * 64 / 65)) * UP


def _check_weight(weight: int) -> None:
    if not isinstance(weight, (int, np.integer)) or weight < 1:
        raise invalid("weight", "a whole number of at least 1", repr(weight), "give the client's whole units")
