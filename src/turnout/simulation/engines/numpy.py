"""The readable specification: `client_step` on all clients, round by round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from turnout.algorithm import ClientState, Step, client_step
from turnout.problem import Array
from turnout.simulation.clients import SimulatedClients
from turnout.simulation.engines.engine import AtHome, advance_by_passes
from turnout.simulation.schedule import AWAY, PRESENT, Status
from turnout.simulation.server_log import ServerLog


class NumpyEngine(AtHome):
    """Runs any costs and mechanism; every other engine must give the same result, bit for bit.

    Args:
        clients: the clients.
        watch: called with every round and the step of the clients that decided in it.
    """

    name = "numpy"

    def __init__(self, clients: SimulatedClients, watch: Callable[[int, Step], None] | None = None) -> None:
        self.clients, self._watch = clients, watch
        self.set_status(None)

    def set_status(self, status: Status | None) -> None:
        """Cut out once the clients that decide, and note those that are away."""
        clients = self.clients
        self._who: Any = slice(None) if status is None else np.flatnonzero(status == PRESENT)
        self._away = np.empty(0, np.int64) if status is None else np.flatnonzero(status == AWAY)
        self._numbers = np.arange(len(clients))[self._who]
        self._weights: Any = 1 if clients.weights is None else clients.weights[self._who]
        acting = clients.acting
        self._costs = acting if status is None else acting[self._who]
        self._mechanism = clients.mechanism if status is None else clients.mechanism[self._who]

    def draw(self, round: int, signals: list[float]) -> list[int]:
        """Decide consecutive rounds; returns the total of each."""
        return [self._round(round + number, signal) for number, signal in enumerate(signals)]

    def advance(self, log: ServerLog, stop: int) -> None:
        """Run all rounds up to `stop`."""
        advance_by_passes(self, log, stop)

    def _round(self, round: int, signal: float) -> int:
        clients, state = self.clients, self.clients.state
        uniform = clients.coins.uniform(self._numbers, round)
        step = client_step(
            self._costs,
            self._mechanism,
            _part(state, self._who),
            signal,
            uniform,
            weights=self._weights,
            averaging=clients.averaging,
        )
        if self._watch:
            self._watch(round, step)
        missed = _part(state, self._away).after(np.zeros(len(self._away)), clients.averaging)
        for who, moved in ((self._who, step.state), (self._away, missed)):
            state.participations[who] = moved.participations
            if isinstance(state.rounds, np.ndarray):
                state.rounds[who] = moved.rounds
        rounds = state.rounds if isinstance(state.rounds, np.ndarray) else step.state.rounds
        clients.state = ClientState(state.participations, rounds, state.memory)
        return int(np.sum(step.participates * self._weights))


def _part(state: ClientState, who: Any) -> ClientState:
    """The histories of some clients; what they act on is cut out by `set_status`."""
    rounds: Array | float = state.rounds[who] if isinstance(state.rounds, np.ndarray) else state.rounds
    return ClientState(state.participations[who], rounds)
