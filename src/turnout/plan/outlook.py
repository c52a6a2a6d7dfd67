"""What to expect of a mechanism: the cost gap with a band, and the turnout's spread."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from turnout.algorithm.client import Averaging, Prior
from turnout.algorithm.coins import SeededCoins
from turnout.algorithm.enrolment import released
from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.server import IntegralController
from turnout.display import off
from turnout.problem.optimum import optimum
from turnout.problem.problem import Problem
from turnout.theory.fixed_point import Forecast, predict
from turnout.theory.tuning import tune

_RELEASES = 12  # of the levels that clients release at joining: chance decides how well they suit
_TWO_SIDED = 1.96  # standard deviations of a 95 % band


@dataclass(frozen=True, eq=False)
class Outlook:
    """A forecast with its uncertainty.

    Attributes:
        gap: the expected cost above the optimum, in parts of it.
        deviation: of the gap from run to run, in parts of the optimum.
        forecast: the mean-field forecast that it rests on.
        controller: the server that it is made for.
        settling_rounds: until the turnout stays near the capacity; None: longer than planned for.

    Example:
        >>> from turnout import Classical, Prior, paper_population
        >>> found = outlook(paper_population().problem(600), Classical(), 2000, Averaging(), Prior(0.5, 10))
        >>> abs(found.gap) < 0.02
        True
    """

    gap: float
    deviation: float
    forecast: Forecast
    controller: IntegralController
    settling_rounds: int | None

    def __repr__(self) -> str:
        low, high = self.band
        return f"Outlook({off(self.gap)} ({100 * low:.2f} to {100 * high:.2f} %), turnout ± {self.forecast.spread:.1f})"

    @property
    def band(self) -> tuple[float, float]:
        """Where the gap of 95 runs in 100 lies."""
        return self.gap - _TWO_SIDED * self.deviation, self.gap + _TWO_SIDED * self.deviation

    def chance_of_at_least(self, number: float, capacity: float) -> float:
        """The chance that so many come to a round, once the turnout has settled (its spread is close to normal).

        Raises nothing; a spread without end (an unstable loop) gives a half.
        """
        if math.isinf(self.forecast.spread):
            return 0.5
        return 0.5 * math.erfc((number - 0.5 - capacity) / (math.sqrt(2.0) * self.forecast.spread))


def outlook(problem: Problem, mechanism: Mechanism, rounds: int, averaging: Averaging, start: Prior) -> Outlook:
    """What a run of so many rounds will give, with the paper's server at a gain tuned for it.

    Example:
        >>> from turnout import paper_population
        >>> from turnout.algorithm.mechanisms.clamp import Clamp
        >>> problem = paper_population().problem(600)
        >>> found = outlook(problem, Clamp(2.0), 1000, Averaging(), Prior(0.5))
        >>> round(100 * found.gap, 1), round(found.forecast.spread)
        (4.5, 16)
    """
    tuned = tune(problem, mechanism, start)
    # The signal starts where it will settle: the price is known as well as the population is.
    controller = tuned.controller(settled=True)
    forecast = predict(problem, mechanism, rounds, controller, start=start, averaging=averaging)
    gap, spread = forecast.gap, _deviation(problem, forecast, averaging, tuned.gain / tuned.largest_gain)
    if mechanism.releases_once:
        gaps = released_gaps(problem, mechanism)
        gap += float(np.mean(gaps)) - gaps[0]  # the forecast took the levels of seed 0
        spread = math.hypot(spread, float(np.std(gaps, ddof=1)) * math.sqrt(1.0 + 1.0 / _RELEASES))
    return Outlook(gap, spread, forecast, controller, tuned.settling_rounds)


@lru_cache(maxsize=128)
def released_gaps(problem: Problem, mechanism: Mechanism) -> list[float]:
    """The long-run gaps of a mechanism that releases once, for some draws of what it releases.

    Example:
        >>> from turnout import paper_population
        >>> from turnout.algorithm.mechanisms.memoized import Memoized
        >>> len(released_gaps(paper_population(clients=40).problem(20), Memoized(4.0, price=10.0)))
        12
    """
    return [_released_gap(problem, mechanism, seed) for seed in range(_RELEASES)]


def _released_gap(problem: Problem, mechanism: Mechanism, seed: int) -> float:
    """With the levels that one seed releases: the surrogates' optimum, at the true costs."""
    costs = released(problem, mechanism, SeededCoins(seed))
    assert costs is not None  # the mechanism releases something
    average = optimum(Problem(costs, problem.capacity, problem.weights)).average
    return float(np.sum(problem.costs.value(average))) / optimum(problem).cost - 1.0


def _deviation(problem: Problem, forecast: Forecast, averaging: Averaging, boldness: float) -> float:
    """The standard deviation of the gap from run to run, for given released levels.

    The server holds the total almost fixed, so an average off by d costs (f' - signal w) d, and what the total is
    off by (the wandering signal over the gain, which is `boldness` parts of the largest stable one) costs the signal.
    Where averages move by the probability, they have no noise of their own, but the total of the *probabilities*
    is off by the tosses'.
    """
    assert forecast.rounds is not None  # a finite forecast
    weights = problem.unit_weights
    if averaging.by == "probability":
        noise = float(np.sum(weights * weights * forecast.average * (1.0 - forecast.average)))
        return forecast.signal * math.sqrt(noise / forecast.rounds) / forecast.best.cost
    average = np.clip(forecast.average, 1e-6, 1.0 - 1e-6)
    reach = 0.1 * np.minimum(average, 1.0 - average)
    slope, bend = (
        problem.costs.slope(average),
        problem.costs.slope(average + reach) - problem.costs.slope(average - reach),
    )
    first = (slope - forecast.signal * weights) * forecast.deviation
    second = bend / (2.0 * reach) * forecast.deviation**2 / math.sqrt(2.0)  # of f'' d^2 / 2, d being normal
    chances = forecast.average
    noise = float(np.sum(weights * weights * chances * (1.0 - chances)))
    wander = math.sqrt(max(0.0, forecast.spread**2 - noise)) / max(boldness, 1e-9) / forecast.rounds
    return math.sqrt(float(np.sum(first**2 + second**2)) + (forecast.signal * wander) ** 2) / forecast.best.cost
