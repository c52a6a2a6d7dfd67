"""Rounds that differ, fixed ahead: the total by dp-accounting's privacy loss distributions (extra "lab").

Equal rounds are first put together exactly (the walk of `accounting`), then each group's losses are moved to a
common grid once, by splitting a mass between its two neighbours so that e^(-loss) keeps its mean. A convex
function of e^(-loss) can only grow by that, and delta is one, so the result is an upper bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from turnout.errors import MissingExtra, invalid
from turnout.privacy.accounting import (
    EVERYTHING,
    SMALLEST_LOW,
    UNIT,
    UP,
    Account,
    Pair,
    Walk,
    check_delta,
    check_rounds,
    dominating_pair,
    report_epsilon,
    total_epsilon,
)
from turnout.problem.costs import Array

POINTS = 2000.0
"""Grid points in one standard deviation of the total loss."""

MOST_GROUPS = 3000
"""More different boxes than this are rounded up to wider ones, by some 0.2 % of a report's epsilon."""

TAIL = 1e-15
"""The mass that one composition may move to infinite loss."""


def total_epsilon_of_plan(plan: Iterable[tuple[float, float, int]], delta: float) -> Account:
    """The total epsilon at delta over rounds that differ by a plan made ahead, against an observer of every report.

    The plan must not depend on anything that the reports reveal: boxes chosen on the way need a `RenyiFilter`.
    dp-accounting's own `PLDAccountant.compose(RandomizedResponseDpEvent, count)` is never used: in 0.6.0 it
    ignores the count.

    Args:
        plan: (low, high, count) for each kind of round; the order does not matter.
        delta: the slack (see `Account`); not below what the transforms' rounding needs, some 1e-9.

    Raises:
        ValueError: an empty plan, a box that is none, or a delta too small for this method.
        MissingExtra: dp-accounting is not installed, and the rounds are not all alike.

    Example:
        >>> total_epsilon_of_plan([(0.475, 0.525, 500), (0.45, 0.55, 500)], delta=1e-6)
        total epsilon 35.40 at delta 1e-06 over 1,000 reports, against an observer of every report (loss distributions)
    """
    check_delta(delta)
    counts: Counter[tuple[float, float]] = Counter()
    for low, high, count in plan:
        check_rounds(count)
        counts[low, high] += count
    if not counts:
        raise invalid("plan", "at least one (low, high, count)", "none", "name the rounds")
    rounds = sum(counts.values())
    pure = math.fsum(report_epsilon(*box) * count for box, count in counts.items()) * UP
    if len(counts) == 1:
        ((box, count),) = counts.items()
        return total_epsilon(*box, count, delta)
    tiny = any(low < high and low < SMALLEST_LOW for low, high in counts)
    if delta == 0.0 or pure == 0.0 or not math.isfinite(pure) or tiny:
        return Account(pure, delta, rounds, EVERYTHING, "sum of the reports")
    groups = _groups(Counter({dominating_pair(*box): count for box, count in counts.items() if box[0] < box[1]}))
    return Account(min(pure, _compose(groups, delta)), delta, rounds, EVERYTHING, "loss distributions")


def split_on_grid(losses: Array, mass: Array, step: float) -> tuple[int, Array]:
    """Moves masses to multiples of `step` such that every delta can only grow.

    A mass at x between a and b = a + step is split so that e^(-x) keeps its mean:
    the share of b is (1 - e^(-(x - a))) / (1 - e^(-step)).

    Returns:
        the first multiple, and the masses from there on.

    Example:
        >>> split_on_grid(np.array([0.0, 0.25]), np.array([0.5, 0.5]), 0.25)
        (0, array([0.5, 0.5, 0. ]))
    """
    place = losses / step
    below = np.floor(place).astype(np.int64)
    share = np.minimum(1.0, np.expm1(-(place - below) * step) / math.expm1(-step))
    first = int(below.min())
    grid = np.zeros(int(below.max()) - first + 2)
    np.add.at(grid, below - first, mass * (1.0 - share))
    np.add.at(grid, below - first + 1, mass * share)
    return first, grid


