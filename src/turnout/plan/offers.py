"""What each mechanism can offer for a wish: the parameter that fits, its account and its long-run gap; or why not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from turnout.algorithm.client import Prior
from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.mechanisms import releases_once
from turnout.algorithm.mechanisms.clamp import Clamp
from turnout.algorithm.mechanisms.learned_memoized import LearnedMemoized
from turnout.algorithm.mechanisms.memoized import Memoized
from turnout.algorithm.mechanisms.randomized_response import RandomizedResponse
from turnout.algorithm.mechanisms.tracking_clamp import TrackingClamp
from turnout.display import off
from turnout.plan.outlook import released_gaps
from turnout.plan.wish import Wish
from turnout.privacy.account_of import account_of
from turnout.privacy.accounting import Account
from turnout.privacy.floor import best_release
from turnout.privacy.observer import EVERY_REPORT, PUBLIC_DESIGN, Observer
from turnout.problem.optimum import optimum
from turnout.problem.problem import Problem
from turnout.theory.feasibility import reachable
from turnout.theory.fixed_point import predict
from turnout.theory.tuning import tune

SMALLEST, LARGEST = 1e-3, 12.0
"""Between these an epsilon (per report, or of a release) is searched."""

_SAMPLE = 400  # clients that stand for more in a search; the plan itself is made for all
_TYPES = 50  # that the channel of a search tells apart
_TOO_HIGH = 3.0  # times the price is what learning begins with where nothing is known, as in docs/floor.md


@dataclass(frozen=True, eq=False)
class Offer:
    """One mechanism's answer to a wish.

    Attributes:
        name: the mechanism's kind, and what else tells it from the others.
        mechanism: with the parameter that fits; None if none does.
        account: what it gives away over all rounds.
        gap: its expected cost above the optimum, in parts of it, to compare with.
        start: where averages begin.
        against_it: why it is not there, or what speaks against it; empty if nothing does.
    """

    name: str
    mechanism: Mechanism | None
    account: Account | None = None
    gap: float = math.inf
    start: Prior | None = None
    against_it: str = ""

    def __repr__(self) -> str:
        told = "none" if self.account is None else f"{self.account}; {off(self.gap)}"
        return f"Offer({self.name}: {told}{f'; {self.against_it}' if self.against_it else ''})"

    @property
    def total_epsilon(self) -> float:
        """Over all rounds; infinite where there is no offer."""
        return math.inf if self.account is None else self.account.epsilon


class Maker:
    """How a kind of mechanism is made for an epsilon, and what that gives."""

    def __init__(self, kind: str, wish: Wish, make: Callable[[float], Mechanism], start: Prior) -> None:
        self.kind, self.wish, self.make, self.start = kind, wish, lru_cache(maxsize=64)(make), start
        self._sample = _sample(wish.problem)

    @property
    def releases_once(self) -> bool:
        """Whether epsilon is for a lifetime, not for each report."""
        return releases_once(self.kind)

    @property
    def name(self) -> str:
        """Its kind, and around what it clamps where that is not a half."""
        center = self.make(1.0).settings()["center"] if self.kind == Clamp.kind else 0.5
        return self.kind if center == 0.5 else f"{self.kind} around {center:.3g}"

    def account(self, epsilon: float) -> Account:
        """What it gives away in all rounds, against whom, and under which assumptions."""
        return account_of(self.make(epsilon), self.wish.rounds, self.wish.delta, self.seen_by)

    @property
    def seen_by(self) -> Observer:
        """Who sees what. A plan is made from the costs (gain, first signal, channel), unless these are a guess."""
        return self.wish.seen_by if self.wish.guessed else replace(self.wish.seen_by, assuming=(PUBLIC_DESIGN,))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its accounts rest on."""
        return self.seen_by.assumptions(self.make(1.0))

    def is_feasible(self, epsilon: float) -> bool:
        """Whether the capacity lies inside what it can bring."""
        if self.releases_once:
            return True
        least, most = reachable(self.wish.problem, self.make(epsilon))
        return least * (1.0 + 1e-9) < self.wish.problem.capacity < most * (1.0 - 1e-9) or most == self.wish.problem.most

    def gap(self, epsilon: float) -> float:
        """The expected gap after the planned rounds (in the limit, where that makes no difference)."""
        mechanism, problem = self.make(epsilon), self.wish.problem
        if isinstance(mechanism, Memoized):
            return _channel(problem, epsilon)[1]
        if isinstance(mechanism, LearnedMemoized):  # what learning costs, only trying tells
            return float(np.mean(released_gaps(problem, mechanism)))
        if self.kind != TrackingClamp.kind:
            return predict(problem, mechanism).gap
        tuned = tune(self._sample, mechanism, self.start)  # it approaches the optimum slowly: the rounds matter
        server = tuned.controller(settled=True)
        return predict(self._sample, mechanism, self.wish.rounds, server, start=self.start, exact=200).gap

    def offer(self, epsilon: float, against_it: str = "") -> Offer:
        """The offer with this epsilon."""
        made = self.make(epsilon)
        return Offer(self.name, made, self.account(epsilon), self.gap(epsilon), self.start, against_it)


