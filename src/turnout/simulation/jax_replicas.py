"""Small and many: the same run for many seeds, all in one compiled call."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from turnout.algorithm import ClientState, SeededCoins
from turnout.problem import Array, DrawnCosts, PolynomialCosts
from turnout.simulation.engines.engine import JaxOptions
from turnout.simulation.engines.jax.engine import family_on, free_on, in_64_bits, rules_of, server_at, some_devices
from turnout.simulation.engines.jax.kernel import LANES, History
from turnout.simulation.engines.jax.layout import Devices, pieces_of
from turnout.simulation.engines.jax.loop import LONGEST, Way, compiled
from turnout.simulation.loop import Progress
from turnout.simulation.recording import Measures, Recorder, measure
from turnout.simulation.server_log import ServerLog
from turnout.simulation.setup import Setup
from turnout.simulation.trajectory import Trajectory


def can_be_batched(setup: Setup) -> bool:
    """Whether runs like this one differ in their coins alone, and all go the same way."""
    clients, schedule = setup.clients, setup.schedule
    return (
        setup.log.round == 0
        and setup.log.compiled_controller is not None
        and setup.noise is None
        and isinstance(clients.costs, (PolynomialCosts, DrawnCosts))
        and clients.state.memory is None  # what a mechanism releases depends on the seed
        and not (schedule.has_movement or schedule.away or schedule.capacity)
    )


@in_64_bits
def replicate_on_device(
    setup: Setup, seeds: Sequence[int], options: JaxOptions, progress: Progress | None = None
) -> list[Trajectory]:
    """One run for each seed, as many at a time as the device holds; each equal to the run of its own.

    Args:
        setup: of a run that `can_be_batched`.
        seeds: one run for each.
        options: 64 or 32 bits; one device is used.
        progress: called now and then with (runs done, runs in all).
    """
    device = some_devices(1)
    clients = setup.clients
    free = free_on(device)
    at_once = len(seeds) if free is None else max(1, int(free // (3 * (8 * len(clients) + 32 * LONGEST))))
    runs: list[Trajectory] = []
    for first in range(0, len(seeds), at_once):
        batch = _Batch(setup, seeds[first : first + at_once], options, Devices(device))
        runs += batch.trajectories(f"jax: {len(seeds)} replicas in one call on {device[0].device_kind}")
        if progress:
            progress(len(runs), len(seeds))
    return runs


class _Batch:
    """Some replicas, along the first axis of every history, signal and key."""

    def __init__(self, setup: Setup, seeds: Sequence[int], options: JaxOptions, devices: Devices) -> None:
        self.name = "jax" if options.bits == 64 else "jax32"
        clients = setup.clients
        acting = clients.costs if isinstance(clients.costs, PolynomialCosts) else clients.costs[:]
        assert isinstance(acting, PolynomialCosts)
        kind: Any = np.float64 if options.bits == 64 else np.float32
        controller = setup.log.controller
        self.rules = rules_of(clients, acting, options.bits)._replace(most=1 if controller.lag == 0 else 2)
        (self.piece,) = pieces_of(acting, one=True)
        self.families = (family_on(devices, self.piece, clients, acting, kind),)
        self.devices, self.seeds = devices, seeds
        self.setups = [_again(setup, seed) for seed in seeds]
        turnouts = [one.clients.welcome(range(len(clients)), range(len(clients))) for one in self.setups]
        state = self.setups[0].clients.state
        self.rounds: Any = state.rounds
        whole = np.uint16 if setup.log.rounds < 2**16 - 2 else np.uint32
        shape = (len(seeds), devices.size(self.piece))
        passed_kind = whole if self.rules.counts else kind
        self.passed: Any = tuple(jnp.full(shape, state.value, passed_kind) for _ in range(LANES))  # type: ignore[attr-defined]
        if clients.start is None:
            for one, total in zip(self.setups, turnouts, strict=True):
                one.log.close_round(total)

    def trajectories(self, why: str) -> list[Trajectory]:
        """Run them all to their end."""
        log, recorder = self.setups[0].log, self.setups[0].recorder
        total = log.rounds
        self._note()
        while log.round < total:
            self._advance(min(total, recorder.next_due(log.round) + 1, log.round + LONGEST))
            self._note(last=log.round == total)
        states = self._states() if recorder.keep.state else None
        for number, one in enumerate(self.setups):
            if states is not None:
                one.clients.state = ClientState(states[number], float(self.rounds))
        return [one.trajectory(self.name, why) for one in self.setups]

    def _advance(self, stop: int) -> None:
        logs = [one.log for one in self.setups]
        log, controller = logs[0], logs[0].compiled_controller
        assert controller is not None  # `can_be_batched` has seen to it
        first, lagged, gain, capacity = log.round, controller.lag == 1, float(controller.gain), float(log.capacity)
        older, newer = ([one.server.signals[which] for one in logs] for which in (0, -1))
        server = server_at(
            self.setups[0].clients, first, stop, older, newer, lagged, gain, capacity, float(self.rounds)
        )
        keys = np.array([one.clients.coins.key for one in self.setups], dtype=np.uint32)
        server = server._replace(key=(keys[:, 0], keys[:, 1]))
        run = compiled(self.rules, Way(replicas=True))
        (history,), rounds, signals, totals = run((History(self.passed, None),), self.families, server)
        self.passed, self.rounds = history.passed, float(np.asarray(rounds))
        signals, totals = np.asarray(signals), np.asarray(totals)
        for number, one in enumerate(logs):
            one.close_rounds(totals[number, : stop - first], signals[number, : stop - first])

    def _note(self, *, last: bool = False) -> None:
        """Record all replicas, if it is time."""
        keep, round = self.setups[0].recorder.keep, self.setups[0].log.round - 1
        if round < 0 or not (last or self.setups[0].recorder.is_due(round)):
            return
        wanted = keep.cost or keep.distance_to is not None or keep.histogram or keep.averages is not None
        states = self._states() if wanted else None
        for number, one in enumerate(self.setups):

            def measured(number: int = number) -> Measures:
                if states is None:
                    return Measures(0, [], [], 0.0, np.zeros(0, np.int64), np.zeros(0))
                clients = self.setups[0].clients
                return measure(keep, clients.costs, ClientState(states[number], float(self.rounds)), None)

            one.recorder.note(round, measured, last=last)

    def _states(self) -> Array:
        """All participations, shape (replicas, clients)."""
        passed = np.empty((len(self.seeds), self.piece.stop))
        for lane, values in enumerate(jax.device_get(self.passed)):
            mine = passed[:, lane::LANES]
            mine[:] = values[:, : mine.shape[1]]
        return passed


def _again(setup: Setup, seed: int) -> Setup:
    """The same run with other coins."""
    log = ServerLog.start(setup.log.controller, setup.log.capacity, setup.log.rounds)
    clients = dataclasses.replace(setup.clients, coins=SeededCoins(seed))
    return dataclasses.replace(setup, clients=clients, log=log, recorder=Recorder(setup.recorder.keep))
