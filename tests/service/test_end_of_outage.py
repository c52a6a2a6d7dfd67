"""Outages without sockets: the signal does not wind up, and no crowd participates when devices return."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.played import NEVER, members, play, turnouts
from service.running import begun, usual_rules
from turnout import IntegralController, Prior, Schedule, SelfTuningController, paper_population, simulate
from turnout.algorithm import Attendance, Clamp, Classical, Controller, Presence
from turnout.problem import Problem
from turnout.service import rounds
from turnout.service.coordinator.closed_rounds import ClosedRounds
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.rounds import NO, ClosedRound, close, first_position
from turnout.service.rules import Rules, Safety
from turnout.theory import tune

CONTROLLERS = [IntegralController(0.0075, 0.35), SelfTuningController()]

DEVICES, BEGINS, LASTS, AFTER = 300, 60, 40, 60
SHARES, CAPACITIES = (0.10, 0.30, 0.49, 0.51, 0.95), (0.30, 0.40, 0.60, 0.73)


def outage(share: float, waves: bool, seed: int) -> np.ndarray:
    """The round at which each device is back; 0: it was never away. In waves: within 15 rounds, in four groups."""
    random = np.random.default_rng([seed, 7])
    away = random.permutation(DEVICES) < round(share * DEVICES)
    late = random.integers(0, 4, DEVICES) * 5 if waves else 0
    return np.where(away, BEGINS + LASTS + late, 0)


def schedule_of(back: np.ndarray) -> Schedule:
    ends = sorted({int(end) for end in back if end})
    return Schedule(away=[(BEGINS, end, np.flatnonzero(back == end)) for end in ends])


def made_for(problem: Problem, part: float, name: str) -> Controller:
    return SelfTuningController() if name == "self-tuning" else tune(problem, Clamp(1.0), Prior(part)).controller()


def lived_through(share: float, part: float, waves: bool, name: str, seeds: range) -> np.ndarray:
    """The turnouts of runs with an outage, over the capacity, shape (seeds, rounds)."""
    found = []
    for seed in seeds:
        problem = paper_population(clients=DEVICES, seed=seed % 4).problem(part * DEVICES)
        prior = Prior(part)
        controller = made_for(problem, part, name)
        schedule, end = schedule_of(outage(share, waves, seed)), BEGINS + LASTS + AFTER
        run = simulate(problem, Clamp(1.0), controller, end, start=prior, schedule=schedule, seed=seed, engine="numpy")
        found.append(run.participants / problem.capacity)
    return np.array(found)


def peaks(turnout: np.ndarray) -> tuple[float, float]:
    """(the largest mean over seeds, the largest of all), from the round in which the first devices return."""
    after = turnout[:, BEGINS + LASTS :]
    return float(after.mean(axis=0).max()), float(after.max())


def highest(part: float) -> float:
    """1.2 C and four spreads, over C: one round in some 30,000 is above by chance even where the mean is 1.2 C."""
    return 1.2 + 4.0 * np.sqrt(part * (1.0 - part) * DEVICES) / (part * DEVICES)


@pytest.mark.parametrize("controller", ["integral", "self-tuning"])
@pytest.mark.parametrize(("share", "part"), [(0.30, 0.60), (0.49, 0.30), (0.95, 0.40)])
def test_no_crowd_returns(controller: str, share: float, part: float) -> None:
    """The seeds are fixed: no chance is left."""
    for waves in (False, True):
        mean, most = peaks(lived_through(share, part, waves, controller, range(8)))
        assert mean <= 1.2, waves
        assert most <= highest(part), waves


@pytest.mark.deployment
@pytest.mark.parametrize("controller", ["integral", "self-tuning"])
@pytest.mark.parametrize("part", CAPACITIES)
@pytest.mark.parametrize("share", SHARES)
def test_no_crowd_returns_from_any_outage(controller: str, share: float, part: float) -> None:
    for waves in (False, True):
        turnout = lived_through(share, part, waves, controller, range(24))
        mean, most = peaks(turnout)
        assert mean <= 1.2, waves
        assert most <= highest(part), waves
        assert turnout[:, -15:].mean() == pytest.approx(1.0, abs=0.08), "and then all is as before"


def wind_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotaged twin: everyone counts at once, nothing is scaled, and the capacity is always thought in reach."""

    def naive(self, reported, members, weights, *_, **__):
        weight = float(np.sum(np.broadcast_to(weights, len(members))[members]))
        return self, Attendance(reported & members, weight, 1.0, 1.0)

    monkeypatch.setattr(Presence, "after", naive)
    monkeypatch.setattr(rounds, "in_reach", lambda *_: True)


@pytest.mark.parametrize("controller", ["integral", "self-tuning"])
@pytest.mark.parametrize(("share", "part", "at_least"), [(0.30, 0.40, 1.3), (0.49, 0.40, 1.5), (0.95, 0.30, 1.9)])
def test_the_sabotaged_twin_winds_up(
    monkeypatch: pytest.MonkeyPatch, controller: str, share: float, part: float, at_least: float
) -> None:
    wind_up(monkeypatch)
    problem = paper_population(clients=DEVICES).problem(part * DEVICES)
    made = made_for(problem, part, controller)
    rule = Rules(Clamp(1.0), made, Safety("absent", quorum=0.0), Prior(part))
    books = play(rule, problem, BEGINS + LASTS + AFTER, 1, BEGINS, outage(share, False, 1))
    assert turnouts(books)[BEGINS + LASTS :].max() > at_least * part * DEVICES


