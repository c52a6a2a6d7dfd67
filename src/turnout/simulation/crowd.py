"""The clients of a simulation: who they are, and the state that an engine moves on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnout.algorithm.client import Averaging, ClientState, Prior
from turnout.algorithm.coins import SeededCoins
from turnout.algorithm.enrolment import released
from turnout.algorithm.mechanism import Mechanism
from turnout.problem.costs import Array, Costs
from turnout.problem.problem import Problem, Weights
from turnout.simulation.alike import AlikeState
from turnout.simulation.schedule import Schedule

Newcomers = npt.NDArray[np.int64] | range
"""Clients that start their history; a range where it is all of them."""


@dataclass
class Crowd:
    """All clients of a run; engines replace `state` round by round.

    Attributes:
        costs: the clients' own.
        weights: what each brings, or None for 1.
        mechanism, averaging, coins: as for `client_step`.
        state: the histories.
        start: how a newcomer begins; None is the paper's, where it takes part at once.
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
    def gather(
        cls,
        problem: Problem,
        mechanism: Mechanism,
        averaging: Averaging,
        coins: SeededCoins,
        start: Prior | None,
        schedule: Schedule,
    ) -> Crowd:
        """The clients before round 0; histories get a length each only if the schedule needs it."""
        clients = len(problem)
        rounds: Array | float = np.ones(clients) if schedule.has_movement else 1.0
        state = AlikeState(1.0, clients, rounds, released(problem, mechanism, coins))
        return cls(problem.costs, problem.weights, mechanism, averaging, coins, state, start)

    def welcome(self, newcomers: Newcomers, here: Newcomers) -> int:
        """Start the history of newcomers; returns what those bring who take part at once.

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
