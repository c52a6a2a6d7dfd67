"""Whatever a malicious coordinator says: no chance leaves its box, and no round is tossed twice."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext
from pathlib import Path

import numpy as np
import pytest

from service.agents import agent_with
from service.fake_coordinator import DirectWire, FakeCoordinator
from turnout.algorithm import Public, mechanism_from_settings
from turnout.client import Limit
from turnout.files import Disk
from turnout.problem import PolynomialCosts
from turnout.settings import Table

# A malicious coordinator.

WORDS = 2**53
SIGNALS = [
    *(0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-300, 1e-12, 0.3, 1.0, 2.0, 17.0, 1e6, 1e15, 1e100, 1e300),
    *(1.7976931348623157e308, -1e-9, -1.0, -1e15, -1.7976931348623157e308, 10**400, -(10**400), 2**53 + 1, 1, 10**30),
]
MECHANISMS = [
    {"kind": "clamp", "epsilon": 0.5},
    {"kind": "clamp", "epsilon": 1.0, "center": 0.01},
    {"kind": "clamp", "epsilon": 0.03125, "center": 0.999},
    {"kind": "randomized-response", "epsilon": 1.0},
    {"kind": "tracking-clamp", "epsilon": 0.5},
    {"kind": "capped-coin", "beta": 1.0, "cap": 0.3},
]
COSTS = [1e-12, 3.0, 1e12, PolynomialCosts([[1e-6, 1e6]], powers=(2, 6))]


class Unsynced(Disk):
    def sync(self, descriptor: int) -> None:
        return None


class Word:
    """Coins that give one chosen word of the 2^53."""

    def __init__(self) -> None:
        self.word = 0

    def uniform(self, clients, round, purpose=0):
        return np.full(len(clients), self.word * 2.0**-53)


def thresholds(mechanism, average: float) -> tuple[int, int]:
    """Of the 2^53 words, how many say yes at least and at most: those below low, and below high."""
    low, high = mechanism.box(Public(np.array([average])))
    low, high = (math.ceil(Decimal(float(np.asarray(one).reshape(-1)[0])) * WORDS) for one in (low, high))
    return low, high


@pytest.mark.parametrize("settings", MECHANISMS, ids=lambda one: "-".join(map(str, one.values())))
def test_no_signal_moves_a_devices_chance_out_of_its_box(tmp_path: Path, settings: dict) -> None:
    """Of all 2^53 words of its coin, exactly: the least ones always say yes and the greatest always no, whatever the
    signal and the cost, and their numbers keep the certificate. A bit is (word < threshold), so that the two
    words at the bounds stand for all."""
    mechanism = mechanism_from_settings(Table(settings, "mechanism"))
    for number, cost in enumerate(COSTS):
        coordinator, coins = FakeCoordinator(signal=offered, mechanism=settings), Word()
        options = {"coins": coins, "limit": Limit(100, 1.0), "sleep": lambda seconds: None, "disk": Unsynced()}
        options |= {"code": "GOOD-CODE", "wire": DirectWire(coordinator)}
        with agent_with("http://x.example", tmp_path / str(number), cost, **options) as agent:
            average, epsilon = 0.5, agent.join()[1].certificate.epsilon
            for round in range(2 * len(SIGNALS)):
                low, high = thresholds(mechanism, average)
                assert_within(low, high, epsilon)
                coins.word = low - 1 if round % 2 else high
                assert agent.step().participates == bool(round % 2), (offered(round), average)
                average = agent.status()["average"]


def offered(round: int) -> float:
    """Each of the signals twice."""
    return SIGNALS[round // 2 % len(SIGNALS)]


def assert_within(low: int, high: int, epsilon: float) -> None:
    """The certificate in exact arithmetic: both ratios of the counts of words are at most e^epsilon."""
    getcontext().prec = 60
    most = Decimal(epsilon).exp()
    assert 0 < low <= high < WORDS
    assert Decimal(high) <= most * low
    assert Decimal(WORDS - low) <= most * (WORDS - high)


def test_a_box_that_is_too_wide_is_caught() -> None:
    low, high = thresholds(mechanism_from_settings(Table(MECHANISMS[0], "mechanism")), 0.5)
    with pytest.raises(AssertionError):
        assert_within(low - WORDS // 10**12, high, 0.5)
    with pytest.raises(AssertionError):
        assert_within(low, high + WORDS // 10**12, 0.5)


def test_no_answer_lets_a_device_toss_twice_for_a_round(tmp_path: Path) -> None:
    """The coordinator forgets, contradicts itself and offers a round again with another signal: the bit stays."""
    coordinator = FakeCoordinator(signal=lambda round: 1e9)
    options = {"sleep": lambda seconds: None, "disk": Unsynced(), "limit": Limit(60, 1.0)}
    with agent_with(
        "http://x.example", tmp_path, 3.0, code="GOOD-CODE", wire=DirectWire(coordinator), **options
    ) as agent:
        for signal in (1e9, -1e9, 0.0, 1.0) * 3:
            coordinator.signal = lambda round, signal=signal: signal
            for _ in range(5):
                agent.step()
            coordinator.open = max(0, coordinator.open - 3)
            coordinator.books = {}
    bits: dict[int, set[bool]] = {}
    for sent in coordinator.reports():
        bits.setdefault(sent["round"], set()).add(sent["participates"])
    assert len(bits) > 10
    assert len(coordinator.reports()) > len(bits) + 10
    assert all(len(found) == 1 for found in bits.values())
