"""What each mechanism offers for a goal: its parameter, its account and its long-run gap, or why it offers none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from turnout.algorithm import (
    MECHANISMS,
    Averaging,
    Controller,
    Mechanism,
    Prior,
    Recipe,
    SeededCoins,
    SumNoise,
    released,
)
from turnout.display import off
from turnout.plan.goal import Goal
from turnout.privacy import EVERY_REPORT, PUBLIC_DESIGN, Account, Observer, account_of
from turnout.problem import Problem, optimum
from turnout.theory import FloorTuning, Forecast, predict, reachable, tune

_RELEASES = 12  # samples of the levels that clients release: the gap depends on them
_TWO_SIDED = 1.96  # standard deviations of a 95 % interval


@dataclass(frozen=True, eq=False)
class Outlook:
    """A forecast with its uncertainty.

    Attributes:
        gap: the expected cost above the optimum, in parts of it.
        deviation: of the gap from run to run, in parts of the optimum.
        forecast: the mean-field forecast that it rests on.
        controller: the server that it is made for.
        settling_rounds: until the turnout stays near the capacity; None: longer than planned for.
        noise: on the sums that the server sees; None: it sees exact sums. With noise, the gap is above the optimum of
            the run's own mean turnout: see `mean_turnout`.
        tuned: with noise, how the gain floor was chosen.

    Example:
        >>> from turnout import Classical, Prior, paper_population
        >>> found = outlook(paper_population().problem(600), Classical(), 2000, Averaging(), Prior(0.5, 10))
        >>> abs(found.gap) < 0.02
        True
    """

    gap: float
    deviation: float
    forecast: Forecast
    controller: Controller
    settling_rounds: int | None
    noise: SumNoise | None = None
    tuned: FloorTuning | None = None

    def __repr__(self) -> str:
        low, high = self.band
        return f"Outlook({off(self.gap)} ({100 * low:.2f} to {100 * high:.2f} %), turnout ± {self.forecast.spread:.1f})"

    @property
    def band(self) -> tuple[float, float]:
        """The 95 % interval of the gap of one run."""
        low, high = self.gap - _TWO_SIDED * self.deviation, self.gap + _TWO_SIDED * self.deviation
        # Above the optimum of its own turnout no run is below 0.
        return (low, high) if self.noise is None else (max(0.0, low), high)

    def mean_turnout(self, capacity: float) -> float:
        """The expected mean turnout over the whole run. A run with noise differs from it by `forecast.errors.mean`."""
        errors = self.forecast.errors
        return capacity if errors is None else capacity + float(np.mean(errors.bias))

    def chance_of_at_least(self, number: float, capacity: float) -> float:
        """The share of rounds with at least so many participants: of all rounds with noise, else of the settled ones.

        The turnout is close to normal. An infinite spread (an unstable loop) gives a half.
        """
        errors = self.forecast.errors
        if errors is not None:
            above = (capacity + errors.bias - (number - 0.5)) / np.maximum(errors.deviation, 1e-9)
            normal = NormalDist()
            return float(np.mean([normal.cdf(value) for value in above.tolist()]))
        if math.isinf(self.forecast.spread):
            return 0.5
        return 0.5 * math.erfc((number - 0.5 - capacity) / (math.sqrt(2.0) * self.forecast.spread))


def outlook(problem: Problem, mechanism: Mechanism, rounds: int, averaging: Averaging, start: Prior) -> Outlook:
    """The forecast of a run, with the paper's server at a tuned gain.

    Example:
        >>> from turnout import paper_population
        >>> from turnout.algorithm import Clamp
        >>> problem = paper_population().problem(600)
        >>> found = outlook(problem, Clamp(2.0), 1000, Averaging(), Prior(0.5))
        >>> round(100 * found.gap, 1), round(found.forecast.spread)
        (4.5, 16)
    """
    tuned = tune(problem, mechanism, start)
    # The signal starts where it will settle: the price is known as well as the population is.
    controller = tuned.controller(settled=True)
    forecast = predict(problem, mechanism, rounds, controller, start=start, averaging=averaging)
    gap, spread = forecast.gap, deviation(problem, forecast, averaging, tuned.gain / tuned.largest_gain)
    if mechanism.releases_once:
        gaps = _released_gaps(problem, mechanism)
        gap += float(np.mean(gaps)) - gaps[0]  # the forecast took the levels of seed 0
        spread = math.hypot(spread, float(np.std(gaps, ddof=1)) * math.sqrt(1.0 + 1.0 / _RELEASES))
    return Outlook(gap, spread, forecast, controller, tuned.settling_rounds)


@lru_cache(maxsize=128)
def _released_gaps(problem: Problem, mechanism: Mechanism) -> list[float]:
    """The long-run gaps of a mechanism that releases once, for several samples of its releases.

    Example:
        >>> from turnout import paper_population
        >>> from turnout.algorithm import Memoized
        >>> len(_released_gaps(paper_population(clients=40).problem(20), Memoized(4.0, price=10.0)))
        12
    """
    return [_released_gap(problem, mechanism, seed) for seed in range(_RELEASES)]


def _released_gap(problem: Problem, mechanism: Mechanism, seed: int) -> float:
    """The true cost gap of the optimum for the surrogate costs that one seed releases."""
    costs = released(problem, mechanism, SeededCoins(seed))
    assert costs is not None  # the mechanism releases something
    average = optimum(Problem(costs, problem.capacity, problem.weights)).average
    return float(np.sum(problem.costs.value(average))) / optimum(problem).cost - 1.0


def deviation(problem: Problem, forecast: Forecast, averaging: Averaging, boldness: float) -> float:
    """The standard deviation of the gap from run to run, for given released levels.

    The server keeps the total almost fixed, so an error d of an average costs (f' - signal w) d. An error of the
    total (the signal's noise over the gain, which is `boldness` times the largest stable one) costs the signal.
    Where averages move by the probability, they have no noise of their own, but the total of the *probabilities*
    has the noise of the coins.
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


SMALLEST, LARGEST = 1e-3, 12.0
"""The range in which an epsilon (per report, or of a release) is searched."""

_SAMPLE = 400  # clients in a search; the plan itself is made for all


@dataclass(frozen=True, eq=False)
class Offer:
    """One mechanism's answer to a goal.

    Attributes:
        name: the mechanism's kind, and what else tells it from the others.
        mechanism: with its parameter; None if no parameter suits.
        account: what it gives away over all rounds.
        gap: its expected cost above the optimum, in parts of it.
        start: where averages begin.
        against_it: why there is no mechanism, or why another one is better; empty for the best.
        epsilon: its parameter: per report, or of a release, or of the noise on all sums.
        in_time: whether the gap is the one after the planned rounds; else in the long run, unless it is slow.
    """

    name: str
    mechanism: Mechanism | None
    account: Account | None = None
    gap: float = math.inf
    start: Prior | None = None
    against_it: str = ""
    epsilon: float = math.nan
    in_time: bool = False

    def __repr__(self) -> str:
        told = "none" if self.account is None else f"{self.account}; {off(self.gap)}"
        return f"Offer({self.name}: {told}{f'; {self.against_it}' if self.against_it else ''})"

    @property
    def total_epsilon(self) -> float:
        """Over all rounds; infinite where there is no offer."""
        return math.inf if self.account is None else self.account.epsilon


class Maker:
    """Makes offers from a mechanism's recipe, for a goal."""

    def __init__(self, made: type[Mechanism], recipe: Recipe, goal: Goal) -> None:
        self.kind, self.releases_once, self._is_slow = made.kind, made.releases_once, made.needs_public_average
        self.name, self.against_it, self._gap = recipe.name, recipe.against_it, recipe.gap
        self.per = "release" if made.releases_once else "report"
        self.smallest = 0.25 if made.releases_once else SMALLEST
        self.goal, self.make = goal, lru_cache(maxsize=64)(recipe.make)
        self.start = Prior(*recipe.start or (min(1.0, goal.share), 10))
        self._sample = _sample(goal.problem)

    def account(self, epsilon: float) -> Account:
        """What it gives away in all rounds, against whom, and under which assumptions."""
        return account_of(self.make(epsilon), self.goal.rounds, self.goal.delta, self.seen_by)

    @property
    def seen_by(self) -> Observer:
        """Who sees what. A plan is made from the costs (gain, first signal, channel), unless these are a guess."""
        return self.goal.seen_by if self.goal.guessed else replace(self.goal.seen_by, assuming=(PUBLIC_DESIGN,))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold for its accounts."""
        return self.seen_by.assumptions(self.make(1.0))

    def unfit(self, epsilon: float) -> str:
        """Why it cannot be used with this epsilon; empty if it can."""
        if self.releases_once:
            return ""
        least, most = reachable(self.goal.problem, self.make(epsilon))
        capacity = self.goal.problem.capacity
        meets = least * (1.0 + 1e-9) < capacity < most * (1.0 - 1e-9) or most == self.goal.problem.most
        return "" if meets else "its coin alone misses the capacity"

    def not_sensible(self, epsilon: float) -> str:
        """Why its forecast does not hold with this epsilon; empty if it does."""
        return ""

    def gap(self, epsilon: float) -> float:
        """The expected gap after the planned rounds (in the limit, where that makes no difference)."""
        mechanism, problem = self.make(epsilon), self.goal.problem
        if self._gap is not None:
            return self._gap(epsilon)
        if self.releases_once:  # the cost of a release is known only by trying it
            return float(np.mean(_released_gaps(problem, mechanism)))
        if not self._is_slow:
            return predict(problem, mechanism).gap
        tuned = tune(self._sample, mechanism, self.start)  # its box moves with the average: the rounds matter
        server = tuned.controller(settled=True)
        return predict(self._sample, mechanism, self.goal.rounds, server, start=self.start, exact=200).gap

    def outlook(self, epsilon: float) -> Outlook:
        """The forecast of the planned run."""
        return outlook(self.goal.problem, self.make(epsilon), self.goal.rounds, self.goal.averaging, self.start)

    def offer(self, epsilon: float, against_it: str = "") -> Offer:
        """The offer at this epsilon."""
        made = self.make(epsilon)
        return Offer(self.name, made, self.account(epsilon), self.gap(epsilon), self.start, against_it, epsilon)


def makers(goal: Goal) -> list[Maker]:
    """Every mechanism that promises something against an observer of reports or exact sums, as it says it is made."""
    public = goal.observer == EVERY_REPORT  # only this observer knows averages
    usable = [made for made in MECHANISMS.values() if public or not made.needs_public_average]
    return [Maker(made, recipe, goal) for made in usable for recipe in made.recipes(goal)]


def largest_within(maker: Maker, budget: float) -> float | None:
    """The largest epsilon whose total stays within a budget; None if even the smallest does not."""
    if maker.releases_once:  # its epsilon is the total, if it promises one at all
        epsilon = min(budget, LARGEST)
        return epsilon if maker.account(epsilon).epsilon <= budget else None
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
    low, high = maker.smallest, LARGEST

    def excess(epsilon: float) -> float:
        return math.log(max(maker.gap(epsilon), 1e-12) / gap) if not maker.unfit(epsilon) else math.inf

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


def _sample(problem: Problem) -> Problem:
    """Evenly chosen clients, with their share of the capacity."""
    if len(problem) <= _SAMPLE or problem.weights is not None:
        return problem
    some = np.arange(0, len(problem), -(-len(problem) // _SAMPLE))
    return Problem(problem.costs[some], problem.capacity * len(some) / len(problem))
