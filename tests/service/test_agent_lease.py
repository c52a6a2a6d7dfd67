"""The agent's work: it starts on an acknowledged yes alone, and ends by itself."""

import threading
import time

import pytest

from service.agents import Always, Never, make, on_file, until
from service.fake_coordinator import DirectWire, FakeCoordinator, served
from turnout.algorithm import SeededCoins
from turnout.service.agent.agent import ASKED
from turnout.service.network import Unreachable


def test_work_starts_on_an_acknowledged_yes_alone(tmp_path):
    coordinator, started = FakeCoordinator(lease=60.0, counts=lambda round, bit: round % 2 == 0), []
    with make(tmp_path, coordinator, on_participate=started.append, coins=SeededCoins(2)) as agent:
        for _ in range(20):
            done = agent.step()
            bit, counted = coordinator.books[done.round]
            assert (done.lease > 0.0) == (bit and counted)
            until(lambda: agent.status()["working"] == (done.round if bit and counted else None))  # noqa: B023
        until(lambda: [one.round for one in started] == [r for r, (b, c) in coordinator.books.items() if b and c])
    assert not (tmp_path / "working.json").exists()


@pytest.mark.parametrize(("bit", "counted"), [(True, False), (False, True), (False, False)])
def test_a_lease_for_what_was_not_counted_starts_nothing(tmp_path, bit, counted):
    coordinator, started = FakeCoordinator(), []
    coins = Always() if bit else Never()
    with make(tmp_path, coordinator, on_participate=started.append, coins=coins) as agent:
        agent.join()
        answer = {"round": 0, "outcome": "accepted", "counted": counted, "lease": 60.0, "next": None}
        coordinator.scripted = [None, (200, answer)]
        done = agent.step()
        assert (done.participates, done.lease) == (bit, 0.0)
    assert started == []


def test_work_that_was_left_on_is_ended_before_anything_is_asked(tmp_path):
    coordinator, asked = FakeCoordinator(), []
    (tmp_path / "working.json").write_text('{"run": "run", "round": 7}')

    def off():
        time.sleep(0.2)
        asked.append(len(coordinator.received))

    make(tmp_path, coordinator, on_stop=off).run(rounds=1)
    assert asked[0] == 0


def test_a_lease_ends_on_time_while_a_request_is_held(tmp_path):
    coordinator, ends = FakeCoordinator(lease=0.4, signal=lambda round: 1e9), []
    with served(coordinator) as url:
        agent = make(tmp_path, coordinator, url=url, wire=None, on_stop=lambda: ends.append(time.monotonic()),
                     coins=Always())  # fmt: skip
        begun = time.monotonic()
        agent.step()
        coordinator.holds = True
        thread = threading.Thread(target=agent.run)
        thread.start()
        assert coordinator.held.wait(5)
        until(lambda: ends)
        assert 0.3 < ends[0] - begun < 1.0
        begun = time.monotonic()
        agent.stop()
        assert time.monotonic() - begun < 0.2
        thread.join(1.0)
        assert not thread.is_alive()
        assert agent.status()["ended"] == ASKED


def test_a_lease_ends_by_itself_while_the_coordinator_is_dead_and_work_goes_on_afterwards(tmp_path):
    coordinator, ends, dead = FakeCoordinator(lease=0.3), [], threading.Event()

    class Dying(DirectWire):
        def send(self, method, path, body, token):
            if dead.is_set():
                raise Unreachable("nobody there")
            return super().send(method, path, body, token)

    agent = make(tmp_path, coordinator, wire=Dying(coordinator), sleep=lambda seconds: time.sleep(0.01),
                 coins=Always(), on_stop=lambda: ends.append(time.monotonic()))  # fmt: skip
    agent.step()
    dead.set()
    begun = time.monotonic()
    thread = threading.Thread(target=agent.run)
    thread.start()
    until(lambda: ends)
    assert ends[0] - begun < 3.0
    time.sleep(0.2)
    assert agent.status()["working"] is None
    dead.clear()
    until(lambda: agent.status()["working"])
    agent.stop()
    thread.join(5)
    assert on_file(tmp_path)[0] == coordinator.books[0]


def test_stop_ends_work_at_once_also_between_tries(tmp_path):
    coordinator, ends = FakeCoordinator(lease=60.0), []
    with served(coordinator) as url:
        agent = make(tmp_path, coordinator, url=url, wire=None, sleep=None, coins=Always(),
                     on_stop=lambda: ends.append(1))  # fmt: skip
        agent.step()
        until(lambda: agent.status()["working"] == 0)
        coordinator.scripted = [(503, {"error": "busy", "message": "busy"}, 60)] * 9
        thread = threading.Thread(target=agent.run)
        thread.start()
        until(lambda: len(coordinator.scripted) < 9)
        agent.stop()
        thread.join(1.0)
        assert not thread.is_alive()
        assert ends
        assert not (tmp_path / "working.json").exists()


def test_years_are_cut_to_the_longest_lease(tmp_path):
    coordinator, started = FakeCoordinator(lease=1e12), []
    with make(tmp_path, coordinator, on_participate=started.append, coins=Always()) as agent:
        assert agent.step().lease <= 3600.0
        until(lambda: started)
        assert started[0].seconds <= 3600.0


def test_the_lease_counts_from_sending_and_a_late_answer_starts_nothing(tmp_path):
    coordinator, now, started = FakeCoordinator(lease=10.0), [1000.0], []

    def late(method, path, body):
        now[0] += 11.0

    with make(tmp_path, coordinator, clock=lambda: now[0], on_participate=started.append, coins=Always()) as agent:
        agent.join()
        coordinator.scripted = [None, late]
        done = agent.step()
        assert done.participates
        assert done.counted
        assert done.lease == 0.0
    assert started == []


def test_the_wall_clock_is_never_asked(tmp_path, monkeypatch):
    def jumped():
        raise AssertionError("the wall clock decides nothing")

    coordinator = FakeCoordinator(lease=0.3)
    ends = []
    with make(tmp_path, coordinator, coins=Always(), on_stop=lambda: ends.append(1)) as agent:
        monkeypatch.setattr(time, "time", jumped)
        agent.step()
        until(lambda: ends)
