"""A hostile coordinator: the agent keeps its box, its budget, its files and its temper."""

import math
import os
import random
import threading

import pytest

from service.agents import Always, make, reserved
from service.fake_coordinator import CLAMP, DirectWire, FakeCoordinator
from turnout.algorithm import Clamp, SeededCoins
from turnout.client import Limit
from turnout.service.agent.agreement import Declined
from turnout.service.agent.connection import RefusedByCoordinator, Revoked
from turnout.service.agent.membership import read_status
from turnout.service.agent.rounds import AgentProblem
from turnout.service.network import Unreachable
from turnout.service.protocol import ProtocolProblem


@pytest.mark.parametrize("signal", [-1.0, 0.0, 1e308, 10**400, -(10**400), 5e-324, 10**4000], ids=str)
def test_any_signal_keeps_the_box(tmp_path, signal):
    coordinator = FakeCoordinator(signal=lambda round: signal)
    with make(tmp_path, coordinator, coins=SeededCoins(1)) as agent:
        for _ in range(40):
            agent.step()
    bits = [bit for bit, _ in coordinator.books.values()]
    assert {True, False} == set(bits)  # in the box of Clamp(1) neither has a chance below 0.26


@pytest.mark.parametrize("signal", [b"NaN", b"Infinity", b"-Infinity", b'"3"', b"null", b"true", b"[1]"])
def test_what_is_no_number_is_no_offer(tmp_path, signal):
    coordinator = FakeCoordinator()
    problems = []
    with make(tmp_path, coordinator, on_problem=problems.append) as agent:
        agent.join()
        coordinator.scripted = [(200, b'{"run": "run", "round": 0, "signal": ' + signal + b"}")]
        agent.step()
    assert len(problems) == 1
    assert len(coordinator.books) == 1


def test_infinity_as_json_writes_it_is_a_signal_like_any_other(tmp_path):
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
def test_what_its_owner_has_not_allowed_is_declined_before_anything_is_reported(tmp_path, mechanism):
    coordinator = FakeCoordinator(mechanism=mechanism)
    with pytest.raises(Declined), make(tmp_path, coordinator) as agent:
        agent.step()
    assert coordinator.reports() == []
    assert coordinator.left  # nobody waits for it
    assert not (tmp_path / "ledger.jsonl").exists()


def test_who_declines_tells_its_owner_what_it_is_now(tmp_path):
    coordinator = FakeCoordinator(mechanism={"kind": "classical"})

    class Gone(DirectWire):
        def send(self, method, path, body, token):
            if path != "/v1/enrol":
                raise Unreachable("nobody there")
            return super().send(method, path, body, token)

    with (
        pytest.raises(Declined, match=r"could not be told: ask the operator to revoke device [0-9a-f]{8}"),
        make(tmp_path, coordinator, wire=Gone(coordinator)) as agent,
    ):
        agent.step()
    for _ in range(2):  # the second time, the coordinator does not know it any more
        with pytest.raises(Declined, match="has left the run: to join after all, it needs a new code"):
            make(tmp_path, coordinator).run(rounds=1)
    assert [path for _, path, _, _ in coordinator.received] == ["/v1/enrol", "/v1/leave", "/v1/leave"]


def test_who_is_stopped_while_it_declines_still_says_why(tmp_path):
    coordinator = FakeCoordinator(mechanism={"kind": "classical"})
    agent = make(tmp_path, coordinator)
    coordinator.scripted = [None, lambda *_: agent.stop()]
    with pytest.raises(Declined, match="no certificate"), agent:
        agent.step()


def test_consent_is_explicit_and_recorded(tmp_path):
    coordinator = FakeCoordinator(mechanism={"kind": "paper-coin", "beta": 3.5})
    make(tmp_path, coordinator, accept_uncertified=True).run(rounds=2)
    assert read_status(tmp_path)["limit_epsilon_per_report"] == 1.0  # it was agreed to that time alone
    assert read_status(tmp_path)["total_epsilon"] == math.inf
    with pytest.raises(Declined, match="no certificate"):
        make(tmp_path, coordinator).run(rounds=1)
    other = FakeCoordinator(run="b", code="OTHER-CODE", mechanism=CLAMP | {"epsilon": 30.0})
    with pytest.raises(Declined, match="epsilon 30 per report"):
        make(tmp_path, other, code="OTHER-CODE").run(rounds=1)
    own = make(tmp_path / "c", FakeCoordinator(mechanism=CLAMP | {"epsilon": 2.0}), mechanism=Clamp(0.5))
    assert own.join()[1].certificate.epsilon == 0.5
    own.close()


def test_who_accepts_mechanisms_without_a_certificate_has_not_given_up_the_limit_of_the_others(tmp_path):
    for limit in (None, Limit(100, 1.5)):
        larger = FakeCoordinator(mechanism=CLAMP | {"epsilon": 2.0})
        with (
            pytest.raises(Declined, match="epsilon 2 per report"),
            make(tmp_path / str(limit), larger, accept_uncertified=True, limit=limit) as agent,
        ):
            agent.step()
        assert larger.reports() == []
    larger = FakeCoordinator(mechanism=CLAMP | {"epsilon": 2.0})
    make(tmp_path, larger, limit=Limit(100, 2.0)).run(rounds=2)
    assert read_status(tmp_path)["limit_epsilon_per_report"] == 2.0


