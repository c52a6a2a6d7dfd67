"""What noise on the sums does to a run: the turnout's error round by round, from the start to its end.

A linear model around the fixed point. Its state is the error u of the logarithm of the signal, and the errors Q of the
clients' averages, summed over groups of clients that respond alike. In each round

    error of the turnout   e  = S u + b Q + coins
    the server             u' = u - gain / C (e + noise)
    the averages           Q' = Q + (P u + (b - 1) Q + coins) / rounds

with S the slope of the turnout in the logarithm of the signal, P the share of a group in it, and b the slope of a
client's probability in its own average. The covariance of this state follows from round to round, exactly. The mean of
the error is the mean-field path's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.algorithm import FallingGainController, Prior, SumNoise
from turnout.problem import Array
from turnout.theory.mean_field import MeanField

_GROUPS = 5
"""Of clients, by how their probability responds to their average."""

SETTLED = 1.5
"""The turnout is settled where its root mean square error stays below so many times its last value."""


@dataclass(frozen=True, eq=False)
class TurnoutErrors:
    """The error of the turnout under noise.

    Attributes:
        error: the root mean square error of each round, shape (rounds,).
        settling_rounds: from then on the error stays within 1.5 times its last value; after a change, within 1.5
            times what noise and coins alone make of it at the end. None: not within these rounds.
        spread: the root mean square error over the settled rounds; where it does not settle, of the last one.
        mean: the standard deviation of the mean turnout over all these rounds.
        bias: the mean error of each round, shape (rounds,); `error` includes it.
        variance: of each client's average at the end, by the noise alone, shape (clients,).

    Example:
        >>> from turnout import Classical, FallingGainController, Prior, SumNoise, paper_population, predict
        >>> problem, server = paper_population().problem(600), FallingGainController(0.01, initial=10.0)
        >>> predict(problem, Classical(), 500, server, start=Prior(0.5), noise=SumNoise(100.0)).errors
        TurnoutErrors(± 17.3 after 47 rounds)
    """

    error: Array
    settling_rounds: int | None
    spread: float
    mean: float
    bias: Array
    variance: Array

    @property
    def deviation(self) -> Array:
        """The standard deviation of the turnout in each round, shape (rounds,)."""
        return np.sqrt(np.maximum(0.0, self.error**2 - self.bias**2))

    def __repr__(self) -> str:
        when = "not settled" if self.settling_rounds is None else f"after {self.settling_rounds} rounds"
        return f"TurnoutErrors(± {self.spread:.1f} {when})"


def turnout_errors(
    field: MeanField,
    signal: float,
    average: Array,
    rounds: int,
    controller: FallingGainController,
    noise: SumNoise | None,
    start: Prior | None,
    bias: Array | None = None,
) -> TurnoutErrors:
    """Follow the errors of the turnout.

    Args:
        field: the clients and their mechanism.
        signal, average: the fixed point.
        rounds: of the run.
        controller: the server.
        noise: on the sums.
        start: where averages begin.
        bias: the mean error of the first rounds, from the mean-field path; none, unless given.
    """
    model = _Model(field, signal, average)
    sigmas = np.zeros(rounds) if noise is None else noise.sigmas(0, rounds) * noise.factor
    offset = np.zeros(rounds)
    if bias is not None:
        offset[: len(bias)] = bias
    opened, gains = np.isfinite(sigmas), np.zeros(rounds)
    gains[opened] = controller.gains(int(opened.sum()))  # the server learns nothing in the other rounds
    return model.errors(gains, sigmas, 1.0 if start is None else start.rounds, offset)


def errors_after_a_change(
    field: MeanField,
    fixed_point: tuple[float, Array],
    gains: Array,
    sigmas: Array,
    behind: float,
    unrest: float,
    bias: Array,
) -> TurnoutErrors:
    """Follow the errors of the turnout from a change on.

    Args:
        field: the clients that are left, their mechanism, and the capacity from then on.
        fixed_point: (signal, averages), where they will settle.
        gains: of the server in these rounds; 0 where no sum is opened.
        sigmas: of the noise of the opened sums.
        behind: the rounds that the averages are old.
        unrest: the variance of the logarithm of the signal at the change.
        bias: the mean error of the turnout in these rounds, from the mean-field path.
    """
    return _Model(field, *fixed_point).errors(gains, sigmas, behind, bias, unrest, is_change=True)


def response_to_signal(field: MeanField, signal: float, average: Array) -> tuple[float, float]:
    """(the slope of the turnout in the logarithm of the signal, the variance of the coins) at the fixed point."""
    model = _Model(field, signal, average)
    return model.slope, float(model.coins.sum())


def _settled(error: Array, last: float) -> int | None:
    """The first round from which the error stays within its bound; None: it does not."""
    beyond = np.flatnonzero(error > SETTLED * last)
    settled = int(beyond[-1]) + 1 if len(beyond) else 0
    return settled if settled < len(error) else None


class _Model:
    """The linear model. The last number of its state is the sum of all errors so far."""

    def __init__(self, field: MeanField, signal: float, average: Array) -> None:
        weights = np.broadcast_to(np.asarray(field.problem.unit_weights, np.float64), len(average))
        chances = field.chances(signal, average)
        step = 1e-4
        self.capacity = field.problem.capacity
        by_signal = (field.chances(signal * (1.0 + step), average) - field.chances(signal * (1.0 - step), average)) / (
            2.0 * step
        )
        reach = step * np.minimum(average, np.maximum(1.0 - average, step))
        by_average = (field.chances(signal, average + reach) - field.chances(signal, average - reach)) / (2.0 * reach)
        by_average = np.clip(by_average, -20.0, 1.0)
        tosses = np.square(weights) * chances * (1.0 - chances)
        groups = np.array_split(np.argsort(by_average, kind="stable"), min(_GROUPS, len(average)))
        pull = [float(np.sum(weights[who] * by_signal[who])) for who in groups]
        self.pull = np.array(pull)
        self._share = np.zeros((len(groups), len(average)))
        for number, who in enumerate(groups):
            self._share[number, who] = by_signal[who] / (pull[number] or 1.0)
        # A group's mean response to its averages counts each client by how much its average is moved.
        moved = [np.maximum(weights[who] * np.abs(by_signal[who]), 1e-12) for who in groups]
        self.response = np.array(
            [float(np.average(by_average[who], weights=share)) for who, share in zip(groups, moved, strict=True)]
        )
        self.coins = np.array([float(np.sum(tosses[who])) for who in groups])
        if not field.tosses:  # averages move by the probability: coins move the turnout alone
            self.in_averages = np.zeros(len(groups))
        else:
            self.in_averages = np.ones(len(groups))
        self.slope = float(np.sum(self.pull))
        self.size = len(groups) + 2
        self.turnout = np.concatenate([[self.slope], self.response, [0.0]])
        self._same, self._inner = np.eye(self.size), np.arange(1, self.size - 1)

    def follow(self, covariance: Array, gains: Array, sigmas: Array, behind: float) -> tuple[Array, Array]:
        """The variance of the turnout in each round, and the covariance at the end."""
        tossed, variances = float(self.coins.sum()), np.empty(len(gains))
        for round, gain in enumerate(gains.tolist()):
            variances[round] = self.turnout @ covariance @ self.turnout + tossed
            step, noises = self._step(gain / self.capacity, behind + round + 1.0)
            covariance = step @ covariance @ step.T + noises
            covariance[0, 0] += (gain / self.capacity * float(sigmas[round])) ** 2 if gain else 0.0
        return variances, covariance

    def _step(self, gain: float, rounds: float) -> tuple[Array, Array]:
        """The matrix of one round, and the covariance that its coins add."""
        step, inner = self._same.copy(), self._inner
        step[0] -= gain * self.turnout
        step[inner, 0] += self.pull / rounds
        step[inner, inner] += (self.response - 1.0) / rounds
        step[-1] += self.turnout
        coins = np.zeros((self.size, len(inner)))
        coins[0], coins[-1] = -gain, 1.0
        coins[inner, inner - 1] = self.in_averages / rounds
        return step, (coins * self.coins) @ coins.T

    def errors(
        self, gains: Array, sigmas: Array, behind: float, bias: Array, unrest: float = 0.0, is_change: bool = False
    ) -> TurnoutErrors:
        """The error of each round, from the variances and the mean errors."""
        covariance = np.zeros((self.size, self.size))
        covariance[0, 0] = unrest
        variances, covariance = self.follow(covariance, gains, sigmas, behind)
        error = np.sqrt(variances + bias**2)
        settled = _settled(error, math.sqrt(variances[-1]) if is_change else error[-1])
        late = error[-1:] if settled is None else error[settled:]
        spread = math.sqrt(float(np.mean(np.square(late))))
        mean = math.sqrt(float(covariance[-1, -1])) / len(error)
        return TurnoutErrors(error, settled, spread, mean, bias, self.of_clients(covariance))

    def of_clients(self, covariance: Array) -> Array:
        """The variance of each client's average: a group's error is shared as its response to the signal is."""
        return np.diag(covariance)[1:-1] @ np.square(self._share)