@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize("share", [0.30, 0.49, 0.95])
@pytest.mark.parametrize("waves", [False, True])
def test_rounds_closed_one_by_one_are_the_simulation_of_the_outage(controller, share: float, waves: bool) -> None:
    problem, back = paper_population(clients=DEVICES).problem(0.4 * DEVICES), outage(share, waves, 3)
    rule = Rules(Clamp(1.0), controller, Safety("absent"), Prior(0.4))
    books = play(rule, problem, 150, 3, BEGINS, back)
    run = simulate(problem, Clamp(1.0), controller, 150, seed=3, start=Prior(0.4), schedule=schedule_of(back))
    assert np.array_equal(turnouts(books), run.participants)
    assert np.array_equal([closed.signal for closed in books], run.signal)


def test_what_the_turnout_lacks_while_half_are_gone() -> None:
    """147 of 300 are gone, so that 153 can bring 112 of 120: they are asked for twice as much, and the signal waits."""
    problem = paper_population(clients=DEVICES).problem(120)
    rule = Rules(Clamp(1.0), SelfTuningController(), Safety("absent"), Prior(0.4))
    books = play(rule, problem, 100, 1, BEGINS, outage(0.49, False, 1))
    gone = books[BEGINS + 3 :]
    assert all(closed.beyond_reach for closed in gone)
    assert {closed.expected for closed in gone} == {153}
    assert len({closed.signal for closed in gone}) <= 3, "it hardly moves"
    assert gone[0].signal == pytest.approx(300 / 153 * books[BEGINS].signal, rel=0.2)
    assert 0.5 < turnouts(gone).mean() / 120 < 0.85


def away(seed: int, share: float = 0.95, size: int = 1200) -> np.ndarray:
    return np.random.default_rng(seed).permutation(size) < share * size


@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize("mechanism", [Classical(), Clamp(1.0)])
@pytest.mark.parametrize("age", [100, 1000])
def test_after_an_outage_of_a_hundred_rounds_no_crowd_comes_back(controller, mechanism, age: int) -> None:
    problem, end = paper_population().problem(600), age + 100
    back = np.where(away(age), end, 0)
    totals = turnouts(play(Rules(mechanism, controller, Safety("absent")), problem, end + 60, age, age, back))[end:]
    assert totals.max() <= 1.2 * 600
    assert totals[40:].mean() == pytest.approx(600, rel=0.06)
    limited = Rules(mechanism, controller, Safety("absent", hard_limit=620))
    assert turnouts(play(limited, problem, end + 60, age, age, back)).max() <= 620


@pytest.mark.parametrize(("lasted", "pause"), [(5, 4), (20, 15), (100, 8), (100, 15)])
def test_devices_that_come_back_in_two_waves_make_no_crowd_either(lasted: int, pause: int) -> None:
    """No chance is left: seeds and coins are fixed."""
    problem, first = paper_population(clients=400).problem(240), 60 + lasted
    for share in (0.55, 0.7):
        back = np.where(away(1, size=400), np.where(away(2, share, 400), first, first + pause), 0)
        for controller in (IntegralController(0.02, 3.0), SelfTuningController()):
            rule = Rules(Clamp(2.0), controller, Safety("absent"))
            totals = turnouts(play(rule, problem, first + 90, 3, 60, back))[first:]
            assert totals.max() <= 1.2 * 240
            assert totals[-20:].mean() == pytest.approx(240, rel=0.06)


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_when_a_third_never_come_back_the_others_fill_the_capacity(controller) -> None:
    problem = paper_population().problem(600)
    back = np.where(away(1), np.where(np.arange(1200) % 3 == 0, NEVER, 200), 0)
    books = play(Rules(Clamp(2.0), controller, Safety("absent")), problem, 330, 1, 100, back)
    assert turnouts(books)[200:].max() <= 1.2 * 600
    assert turnouts(books)[-20:].mean() == pytest.approx(600, rel=0.06)


@pytest.mark.parametrize("quorum", [0.0, 0.5])
def test_with_and_without_a_quorum_an_outage_ends_well(quorum: float) -> None:
    problem = paper_population().problem(600)
    rule = Rules(Classical(), IntegralController(0.0075, 0.35), Safety("absent", quorum=quorum))
    books = play(rule, problem, 1160, 1, 1000, np.where(away(1), 1100, 0))
    assert turnouts(books)[1100:].max() <= 1.2 * 600


def test_a_fleet_with_a_bad_round_now_and_then_is_followed() -> None:
    """Four of five rounds have 80 of 100 reports, and one has 60: nobody is given up, nobody waits."""
    rule = Rules(Clamp(1.0), IntegralController(0.1, 2.0), Safety("absent"))
    position, crowd, chance = first_position(rule), members(100), np.random.default_rng(1)
    for number in range(50):
        heard = np.random.default_rng(number).permutation(100) < (60 if number % 5 == 4 else 80)
        codes = np.where(heard, NO, 0).astype(np.uint8)
        closed, position = close(rule, position, crowd, codes, 50.0, chance)
        assert not closed.frozen
        assert closed.expected >= 90
        assert not closed.beyond_reach


def test_a_coordinator_that_starts_knows_the_last_round(tmp_path: Path) -> None:
    """Also when another has closed more since it asked where the run stands."""
    rules = usual_rules()
    store = begun(tmp_path / "run.db", rules)
    assert ClosedRounds(store, 0).last is None
    nobody, position, chance = members(0), first_position(rules), np.random.default_rng(1)
    for _ in range(12):
        closed, position = close(rules, position, nobody, np.empty(0, np.uint8), 2.0, chance)
        store.close_round(closed, position)
    assert ClosedRounds(store, 10).last.round == 9
    last = Coordinator(store).sync.closed.last
    assert isinstance(last, ClosedRound)
    assert last.round == 11
    store.close()
