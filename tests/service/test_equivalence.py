"""A fleet over real sockets is the simulation, to the bit."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from service.agents import agent_with
from service.running import begun, codes_for, running, usual_rules
from turnout import (
    Averaging,
    IntegralController,
    PaperCoin,
    Prior,
    SeededCoins,
    SelfTuningController,
    paper_population,
    simulate,
)
from turnout.algorithm import Clamp, TrackingClamp
from turnout.files import Disk
from turnout.service.agent.work import Participation
from turnout.service.coordinator.exporting import export
from turnout.service.load_test.load_test import Fleet
from turnout.service.rules import Timing
from turnout.service.store.backup import open_store

DEVICES, ROUNDS, SEED = 200, 30, 5
PRIOR = Prior(0.4, 7)


@pytest.mark.parametrize(
    ("mechanism", "controller", "averaging"),
    [
        (PaperCoin(3.5), IntegralController(0.045, 0.35), Averaging()),
        (Clamp(1.0), SelfTuningController(), Averaging(remember=9)),
        (TrackingClamp(0.5), IntegralController(0.045, 3.0), Averaging()),
        (Clamp(0.5), IntegralController(0.045, 3.0), Averaging(by="probability")),
    ],
    ids=["paper", "self-tuning", "tracking", "by-probability"],
)
def test_two_hundred_devices_over_sockets_are_the_simulation(tmp_path: Path, mechanism, controller, averaging) -> None:
    problem = paper_population(clients=DEVICES).problem(100)
    rules = usual_rules(wait_for=DEVICES, mechanism=mechanism, controller=controller, prior=PRIOR, averaging=averaging)
    store = begun(tmp_path / "run.db", rules, capacity=100.0)
    fleet_codes = codes_for(store, DEVICES)
    with running(store) as coordinator:
        fleet = Fleet(coordinator.url, problem.costs, fleet_codes, seed=SEED)
        record = asyncio.run(fleet.run(ROUNDS))
    expected = simulate(problem, mechanism, controller, ROUNDS, seed=SEED, start=PRIOR, averaging=averaging)
    found = export(open_store(str(tmp_path / "run.db")))
    assert np.array_equal(found.signal[:ROUNDS], expected.signal)
    assert np.array_equal(found.participants[:ROUNDS], expected.participants)
    assert np.array_equal(found.capacity[:ROUNDS], expected.capacity)
    assert [int(record.rounds[k].acknowledged.sum()) for k in range(ROUNDS)] == expected.participants.tolist()
    if averaging.by == "bit":  # slots are given in the order in which enrolments arrive
        assert np.array_equal(np.sort(found.average), np.sort(expected.average))
    else:
        assert found.state is None, "what moved by a probability is the device's own"


class Unsynced(Disk):
    """Files without the wait for the disk: two hundred devices share one here."""

    def sync(self, descriptor: int) -> None:
        """Nothing to wait for."""


def test_two_hundred_real_agents_are_the_simulation(tmp_path: Path) -> None:
    """The same with the durable client: files, ledgers, leases and all, each device with a thread and a connection."""
    rounds, mechanism, controller = 12, Clamp(1.0), IntegralController(0.045, 3.0)
    problem = paper_population(clients=DEVICES).problem(100)
    rules = usual_rules(
        Timing(round=0.0, deadline=60.0), wait_for=DEVICES, mechanism=mechanism, controller=controller, prior=PRIOR
    )
    store = begun(tmp_path / "run.db", rules, capacity=100.0)
    codes = codes_for(store, DEVICES)
    worked = np.zeros(DEVICES, dtype=np.int64)

    def play(number: int, url: str) -> str:
        def work(_: Participation) -> None:
            worked[number] += 1

        with agent_with(
            url,
            tmp_path / f"device-{number}",
            problem.costs[[number]],
            code=codes[number],
            coins=SeededCoins(SEED),
            client_id=number,
            on_participate=work,
            disk=Unsynced(),
        ) as agent:
            return agent.run(rounds)

    with running(store) as coordinator, ThreadPoolExecutor(DEVICES) as pool:
        ends = list(pool.map(play, range(DEVICES), [coordinator.url] * DEVICES))
    assert ends == ["rounds"] * DEVICES
    expected = simulate(problem, mechanism, controller, rounds, seed=SEED, start=PRIOR)
    found = export(open_store(str(tmp_path / "run.db")))
    assert np.array_equal(found.signal[:rounds], expected.signal)
    assert np.array_equal(found.participants[:rounds], expected.participants)
    # Every acknowledged participation starts work; of the last round, an agent that ends may have ended it before.
    assert expected.participants[:-1].sum() <= worked.sum() <= expected.participants.sum()
