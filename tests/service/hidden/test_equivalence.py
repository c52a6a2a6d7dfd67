"""A hidden run is a simulation, to the bit: the same signals, turnout and averages."""

import numpy as np
import pytest

from service.hidden.scene import Pair, a_round, open_device, seeded_noise, usual
from turnout import simulate
from turnout.algorithm import Clamp, Classical, FallingGainController, IntegralController, Prior, SumNoise
from turnout.problem import Problem, paper_population

CASES = {
    "exact": (Classical(), IntegralController(0.05, 1.0), None),
    "noise": (Classical(), FallingGainController(0.05, 5.0), SumNoise(6.0, 3, 4.0, aggregators=2)),
    "own coin": (Clamp(1.0), IntegralController(0.02, 1.0, lag=0), SumNoise(4.0, aggregators=2)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("heavy", [False, True], ids=["alike", "weights"])
def test_a_hidden_run_is_a_simulation_to_the_bit(tmp_path, case, heavy):
    mechanism, controller, noise = CASES[case]
    clients, rounds, seed = (30, 10, 5) if heavy else (100, 8, 5)
    population = paper_population(seed=0).problem(600)
    weights = 1 + np.arange(clients) % 3 if heavy else None
    total = clients if weights is None else int(weights.sum())
    problem = Problem(population.costs[np.arange(clients)], total // 2, weights)
    run = simulate(problem, mechanism, controller, rounds, seed=seed, start=Prior(0.5), noise=noise, engine="numpy")
    units = np.broadcast_to(problem.unit_weights, clients).tolist()
    rules = usual(mechanism=mechanism, controller=controller)
    pair = Pair(tmp_path, units, seeded_noise(noise, seed), rules=rules, capacity=total // 2, noise=noise, least=10)
    devices = [open_device(tmp_path / str(slot), problem, pair.rules, slot, seed) for slot in range(clients)]
    for round in range(rounds):
        acts = a_round(pair, devices)
        record = pair.leader.record
        assert (record.round, record.count, record.go) == (round, clients, True)
        assert int(np.dot(acts, units)) == run.participants[round]
        assert record.opened == (run.participants if noise is None else run.server.seen)[round]
        assert round + 1 == rounds or pair.leader._position.signal == run.signal[round + 1]
        assert pair.leader.record.body == pair.helper.record.body
    averages = [device.status()["average"] for device in devices]
    assert averages == run.average.tolist()
    for device in devices:
        device.close()
