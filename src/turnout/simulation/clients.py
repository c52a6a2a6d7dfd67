"""The clients of a simulation: who they are, and the state that an engine moves on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Averaging, ClientState, Mechanism, Prior, SeededCoins, released
from turnout.problem import Array, Costs, Problem, Weights
from turnout.simulation.schedule import Schedule


class AlikeState(ClientState):
    """Every client has the same past; the array is made when it is first asked for.

    So a billion clients can begin on a device without ever being written down here.

    Attributes:
        value: everyone's participations.
        clients: how many there are.

    Example:
        >>> AlikeState(1.0, 3, rounds=2.0, memory=None).participations
        array([1., 1., 1.])
    """

    value: float
    clients: int

    def __init__(self, value: float, clients: int, rounds: Array | float, memory: Costs | None) -> None:
        vars(self).update(value=value, clients=clients, rounds=rounds, memory=memory)

    @cached_property
    def participations(self) -> Array:
        """Past participations, shape (clients,)."""
        return np.full(self.clients, self.value)


Newcomers = npt.NDArray[np.int64] | range
"""Clients that start their history; a range where it is all of them."""


@dataclass
class SimulatedClients:
    """All clients of a run; engines replace `state` round by round.

    Attributes:
        costs: the clients' own.
        weights: what each brings, or None for 1.
        mechanism, averaging, coins: as for `client_step`.
        state: the histories.
        start: how a newcomer begins; None is the paper's, where it participates at once.
    """

    costs: Costs
    weights: Weights | None
    mechanism: Mechanism
    averaging: Averaging
    coins: SeededCoins
    state: ClientState
    start: Prior | None

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def acting(self) -> Costs:
        """What the clients act on: their own costs, or what they released at joining."""
        return self.costs if self.state.memory is None else self.state.memory

    @classmethod
    def of(
        cls,
        problem: Problem,
        mechanism: Mechanism,
        averaging: Averaging,
        coins: SeededCoins,
        start: Prior | None,
        schedule: Schedule,
    ) -> SimulatedClients:
        """The clients of a problem before round 0; histories get a length each only if the schedule needs it."""
        clients = len(problem)
        rounds: Array | float = np.ones(clients) if schedule.has_movement else 1.0
        state = AlikeState(1.0, clients, rounds, released(problem, mechanism, coins))
        return cls(problem.costs, problem.weights, mechanism, averaging, coins, state, start)

    def welcome(self, newcomers: Newcomers, here: Newcomers) -> int:
        """Start the history of newcomers; returns what those bring who participate at once.

        With the paper's start these are the ones that are `here`; who is away begins by missing a round.

        Paper: Algorithms 2 and 3, initialisation: X_i(0) = 1 and x_i(0) = 1.
        """
        first, rounds = (1.0, 1.0) if self.start is None else (self.start.participations, self.start.rounds)
        state, everyone = self.state, len(newcomers) == len(self)
        if isinstance(state.rounds, np.ndarray):
            state.rounds[newcomers] = rounds
        lasted = state.rounds if isinstance(state.rounds, np.ndarray) else rounds
        if everyone:
            self.state = AlikeState(first, len(self), lasted, state.memory)
        else:
            state.participations[newcomers] = first
            self.state = ClientState(state.participations, lasted, state.memory)
        if self.start is not None:
            return 0
        if len(here) < len(newcomers):
            self.state.participations[np.setdiff1d(newcomers, here)] = 0.0
        if self.weights is None:
            return len(here)
        return int(self.weights.sum() if len(here) == len(self) else self.weights[here].sum())
