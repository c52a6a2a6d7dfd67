"""The gain of the integral controller: the stable gains, a good one, and how soon the turnout settles."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from turnout.algorithm import IntegralController, Mechanism, Prior
from turnout.problem import Array, Problem, optimum
from turnout.theory.feasibility import check_feasible
from turnout.theory.fixed_point import long_run, predict
from turnout.theory.mean_field import MeanField, Moments

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
