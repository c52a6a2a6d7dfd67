"""Sums with noise as an audit's reporter: the strongest observer that the account speaks of.

It knows the costs, histories and coins of all other clients, chooses the signals during the run and different ones
for each client, and sees every opened sum. So it subtracts what the others bring, and is left with the noise around 0
or the weight of one client, which it lets answer "yes" under one cost and "no" under the other in every round.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Coins, Mechanism, Prior, SeededCoins, SumNoise, SystemCoins
from turnout.audit.claims import DELTA, Claim, of_sum
from turnout.audit.events import Weighed
from turnout.audit.reporters import MechanismReporter, Reporter, as_reporter, usual_costs
from turnout.audit.subjects import Subject
from turnout.errors import invalid
from turnout.privacy import NOISY_SUM, Observer
from turnout.problem import Array, Costs

_REACH = 9.0
"""Standard deviations up to which sums are told apart; those beyond count as the last."""

_WIDEST = 15_000
"""The same, in units: an audit's answers are small whole numbers."""

_DRAWS = 0.4
"""Of the trials asked for, the share of an audit of one round: exact noise takes some 50 µs a draw."""

Sums = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NoisySumReporter:
    """The opened sums of a client and others, less what the observer knows that the others bring.

    Every round's noise is `SumNoise.draw`, or as in simulations, every bit `client_step`.

    Args:
        mechanism: of all.
        observer: of the sums with noise; the weights, whole numbers, the audited client's first. Without any the
            client has weight 1, and is alone: the others hide nothing.
        others: the others' cost, a population of one; one that gives an intent between 0 and 1, unless given.
        prior: the history that all start from.
        coins: makes the coins from a seed; with the system's, the noise is the system's, too.
        simulated: whether noise is drawn as in simulations, by `SumNoise.seeded`, which is a hundred times faster.

    Example:
        >>> from turnout.algorithm import Classical
        >>> seen = Observer("noisy-sum", noise=SumNoise(3.0), weights=[2, 1, 1])
        >>> reporter = NoisySumReporter(Classical(), seen)
        >>> reporter(usual_costs()["cheap"], np.ones(4), trials=5, seed=1).shape, reporter.values
        ((5, 4, 1), 57)
    """

    mechanism: Mechanism
    observer: Observer
    others: Costs | None = None
    prior: Prior = Prior(0.5, 10)  # noqa: RUF009 (frozen)
    coins: Callable[[int], Coins] = SeededCoins
    simulated: bool = False

    def __post_init__(self) -> None:
        if self.observer.noise is None or self.weights.max() > _WIDEST:
            got = f"an observer that sees {self.observer.sees!r}, weights up to {self.weights.max()}"
            raise invalid("observer", f"of sums with noise, of weights up to {_WIDEST:,}", got, "see noisy_sum_subject")

    @property
    def noise(self) -> SumNoise:
        """What is added to the sums, by an aggregator that is not the observer."""
        assert self.observer.noise is not None  # checked
        return self.observer.noise

    @property
    def weights(self) -> Sums:
        """The weight of each client, the audited one first, shape (clients,)."""
        return np.atleast_1d(np.asarray(1 if self.observer.weights is None else self.observer.weights, dtype=np.int64))

    @property
    def reach(self) -> int:
        """An answer is what is left of a sum, plus this much, so that it is not negative."""
        largest = max(self.noise.sigma, self.noise.early_sigma or 0.0)
        return min(math.ceil(_REACH * largest), _WIDEST)

    @property
    def values(self) -> int:
        """An answer is a whole number from 0 to values - 1."""
        return 2 * self.reach + int(self.weights[0]) + 1

    def __call__(self, costs: Costs, signals: Array, trials: int, seed: int) -> Sums:
        """What is left of the sums, shape (trials, rounds, deliveries)."""
        coins, noise = self.coins(seed), self._noise(trials, seed)
        others, heard = self._others(trials, coins), np.ones(trials)
        own = MechanismReporter(self.mechanism, self.prior, self.observer.averaging, self.coins, self.weights[0])
        alike, state = own.start(costs, np.arange(trials), coins)
        left: list[Sums] = []
        for round, signal in enumerate(signals.tolist()):
            state, bits = own.step(alike, state, self.asked(signal, left), coins.uniform(np.arange(trials), round))
            known = others(round, heard)
            left.append(self.seen(round, known + self.weights[0] * bits, known, noise))
            # The others' next signal follows the opened sum.
            heard = np.maximum(0.0, (known + left[-1][:, 0]) / self.weights.sum())
        return np.clip(np.stack(left, axis=1) + self.reach, 0, self.values - 1)

    def asked(self, signal: float, left: list[Sums]) -> float | Array:
        """The signal that the audited client hears, after what was left of the sums so far."""
        return signal

    def seen(self, round: int, total: Sums, known: Sums, noise: Callable[[int], Sums]) -> Sums:
        """What the observer sees of a round's total, less what it knows, shape (trials, deliveries)."""
        return (total + noise(round) - known if self.noise.is_opened(round) else np.zeros_like(total))[:, None]

    def _noise(self, trials: int, seed: int) -> Callable[[int], Sums]:
        """A function of a round: its noise in each trial, shape (trials,)."""
        below = secrets.randbelow if isinstance(self.coins(seed), SystemCoins) else random.Random(seed).randrange

        def draw(round: int) -> Sums:
            if not self.simulated:
                return np.array([self.noise.draw(round, below) for _ in range(trials)], dtype=np.int64)
            (sigma,) = self.noise.sigmas(round, round + 1).tolist()
            alike = SumNoise(sigma, bound=self.noise.bound)  # a trial in place of a round
            return alike.seeded((seed + round) % 2**64, 0, trials)

        return draw

    def _others(self, trials: int, coins: Coins) -> Callable[[int, Array], Sums]:
        """A function of a round and the signal of each trial: what all others bring, shape (trials,)."""
        clients, costs = [], self.others or usual_costs()["middle"]
        for number, weight in enumerate(self.weights.tolist()[1:], 1):
            one = MechanismReporter(self.mechanism, self.prior, self.observer.averaging, self.coins, weight)
            ids = np.arange(number * trials, (number + 1) * trials)
            clients.append((one, weight, ids, *one.start(costs, ids, coins)))
        states = [state for *_, state in clients]

        def bring(round: int, heard: Array) -> Sums:
            total = np.zeros(trials, dtype=np.int64)
            for at, (one, weight, ids, alike, _) in enumerate(clients):
                states[at], bits = one.step(alike, states[at], heard, coins.uniform(ids, round))
                total += weight * bits
            return total

        return bring

    def together(self, rounds: int) -> Weighed:
        """The statistic that the likelihood ratio rises with: the mean of the rounds, by 1 / sigma^2."""
        sigmas = self.noise.sigmas(0, rounds)
        weights = (np.min(sigmas) / sigmas) ** 2 if np.isfinite(sigmas).any() else np.zeros(rounds)
        spread = math.sqrt(float(np.sum(np.square(weights[weights > 0] * sigmas[weights > 0]))))
        least, most = math.floor(-_REACH * spread), math.ceil(weights.sum() * self.weights[0] + _REACH * spread)
        return Weighed(weights, float(weights.sum() * self.reach), float(least), 1.0, most - least + 1)


