"""The fast engine: compiled loops over the same decision, two rounds a pass, several threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np

from turnout.algorithm import ClientState, next_rounds
from turnout.problem import PolynomialCosts
from turnout.simulation.clients import SimulatedClients
from turnout.simulation.engines.engine import AtHome, advance_by_passes
from turnout.simulation.engines.numba.kernel import TILE, build, by_bit, by_probability
from turnout.simulation.schedule import Status
from turnout.simulation.server_log import ServerLog
from turnout.simulation.workers import available_cores

_WORTH_A_THREAD = 8 * TILE
"""Clients a thread must have before the meeting of threads is worth its while."""


class NumbaEngine(AtHome):
    """Polynomial costs and any mechanism, bit for bit as `NumpyEngine`.

    The whole loop over rounds, server included, is one compiled call. Many clients are cut into
    shares, one per thread. Totals are integers, so that the number of threads changes nothing.
    """

    name = "numba"

    def __init__(self, clients: SimulatedClients, threads: int | None = None) -> None:
        self.clients = clients
        acting = clients.acting
        assert isinstance(acting, PolynomialCosts)  # `choose_engine` has seen to it
        mechanism = clients.mechanism
        moved_by = by_bit if clients.averaging.by == "bit" else by_probability
        self._rules = (acting.powers, type(mechanism).response, type(mechanism).limits, moved_by)
        self._terms = np.ascontiguousarray(acting.terms)
        self._weights = 1 if clients.weights is None else clients.weights
        self._parameters = tuple(_plain(value) for value in mechanism.parameters())
        low, high = clients.coins.key
        self._key = (np.uint32(low), np.uint32(high), clients.coins.first // 4)
        self.set_status(None)
        available = available_cores()
        wanted = max(1, min(threads or available, available, len(clients) // _WORTH_A_THREAD))
        share = -(-len(clients) // (wanted * TILE)) * TILE
        self._shares = [(first, min(first + share, len(clients))) for first in range(0, len(clients), share)]
        self._pool = ThreadPoolExecutor(len(self._shares) - 1) if len(self._shares) > 1 else None

    def set_status(self, status: Status | None) -> None:
        """Take the kernels for clients with or without a status."""
        self._status = status
        self._draw, self._run = build(*self._rules, str(numba.typeof(self._arguments())))

    def draw(self, round: int, signals: list[float]) -> list[int]:
        """Decide one or two consecutive rounds; returns the total of each."""
        clients, key, two = self._arguments(), self._key, len(signals) == 2
        signal, second = float(signals[0]), float(signals[-1])
        parts = self._on_all_threads(
            lambda thread, first, stop: self._draw(clients, first, stop, round, key, signal, second, two)
        )
        for _ in signals:
            self._set_rounds(next_rounds(self.clients.state.rounds, self.clients.averaging.cap))
        return [sum(int(part[number]) for part in parts) for number in range(len(signals))]

    def advance(self, log: ServerLog, stop: int) -> None:
        """Run all rounds up to `stop`: with the paper's server, in one compiled call a thread."""
        controller = log.compiled_controller
        if controller is None:
            advance_by_passes(self, log, stop, most=2)
            return
        clients, key, span = self._arguments(), self._key, (log.round, stop)
        arrivals = np.zeros(8 * len(self._shares), np.int64)
        parts = np.zeros((len(self._shares), 2, 2), np.int64)
        older, newer = log.server.signals[0], log.server.signals[-1]
        server = (older, newer, controller.lag, *log.compiled_settings)
        totals, signals = np.empty(stop - log.round, np.int64), np.empty(stop - log.round)
        noise = np.zeros(stop - log.round, np.int64) if log.noise is None else log.noise[log.round : stop]
        rounds = self._on_all_threads(
            lambda thread, first, end: self._run(
                clients, (first, end), thread, arrivals, parts, span, key, server, noise, totals, signals
            )
        )
        self._set_rounds(rounds[0])
        log.close_rounds(totals, signals)

    def _on_all_threads(self, work: Callable[[int, int, int], Any]) -> list[Any]:
        """Call work(thread, first client, stop) for each thread's clients; the first on this thread."""
        waiting = (
            [self._pool.submit(work, thread + 1, *share) for thread, share in enumerate(self._shares[1:])]
            if self._pool
            else []
        )
        return [work(0, *self._shares[0]), *(part.result() for part in waiting)]

    def _arguments(self) -> tuple[object, ...]:
        state = self.clients.state
        rounds = state.rounds if isinstance(state.rounds, np.ndarray) else float(state.rounds)
        return (
            state.participations,
            rounds,
            self.clients.averaging.cap,
            self._terms,
            self._weights,
            self._parameters,
            self._status,
        )

    def _set_rounds(self, rounds: Any) -> None:
        """Move the shared number of rounds; a client's own number moves in the kernel."""
        state = self.clients.state
        if not isinstance(state.rounds, np.ndarray):
            self.clients.state = ClientState(state.participations, float(rounds), state.memory)


def _plain(value: object) -> object:
    """A parameter as the kernels take it: a float, or a contiguous array."""
    return float(value) if np.ndim(value) == 0 else np.ascontiguousarray(value, dtype=np.float64)  # type: ignore[arg-type]
