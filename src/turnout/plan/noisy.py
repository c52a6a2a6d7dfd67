"""Plans for sums with noise: clients toss plain coins, and the noise on the sums keeps the total epsilon."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
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
        """Why it cannot be used: also where the noise is so large that there is no forecast."""
        told, problem = super().unfit(epsilon), self.goal.problem
        if told or error_by_noise(self.outlook(epsilon)) <= TOO_WRONG * problem.capacity:
            return told
        least = least_clients(self.outlook(epsilon), len(problem), problem.capacity)
        return (
            f"the noise makes the turnout wrong by more than {100 * TOO_WRONG:.0f} %, and there is no forecast "
            f"(sensible from some {least:,} such clients on)"
        )

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

    What the noise adds to the turnout's variance hardly depends on the number of clients, since the server's gain is
    relative to the capacity.

    Args:
        found: the outlook of a plan with noise.
        clients: how many it is for.
        capacity: of each round.
    """
    return max(2, math.ceil(clients * error_by_noise(found) / (SENSIBLE * capacity)))


def not_sensible(found: Outlook, clients: int, capacity: float) -> str:
    """Why this noise is too much for this crowd; empty if it is not, or where there is none. Arguments as above."""
    if found.tuned is None or error_by_noise(found) <= SENSIBLE * capacity:
        return ""
    alone, both = (100.0 * error / capacity for error in (error_by_noise(found), found.forecast.spread))
    return (
        f"not sensible for {clients:,} clients: the noise alone makes the turnout wrong by {alone:.2g} % (with the "
        f"clients' coins: {both:.2g} %). Take {least_clients(found, clients, capacity):,} such clients, a larger "
        "budget, or fewer rounds"
    )


def error_by_noise(found: Outlook) -> float:
    """The turnout's root mean square error by the noise alone."""
    assert found.tuned is not None  # a plan with noise
    return math.sqrt(max(0.0, found.forecast.spread**2 - found.tuned.coins**2))


def all_makers(goal: Goal) -> list[Maker]:
    """Every maker of offers for a goal. What hides from an observer of every report hides from one of the sums."""
    if goal.observer != NOISY_SUM:
        return makers(goal)
    return [NoiseMaker(goal), *makers(replace(goal, observer=EVERY_REPORT, aggregators=1))]
