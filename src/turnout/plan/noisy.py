"""Plans for sums with noise: clients toss plain coins, and the noise on the sums keeps the total epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from turnout.algorithm import Classical, FallingGainController, Mechanism, Prior, Recipe
from turnout.plan.goal import Goal
from turnout.plan.offers import Maker, Offer, Outlook, deviation, makers
from turnout.privacy import EVERY_REPORT, NOISY_SUM, PUBLIC_DESIGN, Account, Observer, account_of
from turnout.problem import Problem, optimum
from turnout.theory import Forecast, predict, predict_change, tune_floor

SENSIBLE = 0.05
"""Of the capacity: where the noise alone makes the turnout's error larger, it is not sensible."""

TOO_WRONG = 0.25
"""Of the capacity: where the noise alone makes the turnout's error larger, the forecast does not hold. It is linear."""

SHORTEST = 10
"""Rounds that are forecast, at least."""

USUAL = 0.99
"""Of the rounds: a hard limit under which fewer go ahead is not sensible."""

_QUANTILE = NormalDist().inv_cdf(USUAL)

_FOLLOWED = 10_000  # rounds after a change
_STEP = 0.01  # of the capacity, for the slope of the price


class NoiseMaker(Maker):
    """Makes the offer of plain coins and sums with noise. Its epsilon is the total that the noise keeps."""

    def __init__(self, goal: Goal) -> None:
        super().__init__(Classical, Recipe(_plain, "noise on the sum"), goal)
        self.per, self.releases_once = "run", True  # the epsilon is the total, whatever the rounds
        self.smallest = 0.01
        self._known = lru_cache(maxsize=64)(self._outlook)

    def account(self, epsilon: float) -> Account:
        """What the opened sums give away of the heaviest client."""
        return account_of(self.make(epsilon), self.goal.rounds, self.goal.delta, self._seen_with(epsilon))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold for its accounts."""
        return self._seen_with(1.0).assumptions(self.make(1.0))

    def gap(self, epsilon: float) -> float:
        """The expected gap after the planned rounds, above the optimum of the run's own turnout."""
        return self.outlook(epsilon).gap

    def unfit(self, epsilon: float) -> str:
        """Why it cannot be used: also where the noise is so large that there is no forecast.

        A goal with a budget is told if it is not sensible. One without a budget has a larger total instead.
        """
        told, problem = super().unfit(epsilon), self.goal.problem
        most = SENSIBLE if self.goal.budget is None else TOO_WRONG
        if told or error_by_noise(self.outlook(epsilon)) <= most * problem.capacity:
            return told
        least = least_clients(self.outlook(epsilon), len(problem), problem.capacity)
        return (
            f"the noise makes the turnout wrong by more than {100 * most:.0f} %, and there is no forecast "
            f"(sensible from some {least:,} such clients on)"
        )

    def not_sensible(self, epsilon: float) -> str:
        """Why the noise is too much for this crowd."""
        return not_sensible(self.outlook(epsilon), len(self.goal.problem), self.goal.problem.capacity)

    def offer(self, epsilon: float, against_it: str = "") -> Offer:
        """The offer at this epsilon."""
        return replace(super().offer(epsilon, against_it), in_time=True)

    def outlook(self, epsilon: float) -> Outlook:
        """The forecast of the planned run."""
        return self._known(epsilon)

    def _seen_with(self, epsilon: float) -> Observer:
        found = replace(self.goal.seen_by, noise=self.goal.noise(epsilon))
        return found if self.goal.guessed else replace(found, assuming=(*found.assuming, PUBLIC_DESIGN))

    def _outlook(self, epsilon: float) -> Outlook:
        goal, made, noise = self.goal, self.make(epsilon), self.goal.noise(epsilon)
        tuned = tune_floor(goal.problem, made, noise, goal.rounds)
        server = tuned.controller()
        forecast = predict(
            goal.problem, made, goal.rounds, server, start=self.start, averaging=goal.averaging, noise=noise
        )
        assert forecast.errors is not None  # a finite run with this server
        gap = _gap_at_own_turnout(goal.problem, forecast)
        of_a_run = deviation(goal.problem, replace(forecast, spread=0.0), goal.averaging, 1.0)
        return Outlook(gap, of_a_run, forecast, server, forecast.errors.settling_rounds, noise, tuned)


def _plain(epsilon: float) -> Mechanism:
    return Classical()


