"""The gain of a server: the stable gains of the integral controller, and the gain floor under noise on the sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from turnout.algorithm import FallingGainController, IntegralController, Mechanism, Prior, SumNoise
from turnout.errors import invalid
from turnout.problem import Array, Problem, optimum
from turnout.theory.feasibility import check_feasible
from turnout.theory.fixed_point import long_run, predict
from turnout.theory.mean_field import MeanField, Moments
from turnout.theory.noise_response import response_to_signal

SHARE_OF_THE_BOUND = 0.2
"""The share of the largest stable gain: quick, and at a lag of 1 the spread of the turnout is only 7 % larger."""


@dataclass(frozen=True)
class Tuning:
    """What gain to give an `IntegralController`.

    Attributes:
        largest_gain: the loop oscillates from here on, at the fixed point: 1 / slope of the turnout in the signal.
        largest_gain_at_start: the same along the start-up, where the averages are still high.
        gain: recommended.
        signal: where the signal settles.
        settling_rounds: until the expected turnout stays within 2 % of the capacity; None: not within 20,000.

    Example:
        >>> from turnout import Classical, paper_population
        >>> tune(paper_population().problem(600), Classical()).largest_gain > 0.02
        True
    """

    largest_gain: float
    largest_gain_at_start: float
    gain: float
    signal: float
    settling_rounds: int | None

    @property
    def initial(self) -> float:
        """A first signal at which too few participate rather than too many."""
        return 0.1 * self.signal

    def __repr__(self) -> str:
        settled = "not settled" if self.settling_rounds is None else f"settled after {self.settling_rounds} rounds"
        return f"Tuning(gain={self.gain:.4g} of at most {self.largest_gain:.4g}, initial={self.initial:.4g}, {settled})"

    def controller(self, settled: bool = False) -> IntegralController:
        """The paper's server with these settings; `settled` begins where the signal will settle."""
        return IntegralController(self.gain, self.signal if settled else self.initial)


def tune(problem: Problem, mechanism: Mechanism, start: Prior | None = None) -> Tuning:
    """The stable gains of the integral controller for a population, and a good one.

    The turnout has a slope S in the signal while the averages are fixed, and the signal
    that decides a round is one round old. With g = gain * S the error obeys
    e(k+1) = e(k) - g e(k-1), whose roots leave the unit circle at g = 1.

    Args:
        problem: the clients and the capacity.
        mechanism: how intent becomes a probability.
        start: where averages begin; None is the paper's start, at 1.

    Raises:
        ValueError: the mechanism cannot meet the capacity.

    Differs from paper: its interval for tau, 1 / max sum x_i / f_i'(x_i), is empty for costs that are
    flat at 0 (x / f'(x) has no bound there); with clipping, only the slope where the loop runs counts.

    Example:
        >>> from turnout import Classical, paper_population
        >>> found = tune(paper_population(seed=0).problem(600), Classical())
        >>> round(found.largest_gain, 3), round(found.gain, 4)
        (0.02, 0.004)
    """
    check_feasible(problem, mechanism)
    field = MeanField(problem, mechanism)
    signal, average = long_run(field, optimum(problem).price)
    largest = _bound(field, signal, _exactly(average))
    at_start = _bound_along_the_start(field, signal, 1.0 if start is None else start.average)
    gain = SHARE_OF_THE_BOUND * min(largest, at_start)
    if not math.isfinite(gain):  # no client follows the signal: any gain will do
        gain = 0.01 * signal / problem.capacity
    tuned = Tuning(largest, at_start, gain, signal, None)
    return replace(tuned, settling_rounds=_settling(problem, mechanism, tuned.controller(), start))


_NOISE_SHARE = 0.3
"""Of the coins' variance: what the noise may add to the turnout's, once the gain is at its floor. The turnout's error
then is 14 % larger."""

_CORRECTIONS = 5.0
"""An error that is left from the early rounds shrinks by 1 / e so many times in a run, at least."""

