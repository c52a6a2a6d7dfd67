"""Bounds on epsilon from counts of an event, with a stated error: exact binomial intervals.

The bounds are those of Clopper and Pearson. They hold for every number of trials, and need no approximation. Where all
words of the coin are counted, instead of random trials, the bound has no error.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np

from turnout.errors import MissingExtra, invalid
from turnout.problem import Array

OUTWARDS = 1e-9
"""Bounds are moved outwards by this relative amount, far more than their own rounding."""


def chance_at_least(hits: int, trials: int, error: float) -> float:
    """A lower bound on the chance of an event; above the truth with a chance of at most `error`.

    The p at which `hits` or more in so many trials have the chance `error`.

    Args:
        hits: how often it happened.
        trials: independent, at least `hits`; 0 says nothing.
        error: in (0, 1).

    Example:
        >>> round(chance_at_least(50, 100, 0.025), 4), chance_at_least(0, 100, 0.025)
        (0.3983, 0.0)
    """
    _check(hits, trials, error)
    if hits == 0:
        return 0.0
    return float(_special().betaincinv(hits, trials - hits + 1, error)) * (1.0 - OUTWARDS)


def chance_at_most(hits: int, trials: int, error: float) -> float:
    """An upper bound on the chance of an event; below the truth with a chance of at most `error`.

    Example:
        >>> round(chance_at_most(50, 100, 0.025), 4), chance_at_most(100, 100, 0.025)
        (0.6017, 1.0)
    """
    _check(hits, trials, error)
    if hits == trials:
        return 1.0
    return min(1.0, float(_special().betainccinv(hits + 1, trials - hits, error)) * (1.0 + OUTWARDS))


def epsilon_at_least(
    hits: int, trials: int, other_hits: int, other_trials: int, error: float, delta: float = 0.0
) -> float:
    """A lower bound on epsilon from one event, seen under two costs; at least 0.

    ln((P - delta) / Q) with P the lower bound on the event's chance under one cost and Q the upper bound under the
    other; each may err with half of `error`.

    Example:
        >>> round(epsilon_at_least(7311, 10_000, 2689, 10_000, error=1e-6), 2)
        0.89
    """
    least = chance_at_least(hits, trials, 0.5 * error) - delta
    most = chance_at_most(other_hits, other_trials, 0.5 * error)
    return max(0.0, math.log(least / most)) if least > 0.0 else 0.0


def epsilon_of_words(words: int, other: int) -> float:
    """A lower bound on epsilon from an event to which so many of the coin's words lead, under two costs; without error.

    ln(words / other), rounded down; infinite where the event cannot happen under the other cost.

    Example:
        >>> epsilon_of_words(3, 1), epsilon_of_words(1, 0), epsilon_of_words(1, 3)
        (1.0986122886681096, inf, 0.0)
    """
    if words <= other:
        return 0.0
    if other == 0:
        return math.inf
    down = Context(prec=50, rounding=ROUND_FLOOR)
    share = down.divide(Decimal(words), Decimal(other))
    return max(0.0, math.nextafter(float(down.next_minus(down.ln(share))), -math.inf))


def guessed_epsilon(hits: Any, trials: Any, other_hits: Any, other_trials: Any, delta: float) -> Array:
    """A cautious guess of what `epsilon_at_least` would find, to choose events by: three standard errors (Wilson).

    Args:
        hits, other_hits: counts of many events, any shape.
        trials, other_trials: one number, or of the same shape.
        delta: as in the claim.

    Example:
        >>> guessed_epsilon(np.array([7311, 0]), 10_000, np.array([2689, 9]), 10_000, 0.0).round(2)
        array([0.93, -inf])
    """
    least, most = _wilson(hits, trials, -3.0) - delta, _wilson(other_hits, other_trials, 3.0)
    with np.errstate(all="ignore"):
        return np.asarray(np.log(np.where(least > 1e-12, least, 0.0) / most))


def smallest_detected(epsilon: float, trials: int, error: float, chance: float = 0.99) -> float:
    """The power of an audit: the smallest true epsilon per report that it detects where `epsilon` is claimed.

    For one report of a symmetric reporter, which says "yes" with probability 1 / (1 + e^-true) under one cost
    and 1 / (1 + e^true) under the other, and for the event that shows it. Found from exact binomial quantiles.

    Args:
        epsilon: claimed per report.
        trials: of each cost.
        error: allowed to the one test, such as the false-alarm rate over the number of tests.
        chance: that it is detected, at least.

    Example:
        >>> round(smallest_detected(1.0, 4_000_000, 1e-6 / 20), 3)
        1.009
    """
    binomial = _stats().binom

    def caught(true: float) -> bool:
        low, miss = 1.0 / (1.0 + math.exp(true)), 0.5 * (1.0 - chance)
        hits, other = binomial.ppf(miss, trials, 1.0 - low), binomial.ppf(1.0 - miss, trials, low)
        return epsilon_at_least(int(hits), trials, int(other), trials, error) > epsilon

    below, above = epsilon, epsilon + 40.0
    if not caught(above):
        return math.inf
    while above - below > 1e-4 * above:
        middle = 0.5 * (below + above)
        below, above = (below, middle) if caught(middle) else (middle, above)
    return above


def _wilson(hits: Array, trials: Any, errors: float) -> Array:
    total = np.maximum(np.asarray(trials, dtype=np.float64), 1.0)
    square = errors * errors
    share = np.asarray(hits, dtype=np.float64) / total
    spread = np.sqrt(share * (1.0 - share) / total + square / (4.0 * total * total))
    return np.asarray((share + square / (2.0 * total) + errors * spread) / (1.0 + square / total))


def _check(hits: int, trials: int, error: float) -> None:
    if not 0 <= hits <= trials:
        raise invalid("hits", f"from 0 to the {trials} trials", hits, "count the trials in which the event happened")
    if not 0.0 < error < 1.0:
        raise invalid("error", "above 0 and below 1", error, "try 1e-6")


def _special() -> Any:
    try:
        import scipy.special as special
    except ImportError:
        raise MissingExtra("an audit", library="scipy", extra="lab") from None
    return special


def _stats() -> Any:
    try:
        import scipy.stats as stats
    except ImportError:
        raise MissingExtra("the power of an audit", library="scipy", extra="lab") from None
    return stats
