"""What can be audited: any function from a cost and signals to reports. Those of turnout, and the user's.

A reporter is a function, in one of two forms:

    reporter(costs, signals) -> answers                 one trial: shape (rounds,) or (rounds, deliveries)
    reporter(costs, signals, trials, seed) -> answers   many at once: (trials, rounds) or (trials, rounds, deliveries)

`costs` is a population of one, `signals` has shape (rounds,), an answer is 0 or 1. Each trial is a new client: with
its enrolment, and with fresh coins. Deliveries are answers to the same round, asked for again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import (
    WORDS,
    Averaging,
    ClientState,
    Coins,
    Mechanism,
    Prior,
    Public,
    SeededCoins,
    client_step,
)
from turnout.errors import TurnoutError, invalid
from turnout.privacy import Observer
from turnout.problem import ENROLMENT, Array, Costs, PolynomialCosts

Reporter = Callable[..., Any]
"""In one of the two forms above."""

Answers = npt.NDArray[np.int16]
"""Shape (trials, rounds, deliveries)."""


class ReporterProblem(TurnoutError):
    """A reporter raised an error, or its answers are invalid.

    Example:
        >>> issubclass(ReporterProblem, TurnoutError)
        True
    """


def usual_costs() -> dict[str, Costs]:
    """Costs that send the intent to 1, to 0, and to between; the last falls as the average rises.

    Example:
        >>> list(usual_costs())
        ['cheap', 'expensive', 'middle', 'steep']
    """
    return {
        "cheap": PolynomialCosts([[1e-9]], (2,)),
        "expensive": PolynomialCosts([[1e9]], (2,)),
        "middle": PolynomialCosts([[1.0]], (2,)),
        "steep": PolynomialCosts([[4.0]], (4,)),
    }


def usual_signals(rounds: int, scale: float = 1.0) -> dict[str, Array]:
    """Signals of honest and of hostile servers, each of shape (rounds,).

    Args:
        rounds: how many.
        scale: the size of an honest signal.

    Example:
        >>> usual_signals(3)["on and off"]
        array([0., 1., 0.])
    """
    steady = {"usual": scale, "zero": 0.0, "negative": -scale, "huge": 1e300, "infinite": np.inf, "NaN": np.nan}
    found = {name: np.full(rounds, value) for name, value in steady.items()}
    odd = np.arange(rounds) % 2 == 1
    found["on and off"] = np.where(odd, scale, 0.0)
    found["with NaN"] = np.where(odd, np.nan, scale)
    found["rising"] = scale * np.geomspace(0.25, 4.0, rounds)
    found["falling"] = scale * np.geomspace(4.0, 0.25, rounds)
    different: dict[bytes, str] = {}
    for name, values in found.items():
        different.setdefault(values.tobytes(), name)
    return {name: found[name] for name in different.values()}


@dataclass(frozen=True)
class MechanismReporter:
    """A mechanism as a client uses it, for an observer of every report: `client_step`, round by round.

    Args:
        mechanism: any; what it releases at joining is part of each trial.
        prior: the public history that it starts from.
        averaging: how its history moves.
        coins: makes the coins from a seed; `lambda seed: SystemCoins()` for the operating system's.
        weight: of the client.
        refuses: whether the server counts no "yes", as after a stop: histories move as they do then.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> MechanismReporter(Clamp(1.0))(usual_costs()["cheap"], np.ones(3), trials=5, seed=1).shape
        (5, 3)
    """

    mechanism: Mechanism
    prior: Prior = Prior(0.5, 10)  # noqa: RUF009 (frozen)
    averaging: Averaging = Averaging()  # noqa: RUF009 (frozen)
    coins: Callable[[int], Coins] = SeededCoins
    weight: float = 1
    refuses: bool = False

    def __call__(self, costs: Costs, signals: Array, trials: int, seed: int) -> npt.NDArray[np.bool_]:
        """The bits of equal clients, shape (trials, rounds)."""
        return self.bits(costs, signals, np.arange(trials), self.coins(seed))

    def bits(self, costs: Costs, signals: Array, clients: npt.NDArray[np.int64], coins: Coins) -> npt.NDArray[np.bool_]:
        """The bits of clients with one cost and these numbers, shape (clients, rounds)."""
        alike, state = self.start(costs, clients, coins)
        bits = []
        for round, signal in enumerate(signals.tolist()):
            state, some = self.step(alike, state, signal, coins.uniform(clients, round))
            bits.append(some)
        return np.stack(bits, axis=1)

    def start(self, costs: Costs, clients: npt.NDArray[np.int64], coins: Coins) -> tuple[Costs, ClientState]:
        """The costs of clients with one cost and these numbers, and their state before the first round."""
        alike = costs[np.zeros(len(clients), dtype=np.int64)]
        memory = None
        if self.mechanism.releases_once:
            memory = self.mechanism.enrol(alike, coins.uniform(clients, 0, ENROLMENT), self.weight)
        start = np.full(len(clients), self.prior.participations)
        return alike, ClientState(start, float(self.prior.rounds), memory)

    def step(
        self, costs: Costs, state: ClientState, signal: Any, uniform: Array
    ) -> tuple[ClientState, npt.NDArray[np.bool_]]:
        """One round; the signal may differ by client."""
        after, yes, *_ = client_step(
            costs, self.mechanism, state, signal, uniform, weights=self.weight, averaging=self.averaging
        )
        if self.refuses and self.averaging.takes_back:
            without = state.after(np.zeros(len(yes)), self.averaging)
            after = replace(after, participations=np.where(yes, without.participations, after.participations))
        return after, yes

    def words(self, costs: Costs, signal: float, averages: Array) -> npt.NDArray[np.int64]:
        """How many of the 2^53 words of a real coin say yes, exactly, at these averages, shape (averages,)."""
        alike = costs[np.zeros(len(averages), dtype=np.int64)]
        state, uniform = ClientState(averages, 1.0), np.zeros(len(averages))
        step = client_step(alike, self.mechanism, state, signal, uniform, weights=self.weight)
        return np.ceil(np.broadcast_to(step.probability, averages.shape) * float(WORDS)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class SumReporter:
    """What an observer of the sum alone sees: the client's bit and those of honest others, each times its weight.

    Args:
        mechanism: of all; boxes may differ by client, but must not follow the average. The client comes first.
        observer: the honest others, who are all the others there are; the weights, whole numbers, the client's first;
            how histories move.
        others: the others' cost, a population of one: expensive, unless given, so that they hide the client least.
        prior: the history that all start from.
        coins: makes the coins from a seed.
        refuses: as for `MechanismReporter`.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> heavy = Observer("sum", 2, weights=[20, 1, 1], averaging=Averaging(by="probability"))
        >>> reporter = SumReporter(Clamp(1.0), heavy)
        >>> reporter(usual_costs()["cheap"], np.ones(3), trials=5, seed=1).shape, reporter.values
        ((5, 3), 23)
    """

    mechanism: Mechanism
    observer: Observer
    others: Costs | None = None
    prior: Prior = Prior(0.5, 10)  # noqa: RUF009 (frozen)
    coins: Callable[[int], Coins] = SeededCoins
    refuses: bool = False

    def __post_init__(self) -> None:
        clients, given = int(self.observer.honest or 0) + 1, self.observer.weights
        if self._boxes not in (1, clients) or (given is not None and np.size(given) != clients):
            allowed = f"of {clients:,} clients, the one that is audited and its honest others"
            got = f"weights of {1 if given is None else np.size(given):,} and boxes of {self._boxes:,}"
            raise invalid("weights and boxes", allowed, got, "leave out those that may not be honest")
        if np.any(self.weights < 1):
            raise invalid("weights", "whole numbers of at least 1", given, "scale them: sums are told apart by value")

    @property
    def _boxes(self) -> int:
        return max(np.size(end) for end in self.mechanism.box(Public(average=np.full(1, 0.5))))

    @property
    def weights(self) -> npt.NDArray[np.int64]:
        """The weight of each client, the audited one first, shape (clients,)."""
        given = self.observer.weights
        weights = np.ones(int(self.observer.honest or 0) + 1) if given is None else np.asarray(given, dtype=np.float64)
        return np.where(weights == np.floor(weights), weights, 0).astype(np.int64)

    @property
    def values(self) -> int:
        """A sum is a whole number from 0 to values - 1."""
        return int(self.weights.sum()) + 1

    def __call__(self, costs: Costs, signals: Array, trials: int, seed: int) -> npt.NDArray[np.int64]:
        """The sums, shape (trials, rounds)."""
        coins, others = self.coins(seed), self.others or usual_costs()["expensive"]
        total = np.zeros((trials, len(signals)), dtype=np.int64)
        for number, weight in enumerate(self.weights.tolist()):
            mechanism = self.mechanism if self._boxes == 1 else self.mechanism[number]
            one = MechanismReporter(mechanism, self.prior, self.observer.averaging, self.coins, weight, self.refuses)
            clients = np.arange(number * trials, (number + 1) * trials)
            total += weight * one.bits(others if number else costs, signals, clients, coins)
        return total


def as_reporter(function: Any) -> tuple[Reporter, bool]:
    """A reporter in the form for many trials, and whether it was in that form already.

    Raises:
        ValueError: it cannot be called in either form.

    Example:
        >>> as_reporter(lambda costs, signals: [1])[0](None, np.ones(1), 3, 0)
        [[1], [1], [1]]
    """
    if not callable(function):
        raise invalid("reporter", "a function", type(function).__name__, "give reporter(costs, signals)")
    if _takes(function, 4):
        return function, True
    if not _takes(function, 2):
        forms = "reporter(costs, signals) or reporter(costs, signals, trials, seed)"
        raise invalid("reporter", f"of the form {forms}", f"arguments {inspect.signature(function)}", "change them")
    return lambda costs, signals, trials, seed: [function(costs, signals) for _ in range(trials)], False


def draw(reporter: Reporter, costs: Costs, signals: Array, trials: int, seed: int, values: int = 2) -> Answers:
    """Checked trials of a reporter in the form for many, shape (trials, rounds, deliveries).

    Raises:
        ReporterProblem: it raised an error, or gave something else than answers.

    Example:
        >>> always = lambda costs, signals, trials, seed: np.ones((trials, len(signals)))
        >>> draw(always, usual_costs()["expensive"], np.ones(2), trials=3, seed=0).shape
        (3, 2, 1)
    """
    heard = np.array(signals)  # its own copy: what it does to it does not reach the next trial
    try:
        given = reporter(costs, heard, trials, seed)
    except Exception as error:
        said = " ".join(str(error).split())
        text = f"the reporter raised {type(error).__name__}: {said} (signals {signals.tolist()})"
        raise ReporterProblem(f"{text}: it must answer any signal, also 0, negative, huge and NaN") from error
    rounds = len(signals)
    try:
        answers = np.asarray(given)
    except ValueError:  # trials of different lengths
        answers = np.empty(0)
    if answers.ndim == 1 and rounds == 1:
        answers = answers[:, None]
    if answers.ndim not in (2, 3) or answers.shape[:2] != (trials, rounds) or answers.size == 0:
        one = f"({rounds},) or ({rounds}, deliveries) a trial"
        text = f"the reporter's answers must be of shape {one}, {trials} trials together ({trials}, {rounds}, …)"
        raise ReporterProblem(f"{text}, got {answers.shape}: return one answer for each signal")
    whole = np.atleast_3d(answers)
    good = np.isin(whole, np.arange(values)) if whole.dtype.kind in "biuf" else False
    if not np.all(good):
        allowed = "0 or 1" if values == 2 else f"whole numbers from 0 to {values - 1}"
        got = next(iter(whole[~good].ravel().tolist())) if isinstance(good, np.ndarray) else f"type {whole.dtype}"
        raise ReporterProblem(f"the reporter's answers must be {allowed}, got {got}: return the report itself")
    return np.asarray(whole.astype(np.int16))


def _takes(function: Any, arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # built in, without a signature
        return arguments == 2
    return True
