"""A run with a fleet that finds its coordinators behind a network of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

from service.agreement import Books, assert_agreed
from service.faults import Proxy, Served, port_of_our_own, sooner
from service.running import begun, codes_for, usual_rules
from turnout import paper_population
from turnout.service.load_test.load_test import Fleet
from turnout.service.rules import Timing
from turnout.service.store.backup import open_store
from turnout.service.store.store import PAUSED

SEED = 11
SHORT = Timing(round=0.0, deadline=1.0, lease=1.0, hold=2.0)


def impatient(monkeypatch) -> None:
    """Devices that try again soon, so that a coordinator that lives for half a second sees them all."""
    monkeypatch.setattr("turnout.service.load_test.connection.FIRST_PAUSE", 0.05)
    monkeypatch.setattr("turnout.service.load_test.connection.LONGEST_PAUSE", 0.1)
    monkeypatch.setattr("turnout.service.load_test.load_test.PAUSE", 0.2)


class Scene:
    """A run with a fleet that will find its coordinator behind a proxy."""

    def __init__(self, folder: Path, location: str, devices: int = 40, timing: Timing = SHORT, wait_for=None) -> None:
        self.folder, self.location = folder, location
        self.problem = paper_population(clients=devices).problem(devices / 2)
        rules = usual_rules(timing, wait_for=devices if wait_for is None else wait_for)
        store = begun(location, rules, capacity=devices / 2)
        self.codes = codes_for(store, devices)
        store.close()
        self.port = port_of_our_own()

    def serve(self, **options) -> Served:
        """The coordinator, on the same port each time."""
        return Served(self.folder, self.location, **{"port": self.port} | options)

    @contextlib.asynccontextmanager
    async def fleet(self, proxy: Proxy, patience: float = 5.0):
        """The fleet in the background; it must not fail."""
        self.running = Fleet(proxy.url, self.problem.costs, self.codes, seed=SEED, patience=patience)
        task = asyncio.create_task(self.running.run())
        try:
            yield self.running
        finally:
            self.running.stop()
            await asyncio.wait_for(task, 20)

    def books(self) -> Books:
        return Books.of(self.location)

    async def rounds(self, more: int, seconds: float = 60.0) -> None:
        """Wait for so many further rounds."""
        goal = self.books().position.round + more
        await sooner(lambda: self.books().position.round >= goal, seconds)

    async def drain(self) -> None:
        """The open round is the last; everyone knows what became of it."""
        store = open_store(self.location)
        try:
            store.change("test", mode="draining")
            await sooner(lambda: store.control().mode == PAUSED)
            await asyncio.sleep(1.0)  # within a second the coordinator has seen it
            last = store.position().round - 1
        finally:
            store.close()
        record = self.running.record
        assert not {"sent away", "refused"} & set(record.faults), "nobody was lost on the way"
        await sooner(lambda: last + 1 in record.rounds and record.rounds[last + 1].decided.all())

    def agreed(self, proxy: Proxy, **how: bool) -> Books:
        """The books, after all checks of `service.agreement`."""
        return assert_agreed(
            self.location, self.running, proxy.bits, proxy.offers, costs=self.problem.costs, seed=SEED, **how
        )


async def kill_again_and_again(scene: Scene, kills: int, seed: int, **options) -> list[int]:
    """How many rounds there were at each death. Every fifth dies while it starts."""
    chance, closed = random.Random(seed), []
    for number in range(kills):
        with scene.serve(**options) as coordinator:
            if number % 5 == 4:
                await asyncio.sleep(chance.uniform(0.0, 0.5))
            else:
                await coordinator.soon()
                await asyncio.sleep(chance.uniform(0.05, 0.6))
        closed.append(scene.books().position.round)
    return closed
