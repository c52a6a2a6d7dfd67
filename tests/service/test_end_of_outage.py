"""Outages without sockets: when the signal follows again, and that no crowd comes back."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from service.played import NEVER, members, play, turnouts
from service.running import begun, usual_rules
from turnout import IntegralController, SelfTuningController, paper_population
from turnout.algorithm import Clamp, Classical
from turnout.service.coordinator.closed_rounds import ClosedRounds
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.rounds import LOOKS_BACK, MISSING, MOST_STILL_ROUNDS, NO, ClosedRound, close, first_position
from turnout.service.rules import Rules, Safety

CONTROLLERS = [IntegralController(0.0075, 0.35), SelfTuningController()]


def followed(*heard: int, members_count: int = 100) -> str:
    """For each round with so many reports, of 100 devices: `f` if the signal is frozen, `.` if it follows."""
    rule, books = Rules(Clamp(1.0), IntegralController(0.1, 2.0), Safety("absent")), []
    position = first_position(rule)
    for count in heard:
        codes = np.where(np.arange(members_count) < count, NO, MISSING).astype(np.uint8)
        crowd, chance = members(members_count), np.random.default_rng(1)
        closed, position = close(rule, position, crowd, codes, 50.0, chance, before=books)
        books.append(closed)
    assert all(later.signal < sooner.signal for sooner, later in pairwise(books) if sooner.frozen)
    assert all(later.signal > sooner.signal for sooner, later in pairwise(books) if not sooner.frozen)
    return "".join(".f"[closed.frozen] for closed in books)


def test_all_back_is_the_end() -> None:
    assert followed(*[100] * 5, *[5] * 30, 96, 100) == "....." + 30 * "f" + ".."


@pytest.mark.parametrize("lasted", [1, 2, 7, MOST_STILL_ROUNDS, MOST_STILL_ROUNDS + 1, 200])
def test_who_stays_away_is_waited_for_as_long_as_the_outage_lasted_and_no_longer_than_our_patience(lasted: int) -> None:
    waits = min(lasted, MOST_STILL_ROUNDS)
    assert followed(*[100] * 50, *[5] * lasted, *[60] * 50) == 50 * "." + (lasted + waits) * "f" + (50 - waits) * "."


def test_a_wave_after_a_pause_begins_the_wait_anew() -> None:
    pause, after = MOST_STILL_ROUNDS - 1, 2 * MOST_STILL_ROUNDS
    flags = followed(*[5] * 100, *[60] * pause, *[80] * after)
    assert flags == (100 + pause + MOST_STILL_ROUNDS) * "f" + (after - MOST_STILL_ROUNDS) * "."


def test_a_slow_return_is_waited_for_until_nearly_all_are_there() -> None:
    growing = range(50, 97)
    assert followed(*[5] * 100, *growing) == (100 + 46) * "f" + "."


def test_once_it_follows_it_goes_on_following_whoever_comes() -> None:
    """A fleet of which never more than four fifths are there, now more and now less, is not held."""
    ups_and_downs = [60, 80] * 50
    flags = followed(*[5] * 100, *ups_and_downs)
    assert "f" not in flags[100 + 2 * MOST_STILL_ROUNDS :]
    assert followed(*ups_and_downs, members_count=100) == 100 * "."


def test_a_bad_round_now_and_then_costs_one_more_and_no_more() -> None:
    assert followed(*[80, 80, 80, 80, 30] * 10) == "....f" + "f...f" * 9


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
    assert totals[30:].mean() == pytest.approx(600, rel=0.06)
    limited = Rules(mechanism, controller, Safety("absent", hard_limit=620))
    assert turnouts(play(limited, problem, end + 60, age, age, back)).max() <= 620


@pytest.mark.parametrize(("lasted", "pause"), [(5, 4), (20, 15), (100, 8), (100, 15)])
@pytest.mark.parametrize("memory", [LOOKS_BACK, 1, 0], ids=["as it is", "sabotaged: one round", "sabotaged: none"])
def test_devices_that_come_back_in_two_waves_make_no_crowd_either(lasted: int, pause: int, memory: int) -> None:
    """The twins take two like rounds, or any half of the devices, for the end; the signal rises for those who are here.

    No chance is left: seeds and coins are fixed.
    """
    problem, first, peaks = paper_population(clients=400).problem(240), 60 + lasted, []
    for share in (0.55, 0.7):
        back = np.where(away(1, size=400), np.where(away(2, share, 400), first, first + pause), 0)
        for controller in (IntegralController(0.02, 3.0), SelfTuningController()):
            rule = Rules(Clamp(2.0), controller, Safety("absent"))
            totals = turnouts(play(rule, problem, first + 70, 3, 60, back, memory))[first:]
            peaks.append(totals.max() / 240)
            assert totals[-20:].mean() == pytest.approx(240, rel=0.06)
    assert (max(peaks) <= 1.2) == (memory == LOOKS_BACK), peaks


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_when_a_third_never_come_back_the_others_fill_the_capacity(controller) -> None:
    problem = paper_population().problem(600)
    back = np.where(away(1), np.where(np.arange(1200) % 3 == 0, NEVER, 200), 0)
    books = play(Rules(Clamp(2.0), controller, Safety("absent")), problem, 330, 1, 100, back)
    assert turnouts(books)[200:].max() <= 1.2 * 600
    assert turnouts(books)[-20:].mean() == pytest.approx(600, rel=0.06)


def test_without_the_freeze_an_outage_ends_in_a_crowd() -> None:
    """The sabotaged twin: no quorum, so that the signal winds up while nobody can come."""
    problem = paper_population().problem(600)
    rule = Rules(Classical(), IntegralController(0.0075, 0.35), Safety("absent", quorum=0.0))
    books = play(rule, problem, 1160, 1, 1000, np.where(away(1), 1100, 0))
    assert turnouts(books)[1100:].max() > 1.5 * 600


def test_a_coordinator_that_starts_knows_the_rounds_that_the_next_depends_on(tmp_path: Path) -> None:
    """Also when another has closed more since it asked where the run stands."""
    rules = usual_rules()
    store = begun(tmp_path / "run.db", rules)
    assert list(ClosedRounds(store, 0).recent) == []
    nobody, position, chance = members(0), first_position(rules), np.random.default_rng(1)
    for _ in range(LOOKS_BACK + 11):
        closed, position = close(rules, position, nobody, np.empty(0, np.uint8), 2.0, chance)
        store.close_round(closed, position)
    end = LOOKS_BACK + 11
    assert [closed.round for closed in ClosedRounds(store, 10).recent] == list(range(10))
    rounds = ClosedRounds(store, end - 1)
    assert [closed.round for closed in rounds.recent] == list(range(end - 1 - LOOKS_BACK, end - 1))
    rounds.add(closed, 0.0)
    assert [closed.round for closed in rounds.recent] == list(range(end - LOOKS_BACK, end))
    last = Coordinator(store).sync.closed.last
    assert isinstance(last, ClosedRound)
    assert last.round == end - 1
    store.close()
