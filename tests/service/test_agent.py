"""The agent: never tosses twice, acts only on what is acknowledged, and is safe from its coordinator."""

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from client.faults import CountingCoins, FailingDisk
from service.fake_coordinator import CLAMP, TOKEN, ChaoticWire, DirectWire, FakeCoordinator, served
from turnout.algorithm.client import Averaging
from turnout.algorithm.coins import SeededCoins
from turnout.algorithm.mechanisms.clamp import Clamp
from turnout.algorithm.mechanisms.memoized import Memoized
from turnout.privacy.journal import InUse
from turnout.privacy.ledger import Limit
from turnout.problem.costs import PolynomialCosts
from turnout.service.agent.agent import ALL_ROUNDS, ASKED, BUDGET, Agent
from turnout.service.agent.agreement import Declined, agree
from turnout.service.agent.connection import Unreachable
from turnout.service.agent.device_rounds import AgentProblem
from turnout.service.agent.dialogue import RefusedByCoordinator, Revoked
from turnout.service.agent.status import read_status
from turnout.service.protocol import ProtocolProblem

URL = "http://coordinator.example"


def make(folder, coordinator, **options):
    options = {"wire": DirectWire(coordinator), "code": "GOOD-CODE", "sleep": lambda seconds: None} | options
    return Agent(options.pop("url", URL), folder, options.pop("costs", 3.0), **options)