def _gap_at_own_turnout(problem: Problem, forecast: Forecast) -> float:
    """The expected cost above the optimum of the run's own mean turnout, in parts of it.

    The mean turnout of a run differs from the capacity, in the mean and by chance. By chance it costs half of the slope
    of the price in the turnout, times the variance of the mean turnout.
    """
    assert forecast.errors is not None
    turnout = float(np.sum(problem.unit_weights * forecast.average))
    most, least = min(problem.most, turnout * (1.0 + _STEP)), turnout * (1.0 - _STEP)
    own, high, low = (optimum(Problem(problem.costs, to, problem.weights)) for to in (turnout, most, least))
    slope = (high.price - low.price) / (most - least)
    by_chance = 0.5 * slope * forecast.errors.mean**2 if math.isfinite(slope) else 0.0
    return max(0.0, (forecast.cost - by_chance) / own.cost - 1.0)


def settled_again(goal: Goal, found: Outlook, start: Prior) -> dict[str, int | None]:
    """Within how many rounds the turnout is settled again, for two changes at half-time that the server knows of.

    None: not before the end. A change that the clients cannot follow is left out.
    """
    server, noise, problem, half = found.controller, found.noise, goal.problem, goal.rounds // 2
    assert isinstance(server, FallingGainController) and noise is not None  # noqa: PT018 (a plan with noise)
    if half < SHORTEST:
        return {}
    chosen = np.arange(0, len(problem), 2)
    left = float(np.sum(np.broadcast_to(problem.unit_weights, len(problem))[chosen]))
    changes: dict[str, dict[str, Any]] = {"the capacity halves": {"capacity": 0.5 * problem.capacity}}
    if problem.capacity < left:
        changes["half of the clients leave"] = {"staying": chosen}
    rounds = min(goal.rounds - half, _FOLLOWED)
    return {
        what: predict_change(
            problem, Classical(), server, noise, at=half, rounds=rounds, start=start, **change
        ).settling_rounds
        for what, change in changes.items()
    }