def _shifted(own: Reporter, ours: NoisySumReporter) -> Reporter:
    """A reporter of one's own, whose whole numbers become answers of an audit."""
    many, _ = as_reporter(own)

    def reporter(costs: Costs, signals: Array, trials: int, seed: int) -> Array:
        left = np.asarray(many(costs, signals, trials, seed), dtype=np.float64)
        return np.clip(left + ours.reach, 0, ours.values - 1)

    return reporter


def noisy_sum_subject(
    mechanism: Mechanism,
    observer: Observer,
    rounds: int,
    *,
    delta: float = DELTA,
    claims: tuple[Claim, ...] = (),
    coins: Callable[[int], Coins] = SeededCoins,
    simulated: bool = False,
    own: Reporter | None = None,
) -> Subject:
    """A client of sums with noise, for an observer who knows and may choose all the rest; its account, unless given.

    Its weight is the first of the observer's weights, and the account is that of this weight.

    Args:
        mechanism, observer, coins, simulated: as for `NoisySumReporter`.
        rounds: how many.
        delta: as in `of_sum`.
        claims: other ones than the account.
        own: a reporter of your own in place of ours. It returns what is left of each opened sum, a whole number.

    Example:
        >>> from turnout.algorithm import Classical
        >>> seen = Observer("noisy-sum", noise=SumNoise(3.0))
        >>> noisy_sum_subject(Classical(), seen, rounds=4).name
        'classical, sums with noise (sigma 3)'
    """
    reporter = NoisySumReporter(mechanism, observer, coins=coins, simulated=simulated)
    alone = Observer(NOISY_SUM, weights=reporter.weights[:1], averaging=observer.averaging, noise=observer.noise)
    held = claims or of_sum(mechanism, alone, rounds, delta)
    seen = str(alone)
    name = f"{mechanism.in_words()}, sums with noise {seen[seen.index('(') :]}"
    if reporter.weights.size > 1 or reporter.weights[0] > 1:
        name += f", weight {reporter.weights[0]}"
        name += f" among {', '.join(map(str, reporter.weights[1:].tolist()))}" if reporter.weights.size > 1 else ""
    price = getattr(mechanism, "price", 1.0)
    signals = {"yes or no": np.full(rounds, price)}
    if rounds > 1:  # noise that is used twice shows in differences
        signals["on and off"] = np.where(np.arange(rounds) % 2 == 1, price, 0.0)
    costs = {cost: usual_costs()[cost] for cost in ("cheap", "expensive")}
    return Subject(
        name,
        reporter if own is None else _shifted(own, reporter),
        held,
        signals,
        costs,
        reporter.values,
        1.0 if simulated or own is not None else _DRAWS / rounds,
        (reporter.together(rounds),),
    )
