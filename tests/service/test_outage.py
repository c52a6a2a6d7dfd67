"""Outages over real sockets: devices gone and back at once, a coordinator that dies, the very first round."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from service.agents import agent_with
from service.running import begun, codes_for, running, usual_rules
from service.test_end_of_outage import wind_up
from service.wiretap import Wiretap
from statistical.binomial import assert_proportion
from turnout import IntegralController, PaperCoin, PolynomialCosts, Prior, SelfTuningController, paper_population
from turnout.algorithm import Clamp, Classical, Public, average_of, intent
from turnout.client import Limit
from turnout.files import Disk
from turnout.service.agent.work import CommandWork
from turnout.service.load_test.devices import Rehearsal
from turnout.service.load_test.load_test import Fleet
from turnout.service.rounds import ClosedRound
from turnout.service.rules import Rules, Safety, Timing
from turnout.service.store.backup import open_store
from turnout.theory import tune

LIMIT = Limit(1000, 1.0)


class Unsynced(Disk):
    def sync(self, descriptor: int) -> None:
        return None


class Yes:
    """Coins that say yes wherever that is possible at all."""

    def uniform(self, clients, round, purpose=0):
        return np.zeros(len(clients))


def wait_until(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


# Devices that are cut off, and back at once.


def rehearsed(
    at: Path, rules: Rules, capacity: float, weights: list[int], first: int, away: int, after: int, cut: float = 0.95
) -> tuple[list[ClosedRound], float]:
    """The books of a fleet of which a part is cut off for some rounds, and the bound of its signal."""
    store = begun(at, rules, capacity=capacity)
    made = {weight: codes_for(store, weights.count(weight), weight=weight) for weight in set(weights)}
    codes = [made[weight].pop() for weight in weights]
    coefficients = paper_population(clients=len(weights)).costs.coefficients * np.array(weights)[:, None]
    costs = PolynomialCosts(coefficients, powers=(2, 4, 6))  # what weighs more costs more
    with running(store, seed=3) as coordinator:
        rehearsal = Rehearsal(cut=cut, cut_first=first, cut_rounds=away)
        record = asyncio.run(
            Fleet(coordinator.url, costs, codes, seed=1, rehearsal=rehearsal).run(first + away + after)
        )
        bound = rules.most_signal(capacity)
    assert record.enrolled == len(weights)
    store = open_store(str(at))
    books = list(store.history())[: first + away + after]
    store.close()
    quiet = [closed for closed in books[first : first + away] if closed.heard <= (1.01 - cut) * len(weights)]
    assert len(quiet) >= away - 3, "most of them were away"
    assert max(closed.heard for closed in books[first + away :]) >= 0.95 * len(weights), "and came back"
    return books, bound


def check_signal(books: list[ClosedRound], bound: float) -> None:
    """It never exceeds its bound, and has not risen in a round in which too few were there."""
    signals = [closed.signal for closed in books]
    assert max(signals) <= bound
    for closed, following in itertools.pairwise(books):
        if closed.frozen:
            assert following.signal <= closed.signal
    assert sum(closed.frozen for closed in books) > 10


def peak(books: list[ClosedRound], first: int) -> float:
    """The largest turnout from a round on, as a share of the capacity."""
    return max(closed.participants / closed.capacity for closed in books[first:])


SHORT = Timing(round=0.05, deadline=0.4, hold=5.0)
PATIENT = Timing(round=0.05, deadline=3.0, hold=5.0)
"""So that a machine that stalls for a moment is no second outage: what is measured is the return from the first."""


def test_a_hard_limit_in_watts_holds_through_an_outage(tmp_path: Path) -> None:
    weights = [1 + 37 * (number % 13) for number in range(100)]
    capacity = 0.6 * sum(weights)
    rules = usual_rules(
        SHORT, wait_for=100, mechanism=Clamp(2.0), safety=Safety("absent", hard_limit=round(1.05 * capacity))
    )
    books, bound = rehearsed(tmp_path / "run.db", rules, capacity, weights, first=20, away=25, after=25)
    check_signal(books, bound)
    assert max(closed.participants for closed in books) <= rules.safety.hard_limit
    assert any(closed.demand > rules.safety.hard_limit for closed in books), "more wanted to, at times"
    assert max(closed.participants for closed in books[-10:]) > 0.8 * capacity, "and it is used"


DEVICES, CAPACITY, FIRST, AWAY, AFTER = 400, 240.0, 60, 100, 40
"""Turnouts spread by 4 % of this capacity at most, so that 1.2 of it is five standard deviations away."""

LOOPS = {
    "clamp": {"mechanism": Clamp(2.0), "controller": SelfTuningController()},
    "paper": {"mechanism": PaperCoin(3.5), "controller": IntegralController(0.02, 3.0)},
}


@pytest.mark.deployment
@pytest.mark.parametrize("loop", LOOPS)
def test_a_hundred_rounds_without_ninety_five_percent_and_all_back_at_once(tmp_path: Path, loop: str) -> None:
    rules = usual_rules(PATIENT, wait_for=DEVICES, **LOOPS[loop])
    books, bound = rehearsed(tmp_path / "run.db", rules, CAPACITY, [1] * DEVICES, FIRST, AWAY, AFTER)
    check_signal(books, bound)
    assert sum(closed.frozen for closed in books) >= AWAY - 3
    assert peak(books, FIRST + AWAY) <= 1.2
    assert peak(books, len(books) - 10) > 0.85, "all is well again"


@pytest.mark.deployment
@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_that_winds_up_would_call_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    """The sabotaged twin: a signal that follows the turnout of an outage winds up."""
    wind_up(monkeypatch)
    rules = usual_rules(SHORT, wait_for=DEVICES, safety=Safety("absent", quorum=0.0), **LOOPS[loop])
    books, _ = rehearsed(tmp_path / "run.db", rules, CAPACITY, [1] * DEVICES, FIRST, AWAY, AFTER)
    assert peak(books, FIRST + AWAY) > 1.2
    with pytest.raises(AssertionError):
        check_signal(books, books[FIRST].signal)


@pytest.mark.deployment
@pytest.mark.parametrize("controller", ["integral", "self-tuning"])
@pytest.mark.parametrize(("share", "part"), [(0.30, 0.60), (0.49, 0.40), (0.51, 0.30), (0.95, 0.40)])
def test_forty_rounds_without_a_part_of_three_hundred_over_sockets(
    tmp_path: Path, share: float, part: float, controller: str
) -> None:
    """One seed each: every round is below 1.2 C and four spreads, which chance exceeds once in 30,000 rounds."""
    problem, prior = paper_population(clients=300).problem(300 * part), Prior(part)
    made = SelfTuningController() if controller == "self-tuning" else tune(problem, Clamp(1.0), prior).controller()
    rules = usual_rules(PATIENT, wait_for=300, mechanism=Clamp(1.0), controller=made, prior=prior)
    books, _ = rehearsed(tmp_path / "run.db", rules, 300 * part, [1] * 300, 60, 40, 40, cut=share)
    spread = np.sqrt(part * (1.0 - part) * 300)
    assert peak(books, 100) <= 1.2 + 4.0 * spread / (300 * part)
    assert sum(closed.participants for closed in books[-10:]) > 0.8 * 10 * 300 * part, "and all is well again"


@pytest.mark.deployment
@pytest.mark.parametrize("weighted", [False, True], ids=["devices", "watts"])
def test_the_hard_limit_holds_for_a_hundred_rounds(tmp_path: Path, weighted: bool) -> None:
    weights = [1 + 411 * (number % 17) if weighted else 1 for number in range(100)]
    capacity = 0.6 * sum(weights)
    safety = Safety("last" if weighted else "absent", hard_limit=round(capacity), quorum=0.0)  # the worst of settings
    rules = usual_rules(SHORT, wait_for=100, mechanism=Clamp(2.0), safety=safety)
    books, _ = rehearsed(tmp_path / "run.db", rules, capacity, weights, FIRST, AWAY, AFTER)
    assert max(closed.participants for closed in books) <= safety.hard_limit
    assert max(closed.demand for closed in books) > safety.hard_limit


# A coordinator that dies.


class Watched(CommandWork):
    """Notes when work was granted, until when, and when it was ended."""

    def __init__(self, folder: Path, clock) -> None:
        folder.mkdir()
        super().__init__(f"{sys.executable} -c 'import time; time.sleep(600)'", None, folder)
        self._clock, self.granted, self.ended, self.processes = clock, [], [], []

    def start(self, participation) -> None:
        self.granted.append((self._clock(), participation.until))
        super().start(participation)
        self.processes.append(self._process.pid)

    def stop(self, participation) -> None:
        super().stop(participation)
        self.ended.append(self._clock())


def test_ten_minutes_without_a_coordinator_end_every_lease(tmp_path: Path) -> None:
    """Thirty agents; their clock is ours, the sockets are real."""
    now, lease = [5000.0], 60.0
    store = begun(tmp_path / "run.db", usual_rules(Timing(0.0, deadline=30.0, lease=lease), wait_for=30), capacity=20.0)
    started: list[float] = []
    ended: list[int] = []
    agents = []
    with running(store) as coordinator:
        for number, code in enumerate(codes_for(store, 30)):
            options = {"code": code, "clock": lambda: now[0], "coins": Yes(), "limit": LIMIT, "disk": Unsynced()}
            options |= {"on_participate": lambda one: started.append(one.until), "timeout": 30.0}
            options |= {"on_stop": lambda number=number: ended.append(number), "sleep": lambda _: time.sleep(0.05)}
            agents.append(agent_with(coordinator.url, tmp_path / str(number), 1.0, **options))
        together([agent.step for agent in agents])
        wait_until(lambda: len(started) == 30)
    threads = [threading.Thread(target=agent.run, daemon=True) for agent in agents]
    for thread in threads:
        thread.start()
    now[0] = min(started) - 0.01
    time.sleep(0.7)
    assert ended == [], "no lease ends before its time"
    assert all(agent.status()["working"] == 0 for agent in agents)
    now[0] = max(started)
    wait_until(lambda: len(set(ended)) == 30, 5.0)
    assert all(5000.0 + lease <= until <= 5000.0 + lease + 30.0 for until in started), "and how long it was held"
    now[0] = 5600.0
    time.sleep(0.3)
    assert all(agent.status()["working"] is None for agent in agents)
    assert len(started) == 30, "nobody starts again by itself"
    for agent in agents:
        agent.stop()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def together(calls: list) -> None:
    """Each in a thread of its own; all must succeed."""
    done: list[object] = []
    threads = [threading.Thread(target=lambda call=call: done.append(call()), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == len(calls)


def test_after_a_kill_every_lease_ends_in_real_time(tmp_path: Path) -> None:
    """kill -9 of a real coordinator: every device's process is gone within its lease and a second, none before."""
    lease, devices, arguments = 2.0, 4, "--capacity 3 --missing absent --port 0 --operator-port 0 --log-format json"
    arguments += f" --round-seconds 0.4 --deadline 1 --lease {lease} --wait-for {devices} --run killed"
    serve = [sys.executable, "-m", "turnout", "serve", "--store", str(tmp_path / "run.db"), *arguments.split()]
    process = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        url = re.search(r"http://[\d.:]+", [process.stdout.readline().decode() for _ in range(3)][1])[0]
        store, agents, works = open_store(str(tmp_path / "run.db")), [], []
        for number, code in enumerate(codes_for(store, devices)):
            works.append(Watched(tmp_path / f"work-{number}", time.monotonic))
            options = {"code": code, "coins": Yes(), "work": works[-1], "clock": time.monotonic, "disk": Unsynced()}
            agents.append(agent_with(url, tmp_path / str(number), 1.0, limit=LIMIT, **options))
        store.close()
        threads = [threading.Thread(target=agent.run, daemon=True) for agent in agents]
        for thread in threads:
            thread.start()
        wait_until(lambda: all(len(work.granted) >= 3 for work in works))
        assert all(alive(pid) for work in works for pid in work.processes)
        assert all(len(set(work.processes)) == 1 for work in works), "renewed, work goes on"
    finally:
        process.kill()
        process.communicate(timeout=20)
    killed = time.monotonic()
    for work in works:
        wait_until(lambda work=work: work.ended, lease + 2.0)
        until = max(until for _, until in work.granted)
        assert until <= killed + lease
        assert until <= work.ended[-1] <= until + 1.0
        assert not any(map(alive, work.processes))
    for agent in agents:
        agent.stop()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("up", "down"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)])
