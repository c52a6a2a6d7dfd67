"""A hidden run is a simulation, to the bit, in signals, turnout and averages; in an outage it is a coordinator."""

from dataclasses import replace

import numpy as np
import pytest

from service.hidden.scene import Pair, a_round, open_device, seeded_noise, usual
from turnout import simulate
from turnout.algorithm import Clamp, Classical, FallingGainController, IntegralController, Prior, SumNoise
from turnout.problem import Problem, paper_population
from turnout.service import MISSING, NO, REFUSED, YES, close, first_position

CASES = {
    "exact": (Classical(), IntegralController(0.05, 1.0), None),
    "noise": (Classical(), FallingGainController(0.05, 5.0), SumNoise(6.0, 3, 4.0, aggregators=2, bound=18)),
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
    options = {"capacity": total // 2, "noise": noise, "least": 10, "rounds": rounds, "delta": 0.9, "heaviest": 3}
    pair = Pair(tmp_path, units, seeded_noise(noise, seed), rules=rules, **options)
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


def test_who_is_away_is_missed_and_returns_as_with_a_coordinator(tmp_path):
    random, slots = np.random.default_rng(2), 12
    pair = Pair(tmp_path, [1] * slots, capacity=6)
    position, members = first_position(pair.rules.rules), pair.books[0].members(0)
    reasons = []
    for round in range(40):
        here = random.random(slots) < (0.4 if 10 <= round < 16 else 0.9)
        here[:4] &= not 4 <= round < 20  # for long: they return little by little
        bits = random.integers(0, 2, slots)
        codes = np.where(here, np.where(bits, YES, NO), MISSING).astype(np.uint8)
        closed, position = close(pair.rules.rules, position, members, codes, 6, random)
        pair.bits([int(bit) if there else None for bit, there in zip(bits, here, strict=True)])
        record = pair.close()
        reasons.append(record.why)
        assert record.opened == (None if closed.frozen else closed.demand)
        assert pair.helper._position == replace(position, on=b"")
        told = np.array([pair.leader.is_counted(slot, round) for slot in range(slots)])
        assert not told[(codes == MISSING) | (closed.codes == REFUSED)].any()  # of a "no" a coordinator does not say
        assert told[closed.codes == YES].all()
    assert 2 < reasons.count("few") < 10
