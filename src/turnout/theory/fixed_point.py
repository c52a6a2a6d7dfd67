"""Where a run will be, and its path: a forecast without a simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import (
    SMALLEST_AVERAGE,
    Averaging,
    Controller,
    FallingGainController,
    Heard,
    Mechanism,
    Prior,
    ServerState,
    SumNoise,
    server_step,
)
from turnout.display import card, off
from turnout.errors import invalid
from turnout.problem import Array, Optimum, Problem, optimum, rising_root
from turnout.theory.feasibility import check_feasible
from turnout.theory.mean_field import MeanField, Moments
from turnout.theory.noise_response import TurnoutErrors, errors_after_a_change, turnout_errors

_EXACT = 20_000_000  # client-rounds that are computed one by one; later rounds in larger steps
_STRIDE = 0.1  # later: the step in the logarithm of the round
_POINTS = 160  # of a path; fewer for very many clients, whose cost takes long to add up


@dataclass(frozen=True, eq=False)
class _Path:
    """The path of a forecast to its last round; arrays of shape (points,)."""

    rounds: Array
    signal: Array
    turnout: Array
    cost: Array
    mean_distance: Array

    def __repr__(self) -> str:
        return f"Path({len(self.rounds)} points up to round {int(self.rounds[-1])})"


@dataclass(frozen=True, eq=False)
class Forecast:
    """The forecast of a run.

    Attributes:
        average: the clients' mean averages, shape (clients,).
        deviation: their standard deviations from run to run, shape (clients,); 0 in the limit.
        signal: where the signal is; for a finite run, its mean over the last half.
        cost: the expected total cost.
        best: the optimum, to compare with.
        rounds: after this number of rounds; None is the limit.
        spread: the standard deviation of the turnout; without a controller, the noise of the coins alone.
        path: of a finite run.
        errors: of a finite run with a `FallingGainController`: the turnout's error, round by round.

    Example:
        >>> from turnout import PaperCoin, paper_population
        >>> found = predict(paper_population().problem(600), PaperCoin(3.5))
        >>> round(found.cost / found.best.cost, 4)
        1.0069
    """

    average: Array
    deviation: Array
    signal: float
    cost: float
    best: Optimum
    rounds: int | None
    spread: float
    path: _Path | None = None
    errors: TurnoutErrors | None = None

    @property
    def gap(self) -> float:
        """The cost above the optimum's, in parts of it."""
        return self.cost / self.best.cost - 1.0

    @property
    def distance(self) -> Array:
        """The expected distance of each average from the optimum's, shape (clients,)."""
        return _distance(self.average, self.deviation, self.best)

    def __repr__(self) -> str:
        when = "in the long run" if self.rounds is None else f"after {self.rounds} rounds"
        return (
            f"Forecast({when}: signal {self.signal:.4g}, cost {self.cost:.6g}, {off(self.gap)}, "
            f"mean distance {self.distance.mean():.4f}, turnout ± {self.spread:.1f})"
        )

    def _repr_html_(self) -> str:
        when = "in the long run" if self.rounds is None else f"after {self.rounds:,} rounds"
        facts: dict[str, object] = {"when": when, "signal": f"{self.signal:.4g}", "total cost": self.cost}
        facts |= {"gap": off(self.gap), "optimum": self.best.cost, "turnout": f"± {self.spread:.1f}"}
        return card("Forecast", facts | {"mean distance": f"{self.distance.mean():.4f}"})


