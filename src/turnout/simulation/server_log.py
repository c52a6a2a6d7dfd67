"""The server of a simulation: its state, and the log of every round that it closed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import (
    EVERYONE,
    Controller,
    Heard,
    IntegralController,
    IntegralState,
    ServerState,
    SumNoise,
    server_step,
)
from turnout.errors import invalid
from turnout.problem import Array
from turnout.simulation.trajectory import Trajectory


@dataclass
class ServerLog:
    """What the server knows, round by round.

    Attributes:
        controller: how the signal moves.
        capacity: what is needed in each round; set again where a schedule changes it.
        server: the server's state, with the open round.
        signal: `signal[k]` is Theta(k), shape (rounds + 1,): the last is the next round's.
        participants: `participants[k]` is the true total of round k, shape (rounds,): in a run with noise the server
            does not know it.
        capacities: the capacity of each round, shape (rounds,).
        heard: what the server knows besides the total; set again where a schedule changes it.
        noise: what is added to the total of each round before the server sees it, shape (rounds,); None: nothing.
        seen: what the server saw of each round, shape (rounds,), not a number where nothing was opened; None: the
            totals.
        all_opened: whether there is a sum to see in every round.
    """

    controller: Controller
    capacity: float
    server: ServerState
    signal: Array
    participants: npt.NDArray[np.int64]
    capacities: Array
    heard: Heard = EVERYONE
    noise: npt.NDArray[np.int64] | None = None
    seen: Array | None = None
    all_opened: bool = True

    @classmethod
    def start(
        cls, controller: Controller, capacity: float, rounds: int, noise: SumNoise | None = None, seed: int = 0
    ) -> ServerLog:
        """An empty log of so many rounds."""
        server = ServerState.start(controller)
        log = cls(controller, capacity, server, np.zeros(rounds + 1), np.zeros(rounds, np.int64), np.zeros(rounds))
        log.signal[0] = server.signals[-1]
        if noise is not None:
            log.noise = noise.seeded(seed, 0, rounds)
            log.seen = np.where(np.isfinite(noise.sigmas(0, rounds)), 0.0, np.nan)
            log.all_opened = noise.every == 1
        return log

    @classmethod
    def resume(
        cls,
        before: Trajectory,
        controller: Controller,
        capacity: float,
        rounds: int,
        noise: SumNoise | None = None,
        seed: int = 0,
    ) -> ServerLog:
        """The log of a run as it was when it stopped, for so many rounds more."""
        done, held = before.rounds, before.controller_numbers or {}
        log = cls.start(controller, capacity, done + rounds, noise, seed)
        kind = type(log.server.controller)
        if set(held) != set(kind._fields):
            remedy = "give one of the same kind, or start a run of its own from the last signal"
            raise invalid(
                "controller", f"with a state of {', '.join(held)}, as in the run to continue", controller, remedy
            )
        state = kind(**held)
        log.signal[:done], log.signal[done] = before.signal, state.signal
        log.participants[:done], log.capacities[:done] = before.participants, before.capacity
        if log.seen is not None and before.seen is not None:
            log.seen[:done] = before.seen
        log.server = ServerState(done, log._signals_at(done), state)
        return log

    @property
    def round(self) -> int:
        """The open round: how many are closed."""
        return self.server.round

    @property
    def rounds(self) -> int:
        """How many rounds there will be."""
        return len(self.participants)

    @property
    def compiled_controller(self) -> IntegralController | None:
        """The controller, if a compiled loop may take its `integral_signal` for the whole of `server_step`."""
        compiled = type(self.controller) is IntegralController and self.heard.reach is None and self.all_opened
        return self.controller if compiled else None  # type: ignore[return-value]

    @property
    def compiled_settings(self) -> tuple[float, float]:
        """The gain and the capacity with which `integral_signal` gives what `server_step` does; no gain: it stays."""
        gain = float(self.controller.gain) if self.heard.enough else 0.0  # type: ignore[attr-defined]
        return gain, float(self.capacity) * self.heard.share

    def close_round(self, total: int) -> None:
        """Close the open round with this total."""
        round, heard = self.server.round, self.heard
        seen: float = total
        if self.noise is not None and self.seen is not None:
            if self.all_opened or not math.isnan(self.seen[round]):
                self.seen[round] = seen = total + self.noise.item(round)
            else:
                seen, heard = math.nan, heard._replace(enough=False)  # there is no sum
        self.server = server_step(self.controller, self.server, seen, self.capacity, heard)
        self.participants[round], self.capacities[round] = total, self.capacity
        self.signal[round + 1] = self.server.signals[-1]

    def close_rounds(self, totals: Any, signals: Any) -> None:
        """Take over rounds that a compiled loop closed.

        Args:
            totals: of each of them.
            signals: after each of them, by `integral_signal` with the `compiled_settings`.
        """
        first, stop = self.round, self.round + len(totals)
        self.participants[first:stop], self.capacities[first:stop] = totals, self.capacity
        if self.noise is not None and self.seen is not None:
            self.seen[first:stop] = totals + self.noise[first:stop]
        self.signal[first + 1 : stop + 1] = signals
        if self.heard.scale != 1.0:  # in a round of its own, see `_pieces` of the loop
            self.signal[stop] *= self.heard.scale
        self.server = ServerState(stop, self._signals_at(stop), IntegralState(float(self.signal[stop])))

    def _signals_at(self, round: int) -> tuple[float, ...]:
        """The signals that decide a round and those after it, as in `ServerState`."""
        lag = self.controller.lag
        return tuple(float(self.signal[max(0, known)]) for known in range(round - lag, round + 1))
