"""The fast engine: compiled loops over the same decision, two rounds a pass, several threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from turnout.algorithm.client import ClientState, next_rounds
from turnout.algorithm.server import IntegralController, IntegralState
from turnout.problem.costs import PolynomialCosts
from turnout.simulation.book import Book
from turnout.simulation.crowd import Crowd
from turnout.simulation.engines.engine import advance_by_passes
from turnout.simulation.engines.numba_kernel import TILE, build, by_bit, by_probability
from turnout.simulation.schedule import Status

WORTH_A_THREAD = 24 * TILE
"""Clients a thread must have before the hand-over between threads is worth its microseconds."""


class NumbaEngine:
    """Polynomial costs and any mechanism, bit for bit as `NumpyEngine`.

    Few clients: the whole loop over rounds, server included, is one compiled call. Many: each
    pass is cut into chunks of clients over threads. Totals are integers, so that the number of
    threads changes nothing.
    """

    name = "numba"

    def __init__(self, crowd: Crowd, threads: int | None = None) -> None:
        self.crowd = crowd
        acting = crowd.costs if crowd.state.memory is None else crowd.state.memory
        assert isinstance(acting, PolynomialCosts)  # `choose_engine` has seen to it
        mechanism = crowd.mechanism
        moved_by = by_bit if crowd.averaging.by == "bit" else by_probability
        self._draw, self._run = build(acting.powers, type(mechanism).response, type(mechanism).limits, moved_by)
        self._terms = np.ascontiguousarray(acting.terms)
        self._weights = 1 if crowd.weights is None else crowd.weights
        self._parameters = tuple(_plain(value) for value in mechanism.parameters())
        self._key = np.array(crowd.coins.key, dtype=np.uint32)
        self._status: Status | None = None
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._threads = max(1, min(threads or available, len(crowd) // WORTH_A_THREAD))
        self._pool = ThreadPoolExecutor(self._threads - 1) if self._threads > 1 else None

    def enter(self, status: Status | None) -> None:
        """Prepare for rounds in which each client has this status."""
        self._status = status

    def draw(self, round: int, signals: list[float]) -> list[int]:
        """Decide one or two consecutive rounds; returns what came in each."""
        second = signals[1] if len(signals) == 2 else -1.0
        tail = (round, self._key, float(signals[0]), float(second))
        share = -(-len(self.crowd) // (self._threads * TILE)) * TILE
        crowd, size = self._arguments(), len(self.crowd)
        waiting = []
        if self._pool is not None:
            for first in range(share, size, share):
                waiting.append(self._pool.submit(self._draw, crowd, first, min(first + share, size), *tail))
        parts = [self._draw(crowd, 0, min(share, size), *tail), *(part.result() for part in waiting)]
        for _ in signals:
            self._later()
        return [sum(int(part[number]) for part in parts) for number in range(len(signals))]

    def advance(self, book: Book, stop: int) -> None:
        """Run all rounds up to `stop`, in one compiled call where that is faster."""
        controller = book.controller
        if self._pool is not None or type(controller) is not IntegralController:
            advance_by_passes(self, book, stop, most=2)
            return
        rounds = self._run(
            self._arguments(), book.round, stop, self._key, book.signal, book.participants,
            controller.lag, float(controller.gain), float(book.capacity),
        )  # fmt: skip
        if not isinstance(self.crowd.state.rounds, np.ndarray):
            self.crowd.state = ClientState(self.crowd.state.participations, float(rounds), self.crowd.state.memory)
        book.capacities[book.round : stop] = book.capacity
        book.round, book.state = stop, IntegralState(float(book.signal[stop]))

    def _arguments(self) -> tuple[object, ...]:
        state = self.crowd.state
        rounds = state.rounds if isinstance(state.rounds, np.ndarray) else float(state.rounds)
        return (state.participations, rounds, self.crowd.averaging.cap, self._terms, self._weights, self._parameters, self._status)

    def _later(self) -> None:
        """Move the shared number of rounds; a client's own number moves in the kernel."""
        state = self.crowd.state
        if not isinstance(state.rounds, np.ndarray):
            rounds = float(next_rounds(state.rounds, self.crowd.averaging.cap))
            self.crowd.state = ClientState(state.participations, rounds, state.memory)


def _plain(value: object) -> object:
    """A parameter as the kernels take it: a float, or a contiguous array."""
    return float(value) if np.ndim(value) == 0 else np.ascontiguousarray(value, dtype=np.float64)  # type: ignore[arg-type, call-overload]