def test_a_limit_is_raised_by_its_owner_alone(tmp_path):
    coordinator = FakeCoordinator()
    make(tmp_path, coordinator, limit=Limit(3, 1.0)).run(rounds=1)
    with pytest.raises(ValueError, match="limit reports must be at most 3"):
        make(tmp_path, coordinator, limit=Limit(9, 1.0)).run(rounds=1)
    make(tmp_path, coordinator, limit=Limit(9, 1.0), consent=True).run(rounds=1)
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
def test_a_welcome_that_no_honest_coordinator_sends_leaves_nothing_behind(tmp_path, welcome):
    coordinator = FakeCoordinator(**welcome)
    with pytest.raises((ProtocolProblem, ValueError)), make(tmp_path, coordinator) as agent:
        agent.step()
    assert sorted(os.listdir(tmp_path)) == ["agent.lock", "enrolling.json"]


def test_a_box_that_follows_a_private_average_is_declined(tmp_path):
    coordinator = FakeCoordinator(by="probability", mechanism={"kind": "tracking-clamp", "epsilon": 1.0})
    with pytest.raises(Declined, match="averaging by 'probability'"), make(tmp_path, coordinator) as agent:
        agent.step()


def test_another_run_under_the_same_token_is_refused(tmp_path):
    coordinator = FakeCoordinator()
    with make(tmp_path, coordinator) as agent:
        agent.join()
        coordinator.scripted = [(200, {"run": "other", "round": 0, "signal": 1.0})]
        with pytest.raises(RefusedByCoordinator, match="runs 'other' now"):
            agent.step()
        coordinator.scripted = [None, (409, {"error": "run", "message": "x", "next": None})]
        with pytest.raises(RefusedByCoordinator, match="new code"):
            agent.step()


def test_absurd_rounds_spend_no_more_than_the_budget(tmp_path):
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


def test_a_next_round_that_goes_backwards_is_not_followed_in_haste(tmp_path, monkeypatch):
    monkeypatch.setattr(random.SystemRandom, "uniform", lambda self, least, most: (least + most) / 2)  # the mean pause
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


def test_pending_at_once_is_not_answered_in_haste(tmp_path):
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
def test_any_other_reply_is_no_answer_and_starts_no_work(tmp_path, reply):
    coordinator, pauses, problems, started = FakeCoordinator(), [], [], []
    options = {"on_problem": problems.append, "on_participate": started.append, "sleep": pauses.append}
    with make(tmp_path, coordinator, coins=Always(), **options) as agent:
        agent.join()
        coordinator.scripted = [None, reply, reply]
        assert agent.step().outcome == "accepted"
    assert len(pauses) == len(problems) == 2
    assert all(problem.isprintable() and len(problem) < 400 for problem in problems)
    assert started == []
    if len(reply) > 2:
        assert min(pauses) >= 7.0


def test_pauses_grow_with_full_jitter_up_to_a_minute(tmp_path):
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


def test_a_revoked_device_ends_its_work(tmp_path):
    coordinator, starts, ends = FakeCoordinator(lease=60.0), threading.Event(), []
    work = {"on_participate": lambda _: starts.set(), "on_stop": lambda: ends.append(1)}
    with make(tmp_path, coordinator, coins=Always(), **work) as agent:
        agent.step()
        assert starts.wait(20)
        coordinator.scripted = [(401, {"error": "token", "message": "revoked"})]
        with pytest.raises(Revoked, match="new code"):
            agent.run()
    assert ends


@pytest.mark.parametrize(
    "refusal",
    [
        (401, {"error": "password", "message": "this needs the operator's name and password"}),
        (400, {"error": "host", "message": "this listener answers to localhost only: use one of these names"}),
    ],
    ids=["password", "host"],
)
def test_the_operators_listener_is_told_from_the_devices(tmp_path, refusal):
    coordinator = FakeCoordinator()
    coordinator.scripted = [refusal]
    with pytest.raises(RefusedByCoordinator, match=r"the operator's listener, not the devices'.*port 8440"):
        make(tmp_path, coordinator).run(rounds=1)
    make(tmp_path, coordinator).run(rounds=1)  # the code was not used up
    coordinator.scripted = [refusal]
    with pytest.raises(RefusedByCoordinator, match="operator's listener"):
        make(tmp_path, coordinator).run(rounds=1)


def test_a_wrong_code_is_refused_and_another_may_be_tried(tmp_path):
    coordinator = FakeCoordinator()
    with pytest.raises(RefusedByCoordinator, match="no such code"):
        make(tmp_path, coordinator, code="WRONG-CODE").run(rounds=1)
    with pytest.raises(ValueError, match="code must be"):
        make(tmp_path, coordinator, code=None).run(rounds=1)
    make(tmp_path, coordinator).run(rounds=1)
    assert len(coordinator.nonces) == 1