def least_clients(found: Outlook, clients: int, capacity: float) -> int:
    """The smallest crowd of such clients, with the same share of them wanted, for which the noise is sensible.

    The server's gain is tuned for each crowd by itself: a smaller crowd needs a smaller one.

    Args:
        found: the outlook of a plan with noise.
        clients: how many it is for.
        capacity: of each round.
    """
    tuned = found.tuned
    assert tuned is not None  # a plan with noise
    now = error_by_noise(found) / tuned.by_noise()  # of this run, to that in the long run

    def is_sensible(crowd: float) -> bool:
        times = crowd / clients
        return now * tuned.by_noise(times) <= SENSIBLE * times * capacity

    low, high = 1, 2
    while not is_sensible(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_sensible(middle) else (middle, high)
    return high


def not_sensible(found: Outlook, clients: int, capacity: float) -> str:
    """Why this noise is too much for this crowd; empty if it is not, or where there is none. Arguments as above."""
    if found.tuned is None or error_by_noise(found) <= SENSIBLE * capacity:
        return ""
    noise = error_by_noise(found)
    alone, both = (100.0 * error / capacity for error in (noise, math.hypot(noise, found.tuned.coins)))
    return (
        f"not sensible for {clients:,} clients: the noise alone makes the turnout wrong by {alone:.2g} % (with the "
        f"clients' coins: {both:.2g} %). Take {least_clients(found, clients, capacity):,} such clients, a larger "
        "budget, or fewer rounds"
    )


def error_by_noise(found: Outlook) -> float:
    """The standard deviation of the settled turnout by the noise alone."""
    errors, tuned = found.forecast.errors, found.tuned
    assert errors is not None and tuned is not None  # noqa: PT018 (a plan with noise)
    late = errors.deviation[-1 if errors.settling_rounds is None else errors.settling_rounds :]
    return math.sqrt(max(0.0, float(np.mean(np.square(late))) - tuned.coins**2))


def all_makers(goal: Goal) -> list[Maker]:
    """Every maker of offers for a goal. What hides from an observer of every report hides from one of the sums."""
    if goal.observer != NOISY_SUM:
        return makers(goal)
    return [NoiseMaker(goal), *makers(replace(goal, observer=EVERY_REPORT, aggregators=1, hard_limit=None))]


@dataclass(frozen=True)
class HardLimit:
    """What a hard limit takes where the server sees sums with bounded noise, and no names.

    A round goes ahead where its opened sum plus the margin is at most the limit. The noise is never below minus the
    margin, so the true turnout is then at most the limit, for certain. In all other rounds nobody acts.

    Attributes:
        limit: the largest turnout that may ever do its work.
        bound: of each aggregator's noise.
        margin: the bounds of all aggregators together.
        goes_ahead: the chance that a round goes ahead, once the turnout has settled.
        everyone: the turnout if all clients participate.
        least: the smallest sensible limit for these clients and this noise; None: there is none below everyone.
        least_clients: the smallest crowd of such clients for which the same limit per client is sensible; None: a limit
            that is not above the capacity suits no crowd.

    Example:
        >>> print(HardLimit(900.0, 200, 200, goes_ahead=0.9998, everyone=1200.0, least=850, least_clients=950))
        a round goes ahead if its opened sum is at most 700, which is 900 less a margin of 200: so at most 900 ever
        participate, for certain, if the noise of each aggregator is bounded by 200 and clients act on "go" alone
        (nothing in turnout does either). Sensible: 99.98 % of the rounds go ahead, once the turnout has settled
    """

    limit: float
    bound: int
    margin: int
    goes_ahead: float
    everyone: float
    least: int | None
    least_clients: int | None

    @property
    def is_sensible(self) -> bool:
        """Whether the limit is needed, and nearly all rounds go ahead."""
        return self.goes_ahead >= USUAL and self.limit < self.everyone

    def __str__(self) -> str:
        """In sentences."""
        limit, most = f"{self.limit:,.10g}", f"{math.floor(self.limit - self.margin):,}"
        return (
            f"a round goes ahead if its opened sum is at most {most}, which is {limit} less a margin of "
            f"{self.margin:,}: so at most {limit} ever participate, for certain, if the noise of each aggregator is "
            f'bounded by {self.bound:,} and clients act on "go" alone (nothing in turnout does either). '
            f"{self._judgement}"
        )

    @property
    def _judgement(self) -> str:
        """Whether it is sensible, and what else would be."""
        if self.limit >= self.everyone:
            return f"Not needed: all clients together are {self.everyone:,.10g}"
        percent = math.floor(1e4 * min(self.goes_ahead, 0.9999)) / 100.0
        often = f"{percent:g} % of the rounds go ahead, once the turnout has settled"
        if self.is_sensible:
            return f"Sensible: {often}"
        least = f"this noise allows no limit below all {self.everyone:,.10g}" if self.least is None else ""
        told = f"Not sensible: {often}; {least or f'a limit of {self.least:,} would do'}. Or take a larger budget"
        if self.least_clients is None:
            return f"{told}, and in any case a limit above the capacity"
        return f"{told}, or {self.least_clients:,} such clients with the same limit per client"


def hard_limit(goal: Goal, found: Outlook) -> HardLimit | None:
    """What the hard limit of a goal takes; None without one, or where a plan has no noise.

    The opened sum is nearly normal: the turnout has the planned spread, and the round's own noise comes on top of it.

    Args:
        goal: with a hard limit.
        found: the outlook of its plan.
    """
    noise = found.noise
    if goal.hard_limit is None or noise is None or noise.bound is None or found.tuned is None:
        return None
    capacity, everyone, margin = goal.problem.capacity, float(goal.problem.most), noise.aggregators * noise.bound
    coins, by_noise = found.tuned.coins, math.hypot(error_by_noise(found), noise.sigma * noise.factor)
    opened = NormalDist(capacity, math.hypot(by_noise, coins))
    goes_ahead = opened.cdf(math.floor(goal.hard_limit - margin) + 0.5)  # whole numbers are opened
    least, room, crowd = math.ceil(opened.inv_cdf(USUAL)) + margin, goal.hard_limit - capacity, None
    if room > 0.0:  # with x times as many: x room = margin + quantile sqrt(noise^2 + x coins^2), a quadratic equation
        half = (margin + 1.0) * room + 0.5 * (_QUANTILE * coins) ** 2
        rest = (margin + 1.0) ** 2 - (_QUANTILE * by_noise) ** 2
        crowd = math.ceil((half + math.sqrt(half**2 - room**2 * rest)) / room**2 * len(goal.problem))
    least_limit = least if least < everyone else None
    return HardLimit(goal.hard_limit, noise.bound, margin, goes_ahead, everyone, least_limit, crowd)