def distribution(first: int, grid: Array, step: float, infinite: float, feature: str) -> Any:
    """dp-accounting's privacy loss distribution of a grid, the same in both directions, pessimistic.

    Raises:
        MissingExtra: dp-accounting is not installed.
    """
    try:
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    except ImportError:
        raise MissingExtra(feature, library="dp-accounting", extra="lab") from None
    masses = {first + int(i): float(grid[i]) for i in np.flatnonzero(grid)}
    return PrivacyLossDistribution.create_from_rounded_probability(masses, infinite, step)


def rounding_of_transform(length: float) -> float:
    """A bound on the error of a convolution of so many points by Fourier transforms, in the 1-norm, for masses.

    A few logarithms of the length times the unit roundoff in the 2-norm, hence times its root in the 1-norm; a
    transform is at most twice as long as what it is for.

    Example:
        >>> 1e-13 < rounding_of_transform(512) < 1e-11
        True
    """
    twice = 2.0 * length
    return 16.0 * UNIT * math.log2(twice) * math.sqrt(twice)


def epsilon_at(composed: Any, delta: float, margin: float) -> float:
    """The total at delta, with `margin` of it kept for the rounding of the Fourier transforms.

    Raises:
        ValueError: delta is not above twice the margin.
    """
    if delta <= 2.0 * margin:
        raise invalid("delta", f"above {2.0 * margin:.1e}, for rounds that differ or are summed", delta, "raise delta")
    return float(composed.get_epsilon_for_delta(delta - margin)) * UP


def _groups(counts: Counter[Pair]) -> Counter[Pair]:
    """At most MOST_GROUPS different pairs, each no weaker than the one it stands for.

    A randomized response with a greater loss, or one that is less often blank, gives the other by adding noise.
    """
    fineness = 1024.0
    groups = counts
    while len(groups) > MOST_GROUPS:
        groups = Counter()
        for pair, count in counts.items():
            loss = _rounded_up(pair.loss, fineness)
            spoken = _rounded_up(pair.right + pair.wrong, fineness)
            wrong = spoken / (1.0 + math.exp(loss))
            groups[Pair(wrong * math.exp(loss), wrong, 1.0 - spoken, loss)] += count
        fineness /= 2.0
    return groups


def _rounded_up(value: float, fineness: float) -> float:
    """To a power of e^(1 / fineness), upwards."""
    return max(value, math.exp(math.ceil(math.log(value) * fineness) / fineness))


def _compose(groups: Counter[Pair], delta: float) -> float:
    """The total of groups of equal rounds, put together pairwise."""
    spread = math.sqrt(math.fsum(n * (pair.right + pair.wrong) * pair.loss**2 for pair, n in groups.items()))
    step = spread / POINTS
    feature = "an account of rounds that differ"
    parts: list[tuple[Any, int]] = []
    for pair, count in groups.items():
        losses, mass, lost = _losses(Walk.of(pair, count))
        first, grid = split_on_grid(losses, mass, step)
        parts.append((distribution(first, grid, step, lost, feature), len(grid)))
    margin = 0.0
    while len(parts) > 1:
        together = []
        for (a, size), (b, other) in zip(parts[::2], parts[1::2], strict=False):
            margin += rounding_of_transform(size + other)
            together.append((a.compose(b, tail_mass_truncation=TAIL), size + other))
        parts = together + parts[2 * len(together) :]
    ((composed, _),) = parts
    return epsilon_at(composed, delta, margin)


def _losses(walk: Walk) -> tuple[Array, Array, float]:
    """(losses, masses, mass of infinite loss) of a walk, both sides, the far tails moved to infinity."""
    up = walk.mass * (1.0 + walk.slack)
    steps = np.arange(len(up)) * (walk.loss * UP)
    down = up[1:] * np.exp(-steps[1:])
    losses, mass = np.concatenate([-steps[:0:-1], steps]), np.concatenate([down[::-1], up])
    outer = np.cumsum(mass[::-1])[::-1] > TAIL  # the rest lies above
    inner = np.cumsum(mass) > TAIL  # the rest lies below: moved to infinite loss too
    keep = outer & inner
    return losses[keep], mass[keep], float(mass[~keep].sum())
