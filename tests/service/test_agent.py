"""The agent: never tosses twice, acts only on what is acknowledged, and is safe from its coordinator."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from client.faults import CountingCoins, FailingDisk
from service.agents import Always, agent_with, average, make, on_file, reserved
from service.fake_coordinator import TOKEN, ChaoticWire, DirectWire, FakeCoordinator, served
from turnout.algorithm import Clamp, Memoized, SeededCoins
from turnout.client import Limit
from turnout.files import Disk, InUse
from turnout.problem import PolynomialCosts
from turnout.service.agent.agent import ALL_ROUNDS, BUDGET
from turnout.service.agent.agreement import Declined
from turnout.service.agent.membership import read_status
from turnout.service.agent.rounds import AgentProblem


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
            with pytest.raises(Stop), agent_with(url, tmp_path, 3.0, code="GOOD-CODE", sleep=give_up) as agent:
                agent.step()
            assert (tmp_path / "enrolling.json").stat().st_mode & 0o777 == 0o600
            with agent_with(url, tmp_path, 3.0) as agent:
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
            steps = agent._seams.disk.steps
            agent.step()
            each = agent._seams.disk.steps - steps
            agent._seams.disk.at = agent._seams.disk.steps + each - 4  # the bit of round 2 cannot be stored
            coordinator.scripted = []
            pauses = []

            def sleep(seconds):
                pauses.append(seconds)
                if len(pauses) > 3:
                    coordinator.open = 3

            agent._seams = replace(agent._seams, sleep=sleep)
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
            agent._seams = replace(agent._seams, sleep=lambda seconds: setattr(coordinator, "open", 5))
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

    def test_a_round_in_conflict_is_sat_out_and_counts_once(self, tmp_path):
        """The coordinator holds another bit for the open round: it stays open for a while."""
        coordinator, pauses = FakeCoordinator(lease=60.0), []

        def contradicts(method, path, body):
            if path == "/v1/report" and json.loads(body)["round"] in (1, 2):
                return 409, {"error": "conflict", "message": "another bit", "next": following()}
            return None

        def sleep(seconds):
            pauses.append(seconds)
            if len(pauses) % 5 == 0:
                coordinator.open += 1  # the round closes, without this device's bit

        for following in (coordinator.offer, lambda: None):
            folder, coordinator.open, coordinator.books = tmp_path / following.__name__, 0, {}
            coordinator.nonces.clear()
            coordinator.scripted = [contradicts] * 100
            with make(folder, coordinator, coins=CountingCoins(1), sleep=sleep) as agent:
                done = [agent.step() for _ in range(4)]
                assert [one.outcome for one in done] == ["accepted", "conflict", "conflict", "accepted"]
                assert all(one.participates is not None and one.lease == 0.0 for one in done[1:3])
                assert agent.status()["working"] in (None, 3)
            assert [round for round, (_, counted) in on_file(folder).items() if counted is False] == [1, 2]
            sent = Counter(report["round"] for report in coordinator.reports())
            assert sent == {0: 1, 1: 1, 2: 1, 3: 1}
            coordinator.received.clear()

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
        agent = make(tmp_path, coordinator, limit=Limit(5, 1.0), on_stop=lambda: ends.append(1), coins=Always())
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
        words = r"epsilon 4 per lifetime .*, which is all that it ever gives away, .* \(--epsilon-per-release 4\.0, "
        with pytest.raises(Declined, match=words):
            make(tmp_path / "a", FakeCoordinator(mechanism=memoized)).run(rounds=1)
        for _ in range(2):
            limit = Limit(1, 1.0, epsilon_per_release=4.0)
            assert make(tmp_path / "b", coordinator, limit=limit).run(rounds=5) == ALL_ROUNDS
        assert len(reserved(tmp_path / "b")) == 0
        assert read_status(tmp_path / "b")["releases_made"] == 1
        assert on_file(tmp_path / "b") == coordinator.books


def test_nothing_private_leaves_the_device(tmp_path):
    secret = 3.14159
    coordinator = FakeCoordinator(counts=lambda round, bit: round % 4 != 0)
    with served(coordinator) as url:
        agent_with(url, tmp_path, secret, code="GOOD-CODE", limit=Limit(20, 1.0)).run()
    assert {path for _, path, _, _ in coordinator.received} == {"/v1/enrol", "/v1/round", "/v1/report", "/v1/leave"}
    for method, path, body, token in coordinator.received:
        wanted = {
            "/v1/enrol": {"code", "nonce"},
            "/v1/report": {"run", "round", "participates"},
            "/v1/leave": {"reason"},
        }
        said = json.loads(body) if body else {}
        if path == "/v1/report" and said["round"] >= 17:  # of 20 reports, 2 or fewer are left
            assert said.pop("reports_left") == 19 - said["round"]
        assert set(said) == wanted.get(path, set())
        assert said.get("reason", "budget") == "budget"
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


def test_what_was_released_at_joining_is_in_the_total_from_the_first_moment_on(tmp_path):
    memoized = FakeCoordinator(mechanism=json.loads(json.dumps(Memoized(6.0, price=9.97).settings())))
    with make(tmp_path / "a", memoized, limit=Limit(10, 6.0)) as agent:
        agent.join()
        assert (agent.account().epsilon, agent.at_most().epsilon) == (0.0, 6.0)
        agent.step()
        assert (agent.account().epsilon, agent.at_most().epsilon) == (6.0, 6.0)
    with make(tmp_path / "b", FakeCoordinator(mechanism=Clamp(0.5).settings()), limit=Limit(10, 6.0)) as agent:
        agent.join()
        assert agent.account().epsilon == 0.0
        agent.step()
        assert (agent.account().epsilon, agent.at_most().epsilon) == (
            pytest.approx(0.5, rel=1e-4),
            pytest.approx(5.0, rel=0.03),
        )


def test_the_owner_sees_what_the_ledger_holds_and_not_what_is_proposed_now(tmp_path):
    """500 reports at 1.0, and then clamp 0.1: not "at most 19.35", and a lower limit makes nothing unsaid."""
    first = FakeCoordinator(mechanism=Clamp(1.0).settings())
    make(tmp_path, first, limit=Limit(1000, 1.0), disk=Unsynced()).run(rounds=500)
    second = FakeCoordinator(run="second", code="OTHER-CODE", mechanism=Clamp(0.1).settings())
    with make(tmp_path, second, code="OTHER-CODE", limit=Limit(1000, 0.1), disk=Unsynced()) as agent:
        agent.join()
        so_far, most = agent.account(), agent.at_most()
    assert so_far.epsilon == pytest.approx(320.82, abs=0.01)
    assert 323.9 <= most.epsilon < 1.03 * 323.9
    assert (so_far.rounds, most.rounds) == (500, 1000)
    assert "if the choice of mechanisms did not depend on this client's reports" in repr(most)
    facts = read_status(tmp_path)
    assert facts["account"] == repr(so_far)
    assert (facts["total_epsilon"], facts["limit_epsilon_per_report"]) == (so_far.epsilon, 0.1)


class Unsynced(Disk):
    def sync(self, descriptor):
        pass


def test_prices_costs_and_runs_release_nothing_new(tmp_path):
    """300 joins through one ledger, each at another price and with another cost, are one release of 4 in total."""
    ledger, levels = tmp_path / "ledger.jsonl", []
    for number in range(300):
        price, run = 10.0 + 1e-6 * number, f"run-{number}"
        settings = json.loads(json.dumps(Memoized(4.0, price).settings()))
        coordinator = FakeCoordinator(run=run, code=f"CODE-{number}", mechanism=settings)
        folder = tmp_path / f"folder-{number % 3}"  # three folders of one device
        limit = Limit(10_000, 1.0, epsilon_per_release=4.0)
        options = {"code": f"CODE-{number}", "ledger": ledger, "witness": tmp_path / "witness", "disk": Unsynced()}
        with make(folder, coordinator, costs=3.0 + number, limit=limit, coins=None, **options) as agent:
            agent.join()
            agent.step()
            assert repr(agent.account()).startswith("total epsilon 4.000 at delta 0")
            levels.append(agent._joined.decider._client._memory.coefficients.tolist())
    assert all(level == levels[0] for level in levels)


def test_a_cost_that_changes_shows_in_nothing_but_the_coin(tmp_path):
    """No file is opened again, nothing is refused, nothing raised: with a report in each round, and with a release."""
    for name, mechanism in (("a", Clamp(1.0)), ("b", Memoized(4.0, 10.0))):
        coordinator = FakeCoordinator(mechanism=json.loads(json.dumps(mechanism.settings())))
        given = iter(range(1, 100))
        limit = Limit(100, 1.0, epsilon_per_release=4.0)
        with make(tmp_path / name, coordinator, costs=lambda given=given: float(next(given)), limit=limit) as agent:
            agent.step()
            client = agent._joined.decider._client
            for _ in range(9):
                agent.step()
                assert agent._joined.decider._client is client
        assert len(coordinator.books) == 10
        assert next(given) == (12 if name == "a" else 2)  # once released, the cost is not even asked for
