"""A fleet over real sockets is the simulation, to the bit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from service.running import begun, codes_for, running, usual_rules
from turnout import Averaging, IntegralController, PaperCoin, Prior, SelfTuningController, paper_population, simulate
from turnout.algorithm.mechanisms.clamp import Clamp
from turnout.algorithm.mechanisms.tracking_clamp import TrackingClamp
from turnout.service.coordinator.export import export
from turnout.service.fleet.fleet import Fleet
from turnout.service.stores.locations import open_store

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