_LARGEST_FLOOR = 0.05
"""Of the gain: with more, the turnout would follow the coins of the clients rather than the price."""

_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class FloorChoice:
    """What one gain floor does.

    Attributes:
        floor: of the gain.
        spread: the turnout's root mean square error, once it is settled.
        follows: the rounds within which the server follows a drift of the price.
    """

    floor: float
    spread: float
    follows: float


@dataclass(frozen=True)
class FloorTuning:
    """What gain floor to give a `FallingGainController`: the choice between tracking and noise.

    Attributes:
        floor: recommended.
        signal: where the signal settles.
        coins: the turnout's spread by the clients' coins alone, which no server can lower.
        early: the opened sums after which the gain is the floor.
        slope: of the turnout in the logarithm of the signal, in capacities.
        noise: its standard deviation, on each opened sum.
        opened: the number of opened sums.
        choices: other floors, from small to large, with the recommended one among them.

    Example:
        >>> from turnout import Classical, SumNoise, paper_population
        >>> tune_floor(paper_population().problem(600), Classical(), SumNoise(497.2, 300, 134.2), 10_000)
        FloorTuning(floor=0.00064, coins alone ± 14.7)
          floor 0.00016   turnout ± 15.3   follows a drift within 7,576 rounds
          floor 0.00032   turnout ± 15.8   follows a drift within 3,788 rounds
          floor 0.00064   turnout ± 16.8   follows a drift within 1,894 rounds
          floor 0.00128   turnout ± 18.6   follows a drift within 947 rounds
          floor 0.00256   turnout ± 21.9   follows a drift within 473 rounds
    """

    floor: float
    signal: float
    coins: float
    early: int | None
    slope: float
    noise: float
    opened: float
    choices: tuple[FloorChoice, ...]

    def __repr__(self) -> str:
        told = [f"FloorTuning(floor={self.floor:.3g}, coins alone ± {self.coins:.1f})"]
        for each in self.choices:
            floor, turnout = f"floor {each.floor:<9.3g}", f"turnout ± {each.spread:<6.1f}"
            told.append(f"  {floor} {turnout} follows a drift within {each.follows:,.0f} rounds")
        return "\n".join(told)

    def by_noise(self, times: float = 1.0) -> float:
        """What the noise alone adds to the turnout's error in a crowd so many times as large, tuned for it.

        Its capacity is as many times as large, its clients are such clients, and the noise is the same.
        """
        coins, variance = times * self.coins**2, self.noise**2
        return math.sqrt(_unrest(_best_floor(coins, variance, self.slope, self.opened) * self.slope, coins, variance))

    def controller(self) -> FallingGainController:
        """The server with the recommended floor; it begins where the signal will settle."""
        return FallingGainController(self.floor, self.signal, self.early)


def tune_floor(problem: Problem, mechanism: Mechanism, noise: SumNoise, rounds: int) -> FloorTuning:
    """A gain floor for a server that sees sums with noise, and what other floors would do.

    With g = floor * S / C, S the slope of the turnout in the logarithm of the signal, the server follows a drift
    within 1 / g opened sums, and the noise adds sigma^2 g / (2 - g) to the turnout's variance. The recommended floor
    adds at most 30 % of the coins' variance, but corrects what the early rounds left within a fifth of the run.

    Args:
        problem: the clients (or a guess of them) and the capacity.
        mechanism: how intent becomes a probability.
        noise: on the sums.
        rounds: of the run.

    Raises:
        ValueError: the mechanism cannot meet the capacity.

    Example:
        >>> from turnout import Classical, SumNoise, paper_population
        >>> tune_floor(paper_population().problem(600), Classical(), SumNoise(422.5), 10_000).controller()
        FallingGainController(floor=0.00088, initial=9.976096767401135, early=None)
    """
    check_feasible(problem, mechanism)
    if rounds < 10:
        raise invalid("rounds", "10 or more", rounds, "tune for as many as the run will have")
    field = MeanField(problem, mechanism)
    signal, average = long_run(field, optimum(problem).price)
    slope, coins = response_to_signal(field, signal, average)
    slope = max(slope / problem.capacity, 1e-6)
    variance = (noise.sigma * noise.factor) ** 2
    opened = max(1.0, rounds / noise.every)
    best = float(f"{_best_floor(coins, variance, slope, opened):.2g}")

    def choice(floor: float) -> FloorChoice:
        g = floor * slope
        return FloorChoice(floor, math.sqrt(coins + _unrest(g, coins, variance)), noise.every / g)

    choices = tuple(choice(best * factor) for factor in _FACTORS)
    early = noise.early // noise.every or None
    return FloorTuning(best, signal, math.sqrt(coins), early, slope, math.sqrt(variance), opened, choices)


