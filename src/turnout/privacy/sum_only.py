"""What the sum alone gives away, to an observer of totals (or of shuffled bits), never of a report.

The honest others are the noise. Whatever its cost and the signal, a client's probability lies in [low, high], so with
chance low its bit is a certain 1, with chance 1 - high a certain 0, and only the rest depends on it. Given the rest,
the sum is the target's bit plus Bin(M, low / (low + 1 - high)), M ~ Bin(honest, low + 1 - high), where [low, high] is
a box that holds the boxes of all others.

Over many rounds it holds only if no history contains hidden bits (averages move by the probability), boxes are fixed
and public, clients have one weight, and the observer cannot lower the number of honest others. `Observer` checks what
can be checked. See docs/proofs/accounting.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
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
    check_box,
    check_delta,
    check_rounds,
    dominating_pair,
    is_symmetric,
    least_epsilon,
    report_epsilon,
    total_epsilon,
)
from turnout.privacy.filter import renyi_to_epsilon
from turnout.privacy.observer import SUM, Observer
from turnout.problem import Array

POINTS = 2000.0
"""Grid points in one standard deviation of the total loss."""

MOST_GROUPS = 3000
"""More different boxes than this are rounded up to wider ones, by some 0.2 % of a report's epsilon."""

TAIL = 1e-15
"""The mass that one composition may move to infinite loss."""


def total_epsilon_of_plan(plan: Iterable[tuple[float, float, int]], delta: float) -> Account:
    """The total epsilon at delta over rounds that differ by a plan made ahead, against an observer of every report.

    The plan must not depend on anything that the reports reveal: boxes chosen during the run need a `RenyiFilter`.
    dp-accounting's own `PLDAccountant.compose(RandomizedResponseDpEvent, count)` is never used: in 0.6.0 it
    ignores the count.

    Args:
        plan: (low, high, count) for each kind of round; the order does not matter.
        delta: the slack (see `Account`); not below what the transforms' rounding needs, some 1e-9.

    Raises:
        ValueError: an empty plan, an invalid box, or a delta too small for this method.
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
    """A bound on the error of a convolution of masses by Fourier transforms, in the 1-norm.

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
    """The total of groups of equal rounds, composed in pairs."""
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


TAIL_OF_SUM = 1e-18
"""The chance, for each of a handful of tails, that is counted as a loss without bound."""

MOST_CROWDS = 512
"""More different numbers of certain bits than this are rounded down, which can only lose privacy."""

MOST_HONEST = 2_000_000
"""Honest others beyond this number are ignored."""

ORDERS: tuple[float, ...] = tuple((1.0 + np.geomspace(0.1, 3000.0, 100)).tolist())
"""Rényi orders that are tried: best for totals from some 0.01 to some 1,000."""


@dataclass(frozen=True)
class _View:
    """One round as the sum shows it: outcomes with their chances, for the target at high (P) and at low (Q).

    Attributes:
        p: chances when the target says "yes" with probability high, shape (outcomes,).
        q: the same for low.
        excess: P / Q - 1, without cancellation.
        reverse: Q / P - 1, likewise.
        lost: chance (in either case, at most) of all that is left out: a loss without bound.
        slack: a bound on the relative error of p and q.
    """

    p: Array
    q: Array
    excess: Array
    reverse: Array
    lost: float
    slack: float

    def delta(self, epsilon: float) -> float:
        """The greater hockey-stick divergence of the two directions, rounded upwards."""
        more = math.expm1(min(epsilon, 700.0)) / UP
        forth = np.sum(self.q * np.maximum(0.0, self.excess - more))
        back = np.sum(self.p * np.maximum(0.0, self.reverse - more))
        return min(1.0, float(max(forth, back)) * (1.0 + self.slack) + self.lost)

    def divergence(self, order: float) -> float:
        """The greater Rényi divergence of the two directions, of an order above 1, rounded upwards."""
        moments = []
        for mass, excess in ((self.q, self.excess), (self.p, self.reverse)):
            terms = np.expm1(order * np.log1p(excess)) - order * excess
            moments.append(float(np.sum(mass * np.maximum(0.0, terms))))
        return math.log1p(max(moments) * (1.0 + 1e-9 + self.slack) + order * self.lost + 1e-15) / (order - 1.0)


def total_epsilon_sum_only(
    low: float, high: float, rounds: int, delta: float, honest: int, others: tuple[float, float] | None = None
) -> Account:
    """The total epsilon at delta against an observer of the sum of the reports alone, or of their shuffled bits.

    One round is exact for the worst view (base install). More rounds: loss distributions for a symmetric box
    (`Clamp` in the middle, `RandomizedResponse`; extra "lab"), Rényi divergences of both directions elsewhere.

    What this needs is not checked here, but by `account_of`: boxes are the same in all rounds and depend on nothing
    private (no `TrackingClamp`); averages move by the probability, not by the bit; all clients have one weight; only
    clients that are not counted in `honest` collude with the observer.

    Args:
        low: the least probability of the client's "yes", fixed.
        high: the greatest.
        rounds: how many sums.
        delta: the slack (see `Account`), above 0.
        honest: other clients that certainly follow the protocol and report in every round.
        others: a box that holds the boxes of all these; the client's own, unless given.

    Raises:
        ValueError: an invalid box, no round, a delta outside (0, 1) or too small for the method.
        MissingExtra: several rounds of a symmetric box, without dp-accounting.

    Example:
        >>> total_epsilon_sum_only(0.378, 0.622, rounds=1, delta=1e-6, honest=1199)
        total epsilon 0.05658 at delta 1e-06 over 1 report, against
        an observer of the sum alone, with 1,199 honest others (exact, one round)
    """
    seen, against, crowd = total_epsilon(low, high, rounds, delta), str(Observer(SUM, honest)), others or (low, high)
    check_box(*crowd)
    hides = honest > 0 and min(crowd[0], 1.0 - crowd[1]) > 0.0
    if seen.epsilon == 0.0 or not math.isfinite(report_epsilon(low, high)) or delta == 0.0 or not hides:
        return Account(seen.epsilon, delta, rounds, against, "as if every report were seen")
    view = view_of_sum(low, high, min(int(honest), MOST_HONEST), crowd)
    if rounds == 1:
        found, how = least_epsilon(view.delta, seen.epsilon, delta), "exact, one round"
    elif is_symmetric(low, high) and is_symmetric(*crowd):
        found, how = _by_distributions(view, rounds, delta), "loss distributions"
    else:
        found, how = _by_renyi(view, rounds, delta, report_epsilon(low, high)), "Rényi divergences"
    return Account(min(found, seen.epsilon), delta, rounds, against, how)


