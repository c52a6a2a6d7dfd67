"""After a restore, devices send again what they had decided: it counts, but the signal does not follow it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.bare_device import Device, at_once
from service.played import members
from service.running import begun, codes_for, running, usual_rules
from turnout import IntegralController
from turnout.algorithm import Clamp
from turnout.service.coordinator.closed_rounds import MOST_LOST, Replays
from turnout.service.coordinator.overview import Overview
from turnout.service.rounds import YES, close, first_position
from turnout.service.rules import Rules, Safety, Timing


@pytest.mark.parametrize(("replayed", "follows"), [(0, True), (2, True), (3, False), (4, False)])
def test_the_signal_follows_only_who_decided_by_it(replayed: int, follows: bool) -> None:
    rule = Rules(Clamp(1.0), IntegralController(0.1, 2.0), Safety("absent"))
    reports = np.full(4, YES, np.uint8)
    closed, after = close(
        rule, first_position(rule), members(4), reports, 2.0, np.random.default_rng(1), replayed=np.arange(4) < replayed
    )
    assert closed.participants == 4, "they count in any case"
    assert closed.frozen is not follows
    assert after.signal == (pytest.approx(2.0 - 0.1 * 2) if follows else 2.0)


def test_a_device_that_lies_moves_nothing() -> None:
    replays = Replays()
    replays.note(0, 10**15, open=5)
    replays.note(1, 5 + MOST_LOST, open=5)
    replays.note(2, 5, open=5)
    assert list(replays.among(3, 6)) == [False, True, False]
    assert replays.most() == 5 + MOST_LOST, "an account would rather be too large than too small"
    replays.note(2, 40, open=5)
    replays.note(0, 39, open=5)
    replays.note(0, 38, open=5)
    assert list(replays.among(3, 39)) == [True, True, True]


def test_lost_rounds_are_frozen_and_accounted_for(tmp_path: Path) -> None:
    """Two devices are at round 5 of a run whose books were restored to round 0."""
    rules = usual_rules(Timing(0.0, deadline=5.0), wait_for=2, controller=IntegralController(0.1, 2.0))
    store = begun(tmp_path / "run.db", rules)
    with running(store) as coordinator:
        overview = Overview(coordinator.coordinator)
        assert overview.snapshot()["account"]["reports"] == 1
        devices = [Device(coordinator.url, code) for code in codes_for(store, 2)]
        for device in devices:
            status, told = device.report(5, True)
            assert (status, told["error"], told["next"]["round"]) == (409, "ahead", 0)
        assert overview.snapshot()["account"]["reports"] == 6, "what they have given away is more than the books say"
        for round in range(7):
            both = at_once(*(lambda one=one, round=round: one.report(round, True) for one in devices))
            assert all(told["counted"] for _, told in both)
        books = list(store.history())
    assert [closed.frozen for closed in books] == [True] * 6 + [False]
    assert len({closed.signal for closed in books}) == 1