def on_file(folder, run="run"):
    """{round: (bit, counted)} of the device, tosses and lost rounds."""
    found = {}
    for line in (folder / run / "rounds.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["entry"] == "decided" and entry["kind"] != "lost":
            found[entry["round"]] = (entry["participates"], entry["counted"])
        elif entry["entry"] == "acknowledged" and entry["round"] in found:
            found[entry["round"]] = (found[entry["round"]][0], entry["counted"])
    return found


def reserved(folder):
    entries = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [entry["round"] for entry in entries if entry["entry"] == "reserved"]


def average(books, rounds, prior=(0.5, 10)):
    return (prior[0] * prior[1] + sum(bit and counted for bit, counted in books.values())) / (prior[1] + rounds)


class TestRounds:
    def test_both_histories_agree_also_where_the_coordinator_does_not_count(self, tmp_path):
        coordinator = FakeCoordinator(counts=lambda round, bit: round % 3 != 0)
        agent = make(tmp_path, coordinator, coins=SeededCoins(4))
        for _ in range(30):
            agent.step()
        assert {bit for bit, _ in coordinator.books.values()} == {True, False}
        assert on_file(tmp_path) == coordinator.books
        assert agent.status()["average"] == pytest.approx(average(coordinator.books, 30), rel=1e-14)
        assert reserved(tmp_path) == list(range(30))
        agent.close()

    def test_it_enrols_once_and_continues_without_the_code(self, tmp_path):
        coordinator = FakeCoordinator()
        assert make(tmp_path, coordinator).run(rounds=3) == ALL_ROUNDS
        assert make(tmp_path, coordinator, code=None).run(rounds=2) == ALL_ROUNDS
        assert make(tmp_path, coordinator).run(rounds=2) == ALL_ROUNDS  # the same code again: the same device
        assert len(coordinator.nonces) == 1
        assert on_file(tmp_path) == coordinator.books
        assert len(coordinator.books) == 7
        for name in ("agent.json", "ledger.jsonl", "run/rounds.jsonl", "agent.lock"):
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
        with pytest.raises(ValueError, match="url must be"):
            make(tmp_path, coordinator, url="http://elsewhere.example").run(rounds=1)

    def test_a_lost_welcome_is_asked_for_again_as_the_same_device(self, tmp_path):
        coordinator = FakeCoordinator()

        def lost(method, path, body):
            coordinator.enrol(json.loads(body))
            return 0, b""

        coordinator.scripted = [lost]

        class Stop(BaseException):
            pass

        def give_up(seconds):
            raise Stop

        with served(coordinator) as url:
            with pytest.raises(Stop), Agent(url, tmp_path, 3.0, code="GOOD-CODE", sleep=give_up) as agent:
                agent.step()
            assert (tmp_path / "enrolling.json").stat().st_mode & 0o777 == 0o600
            with Agent(url, tmp_path, 3.0) as agent:
                agent.step()
        assert len(coordinator.nonces) == 2
        assert len(set(coordinator.nonces)) == 1
        assert not (tmp_path / "enrolling.json").exists()

    def test_the_stored_bit_is_sent_again_after_a_restart_and_never_tossed_again(self, tmp_path):
        coordinator = FakeCoordinator()
        make(tmp_path, coordinator, coins=CountingCoins(1)).run(rounds=2)

        class Cut(DirectWire):
            def send(self, method, path, body, token):
                if path == "/v1/report":
                    super().send(method, path, body, token)
                    raise SystemExit
                return super().send(method, path, body, token)

        with pytest.raises(SystemExit):
            make(tmp_path, coordinator, wire=Cut(coordinator), coins=CountingCoins(2)).run()
        assert on_file(tmp_path)[2][1] is None  # sent, but the answer is not known
        coins = CountingCoins(3)
        make(tmp_path, coordinator, coins=coins).run(rounds=2)
        assert coins.tossed == [3]
        sent = [report for report in coordinator.reports() if report["round"] == 2]
        assert len(sent) == 2
        assert sent[0] == sent[1]
        assert on_file(tmp_path) == coordinator.books

    @pytest.mark.parametrize("seed", range(4))
    def test_lost_doubled_delayed_and_reordered_messages_change_nothing(self, tmp_path, seed):
        coordinator = FakeCoordinator(counts=lambda round, bit: round % 5 != 1)
        coins, wire = CountingCoins(seed), ChaoticWire(coordinator, seed)
        with make(tmp_path, coordinator, wire=wire, coins=coins) as agent:
            while coordinator.open < 150:
                agent.step()
            agent.step()
        assert wire.faults > 100
        assert max(Counter(coins.tossed).values()) == 1
        mine = on_file(tmp_path)
        assert {round: mine[round] for round in coordinator.books} == coordinator.books
        assert all(len({report["participates"] for report in coordinator.reports() if report["round"] == round}) == 1
                   for round in coordinator.books)  # fmt: skip
        assert len(reserved(tmp_path)) >= len(coordinator.books)

    def test_missed_rounds_count_as_not_participating(self, tmp_path):
        coordinator = FakeCoordinator()
        with make(tmp_path, coordinator) as agent:
            agent.step()
            coordinator.open = 7
            agent.step()  # what it was offered has closed without it
            agent.step()
            assert agent.status()["average"] == pytest.approx(average(coordinator.books, 8), rel=1e-14)
        assert set(coordinator.books) == {0, 7}

    def test_a_lost_round_is_not_reported_and_the_next_one_is_waited_for(self, tmp_path):
        coordinator = FakeCoordinator()
        with make(tmp_path, coordinator, disk=FailingDisk()) as agent:
            agent.step()
            steps = agent._disk.steps
            agent.step()
            each = agent._disk.steps - steps
            agent._disk.at = agent._disk.steps + each - 4  # the bit of round 2 cannot be stored
            coordinator.scripted = []
            pauses = []

            def sleep(seconds):
                pauses.append(seconds)
                if len(pauses) > 3:
                    coordinator.open = 3

            agent._sleep = sleep
            assert agent.step() is None
            assert "cannot be written" in agent.status()["problem"]
            assert agent.step().outcome == "lost"
            assert agent.step().round == 3
            assert agent.status()["lost_rounds"] == 1
        assert 2 not in {report["round"] for report in coordinator.reports()}

    def test_a_full_disk_is_waited_for_and_nothing_is_tossed_twice(self, tmp_path):
        coordinator = FakeCoordinator()
        coins, disk, pauses = CountingCoins(1), FailingDisk(), []

        def sleep(seconds):
            pauses.append(seconds)
            if len(pauses) % 5 == 0:
                coordinator.open += 1  # a lost round closes without the device

        with make(tmp_path, coordinator, disk=disk, coins=coins, sleep=sleep) as agent:
            agent.join()
            for at in range(1, 60):
                disk.at, disk.lasting = disk.steps + at % 12 + 1, at % 3 == 0
                agent.step()
                disk.at = 0
                if at % 7 == 0:
                    coordinator.open += 1  # a round that the device has missed
            for _ in range(3):
                agent.step()
        assert max(Counter(coins.tossed).values()) == 1
        mine = on_file(tmp_path)
        assert {round: mine[round] for round in coordinator.books} == coordinator.books

    def test_a_coordinator_that_was_restored_gets_what_is_on_file(self, tmp_path):
        coordinator = FakeCoordinator()
        coins = CountingCoins(1)
        with make(tmp_path, coordinator, coins=coins) as agent:
            for _ in range(10):
                agent.step()
            before = dict(coordinator.books)
            coordinator.open = 4
            coordinator.books = {round: code for round, code in before.items() if round < 4}
            outcomes = [agent.step().outcome for _ in range(8)]
            assert outcomes == ["ahead"] + ["accepted"] * 7
        assert {round: coordinator.books[round] for round in before} == before
        assert max(Counter(coins.tossed).values()) == 1

    def test_a_coordinator_that_is_too_far_back_is_given_up(self, tmp_path):
        coordinator = FakeCoordinator()
        coordinator.open = 1000
        with make(tmp_path, coordinator) as agent:
            agent.step()
            coordinator.open = 4
            assert agent.step().outcome == "ahead"
            with pytest.raises(AgentProblem, match="Enrol in a new run"):
                agent.step()

    def test_a_round_before_its_own_is_sat_out(self, tmp_path):
        coordinator = FakeCoordinator()
        with make(tmp_path, coordinator) as agent:
            agent.step()
            coordinator.open = 5
            agent.step()
            agent.step()
            coordinator.open = 3  # 3 was missed and never decided
            coordinator.books.pop(5)
            agent._sleep = lambda seconds: setattr(coordinator, "open", 5)
            assert [agent.step().outcome for _ in range(3)] == ["ahead", "missed", "accepted"]

    def test_another_bit_at_the_coordinator_ends_the_round_and_a_copied_folder_the_agent(self, tmp_path):
        coordinator, works = FakeCoordinator(lease=60.0), []
        with make(tmp_path, coordinator, on_participate=works.append, coins=SeededCoins(1)) as agent:
            agent.step()

            def other(method, path, body):
                report = json.loads(body)
                coordinator.books[report["round"]] = (not report["participates"], True)
                coordinator.open = report["round"] + 1

            coordinator.scripted = [other]
            done = agent.step()
            assert (done.outcome, done.counted, done.lease) == ("conflict", False, 0.0)
            assert on_file(tmp_path)[1][1] is False
            assert agent.step().outcome == "accepted"
            coordinator.scripted = [other, other, other]
            assert [agent.step().outcome for _ in range(2)] == ["conflict", "conflict"]
            with pytest.raises(AgentProblem, match="copy of this folder"):
                agent.step()
            assert agent.status()["working"] is None

    def test_two_agents_in_one_folder_are_refused(self, tmp_path):
        coordinator = FakeCoordinator()
        with make(tmp_path, coordinator) as agent:
            agent.step()
            with pytest.raises(InUse, match="another agent runs"), make(tmp_path, coordinator) as second:
                second.step()

    def test_a_cost_function_is_called_in_each_round_and_may_fail(self, tmp_path):
        coordinator, costs = FakeCoordinator(), [3.0, OSError("no sensor"), 4.0, -1.0, PolynomialCosts([[5.0]], (2,))]
        left = iter(costs)

        def measure():
            cost = next(left, 6.0)
            if isinstance(cost, Exception):
                raise cost
            return cost

        problems = []
        with make(tmp_path, coordinator, costs=measure, on_problem=problems.append) as agent:
            for _ in range(8):
                agent.step()
        assert any("no sensor" in problem for problem in problems)
        assert on_file(tmp_path) == coordinator.books
        assert len(coordinator.books) >= 4
        with pytest.raises(ValueError, match="strictly convex"):
            make(tmp_path, coordinator, costs=-1.0)


class TestBudget:
    def test_the_hard_stop_leaves_the_run(self, tmp_path):
        coordinator, ends = FakeCoordinator(lease=60.0), []
        agent = make(tmp_path, coordinator, limit=Limit(5, 1.0), on_stop=lambda: ends.append(1), coins=_Always())
        assert agent.run() == BUDGET
        assert coordinator.left
        assert len(coordinator.books) == len(reserved(tmp_path)) == 5
        assert agent.account().rounds == 5
        assert ends
        assert make(tmp_path, coordinator).run() == BUDGET  # for good
        assert len(coordinator.books) == 5

    def test_following_goes_on_without_the_ledger(self, tmp_path):
        coordinator = FakeCoordinator()
        assert make(tmp_path, coordinator, limit=Limit(5, 1.0), after_stop="follow").run(rounds=9) == ALL_ROUNDS
        assert len(coordinator.books) == 9
        assert len(reserved(tmp_path)) == 5

    def test_a_memoized_device_releases_once(self, tmp_path):
        memoized = {"kind": "memoized", "epsilon": 4.0, "price": 10.0}
        coordinator = FakeCoordinator(mechanism=memoized | {"levels": [0.2, 0.5, 0.8], "least": []})
        with pytest.raises(Declined, match="epsilon 4 per lifetime"):
            make(tmp_path / "a", FakeCoordinator(mechanism=memoized)).run(rounds=1)
        for _ in range(2):
            assert make(tmp_path / "b", coordinator, limit=Limit(1, 4.0)).run(rounds=5) == ALL_ROUNDS
        assert len(reserved(tmp_path / "b")) == 1
        assert on_file(tmp_path / "b") == coordinator.books


class TestLease:
    def test_work_starts_on_an_acknowledged_yes_alone(self, tmp_path):
        coordinator, started = FakeCoordinator(lease=60.0, counts=lambda round, bit: round % 2 == 0), []
        with make(tmp_path, coordinator, on_participate=started.append, coins=SeededCoins(2)) as agent:
            for _ in range(20):
                done = agent.step()
                bit, counted = coordinator.books[done.round]
                assert (done.lease > 0.0) == (bit and counted)
                _until(lambda: agent.status()["working"] == (done.round if bit and counted else None))  # noqa: B023
            _until(lambda: [one.round for one in started] == [r for r, (b, c) in coordinator.books.items() if b and c])
        assert not (tmp_path / "working.json").exists()

    @pytest.mark.parametrize(("bit", "counted"), [(True, False), (False, True), (False, False)])
    def test_a_lease_for_what_was_not_counted_starts_nothing(self, tmp_path, bit, counted):
        coordinator, started = FakeCoordinator(), []
        coins = _Always() if bit else _Never()
        with make(tmp_path, coordinator, on_participate=started.append, coins=coins) as agent:
            agent.join()
            answer = {"round": 0, "outcome": "accepted", "counted": counted, "lease": 60.0, "next": None}
            coordinator.scripted = [None, (200, answer)]
            done = agent.step()
            assert (done.participates, done.lease) == (bit, 0.0)
        assert started == []

    def test_work_that_was_left_on_is_ended_before_anything_is_asked(self, tmp_path):
        coordinator, asked = FakeCoordinator(), []
        (tmp_path / "working.json").write_text('{"run": "run", "round": 7}')

        def off():
            time.sleep(0.2)
            asked.append(len(coordinator.received))

        make(tmp_path, coordinator, on_stop=off).run(rounds=1)
        assert asked[0] == 0

    def test_a_lease_ends_on_time_while_a_request_is_held(self, tmp_path):
        coordinator, ends = FakeCoordinator(lease=0.4, signal=lambda round: 1e9), []
        with served(coordinator) as url:
            agent = make(tmp_path, coordinator, url=url, wire=None, on_stop=lambda: ends.append(time.monotonic()),
                         coins=_Always())  # fmt: skip
            begun = time.monotonic()
            agent.step()
            coordinator.holds = True
            thread = threading.Thread(target=agent.run)
            thread.start()
            assert coordinator.held.wait(5)
            _until(lambda: ends)
            assert 0.3 < ends[0] - begun < 1.0
            begun = time.monotonic()
            agent.stop()
            assert time.monotonic() - begun < 0.2
            thread.join(1.0)
            assert not thread.is_alive()
            assert agent.status()["ended"] == ASKED

    def test_a_lease_ends_by_itself_while_the_coordinator_is_dead_and_work_goes_on_afterwards(self, tmp_path):
        coordinator, ends, dead = FakeCoordinator(lease=0.3), [], threading.Event()

        class Dying(DirectWire):
            def send(self, method, path, body, token):
                if dead.is_set():
                    raise Unreachable("nobody there")
                return super().send(method, path, body, token)

        agent = make(tmp_path, coordinator, wire=Dying(coordinator), sleep=lambda seconds: time.sleep(0.01),
                     coins=_Always(), on_stop=lambda: ends.append(time.monotonic()))  # fmt: skip
        agent.step()
        dead.set()
        begun = time.monotonic()
        thread = threading.Thread(target=agent.run)
        thread.start()
        _until(lambda: ends)
        assert ends[0] - begun < 0.8
        time.sleep(0.2)
        assert agent.status()["working"] is None
        dead.clear()
        _until(lambda: agent.status()["working"])
        agent.stop()
        thread.join(5)
        assert on_file(tmp_path)[0] == coordinator.books[0]

    def test_stop_ends_work_at_once_also_between_tries(self, tmp_path):
        coordinator, ends = FakeCoordinator(lease=60.0), []
        with served(coordinator) as url:
            agent = make(tmp_path, coordinator, url=url, wire=None, sleep=None, coins=_Always(),
                         on_stop=lambda: ends.append(1))  # fmt: skip
            agent.step()
            _until(lambda: agent.status()["working"] == 0)
            coordinator.scripted = [(503, {"error": "busy", "message": "busy"}, 60)] * 9
            thread = threading.Thread(target=agent.run)
            thread.start()
            _until(lambda: len(coordinator.scripted) < 9)
            agent.stop()
            thread.join(1.0)
            assert not thread.is_alive()
            assert ends
            assert not (tmp_path / "working.json").exists()

    def test_years_are_cut_to_the_longest_lease(self, tmp_path):
        coordinator, started = FakeCoordinator(lease=1e12), []
        with make(tmp_path, coordinator, on_participate=started.append, coins=_Always()) as agent:
            assert agent.step().lease <= 3600.0
            _until(lambda: started)
            assert started[0].seconds <= 3600.0

    def test_the_lease_counts_from_sending_and_a_late_answer_starts_nothing(self, tmp_path):
        coordinator, now, started = FakeCoordinator(lease=10.0), [1000.0], []

        def late(method, path, body):
            now[0] += 11.0

        with make(tmp_path, coordinator, clock=lambda: now[0], on_participate=started.append, coins=_Always()) as agent:
            agent.join()
            coordinator.scripted = [None, late]
            done = agent.step()
            assert done.participates
            assert done.counted
            assert done.lease == 0.0
        assert started == []

    def test_the_wall_clock_is_never_asked(self, tmp_path, monkeypatch):
        def jumped():
            raise AssertionError("the wall clock decides nothing")

        coordinator = FakeCoordinator(lease=0.3)
        ends = []
        with make(tmp_path, coordinator, coins=_Always(), on_stop=lambda: ends.append(1)) as agent:
            monkeypatch.setattr(time, "time", jumped)
            agent.step()
            _until(lambda: ends)


class TestHostileCoordinator:
    @pytest.mark.parametrize("signal", [-1.0, 0.0, 1e308, 10**400, -(10**400), 5e-324, 10**4000], ids=str)
    def test_any_signal_keeps_the_box(self, tmp_path, signal):
        coordinator = FakeCoordinator(signal=lambda round: signal)
        with make(tmp_path, coordinator, coins=SeededCoins(1)) as agent:
            for _ in range(40):
                agent.step()
        bits = [bit for bit, _ in coordinator.books.values()]
        assert {True, False} == set(bits)  # in the box of Clamp(1) neither has a chance below 0.26

    @pytest.mark.parametrize("signal", [b"NaN", b"Infinity", b"-Infinity", b'"3"', b"null", b"true", b"[1]"])
    def test_what_is_no_number_is_no_offer(self, tmp_path, signal):
        coordinator = FakeCoordinator()
        problems = []
        with make(tmp_path, coordinator, on_problem=problems.append) as agent:
            agent.join()
            coordinator.scripted = [(200, b'{"run": "run", "round": 0, "signal": ' + signal + b"}")]
            agent.step()
        assert len(problems) == 1
        assert len(coordinator.books) == 1

    def test_infinity_as_json_writes_it_is_a_signal_like_any_other(self, tmp_path):
        coordinator = FakeCoordinator()
        with make(tmp_path, coordinator) as agent:
            agent.join()
            coordinator.scripted = [(200, b'{"run": "run", "round": 0, "signal": 1e999}')]
            assert agent.step().outcome == "accepted"

    @pytest.mark.parametrize(
        "mechanism",
        [
            {"kind": "paper-coin", "beta": 3.5},
            {"kind": "classical"},
            {"kind": "clamp", "epsilon": 1.5},
            {"kind": "clamp", "epsilon": 1e300},
            {"kind": "clamp", "epsilon": -1},
            {"kind": "clamp", "epsilon": [1.0, 1.0]},
            {"kind": "clamp", "epsilon": "1"},
            {"kind": "clamp", "epsilon": {"a": 1}},
            {"kind": "clamp", "epsilon": True},
            {"kind": "clamp", "epsilon": 1.0, "__class__": 1},
            {"kind": "clamp", "epsilon": 1.0, "center": 1e-300},
            {"kind": "memoized", "epsilon": 0.5, "price": 10**400},
            {"kind": "memoized", "epsilon": 0.5, "price": 1.0, "levels": [0.5] * 5000},
            {"kind": "memoized", "epsilon": 0.5, "price": 1.0, "levels": [[0.5], [0.1]]},
            {"kind": "learned-memoized", "epsilon": 0.5, "price": 1.0},
            {"kind": "paper-coin", "beta": [3.5] * 10000},
            {"kind": "../clamp"},
            {"kind": ["clamp"]},
            {},
        ],
        ids=lambda mechanism: str(mechanism)[:60],
    )
    def test_what_its_owner_has_not_allowed_is_declined_before_anything_is_reported(self, tmp_path, mechanism):
        coordinator = FakeCoordinator(mechanism=mechanism)
        with pytest.raises(Declined), make(tmp_path, coordinator) as agent:
            agent.step()
        assert coordinator.reports() == []
        assert not (tmp_path / "ledger.jsonl").exists()

    def test_consent_is_explicit_and_recorded(self, tmp_path):
        coordinator = FakeCoordinator(mechanism={"kind": "paper-coin", "beta": 3.5})
        make(tmp_path, coordinator, consent=True).run(rounds=2)
        assert read_status(tmp_path)["limit_epsilon_per_report"] == math.inf
        with pytest.raises(Declined, match="no certificate"):
            make(tmp_path, coordinator).run(rounds=1)
        larger = FakeCoordinator(mechanism=CLAMP | {"epsilon": 2.0})
        make(tmp_path / "b", larger, consent=True).run(rounds=2)
        assert read_status(tmp_path / "b")["limit_epsilon_per_report"] == 2.0
        own = make(tmp_path / "c", FakeCoordinator(mechanism=CLAMP | {"epsilon": 2.0}), mechanism=Clamp(0.5))
        assert own.join()[1].certificate.epsilon == 0.5
        own.close()

    def test_a_limit_is_raised_by_its_owner_alone(self, tmp_path):
        coordinator = FakeCoordinator()
        make(tmp_path, coordinator, limit=Limit(3, 1.0)).run(rounds=1)
        with pytest.raises(ValueError, match="limit must be at most"):
            make(tmp_path, coordinator, limit=Limit(9, 1.0)).run(rounds=1)
        make(tmp_path, coordinator, limit=Limit(9, 1.0), raise_limit=True).run(rounds=1)
        assert read_status(tmp_path)["limit_reports"] == 9

    @pytest.mark.parametrize(
        "welcome",
        [
            {"run": "../../etc"},
            {"run": "a/b"},
            {"run": ""},
            {"run": "x" * 64},
            {"run": 5},
            {"token": "short"},
            {"token": "a" * 30 + "\r\nX-Evil: 1"},
            {"weight": 0},
            {"weight": 2**50},
            {"weight": 1.5},
            {"prior_average": 0.0},
            {"prior_average": 1.5},
            {"prior_average": 10**400},
            {"prior_rounds": 10**400},
            {"prior_rounds": -1},
            {"remember": 0.5},
            {"remember": "x"},
            {"by": "cost"},
            {"mechanism": [1]},
            {"offer": {"round": 2**53, "signal": 1.0}},
            {"offer": {"round": -1, "signal": 1.0}},
            {"offer": None},
            {"version": 2},
        ],
        ids=str,
    )
    def test_a_welcome_that_no_honest_coordinator_sends_leaves_nothing_behind(self, tmp_path, welcome):
        coordinator = FakeCoordinator(**welcome)
        with pytest.raises((ProtocolProblem, ValueError)), make(tmp_path, coordinator) as agent:
            agent.step()
        assert sorted(os.listdir(tmp_path)) == ["agent.lock", "enrolling.json"]

    def test_a_box_that_follows_a_private_average_is_declined(self, tmp_path):
        coordinator = FakeCoordinator(by="probability", mechanism={"kind": "tracking-clamp", "epsilon": 1.0})
        with pytest.raises(Declined, match="averaging by 'probability'"), make(tmp_path, coordinator) as agent:
            agent.step()

    def test_another_run_under_the_same_token_is_refused(self, tmp_path):
        coordinator = FakeCoordinator()
        with make(tmp_path, coordinator) as agent:
            agent.join()
            coordinator.scripted = [(200, {"run": "other", "round": 0, "signal": 1.0})]
            with pytest.raises(RefusedByCoordinator, match="runs 'other' now"):
                agent.step()
            coordinator.scripted = [None, (409, {"error": "run", "message": "x", "next": None})]
            with pytest.raises(RefusedByCoordinator, match="new code"):
                agent.step()

    def test_absurd_rounds_spend_no_more_than_the_budget(self, tmp_path):
        rounds = iter([2**53 - 1, 2**60, -5, 3])
        coordinator = FakeCoordinator()
        with make(tmp_path, coordinator) as agent:
            agent.join()
            coordinator.scripted = [
                *((200, {"run": "run", "round": round, "signal": 1.0}) for round in list(rounds)[1:3]),
                (200, {"run": "run", "round": 2**53 - 1, "signal": 1.0}),
            ]
            assert agent.step().outcome == "ahead"
            with pytest.raises(AgentProblem, match="reported up to round 9007199254740991"):
                agent.step()
        assert len(reserved(tmp_path)) == 1

    def test_a_next_round_that_goes_backwards_is_not_followed_in_haste(self, tmp_path):
        coordinator, pauses = FakeCoordinator(), []
        stuck = {"outcome": "confirmed", "counted": True, "lease": 0, "next": {"round": 0, "signal": 1.0}}
        with make(tmp_path, coordinator, sleep=pauses.append) as agent:
            agent.step()
            coordinator.scripted = [(200, stuck | {"round": 0})] * 20
            agent._joined.rounds._offer = None
            coordinator.scripted.insert(0, (200, {"run": "run", "round": 0, "signal": 1.0}))
            for _ in range(20):
                agent.step()
        assert len(pauses) == 20
        assert sum(pauses) > 5.0
        assert len(reserved(tmp_path)) == 1

    def test_pending_at_once_is_not_answered_in_haste(self, tmp_path):
        coordinator, pauses = FakeCoordinator(), []
        pending = {"round": 0, "outcome": "pending", "counted": False, "lease": 99.0, "next": None}
        with make(tmp_path, coordinator, sleep=pauses.append) as agent:
            agent.join()
            coordinator.scripted = [None, *[(200, pending)] * 10]
            assert agent.step().outcome == "accepted"
        assert len(pauses) == 10

    @pytest.mark.parametrize(
        "reply",
        [
            (200, b"<html>log in to the network</html>"),
            (200, b"[" * 5000),
            (200, b""),
            (200, {"round": 9, "outcome": "accepted", "counted": True, "lease": 9, "next": None}),
            (200, {"round": 0, "outcome": "maybe", "counted": True, "lease": 9, "next": None}),
            (200, {"round": 0, "outcome": "accepted", "counted": 1, "lease": 9, "next": None}),
            (302, {"error": "moved", "message": "http://evil.example"}),
            (409, {"error": "ahead", "next": {"round": 5, "signal": 1.0}}),
            (409, {"error": "ahead", "next": None}),
            (409, {"error": "other"}),
            (400, {"error": "x", "message": "\x1b[2J" * 99}),
            (404, {}),
            (500, {}),
            (503, {}, 7.0),
            (429, {}, 7.0),
        ],
        ids=lambda reply: str(reply)[:60],
    )
    def test_any_other_reply_is_no_answer_and_starts_no_work(self, tmp_path, reply):
        coordinator, pauses, problems, started = FakeCoordinator(), [], [], []
        options = {"on_problem": problems.append, "on_participate": started.append, "sleep": pauses.append}
        with make(tmp_path, coordinator, coins=_Always(), **options) as agent:
            agent.join()
            coordinator.scripted = [None, reply, reply]
            assert agent.step().outcome == "accepted"
        assert len(pauses) == len(problems) == 2
        assert all(problem.isprintable() and len(problem) < 400 for problem in problems)
        assert started == []
        if len(reply) > 2:
            assert min(pauses) >= 7.0

    def test_pauses_grow_with_full_jitter_up_to_a_minute(self, tmp_path):
        coordinator, pauses = FakeCoordinator(), []
        with make(tmp_path, coordinator, sleep=pauses.append) as agent:
            agent.join()
            coordinator.scripted = [None, *[(500, {})] * 200]
            agent.step()
        assert max(pauses) <= 60.0
        assert all(pause <= 0.5 * 2**number for number, pause in enumerate(pauses[:7]))
        late = pauses[10:]
        assert 20.0 < sum(late) / len(late) < 40.0  # 190 draws from 0 to 60: 30 ± 1.3
        assert min(late) < 5.0

    def test_a_revoked_device_ends_its_work(self, tmp_path):
        coordinator, ends = FakeCoordinator(lease=60.0), []
        with make(tmp_path, coordinator, coins=_Always(), on_stop=lambda: ends.append(1)) as agent:
            agent.step()
            coordinator.scripted = [(401, {"error": "token", "message": "revoked"})]
            with pytest.raises(Revoked, match="new code"):
                agent.run()
        assert ends

    def test_a_wrong_code_is_refused_and_another_may_be_tried(self, tmp_path):
        coordinator = FakeCoordinator()
        with pytest.raises(RefusedByCoordinator, match="no such code"):
            make(tmp_path, coordinator, code="WRONG-CODE").run(rounds=1)
        with pytest.raises(ValueError, match="code must be"):
            make(tmp_path, coordinator, code=None).run(rounds=1)
        make(tmp_path, coordinator).run(rounds=1)
        assert len(coordinator.nonces) == 1


def test_nothing_private_leaves_the_device(tmp_path):
    secret = 3.14159
    coordinator = FakeCoordinator(counts=lambda round, bit: round % 4 != 0)
    with served(coordinator) as url:
        Agent(url, tmp_path, secret, code="GOOD-CODE", limit=Limit(20, 1.0)).run()
    assert {path for _, path, _, _ in coordinator.received} == {"/v1/enrol", "/v1/round", "/v1/report", "/v1/leave"}
    for method, path, body, token in coordinator.received:
        wanted = {"/v1/enrol": {"code", "nonce"}, "/v1/report": {"run", "round", "participates"}, "/v1/leave": set()}
        assert set(json.loads(body) if body else {}) == wanted.get(path, set())
        assert (method == "GET") == (body is None)
        assert token == (None if path == "/v1/enrol" else TOKEN)
    for headers in coordinator.headers:
        allowed = {"Host", "Accept", "Accept-Encoding", "Content-Type", "Content-Length", "Authorization"}
        assert set(headers) <= allowed
    crossed = repr(coordinator.received) + repr(coordinator.headers)
    for word in ("3.14159", "6.28318", "epsilon", "ledger", "average", "cost", "limit", str(tmp_path)):
        assert word not in crossed


@pytest.mark.parametrize("kind", ["killed", "torn"])
def test_killed_between_each_pair_of_durable_steps(tmp_path, kind):
    """A real process, kill -9 at every durable step of an enrolment and its first rounds; then it starts again."""
    script = Path(__file__).with_name("killed_agent.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), kind], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = json.loads(done.stdout.splitlines()[-1])
    assert len(cases) > 25
    for case in cases:
        assert case["killed"], case
        folder = tmp_path / str(case["step"])
        books = {int(round): tuple(code) for round, code in case["books"].items()}
        tosses = Counter((folder / "tosses.log").read_text().split()) if (folder / "tosses.log").exists() else {}
        assert max(tosses.values(), default=0) <= 1, case
        assert case["conflicts"] == 0, case
        mine = on_file(folder)
        assert {round: mine.get(round) for round in books} == books, case
        assert set(case["reported"]) <= set(reserved(folder)), case
        assert not (folder / "working.json").exists(), case
        assert case["nonces"] == 1, case
        if case["marked"]:  # work was on when it was killed: it was ended before anything else
            assert case["first_event"] == "stop", case
        assert case["average"] == pytest.approx(average(books, max(books) + 1), rel=1e-14), case
    assert any(case["marked"] for case in cases)


class _Always(SeededCoins):
    """Says yes whenever that is possible at all."""

    def __init__(self):
        super().__init__(0)

    def uniform(self, clients, round, purpose=0):
        return super().uniform(clients, round, purpose) * 0.0


class _Never(SeededCoins):
    """Says no whenever that is possible at all."""

    def __init__(self):
        super().__init__(0)

    def uniform(self, clients, round, purpose=0):
        return super().uniform(clients, round, purpose) * 0.0 + 0.999


def _until(true, seconds=5.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def test_what_was_released_at_joining_is_in_the_total_from_the_first_moment_on():
    mechanism = Memoized(6.0, price=9.97)
    sent = json.loads(json.dumps(mechanism.settings()))
    agreement = agree(sent, Averaging(), limit=Limit(10, 6.0))
    assert [agreement.total(reports, 1e-6).epsilon for reports in (0, 1, 500)] == [6.0, 6.0, 6.0]
    per_report = agree(Clamp(0.5).settings(), Averaging(), limit=Limit(10, 6.0))
    assert per_report.total(0, 1e-6).epsilon == 0.0
    assert 0.5 <= per_report.total(2, 1e-6).epsilon <= 1.0