def _best_floor(coins: float, variance: float, slope: float, opened: float) -> float:
    """The recommended floor, from the variances of the coins and of the noise."""
    return min(max(2.0 * _NOISE_SHARE * coins / (variance * slope), _CORRECTIONS / opened), _LARGEST_FLOOR)


def _unrest(g: float, coins: float, variance: float) -> float:
    """What a server adds to the turnout's variance in the long run, by following the coins and the noise."""
    return (coins + variance) * g / (2.0 - g)


def unstable(problem: Problem, mechanism: Mechanism, controller: IntegralController) -> str:
    """Whether the gain is too large for these clients: if so, a sentence with one that is not; else nothing.

    Example:
        >>> from turnout import Classical, paper_population
        >>> problem = paper_population(seed=0).problem(600)
        >>> unstable(problem, Classical(), IntegralController(0.05, 0.35))
        'gain 0.05 is above 0.0202, the largest that is stable for these clients: try 0.004, or SelfTuningController()'
        >>> unstable(problem, Classical(), IntegralController(0.0075, 0.35))
        ''
    """
    field = MeanField(problem, mechanism)
    signal, average = long_run(field, optimum(problem).price)
    # The signal that decides a round is as old as the lag: at once, the error e(k+1) = (1 - g) e(k) grows from g = 2.
    largest = (1.0 if controller.lag else 2.0) * _bound(field, signal, _exactly(average))
    if controller.gain <= largest:
        return ""
    told = f"gain {controller.gain:g} is above {largest:.3g}, the largest that is stable for these clients"
    return f"{told}: try {SHARE_OF_THE_BOUND * largest:.2g}, or SelfTuningController()"


def _exactly(average: Array) -> Moments:
    return Moments(average, np.zeros(len(average)))


def _bound(field: MeanField, signal: float, moments: Moments) -> float:
    slope = field.slope(signal, moments)
    return 1.0 / slope if slope > 0.0 else math.inf


def _bound_along_the_start(field: MeanField, signal: float, first: float) -> float:
    """The smallest bound on the way from the first averages to the fixed point, at the balancing signal."""
    bounds = []
    average, now = np.full(len(field.problem), first), signal
    for _ in range(30):
        now = field.balancing_signal(_exactly(average), now, precision=1e-4)
        bounds.append(_bound(field, now, _exactly(average)))
        average = average + 0.25 * (field.chances(now, average) - average)
    return min(bounds)


def _settling(
    problem: Problem, mechanism: Mechanism, controller: IntegralController, start: Prior | None
) -> int | None:
    """The round from which the expected turnout stays within 2 % of the capacity."""
    for rounds in (200, 2_000, 20_000):
        path = predict(problem, mechanism, rounds, controller, start=start).path
        assert path is not None  # a finite forecast has one
        off = np.abs(path.turnout - problem.capacity) > 0.02 * problem.capacity
        last = int(np.flatnonzero(off)[-1]) if off.any() else -1
        if last + 1 < len(off) and path.rounds[min(last + 1, len(off) - 1)] <= 0.8 * rounds:
            return int(path.rounds[last + 1])
    return None
