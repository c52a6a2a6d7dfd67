"""What the sum alone gives away: a server, or any device, that sees totals (or shuffled bits), never a report.

The honest others are the noise. Whatever its cost and the signal, a client's probability lies in [low, high], so with
chance low its bit is a certain 1, with chance 1 - high a certain 0, and only the rest depends on it. Given the rest,
the sum is the target's bit plus Bin(M, low / (low + 1 - high)), M ~ Bin(honest, low + 1 - high).

It holds over many rounds only if nobody's state remembers hidden bits (averages move by the probability), for a box
that is fixed and public, and for a number of honest others that the server cannot lower: see docs/proofs/accounting.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from turnout.errors import invalid
from turnout.privacy.accounting import (
    UNIT,
    Account,
    check_box,
    check_delta,
    check_rounds,
    least_epsilon,
    report_epsilon,
    total_epsilon,
)
from turnout.privacy.filter import renyi_to_epsilon
from turnout.privacy.plan_account import distribution, epsilon_at, split_on_grid
from turnout.problem.costs import Array

TAIL = 1e-18
"""The chance, for each of a handful of tails, that is counted as a loss without bound."""

MOST_CROWDS = 512
"""More different numbers of certain bits than this are rounded down, which can only lose privacy."""

MOST_HONEST = 2_000_000
"""Honest others beyond this number are not counted on."""

ORDERS = tuple(1.0 + math.exp(0.1 * step) for step in range(-20, 80))


@dataclass(frozen=True)
class View:
    """One round as the sum shows it: outcomes with their chances, for the target at high (P) and at low (Q).

    Attributes:
        p: chances when the target says "yes" with probability high, shape (outcomes,).
        q: the same for low.
        excess: P / Q - 1, without cancellation.
        lost: chance (in either case, at most) of all that is left out: a loss without bound.
        slack: a bound on the relative error of p and q.
    """

    p: Array
    q: Array
    excess: Array
    lost: float
    slack: float

    def delta(self, epsilon: float) -> float:
        """The greater hockey-stick divergence of the two directions, rounded upwards."""
        more = math.expm1(min(epsilon, 700.0)) * (1.0 - 4.0 * UNIT)
        forth = np.dot(self.q, np.maximum(0.0, self.excess * (1.0 + 8.0 * UNIT) - more))
        back = np.dot(self.p, np.maximum(0.0, self.reverse() * (1.0 + 8.0 * UNIT) - more))
        return min(1.0, float(max(forth, back)) * (1.0 + self.slack) + self.lost)

    def reverse(self) -> Array:
        """Q / P - 1."""
        return np.asarray(-self.excess / (1.0 + self.excess))


def total_epsilon_sum_only(low: float, high: float, rounds: int, delta: float, honest: int) -> Account:
    """The total epsilon at delta against one that sees only the sum of the reports, or their shuffled bits.

    One round is exact for the worst view (base install). More rounds: loss distributions for a symmetric box
    (`Clamp` in the middle, `RandomizedResponse`; extra "lab"), Rényi divergences of both directions elsewhere.

    The numbers cannot tell what they need, so see to it: the box is the same for all and in all rounds and depends on
    nothing private (no `TrackingClamp`); states move by the probability and not by the bit; no participant colludes
    beyond those not counted in `honest`.

    Args:
        low: the least probability of a "yes", fixed, the same for every client.
        high: the greatest.
        rounds: how many sums.
        delta: the chance left over, above 0.
        honest: clients beside the target that certainly follow the protocol in every round.

    Raises:
        ValueError: a box that is none, no round, a delta outside (0, 1) or too small for the method.
        MissingExtra: several rounds of a symmetric box, without dp-accounting.

    Example:
        >>> total_epsilon_sum_only(0.378, 0.622, rounds=1, delta=1e-6, honest=1199)
        total epsilon 0.05658 at delta 1e-06 over 1 report, against
        one that sees only the sum, with 1,199 honest others (exact, one round)
    """
    check_box(low, high)
    check_rounds(rounds)
    check_delta(delta)
    if honest < 0 or honest != int(honest):
        raise invalid("honest", "a whole number of at least 0", honest, "give a floor that the server cannot lower")
    against = f"one that sees only the sum, with {honest:,} honest others"
    seen = total_epsilon(low, high, rounds, delta)
    if seen.epsilon == 0.0 or not math.isfinite(report_epsilon(low, high)) or delta == 0.0 or honest == 0:
        return Account(seen.epsilon, delta, rounds, against, "as if every report were seen")
    view = view_of_sum(low, high, min(int(honest), MOST_HONEST))
    symmetric = abs(low + high - 1.0) <= 8.0 * UNIT
    if rounds == 1:
        found, how = least_epsilon(view.delta, seen.epsilon, delta), "exact, one round"
    elif symmetric:
        found, how = _by_distributions(view, rounds, delta), "loss distributions"
    else:
        found, how = _by_renyi(view, rounds, delta, report_epsilon(low, high)), "Rényi divergences"
    return Account(min(found, seen.epsilon), delta, rounds, against, how)


def view_of_sum(low: float, high: float, honest: int) -> View:
    """All outcomes (number of certain bits, sum) of one round, the far tails left out and counted as lost.

    Example:
        >>> view = view_of_sum(0.25, 0.75, honest=1)
        >>> len(view.p), round(float(view.p.sum()), 12)
        (5, 1.0)
    """
    certain = low + (1.0 - high)
    least, most = _band(honest, certain)
    stride = max(1, math.ceil((most - least + 1) / MOST_CROWDS))
    crowds = range(least, most + 1, stride)
    table = _log_factorials(honest)
    inside = _binomial(honest, certain, least, most, table)
    weights = [float(inside[at : at + stride].sum()) for at in range(0, len(inside), stride)]
    weights[-1] += max(0.0, 1.0 - float(inside.sum()))  # a larger crowd hides better than the largest here
    parts = [_outcomes(low, high, crowd, weight, table) for crowd, weight in zip(crowds, weights, strict=True)]
    p, q, excess = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return View(p, q, excess, 4.0 * TAIL, UNIT * 16.0 * (float(table[-1]) + honest * 4.0 + 64.0))


def _outcomes(low: float, high: float, crowd: int, weight: float, table: Array) -> tuple[Array, Array, Array]:
    """(P, Q, P / Q - 1) over the sum t of the target's bit and Bin(crowd, heads), given the crowd."""
    heads = low / (low + (1.0 - high))
    first, last = _band(crowd, heads)
    noise = _binomial(crowd, heads, first, last, table)
    without, with_one = np.append(noise, 0.0), np.concatenate([[0.0], noise])  # the target's bit 0, and 1
    p = weight * (high * with_one + (1.0 - high) * without)
    q = weight * (low * with_one + (1.0 - low) * without)
    t = np.arange(first, last + 2, dtype=np.float64)
    odds = t * (1.0 - heads)  # with_one : without = t (1 - heads) : (crowd + 1 - t) heads, also at the cut
    rest = (crowd + 1.0 - t) * heads
    excess = (high - low) * (odds - rest) / (low * odds + (1.0 - low) * rest)
    return p, q, excess


