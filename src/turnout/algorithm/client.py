"""The one decision: the loop body of Algorithms 2 and 3.

Simulation, service and Flower all call `client_step`. The small functions above it are plain
arithmetic in a fixed order: a fast engine compiles these same functions, so that it gives the
same bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from turnout.algorithm.arithmetic import at_least, at_most, inside
from turnout.algorithm.coins import ENROLMENT, Coins
from turnout.algorithm.mechanism import Mechanism, Public
from turnout.errors import invalid
from turnout.problem import Array, Costs

if TYPE_CHECKING:
    from turnout.problem import Problem

SMALLEST_AVERAGE = 2.0**-30
"""No average counts as less: below it x/f'(x) could be 0/0, and a client that f'(0) > 0 keeps
away would never find out that the price has risen. A full history reaches it after 2^30 rounds."""


def average_of(participations: Any, rounds: Any) -> Any:
    """x_i(k): participations over rounds, kept above 0.

    It multiplies by the reciprocal of the rounds, which clients share: one division less in the hottest loop.

    Paper: Eq. (1).
    """
    return at_least(participations * (1.0 / rounds), SMALLEST_AVERAGE)


def intent(signal: Any, weight: Any, average: Any, slope: Any) -> Any:
    """sigma_i = Theta w_i x_i / f_i'(x_i), clipped to [0, 1]; 0 where it is not a number.

    Paper: Eq. (4). Differs from paper: clipped (the paper asks for a signal that keeps it in
    [0, 1]), and the weight, which is 1 there.

    Example:
        >>> float(intent(signal=2.0, weight=1, average=0.5, slope=4.0))
        0.25
    """
    return inside(0.0, signal * weight * average / slope, 1.0)


def next_rounds(rounds: Any, cap: Any) -> Any:
    """The number of rounds behind an average after one more, at most `cap`."""
    return at_most(rounds + 1.0, cap)


def remembered(participations: Any, keep: Any, moved: Any) -> Any:
    """Participations after a round: what is kept of the past, and what this round adds."""
    return participations * keep + moved


@dataclass(frozen=True)
class Averaging:
    """How a client's average moves from round to round.

    Args:
        remember: the rounds it remembers; older ones fade, for costs that drift. None: all.
        by: "bit", the participation itself (the paper), or "probability", the chance that it
            had, so that the state holds no trace of hidden bits (what a sum-only account needs).

    Example:
        >>> Averaging(remember=200)
        Averaging(remember=200, by='bit')
    """

    remember: float | None = None
    by: str = "bit"

    def __post_init__(self) -> None:
        if self.remember is not None and not self.remember >= 1:
            raise invalid("remember", "1 or more rounds, or None for all", self.remember, "try 200")
        if self.by not in ("bit", "probability"):
            raise invalid("by", "'bit' or 'probability'", f"{self.by!r}", "use 'bit' for the paper's algorithm")

    @property
    def takes_back(self) -> bool:
        """Whether a report that the server did not count is taken back from the history.

        Not where it moves by the probability: a refused "yes" would then leave another state than a "no", and the
        state would hold the hidden bit.
        """
        return self.by == "bit"

    @property
    def cap(self) -> float:
        """The most rounds behind an average; infinite if all are remembered."""
        return math.inf if self.remember is None else float(self.remember)


@dataclass(frozen=True)
class Prior:
    """A public start in which nobody has to participate: an average worth some rounds.

    Args:
        average: in (0, 1], such as capacity / clients.
        rounds: how many rounds of history it counts as.

    Differs from paper: there, everyone participates in round 0.

    Example:
        >>> Prior(average=0.5, rounds=10)
        Prior(average=0.5, rounds=10)
    """

    average: float
    rounds: float = 10

    def __post_init__(self) -> None:
        if not 0.0 < self.average <= 1.0:
            raise invalid("prior average", "above 0 and at most 1", self.average, "try capacity / clients")
        if not (np.isfinite(self.rounds) and self.rounds > 0):
            raise invalid("prior rounds", "above 0", self.rounds, "try 10")

    @property
    def participations(self) -> float:
        """The participations with which a history begins."""
        return self.average * self.rounds


@dataclass(frozen=True, eq=False)
class ClientState:
    """The clients' state between rounds; a real client is a population of one.

    Attributes:
        participations: past participations, shape (clients,).
        rounds: rounds behind them, shape (clients,), or one number for all.
        memory: the public surrogate costs that a mechanism released at joining, else None.

    Example:
        >>> ClientState(np.array([3.0]), 10.0).average
        array([0.3])
    """

    participations: Array
    rounds: Array | float
    memory: Costs | None = None

    @property
    def average(self) -> Array:
        """x_i(k), shape (clients,)."""
        return average_of(self.participations, self.rounds)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        released = "" if self.memory is None else ", acting on what was released"
        return f"ClientState({len(self.participations)} clients, {float(np.max(self.rounds)):g} rounds{released})"

    def after(self, moved: Array, averaging: Averaging) -> ClientState:
        """The state one round later, `moved` being the bits or the probabilities."""
        rounds = next_rounds(self.rounds, averaging.cap)
        keep = (rounds - 1.0) / self.rounds
        return ClientState(remembered(self.participations, keep, moved), rounds, self.memory)


class Step(NamedTuple):
    """What clients did in a round, and what decided it; all of shape (clients,).

    Attributes:
        state: the histories after the round.
        participates: whether each client participates.
        intent: sigma_i, from its cost, its history and the signal; private.
        probability: of participating, from the mechanism and the intent; private.
    """

    state: ClientState
    participates: npt.NDArray[np.bool_]
    intent: Array
    probability: Array


def client_step(
    costs: Costs,
    mechanism: Mechanism,
    state: ClientState,
    signal: float,
    uniform: Array,
    *,
    weights: Any = 1,
    averaging: Averaging = Averaging(),
) -> Step:
    """Each client decides: intent from its cost and history, probability by the mechanism, toss.

    Args:
        costs: the clients' own costs, never revealed.
        mechanism: how intent becomes a probability.
        state: the clients' histories.
        signal: Theta(k), the server's public number.
        uniform: one number in [0, 1) for each client, from `Coins`, shape (clients,).
        weights: shape (clients,) or 1.
        averaging: how the history moves.

    Returns:
        The new state, whether each client participates, and the intent and probability that decided it.

    Paper: Algorithm 2 with `Classical`, Algorithm 3 with `PaperCoin`. One uniform serves both
    coins of Algorithm 3: P(X=1) = sigma + (1 - sigma) p.

    Example:
        >>> from turnout.algorithm import Classical
        >>> from turnout.problem import PolynomialCosts
        >>> costs = PolynomialCosts([[1.0], [4.0]], powers=(2,))
        >>> state = ClientState(np.array([1.0, 1.0]), 2.0)
        >>> step = client_step(costs, Classical(), state, signal=1.0, uniform=np.array([0.3, 0.3]))
        >>> step.participates, step.probability
        (array([ True, False]), array([0.5  , 0.125]))
    """
    average = state.average
    acting = costs if state.memory is None else state.memory
    with np.errstate(all="ignore"):  # a signal may be anything; `intent` maps it into [0, 1]
        wanted = intent(signal, weights, average, acting.slope(average))
    probability = mechanism.probability(wanted, Public(average=average, signal=signal), state.memory)
    participates = uniform < probability
    moved = participates.astype(np.float64) if averaging.by == "bit" else probability
    return Step(state.after(moved, averaging), participates, wanted, probability)


def released(problem: Problem, mechanism: Mechanism, coins: Coins) -> Costs | None:
    """The public surrogate costs that a mechanism releases, once, at joining; None if it releases nothing."""
    if not mechanism.releases_once:
        return None
    uniform = coins.uniform(np.arange(len(problem)), 0, ENROLMENT)
    return mechanism.enrol(problem.costs, uniform, problem.unit_weights, problem.capacity / problem.most)