def test_a_slow_network_moves_no_lease_beyond_its_end(tmp_path: Path, up: float, down: float) -> None:
    lease = 3.0
    store = begun(tmp_path / "run.db", usual_rules(Timing(0.0, deadline=5.0, lease=lease)))
    [code] = codes_for(store, 1)
    granted: list[tuple[float, float]] = []
    with running(store) as coordinator, Wiretap(coordinator.url) as tap:
        options = {"code": code, "coins": Yes(), "limit": LIMIT, "clock": time.monotonic, "disk": Unsynced()}
        options["on_participate"] = lambda one: granted.append((time.monotonic(), one.until))
        with agent_with(tap.url, tmp_path / "device", 1.0, **options) as agent:
            agent.step()
            tap.delay_up, tap.delay_down = up, down
            agent.step()
            wait_until(lambda: len(granted) == 2)
        closed = coordinator.coordinator.sync.closed.answered(1).closed
    heard, until = granted[1]
    assert closed + lease - up - 1.0 <= until <= closed + lease, "never longer than the coordinator meant"
    if down:
        assert heard + lease > closed + lease + 0.9 * down, "counted from the answer, it would be too long"


def test_an_answer_that_comes_after_its_lease_starts_nothing(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(Timing(0.0, deadline=5.0, lease=0.5)))
    [code] = codes_for(store, 1)
    granted: list[object] = []
    with running(store) as coordinator, Wiretap(coordinator.url) as tap:
        options = {"code": code, "coins": Yes(), "limit": LIMIT, "disk": Unsynced(), "on_participate": granted.append}
        with agent_with(tap.url, tmp_path / "device", 1.0, **options) as agent:
            agent.join()
            tap.delay_down = 0.8
            done = agent.step()
            assert (done.participates, done.counted, done.lease) == (True, True, 0.0)
            tap.delay_down = 0.0
            assert agent.step().lease > 0.0
            wait_until(lambda: granted)
    assert [one.round for one in granted] == [1]  # type: ignore[attr-defined]


