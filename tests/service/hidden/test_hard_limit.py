"""A hard limit without names: what acts is never above it, for certain, while the noise keeps its bound."""

from unittest.mock import PropertyMock

import numpy as np
import pytest

from service.hidden.scene import Pair, usual
from turnout.algorithm import SumNoise
from turnout.service.hidden import Helper, HiddenRules, Leader, rules
from turnout.service.hidden.records import next_thinning

WEIGHTS = (1, 1, 2, 3, 5, 5)
LIMIT, BOUND = 12, 2
PROMISE = {"rounds": 9, "delta": 0.9, "heaviest": 5}


@pytest.fixture(autouse=True)
def little(monkeypatch):
    """Here bounds are for the limit, and hide nothing."""
    monkeypatch.setattr(rules, "least_bound", lambda *given: 1)


def modelled(margin, rounds=400, runs=500, devices=60, limit=40, bound=6, seed=0):
    """The go rule for many runs at a time, whatever devices want and wherever in its bound the noise is."""
    random = np.random.default_rng(seed)
    thinning, acted, went = np.ones(runs), np.zeros((rounds, runs), np.int64), np.zeros((rounds, runs), bool)
    for round in range(rounds):
        wanted = random.random(runs) ** 2
        reported = random.binomial(devices, wanted * thinning)
        noise = random.integers(-bound, bound + 1, (2, runs)).sum(axis=0)
        noise[::7] = -2 * bound  # the worst
        opened = reported + noise
        went[round] = opened + margin <= limit
        acted[round] = np.where(went[round], reported, 0)
        demand = opened / thinning
        thinning = np.array([next_thinning(limit - margin, 3.0, 1, float(one)) for one in demand])
    return acted, went


def test_what_acts_is_never_above_the_limit_and_without_the_margin_it_is():
    acted, went = modelled(margin=12, runs=100)
    assert acted.max() <= 40
    assert 0.2 < went.mean() < 1.0
    assert acted.max() > 35  # it is used
    assert modelled(margin=0, runs=20)[0].max() > 40


def closed_rounds(folder, rounds, seed=0):
    """Real aggregators; devices that want much, and thin it out. What acted, and whether it was go."""
    random = np.random.default_rng(seed)

    def draw(round, sigma):
        return int(random.integers(-BOUND, BOUND + 1))

    options = {"noise": SumNoise(1.0, aggregators=2, bound=BOUND), "least": 3, "capacity": 8} | PROMISE
    pair = Pair(folder, WEIGHTS, (draw, draw), rules=usual(hard_limit=LIMIT), **options)
    acted, went = [], []
    for _ in range(rounds):
        wanted = random.random(len(WEIGHTS)) < random.random()
        bits = wanted & (random.random(len(WEIGHTS)) < pair.leader.record.thinning)
        pair.bits(bits.astype(int).tolist())
        record = pair.close()
        assert abs(record.opened - np.dot(WEIGHTS, bits)) <= 2 * BOUND
        went.append(record.go)
        acted.append(int(np.dot(WEIGHTS, bits)) * record.go)
    return acted, went


def test_real_aggregators_keep_the_limit(tmp_path):
    acted, went = closed_rounds(tmp_path, 60)
    assert max(acted) <= LIMIT
    assert 0 < sum(went) < len(went)


@pytest.mark.deployment
def test_real_aggregators_keep_the_limit_for_thousands_of_rounds(tmp_path):
    acted, went = closed_rounds(tmp_path, 5000, seed=1)
    assert max(acted) <= LIMIT
    assert 0 < sum(went) < len(went)


def test_real_aggregators_without_the_margin_break_it(tmp_path, monkeypatch):
    monkeypatch.setattr(rules.HiddenRules, "margin", PropertyMock(return_value=0))
    monkeypatch.setattr(Leader, "_check_total", lambda *given: None)
    monkeypatch.setattr(Helper, "_check_total", lambda *given: None)
    assert max(closed_rounds(tmp_path, 150)[0]) > LIMIT


def test_a_limit_needs_a_bound_and_room(tmp_path):
    with pytest.raises(ValueError, match=r"noise.bound must be given"):
        HiddenRules("run", usual(hard_limit=10), 5, SumNoise(2.0, aggregators=2))
    with pytest.raises(ValueError, match="hard limit must be above the margin of 10"):
        HiddenRules("run", usual(hard_limit=10), 5, SumNoise(2.0, aggregators=2, bound=5), **PROMISE)


def test_noise_beyond_the_bound_is_refused(tmp_path):
    options = {"noise": SumNoise(1.0, aggregators=2, bound=BOUND), "capacity": 8} | PROMISE
    draws = (lambda round, sigma: BOUND + 1, lambda round, sigma: 0)
    pair = Pair(tmp_path, WEIGHTS, draws, rules=usual(hard_limit=LIMIT), **options)
    pair.bits([1] * len(WEIGHTS))
    with pytest.raises(ValueError, match="noise must be within the bound of 2, got 3"):
        pair.close()
    assert pair.leader.record.round == -1
