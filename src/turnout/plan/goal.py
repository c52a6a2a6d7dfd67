"""`Goal`: how much privacy, how close to the optimum, against which observer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from turnout.algorithm import Averaging, Memoized, SumNoise
from turnout.errors import invalid, nearest
from turnout.privacy import EVERY_REPORT, NOISY_SUM, OBSERVERS, SUM, Observer, best_release, of_costs, sigma_for
from turnout.problem import Problem, check_problem

_TYPES = 50  # of clients, in the linear programme of a search
_SEEN = (*OBSERVERS, NOISY_SUM)

_EARLY, _SHARE = 0.03, 0.3
"""The first rounds, in parts of all, and their share of the budget: the server finds the price there. Of 1 to 10 % of
the rounds and 20 to 50 % of the budget, these had the smallest errors from prices 3 times too low and too high."""


@dataclass(frozen=True, eq=False)
class Goal:
    """What is wanted of a deployment: a budget, a gap, or both. `turnout.plan.plan` finds the settings.

    Args:
        problem: the clients (or a guess of them) and the capacity.
        rounds: how many rounds it will run; the account covers one report per round.
        budget: the largest total epsilon, over all rounds; None: as small as the gap allows.
        gap: the largest cost above the optimum, as a share of it, below 1 (0.01 is one percent); None: as small as
            the budget allows.
        delta: the slack of the total (see `Account`), above 0.
        observer: an observer of every report ("every-report"), of each round's total alone ("sum"), or of each round's
            total with noise ("noisy-sum"). Nothing in turnout hides single reports or adds the noise: that needs an
            aggregator that you trust.
        honest: for "sum", how many others certainly follow the protocol; unless given, all but one, which may be the
            observer.
        guessed: whether the costs are only a guess: then no mechanism may depend on their price, and a design from
            them gives nothing away.
        aggregators: for "noisy-sum": 1, or 2 that do not trust each other, each of which adds all the noise.
        hard_limit: for "noisy-sum": the largest turnout that may ever do its work. The plan then has bounded noise, and
            says what the limit takes (`Plan.limit`).

    Example:
        >>> from turnout import paper_population
        >>> Goal(paper_population().problem(600), rounds=1000, budget=6.0, observer="sum").seen_by.honest
        1198
    """

    problem: Problem
    rounds: int
    budget: float | None = None
    gap: float | None = None
    delta: float = 1e-6
    observer: str = EVERY_REPORT
    honest: int | None = None
    guessed: bool = False
    aggregators: int = 1
    hard_limit: float | None = None

    def __post_init__(self) -> None:
        check_problem(self.problem)
        if self.rounds < 10:
            raise invalid("rounds", "10 or more", self.rounds, "plan for as many as the deployment will last")
        if self.budget is None and self.gap is None:
            raise ValueError("budget or gap is missing: give a total epsilon, an acceptable cost gap, or both")
        if self.budget is not None and not (math.isfinite(self.budget) and self.budget > 0.0):
            raise invalid("budget", "a total epsilon above 0", self.budget, "values from 2 to 10 are usual")
        if self.gap is not None and not 0.0 < self.gap < 1.0:
            told = f"{self.gap:g} ({100 * self.gap:g} %)"
            raise invalid("gap", "a share above 0 and below 1", told, "0.01 is one percent: try 0.1")
        if not 0.0 < self.delta < 1.0:
            raise invalid("delta", "above 0 and below 1", self.delta, "try 1e-6")
        self._check_observer()

    def _check_observer(self) -> None:
        if self.observer not in _SEEN:
            remedy = "use every-report; the others only where a trusted aggregator shows the server totals alone"
            hint = nearest(str(self.observer), _SEEN, remedy)
            raise invalid("observer", " or ".join(map(repr, _SEEN)), repr(self.observer), hint)
        if self.honest is not None and (self.observer != SUM or not 0 <= self.honest <= self._others):
            allowed = f"from 0 to {self._others}, and only for an observer of the {SUM!r}"
            remedy = "give a number that the observer cannot lower; a client who observes knows its own report"
            raise invalid("honest", allowed, self.honest, remedy)
        if self.aggregators not in (1, 2) or (self.aggregators == 2 and self.observer != NOISY_SUM):
            allowed = f"1, or 2 for an observer of the {NOISY_SUM!r}"
            raise invalid("aggregators", allowed, self.aggregators, f"give observer={NOISY_SUM!r}, or leave it out")
        if self.hard_limit is not None:
            allowed = f"a finite number above 0, for an observer of the {NOISY_SUM!r}"
            if self.observer != NOISY_SUM or not (math.isfinite(self.hard_limit) and self.hard_limit > 0.0):
                remedy = f"give observer={NOISY_SUM!r}; a coordinator that sees reports (turnout serve) needs no noise"
                raise invalid("hard_limit", allowed, self.hard_limit, remedy)
        if self.observer == NOISY_SUM:
            Observer(NOISY_SUM, weights=self.problem.weights, noise=SumNoise(1.0))  # refuses weights that are not whole

    def __repr__(self) -> str:
        wanted = [] if self.budget is None else [f"total epsilon at most {self.budget:g}"]
        wanted += [] if self.gap is None else [f"cost at most {100 * self.gap:g} % above the optimum"]
        return f"Goal({self.problem}, {self.rounds} rounds: {', '.join(wanted)}, against {self.against})"

    @property
    def against(self) -> str:
        """The observer, in words: of sums with noise without the noise, which depends on the budget."""
        return "an observer of the sums with noise" if self.observer == NOISY_SUM else str(self.seen_by)

    @property
    def seen_by(self) -> Observer:
        """Who sees what, among these clients; of sums with noise: the noise of the budget."""
        if self.observer == EVERY_REPORT:
            return Observer(averaging=self.averaging)
        if self.observer == NOISY_SUM:
            noise = self.noise(self.budget or 1.0)
            assumed = of_costs(self.problem.costs)
            return Observer(
                NOISY_SUM, weights=self.problem.weights, averaging=self.averaging, noise=noise, assuming=assumed
            )
        honest = self._others if self.honest is None else self.honest
        return Observer(SUM, honest, self.problem.weights, self.averaging)

    @property
    def averaging(self) -> Averaging:
        """How averages move: an account against the sum needs histories without hidden bits."""
        return Averaging(by="probability" if self.observer == SUM else "bit")

    def noise(self, epsilon: float) -> SumNoise:
        """The noise that keeps this total epsilon for the heaviest client, with less of it in the first rounds.

        Under a hard limit it is bounded.
        """
        bounded = self.hard_limit is not None
        return _noise(epsilon, self.delta, self.rounds, self._heaviest, self.aggregators, bounded)

    def channel(self, epsilon: float) -> tuple[Memoized, float]:
        """(the best `Memoized` for these costs, its expected gap), from a linear programme with few types."""
        return _channel(self.problem, epsilon)

    @property
    def _heaviest(self) -> int:
        return 1 if self.problem.weights is None else int(np.max(self.problem.weights))

    @property
    def _others(self) -> int:
        """The most clients that can hide one: all but itself and one that observes."""
        return max(0, len(self.problem) - 2)

    @property
    def share(self) -> float:
        """The average that meets the capacity."""
        return self.problem.capacity / self.problem.most


@lru_cache(maxsize=128)
def _noise(epsilon: float, delta: float, rounds: int, weight: int, aggregators: int, bounded: bool) -> SumNoise:
    early = max(10, math.ceil(_EARLY * rounds))
    if early >= 0.5 * _SHARE * rounds:  # a short run: the noise would not be much smaller in the early rounds
        return sigma_for(epsilon, delta, rounds, weight, aggregators=aggregators, bounded=bounded)
    return sigma_for(epsilon, delta, rounds, weight, early, _SHARE, aggregators, bounded=bounded)


@lru_cache(maxsize=128)
def _channel(problem: Problem, epsilon: float) -> tuple[Memoized, float]:
    found = best_release(problem, epsilon, _TYPES)
    return found.memoized(), found.reached