# Nobody is forced on.


def chance(rules: Rules, signal: float, cost: float) -> float:
    """Of a device without a history, whose cost is a x^2: from public data and its cost."""
    average = average_of(np.array([rules.prior.participations]), rules.prior.rounds)
    wanted = intent(signal, 1, average, PolynomialCosts([[cost]], powers=(2,)).slope(average))
    return float(rules.mechanism.probability(wanted, Public(average, signal))[0])


def first_bits(record) -> dict[int, tuple[int, int]]:
    """{round: (how many had their first round there, how many of them said yes)}."""
    found, known = {}, np.zeros(record.devices, np.bool_)
    for number, seen in sorted(record.rounds.items()):
        new = seen.decided & ~known
        known |= seen.decided
        if new.any():
            found[number] = (int(new.sum()), int(seen.bits[new].sum()))
    return found


@pytest.mark.parametrize("mechanism", [Clamp(1.0), PaperCoin(1.0)], ids=lambda one: one.kind)
def test_at_the_start_and_at_joining_everyone_comes_by_chance(tmp_path: Path, mechanism) -> None:
    """As many as the mechanism says, not all; with real coins. False alarm: 1e-6 for each group of devices."""
    rules = usual_rules(SHORT, mechanism=mechanism, wait_for=200, prior=Prior(0.25, 4))
    store, cost, seen = begun(tmp_path / "run.db", rules, capacity=80.0), 1.4, 0
    codes = codes_for(store, 400)
    with running(store) as coordinator:
        for these in (codes[:200], codes[200:]):
            costs = PolynomialCosts([[cost]] * 200, powers=(2,))
            record = asyncio.run(Fleet(coordinator.url, costs, these).run(2))
            for number, (devices, came) in first_bits(record).items():
                expected = chance(rules, record.rounds[number].signal, cost)
                assert 0.05 < expected < 0.95
                assert_proportion(came, devices, expected)
                seen += devices
                with pytest.raises(AssertionError):  # the paper's start, where everyone comes
                    assert_proportion(200, 200, expected)
    assert seen == 400