def view_of_sum(low: float, high: float, honest: int, others: tuple[float, float] | None = None) -> _View:
    """All outcomes (number of certain bits, sum) of one round, the far tails left out and counted as lost.

    The client's box is [low, high], that of the honest others the same unless given.

    Example:
        >>> view = view_of_sum(0.25, 0.75, honest=1)
        >>> len(view.p), round(float(view.p.sum()), 12)
        (5, 1.0)
    """
    table, (least_other, most_other) = _log_factorials(honest), others or (low, high)
    yes, no = least_other, 1.0 - most_other  # chances of a certain 1 and of a certain 0
    least, inside = _binomial(honest, yes + no, most_other - least_other, table)
    stride = math.ceil(len(inside) / MOST_CROWDS)
    weights = np.add.reduceat(inside, np.arange(0, len(inside), stride))
    crowds = range(least, least + len(inside), stride)
    parts = [_outcomes(low, high, yes, no, crowd, some, table) for crowd, some in zip(crowds, weights, strict=True)]
    p, q, excess, reverse = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _View(p, q, excess, reverse, 4.0 * TAIL_OF_SUM, 64.0 * UNIT * (float(table.max()) + 20.0))


def _outcomes(
    low: float, high: float, yes: float, no: float, crowd: int, weight: float, table: Array
) -> tuple[Array, ...]:
    """(P, Q, P / Q - 1, Q / P - 1) over the sum t of the target's bit and the crowd's certain ones."""
    first, noise = _binomial(crowd, yes, no, table)
    without, with_one = np.append(noise, 0.0), np.concatenate([[0.0], noise])  # the target's bit 0, and 1
    p = weight * (high * with_one + (1.0 - high) * without)
    q = weight * (low * with_one + (1.0 - low) * without)
    t = first + np.arange(len(p))
    odds, rest = t * no, (crowd + 1 - t) * yes  # with_one : without = odds : rest, also at the cut
    more = (high - low) * (odds - rest)
    return p, q, more / (low * odds + (1.0 - low) * rest), -more / (high * odds + (1.0 - high) * rest)


@lru_cache(maxsize=2)
def _log_factorials(most: int) -> Array:
    return np.fromiter(map(math.lgamma, range(1, most + 2)), dtype=np.float64)


def _binomial(trials: int, yes: float, no: float, table: Array) -> tuple[int, Array]:
    """(first, Bin(k; trials, yes / (yes + no)) for k from first on), without tails of a chance below TAIL_OF_SUM each.

    By Bernstein's inequality a tail beyond 2/3 nats + sqrt(2 nats variance) has a chance below e^(-nats).
    """
    if no <= 0.0:
        return trials, np.ones(1)
    chance, nats = yes / (yes + no), -math.log(TAIL_OF_SUM)
    reach = 0.67 * nats + math.sqrt(2.0 * trials * chance * (1.0 - chance) * nats)
    first, last = max(0, math.floor(trials * chance - reach)), min(trials, math.ceil(trials * chance + reach))
    counts = np.arange(first, last + 1)
    ways = table[trials] - table[counts] - table[trials - counts]
    return first, np.exp(ways + counts * math.log(chance) + (trials - counts) * math.log(no / (yes + no)))


def _by_distributions(view: _View, rounds: int, delta: float) -> float:
    """Symmetric boxes: flipping every bit exchanges P and Q, so one direction is both."""
    keep = view.p > 0.0
    losses, mass = np.log1p(view.excess[keep]), view.p[keep]
    step = math.sqrt(float(np.sum(mass * losses**2))) / 50.0
    first, grid = split_on_grid(losses, mass * (1.0 + view.slack), step)
    one = distribution(first, grid, step, view.lost, "a sum-only account of several rounds")
    composed = one.self_compose(rounds)
    size = getattr(getattr(composed, "_pmf_remove", None), "size", len(grid) * rounds)
    margin = rounds * rounding_of_transform(size + len(grid)) * float(np.linalg.norm(grid))
    return epsilon_at(composed, delta, margin)


def _by_renyi(view: _View, rounds: int, delta: float, pure: float) -> float:
    """Any box: per order the greater divergence of both directions adds up, whatever the signals mix."""
    left = delta - rounds * view.lost
    orders = [order for order in ORDERS if left > 0.0 and order * pure <= 600.0]  # no power overflows
    return min([rounds * pure, *(renyi_to_epsilon(rounds * view.divergence(order), order, left) for order in orders)])