def predict(
    problem: Problem,
    mechanism: Mechanism,
    rounds: int | None = None,
    controller: Controller | None = None,
    *,
    start: Prior | None = None,
    averaging: Averaging | None = None,
    noise: SumNoise | None = None,
    exact: int | None = None,
) -> Forecast:
    """Forecast a run: its limit, or the mean-field path to a given round.

    In the limit x_i = q_i(min(1, Theta w_i x_i / f_i'(x_i))) and sum w_i x_i = C: a search for the
    signal around a search for each client. A finite run follows the mean and variance of each
    client's average from its start. (With f'(0) > 0 averages reach the limit slowly.)

    Args:
        problem: the clients and the capacity.
        mechanism: how intent becomes a probability.
        rounds: forecast this round; None means the limit.
        controller: its start-up and its effect on the spread are included; without one, each round has the
            signal that balances it.
        start: where averages begin; None is the paper's start, where everyone takes part in round 0.
        averaging: how histories move; by the bit, all of them remembered, unless given.
        noise: on the sums that the server sees; for a controller whose gain is known beforehand.
        exact: this number of rounds one by one, later ones in larger steps; 20 million client-rounds, unless given.

    Raises:
        ValueError: the mechanism cannot meet the capacity, at any signal, or histories fade.

    Example:
        >>> from turnout import PaperCoin, paper_population
        >>> predict(paper_population(seed=0).problem(600), PaperCoin(3.5))
        Forecast(in the long run: signal 9.03, cost 1765.6, 0.69 % above the optimum,
          mean distance 0.0166, turnout ± 15.1)
    """
    check_feasible(problem, mechanism)
    if rounds is not None and rounds < 10:
        raise invalid("rounds", "10 or more, or None for the limit", rounds, "forecast a longer run")
    averaging = averaging or Averaging()
    if averaging.remember is not None:
        raise invalid("averaging.remember", "None for a forecast", averaging.remember, "simulate it instead")
    field = MeanField(problem, mechanism, tosses=averaging.by == "bit")
    best, errors = optimum(problem), None
    if rounds is None:
        signal, average = long_run(field, best.price)
        moments, path = Moments(average, np.zeros(len(problem))), None
        spread = turnout_spread(field, signal, moments, controller, noise)
    else:
        exact = exact or max(40, _EXACT // len(problem))
        moments, path, turnouts = _follow(field, rounds, best, _Server(field, controller, noise), start, exact)
        signal = _late_signal(path)
        if isinstance(controller, FallingGainController):
            off = turnouts - problem.capacity
            errors = turnout_errors(field, signal, moments.mean, rounds, controller, noise, start, off)
            moments = Moments(moments.mean, moments.variance + errors.variance)
        spread = errors.spread if errors else turnout_spread(field, signal, moments, controller, noise)
    deviation = np.sqrt(moments.variance)
    return Forecast(moments.mean, deviation, signal, field.cost(moments), best, rounds, spread, path, errors)


_FOLLOWED, _BEFORE = 600, 400
"""Clients that are followed after a change (of more, evenly chosen ones stand for all), and the rounds before it that
are followed one by one."""


def predict_change(
    problem: Problem,
    mechanism: Mechanism,
    controller: FallingGainController,
    noise: SumNoise,
    *,
    at: int,
    rounds: int,
    capacity: float | None = None,
    staying: Any = None,
    start: Prior | None = None,
) -> TurnoutErrors:
    """The turnout's error after a change that the server knows of: clients that leave, another capacity, or both.

    The server scales the signal at once. Then averages find their new places, which takes as many rounds as they are
    old, and the price moves with them.

    Args:
        problem: the clients and the capacity before the change.
        mechanism: how intent becomes a probability.
        controller: the server.
        noise: on the sums that the server sees.
        at: the round of the change, from 10 on; the gain of the server is taken to be at its floor by then.
        rounds: that are followed from then on.
        capacity: from then on; unchanged, unless given.
        staying: the clients that stay, as anything that indexes an array; all, unless given.
        start: where averages began; None is the paper's start.

    Raises:
        ValueError: the clients that stay cannot bring the capacity.

    Example:
        >>> from turnout import Classical, Prior, paper_population
        >>> problem, noise = paper_population().problem(600), SumNoise(497.4, early=300, early_sigma=133.6)
        >>> server = FallingGainController(0.00064, initial=10.0, early=300)
        >>> predict_change(problem, Classical(), server, noise, at=5000, rounds=5000, capacity=300, start=Prior(0.5))
        TurnoutErrors(± 23.0 after 1197 rounds)
    """
    if at < 10:
        raise invalid("at", "10 or more", at, "forecast a later change")
    before = predict(problem, mechanism, at, controller, start=start, noise=noise, exact=min(at, _BEFORE))
    chosen = np.arange(len(problem))[slice(None) if staying is None else staying]
    few = chosen[:: -(-len(chosen) // _FOLLOWED)]
    wanted = problem.capacity if capacity is None else capacity
    share = wanted / float(np.broadcast_to(problem.unit_weights, len(problem))[chosen].sum())
    scaled = controller.scaled(
        controller.start()._replace(signal=before.signal, rounds=math.inf), share / (problem.capacity / problem.most)
    )
    everyone, sample = (_field_of(problem, mechanism, clients, share) for clients in (chosen, few))
    behind = at + (1.0 if start is None else start.rounds)
    moments = Moments(before.average[few], before.deviation[few] ** 2)
    sigmas = noise.sigmas(at, at + rounds) * noise.factor
    gains, off = _after_a_change(sample, moments, controller, scaled, np.isfinite(sigmas), behind)
    unrest = 0.5 * controller.floor * (noise.sigma * noise.factor / problem.capacity) ** 2
    fixed_point = long_run(everyone, optimum(everyone.problem).price)
    return errors_after_a_change(everyone, fixed_point, gains, sigmas, behind, unrest, wanted * off)


def _field_of(problem: Problem, mechanism: Mechanism, clients: npt.NDArray[np.intp], share: float) -> MeanField:
    """Some of the clients, of whom a share of their weight is needed."""
    weights = None if problem.weights is None else problem.weights[clients]
    most = len(clients) if weights is None else float(weights.sum())
    some = Problem(problem.costs[clients], share * most, weights)
    check_feasible(some, mechanism[clients])
    return MeanField(some, mechanism[clients])


def _after_a_change(
    field: MeanField,
    moments: Moments,
    controller: FallingGainController,
    state: Any,
    opened: Array,
    behind: float,
) -> tuple[Array, Array]:
    """(the gain of each round, 0 where no sum is opened; the mean error of the turnout, in capacities)."""
    gains, off = np.zeros(len(opened)), np.empty(len(opened))
    for round, is_opened in enumerate(opened.tolist()):
        chance, covariance = field.expected(state.signal, moments)
        moments = field.after(moments, chance, covariance, behind + round + 1.0)
        turnout = field.brought(chance)
        off[round] = turnout / field.problem.capacity - 1.0
        if is_opened:
            gains[round] = controller.gain(state.rounds, state.falls)
            state = controller.step(state, turnout, field.problem.capacity)
    return gains, off


def _late_signal(path: _Path) -> float:
    """The mean signal of the second half of a path."""
    late = path.rounds >= (path.rounds[-1] + 1) / 2
    return float(np.trapezoid(path.signal[late], path.rounds[late]) / np.ptp(path.rounds[late]))


def long_run(field: MeanField, guess: float) -> tuple[float, Array]:
    """(signal, averages) of the limit. Brackets narrow from trial to trial: averages rise with the signal."""
    clients, capacity = len(field.problem), field.problem.capacity
    lowest, highest = np.full(clients, SMALLEST_AVERAGE), np.ones(clients)
    bounds, tried = [lowest, highest], [0.0, math.inf]

    def excess(signal: float) -> float:
        average = field.settled(signal, *bounds)
        brought = field.brought(average)
        if brought <= capacity and signal > tried[0]:
            bounds[0], tried[0] = average, signal
        elif brought > capacity and signal < tried[1]:
            bounds[1], tried[1] = average, signal
        return brought - capacity

    signal = rising_root(excess, guess, 1e-12 * capacity)
    return signal, field.settled(signal, lowest, highest)


def turnout_spread(
    field: MeanField, signal: float, moments: Moments, controller: Controller | None, noise: SumNoise | None = None
) -> float:
    """The standard deviation of the turnout: of the coins, and what a controller adds by following them, and noise.

    With g = gain * slope, the turnout's error e and the signal's effect u obey u' = u - g e; solved for the
    variance with the signal 0 rounds old, and 1 round old (the paper's).
    """
    coins = field.noise(field.expected(signal, moments)[0])
    gain = getattr(controller, "gain", None)
    if isinstance(controller, FallingGainController):
        gain = controller.floor * signal / field.problem.capacity
    if controller is None or gain is None:
        return math.sqrt(coins)
    seen = coins if noise is None else coins + (noise.sigma * noise.factor) ** 2
    g = gain * field.slope(signal, moments)
    if g >= (2.0 if controller.lag == 0 else 1.0):
        return math.inf
    unrest = g / (2.0 - g) if controller.lag == 0 else g * (1.0 + g) / ((1.0 - g) * (2.0 + g))
    return math.sqrt(coins + seen * unrest)


def _follow(
    field: MeanField, rounds: int, best: Optimum, server: _Server, start: Prior | None, exact: int
) -> tuple[Moments, _Path, Array]:
    """The mean-field path: round by round at first, then in strides of the logarithm of the round.

    Returns the moments at the end, the path, and the turnouts of the first rounds.
    """
    clients = len(field.problem)
    exact = min(rounds, exact)
    number = int(np.clip(_EXACT // clients, 16, _POINTS))
    marks = {0, *np.unique(np.geomspace(1, rounds - 1, number).astype(int)).tolist()}
    # The paper's start: everyone takes part in round 0, which is all the history there is.
    moments = Moments(np.full(clients, start.average if start else 1.0), np.zeros(clients))
    before = start.rounds if start else 0.0
    points, turnouts = [], np.empty(exact)
    for round in range(exact):
        if round == 0 and start is None:
            turnout = float(field.problem.most)
        else:
            chance, covariance = field.expected(server.signal_for(moments), moments)
            turnout = field.brought(chance)
            moments = field.after(moments, chance, covariance, before + round + 1.0)
        turnouts[round] = turnout
        if round in marks:
            points.append(_point(field, round, server.deciding, turnout, moments, best))
        server.see(turnout)
    now, signal = float(exact), server.deciding
    while now < rounds:
        after = min(now * math.exp(_STRIDE), float(rounds))
        moments, signal = _stride(field, moments, signal, before + now, before + after)
        if now >= rounds / 2 or any(now - 1.0 < mark <= after - 1.0 for mark in marks):
            points.append(_point(field, after - 1.0, signal, field.problem.capacity, moments, best))
        now = after
    return moments, _Path(*(np.array(column) for column in zip(*points, strict=True))), turnouts


def _stride(field: MeanField, moments: Moments, signal: float, now: float, after: float) -> tuple[Moments, float]:
    """Many rounds at once, by Heun's method in log(rounds), at the balancing signal."""

    def drift(at: Moments, signal: float, rounds: float) -> tuple[Array, Array]:
        chance, covariance = field.expected(signal, at)
        return chance - at.mean, 2.0 * (covariance - at.variance) + field.toss_variance(chance) / rounds

    length = math.log(after / now)
    signal = field.balancing_signal(moments, signal, precision=1e-5)
    first = drift(moments, signal, now)
    ahead = moments.moved(first, length)
    second = drift(ahead, signal, after)
    return moments.moved((0.5 * (first[0] + second[0]), 0.5 * (first[1] + second[1])), length), signal


def _point(
    field: MeanField, round: float, signal: float, turnout: float, moments: Moments, best: Optimum
) -> tuple[float, ...]:
    distance = _distance(moments.mean, np.sqrt(moments.variance), best)
    return (float(round), signal, turnout, field.cost(moments), float(np.mean(distance)))


def _distance(mean: Array, deviation: Array, best: Optimum) -> Array:
    """E|x - x*|, between its value for pure noise, sqrt(2/pi) deviations, and for none."""
    return np.sqrt((mean - best.average) ** 2 + (2.0 / math.pi) * deviation**2)


class _Server:
    """The controller on expected turnouts that are opened, or, without one, the signal that balances each round."""

    def __init__(self, field: MeanField, controller: Controller | None, noise: SumNoise | None) -> None:
        self._field, self._controller, self._noise = field, controller, noise
        self.deciding = 1.0
        if controller is not None:
            self._state = ServerState.start(controller)
            self.deciding = self._state.deciding

    def signal_for(self, moments: Moments) -> float:
        """The signal that decides the next round."""
        if self._controller is None:
            self.deciding = self._field.balancing_signal(moments, self.deciding, precision=1e-6)
        else:
            self.deciding = self._state.deciding
        return self.deciding

    def see(self, turnout: float) -> None:
        """A round is over, with this turnout."""
        if self._controller is not None:
            heard = Heard(enough=self._noise is None or self._noise.is_opened(self._state.round))
            self._state = server_step(self._controller, self._state, turnout, self._field.problem.capacity, heard)