def _band(trials: int, chance: float) -> tuple[int, int]:
    """[first, last] that Bin(trials, chance) leaves with a chance below TAIL on each side (Bernstein)."""
    nats = -math.log(TAIL)
    reach = 0.67 * nats + math.sqrt(2.0 * trials * chance * max(0.0, 1.0 - chance) * nats) + 1.0
    return max(0, math.floor(trials * chance - reach)), min(trials, math.ceil(trials * chance + reach))


@lru_cache(maxsize=2)
def _log_factorials(most: int) -> Array:
    return np.fromiter(map(math.lgamma, range(1, most + 2)), dtype=np.float64, count=most + 1)


def _binomial(trials: int, chance: float, first: int, last: int, table: Array) -> Array:
    """Bin(k; trials, chance) for k = first … last."""
    counts = np.arange(first, last + 1)
    if chance >= 1.0:
        return np.asarray(counts == trials, dtype=np.float64)
    ways = table[trials] - table[counts] - table[trials - counts]
    return np.asarray(np.exp(ways + counts * math.log(chance) + (trials - counts) * math.log1p(-chance)))


def _by_distributions(view: View, rounds: int, delta: float) -> float:
    """Symmetric boxes: flipping every bit exchanges P and Q, so one direction is both."""
    keep = view.p > 0.0
    losses, mass = np.log1p(view.excess[keep]), view.p[keep]
    step = math.sqrt(float(np.dot(mass, losses**2))) / 50.0
    first, grid = split_on_grid(losses, mass * (1.0 + view.slack), step)
    one = distribution(first, grid, step, view.lost, "a sum-only account of several rounds")
    composed = one.self_compose(rounds)
    length = 2.0 * getattr(getattr(composed, "_pmf_remove", None), "size", len(grid) * rounds) + 2.0 * len(grid)
    margin = rounds * 16.0 * UNIT * math.log2(length) * math.sqrt(length) * float(np.linalg.norm(grid))
    return epsilon_at(composed, delta, margin)


def _by_renyi(view: View, rounds: int, delta: float, pure: float) -> float:
    """Any box: per order the greater divergence of both directions adds up, whatever the signals mix."""
    best = rounds * pure
    left = delta - rounds * view.lost
    for order in ORDERS:
        if left <= 0.0 or order * pure > 600.0:
            break
        moments = []
        for mass, excess in ((view.q, view.excess), (view.p, view.reverse())):
            terms = np.expm1(order * np.log1p(excess)) - order * excess
            moments.append(float(np.dot(mass, np.maximum(0.0, terms))))
        divergence = math.log1p(max(moments) * (1.0 + 1e-9 + view.slack) + order * view.lost + 1e-15) / (order - 1.0)
        best = min(best, renyi_to_epsilon(rounds * divergence, order, left))
    return best
