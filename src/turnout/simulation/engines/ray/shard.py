"""Some of the clients of a run, on one machine of a cluster: what an actor is made of. Needs no Ray itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import ClientState
from turnout.problem import Array, DrawnCosts, PolynomialCosts
from turnout.simulation.clients import SimulatedClients
from turnout.simulation.engines.engine import Engine
from turnout.simulation.engines.numpy import NumpyEngine
from turnout.simulation.recording import Keep, Measures
from turnout.simulation.schedule import Status

Command = tuple[str, tuple[Any, ...]]
"""A method of `Shard` and its arguments."""

Someone = npt.NDArray[np.int64] | None
"""Clients by number; None: all of the shard."""


class Shard:
    """Some of the clients, counted from 0, moved by the fastest engine installed, on one thread.

    Args:
        clients: the clients, without histories; costs that are drawn are those of all clients, and made here.
        participations, rounds: their histories, as in `ClientState`; copied, because what comes from
            another process may not be written to.
    """

    def __init__(self, clients: SimulatedClients, participations: Array, rounds: Array | float) -> None:
        if isinstance(clients.costs, DrawnCosts):
            first = clients.coins.first
            clients.costs = clients.costs[first : first + len(participations)]
        lasted = np.array(rounds) if isinstance(rounds, np.ndarray) else rounds
        clients.state = ClientState(np.array(participations), lasted, clients.state.memory)
        self._clients = clients
        self._engine = _fastest(clients)
        self._status: Status | None = None
        self._keep = Keep()

    def engine(self) -> str:
        """The name of the engine that moves these clients."""
        return self._engine.name

    def set_status(self, status: Status | None) -> None:
        """Prepare for rounds in which each client has this status."""
        self._status = None if status is None else np.array(status)
        self._engine.set_status(self._status)

    def watch(self, keep: Keep) -> None:
        """Measure this from now on; reference and chosen clients are the shard's."""
        self._keep = keep

    def welcome(self, newcomers: Someone, here: Someone) -> int:
        """Start the history of newcomers; returns what those bring who participate at once."""
        everyone = range(len(self._clients))
        return self._clients.welcome(
            everyone if newcomers is None else newcomers,
            everyone if here is None else here,
        )

    def draw(self, round: int, signals: list[float]) -> list[int]:
        """Decide one or two consecutive rounds; returns the total of each."""
        return self._engine.draw(round, signals)

    def measure(self) -> Measures:
        """Measure the clients for a checkpoint."""
        return self._engine.measure(self._keep, self._status)

    def histories(self) -> tuple[Array, Array | float]:
        """Participations and rounds, for a snapshot."""
        return self._clients.state.participations, self._clients.state.rounds

    def replay(self, commands: Iterable[Command]) -> Any:
        """Do all this, one after the other; returns what the last gave."""
        result = None
        for method, arguments in commands:
            result = getattr(self, method)(*arguments)
        return result


def _fastest(clients: SimulatedClients) -> Engine:
    acting = clients.acting
    if isinstance(acting, PolynomialCosts) and importlib.util.find_spec("numba") is not None:
        from turnout.simulation.engines.numba.engine import NumbaEngine

        return NumbaEngine(clients, threads=1)
    return NumpyEngine(clients)