def makers(wish: Wish) -> list[Maker]:
    """Every mechanism that promises something against the observer of a wish."""
    share = wish.share
    usual = Prior(min(1.0, share), 10)

    def best_memoized(epsilon: float) -> Mechanism:
        return _channel(wish.problem, epsilon)[0]

    def learned(epsilon: float) -> Mechanism:
        if not wish.guessed:  # beside memoized, which is told all: as one that is told nothing
            return LearnedMemoized(epsilon, _TOO_HIGH * optimum(wish.problem).price)
        channel = _channel(wish.problem, epsilon)[0]
        return LearnedMemoized(epsilon, channel.price, channel.levels, channel.least)

    found = [Maker(Clamp.kind, wish, Clamp, usual), Maker(RandomizedResponse.kind, wish, RandomizedResponse, usual)]
    if not wish.guessed:  # it needs the price
        found.append(Maker(Memoized.kind, wish, best_memoized, usual))
    found.append(Maker(LearnedMemoized.kind, wish, learned, usual))
    if abs(share - 0.5) > 0.02:
        found.append(Maker(Clamp.kind, wish, lambda epsilon: Clamp(epsilon, float(share)), usual))
    if wish.observer == EVERY_REPORT:  # its box follows the average, which only this observer knows
        found.append(Maker(TrackingClamp.kind, wish, TrackingClamp, Prior(min(0.9, max(0.1, share)), 20)))
    return found


def largest_within(maker: Maker, budget: float) -> float | None:
    """The largest epsilon whose total stays within a budget; None if even the smallest does not."""
    if maker.releases_once:
        return min(budget, LARGEST)
    low, high = SMALLEST, LARGEST
    if maker.account(low).epsilon > budget:
        return None
    below, above = math.log(maker.account(low).epsilon / budget), math.inf
    for _ in range(40):
        if high / low < 1.005:
            break
        if math.isinf(above):  # totals grow about as fast as epsilon at first: try that, and a little more
            middle = min(high, low * math.exp(min(-below, 3.0) + 0.02))
        else:
            middle = low * math.exp(0.98 * math.log(high / low) * below / (below - above))
        value = math.log(maker.account(middle).epsilon / budget)
        if value <= 0.0:
            low, below = middle, value
            if value > -0.01 or middle >= LARGEST:
                break
        else:
            high, above = middle, value
    return low


def smallest_within(maker: Maker, gap: float) -> float | None:
    """The smallest epsilon whose gap stays within one, to a percent of the gap; None if even the largest does not."""
    low, high = (0.25 if maker.releases_once else SMALLEST), LARGEST

    def excess(epsilon: float) -> float:
        return math.log(max(maker.gap(epsilon), 1e-12) / gap) if maker.is_feasible(epsilon) else math.inf

    above, below = excess(low), excess(high)
    if below > 0.0:
        return None
    if above <= 0.0:
        return low
    for turn in range(24):
        if below > -0.01 or high - low < 1e-4 * high:
            break
        # Gaps fall about exponentially; every third step halves, and so does an end where nothing is feasible.
        share = 0.5 if turn % 3 == 2 or math.isinf(above) else min(0.95, 1.02 * above / (above - below))
        middle = low + share * (high - low)
        value = excess(middle)
        low, above, high, below = (middle, value, high, below) if value > 0.0 else (low, above, middle, value)
    return high


@lru_cache(maxsize=128)
def _channel(problem: Problem, epsilon: float) -> tuple[Memoized, float]:
    """(the best Memoized for a population, its expected gap), from a programme of few types."""
    found = best_release(problem, epsilon, _TYPES)
    return found.memoized(), found.reached


def _sample(problem: Problem) -> Problem:
    """Every so many-th client, and its share of the capacity."""
    if len(problem) <= _SAMPLE or problem.weights is not None:
        return problem
    some = np.arange(0, len(problem), -(-len(problem) // _SAMPLE))
    return Problem(problem.costs[some], problem.capacity * len(some) / len(problem))