def test_nobody_comes_at_a_signal_that_calls_nobody(tmp_path: Path) -> None:
    """Exactly: without a coin, and with a signal of next to nothing, the first round is empty, also of who joins."""
    rules = usual_rules(
        Timing(0.0, deadline=1.0, hold=5.0), mechanism=Classical(), controller=SelfTuningController(1e-12), wait_for=5
    )
    store = begun(tmp_path / "run.db", rules, capacity=3.0)
    with running(store) as coordinator:
        options = {"accept_uncertified": True, "limit": LIMIT, "disk": Unsynced()}
        agents = [
            agent_with(coordinator.url, tmp_path / str(number), 1.0, code=code, **options)
            for number, code in enumerate(codes_for(store, 5))
        ]
        done = []
        together([lambda agent=agent: done.append(agent.step()) for agent in agents])
        [code] = codes_for(store, 1)
        late = agent_with(coordinator.url, tmp_path / "late", 1.0, code=code, **options)
        together([lambda agent=agent: done.append(agent.step()) for agent in [*agents, late]])
        for agent in [*agents, late]:
            agent.close()
    assert len(done) == 11
    assert not any(one.participates for one in done)
    assert [closed.participants for closed in open_store(str(tmp_path / "run.db")).history()][:2] == [0, 0]
