"""What every object says of itself: one short line, no arrays, and nothing that is private."""

import re
from collections import Counter
from functools import cache

import numpy as np
import pytest

import turnout
from turnout import Averaging, Classical, IntegralController, Keep, PaperCoin, Population, Prior, Problem, Schedule
from turnout.algorithm import MECHANISMS, Clamp, LearnedMemoized, Memoized, in_words
from turnout.attack import CostFamily, infer, reports_of
from turnout.audit import Claim, MechanismReporter, audit
from turnout.client import Decision, DurableClient, Ledger, Limit, Terms
from turnout.display import card
from turnout.plan import Goal, frontier, plan
from turnout.privacy import certificate, floor, total_epsilon
from turnout.service import ClosedRound, Members, Offer, Position, Rules, Safety, Timing, Welcome
from turnout.service.agent import Agent, Membership
from turnout.service.load_test import Fleet, FleetRecord, SeenRound
from turnout.sweep import Results, design_from_settings
from turnout.theory import tune

POPULATION = turnout.paper_population(clients=40)
PROBLEM = POPULATION.problem(20)
WEIGHTED = Problem(POPULATION.costs, 2000, np.full(40, 100))
SERVER = IntegralController(0.2, 0.35)
SWEEP = {
    "rounds": 10,
    "capacity": 600,
    "population": {"kind": "paper"},
    "mechanism": {"kind": "classical"},
    "controller": {"kind": "self-tuning"},
    "sweep": {"seeds": 3},
}
FAMILY = CostFamily((2, 4, 6), np.where(POPULATION.costs.coefficients > 0.0, 40.0, 0.0))
BITS = np.ones(40, np.bool_)


@cache
def run():
    return turnout.simulate(PROBLEM, Classical(), SERVER, 60, engine="numpy")


def goal():
    return Goal(PROBLEM, rounds=100, budget=6.0, gap=0.5, observer="sum")


@cache
def planned():
    return plan(goal())


def audited():
    return audit(MechanismReporter(Clamp(1.0)), [Claim(1.0, 2)], trials=20, seed=1)


SAID = [
    (lambda: POPULATION, "Population(40 clients, powers=(2, 4, 6))"),
    (lambda: Population(POPULATION.costs, WEIGHTED.weights), "40 clients, powers=(2, 4, 6), weights adding up to 4000"),
    (lambda: POPULATION.costs, "PolynomialCosts(40 clients"),
    (lambda: PROBLEM, "Problem(40 clients, capacity=20)"),
    (lambda: WEIGHTED, "weights adding up to 4000"),
    (lambda: turnout.optimum(PROBLEM), "Optimum(cost=63.1497"),
    (lambda: PaperCoin(np.linspace(1, 3, 40)), "PaperCoin(beta=1 to 3, one for each of 40 clients)"),
    (lambda: Memoized(8.0, 10.0), "Memoized(epsilon=8.0, price=10, 12 levels)"),
    (lambda: LearnedMemoized(8.0, 10.0, (0.25, 0.5)), "LearnedMemoized(epsilon=8.0, price=10, 2 levels)"),
    (lambda: Clamp(1.0), "Clamp(epsilon=1.0, center=0.5)"),
    (lambda: SERVER, "IntegralController(gain=0.2, initial=0.35, lag=1)"),
    (lambda: turnout.SelfTuningController(), "SelfTuningController(initial=1.0)"),
    (lambda: Prior(0.5), "Prior(average=0.5, rounds=10)"),
    (lambda: Averaging(), "Averaging(remember=None, by='bit')"),
    (lambda: Schedule(), "Schedule(no change)"),
    (
        lambda: Schedule(leave={5: list(range(900))}, away=[(1, 5, np.arange(30))]),
        "Schedule(leave at 5, away from 1 to 5)",
    ),
    (lambda: Schedule(capacity=dict.fromkeys(range(1, 100), 7)), "capacity 7 from 6, 93 more)"),
    (
        lambda: Keep(distance_to=np.zeros(1200), averages=range(99)),
        "every=100: cost, state, distance, 99 averages)",
    ),
    (lambda: Keep(cost=False, state=False), "Keep(every=100: signal and turnout alone)"),
    (lambda: run(), "Trajectory(60 rounds of 40 clients"),
    (lambda: run().state, "ClientState(40 clients, 60 rounds)"),
    (lambda: turnout.predict(PROBLEM, PaperCoin(3.5)), "Forecast(in the long run"),
    (lambda: turnout.predict(PROBLEM, PaperCoin(3.5), rounds=50).path, "points up to round 49"),
    (lambda: tune(PROBLEM, Classical()), "Tuning(gain="),
    (lambda: certificate(Clamp(1.0)), "Certificate(pure epsilon 1 per report"),
    (lambda: certificate(Classical()), "Certificate(no bound per report"),
    (lambda: total_epsilon(0.25, 0.75, 100, 1e-6), "total epsilon"),
    (lambda: goal(), "total epsilon at most 6, cost at most 50 % above the optimum, against an observer of the sum"),
    (
        lambda: planned(),
        "Plan(Memoized(epsilon=6.0, price=12.2452, 9 levels): total epsilon 6.000 at delta 0 over 100 reports",
    ),
    (lambda: planned().outlook, "above the optimum"),
    (lambda: planned().others[0], "Offer("),
    (lambda: floor(PROBLEM, 4.0), "Floor(total epsilon 4"),
    (lambda: floor(PROBLEM, 4.0).channels[0], "Channel(total epsilon 4, "),
    (lambda: frontier(PROBLEM, 100, observer="sum", totals=[2.0], beyond=[]), "Frontier(40 clients, 100 rounds"),
    (lambda: reports_of(run()), "Reports(60 rounds of 40 clients)"),
    (lambda: FAMILY, "CostFamily(40 clients, powers=(2, 4, 6))"),
    (
        lambda: next(iter(infer(reports_of(run()), FAMILY, Classical()))),
        "Estimates(of the costs of 40 clients, after 60 rounds)",
    ),
    (lambda: audited(), "Audit("),
    (lambda: audited().worst, "Finding(not refuted"),
    (lambda: design_from_settings(SWEEP), "Design(3 runs, which differ in seed)"),
    (
        lambda: Results([{"error": None}] * 9, {}, ("seed",), (), 10, 1.0, {}),
        "Results(9 of 10 runs, which differ",
    ),
    (lambda: Rules(Clamp(1.0), SERVER, Safety("absent")), "missing='absent', a round in 10 to 15 s)"),
    (lambda: Timing(), "Timing(round=10.0"),
    (
        lambda: Fleet("http://127.0.0.1:8000", POPULATION.costs, ["code"] * 40),
        "Fleet(40 devices, http://127.0.0.1:8000)",
    ),
    (lambda: FleetRecord(40, tokens=["secret"] * 40, faults=Counter(late=2)), "FleetRecord(40 devices, 0 rounds kept"),
    (lambda: SeenRound(3, 9.5, BITS, BITS, BITS, BITS), "SeenRound(3: signal 9.5, 40 decided)"),
    (lambda: Members(np.ones(40, np.int64), np.zeros(40, np.int64), BITS), "Members(40 of 40 slots)"),
    (lambda: Position(3, 9.5, {"signal": 9.5}, bytes(1000)), "Position(round=3, offered=9.5"),
    (lambda: ClosedRound(3, 9.5, 20.0, np.zeros(1000, np.uint8), 20, 20, 40, 40, False), "ClosedRound(round=3"),
    (
        lambda: Membership("http://x", "secret", "secret"),
        "Membership(url='http://x', welcome=None, ledger='', agreed=None)",
    ),
    (lambda: Welcome("a", "secret", 1, 0.5, 10.0, None, "bit", {}, Offer(3, 9.5)), "Welcome(run='a', weight=1"),
    (lambda: Decision(3, "tossed", True, 0.123, 9.5), "Decision(round=3, kind='tossed', participates=True, signal=9.5"),
]


@pytest.mark.parametrize(("make", "said"), SAID, ids=[said for _, said in SAID])
def test_one_short_line_that_lists_no_array(make, said):
    found = make()
    line = repr(found)
    assert said in line
    whole = repr(getattr(found, "account", None))  # which says all of it: over what, against whom, if what holds
    assert len(line.replace(whole, "…")) <= 200
    assert "\n" not in line
    assert "array(" not in line
    assert "secret" not in line
    assert "0.123" not in line


def test_mechanisms_in_words():
    assert in_words(Clamp(1.0).settings()) == "clamp, epsilon 1 per report, center 0.5"
    assert in_words(Memoized(4.0, 10.0).settings()) == "memoized, total epsilon 4, price 10, 3 levels"
    assert in_words(PaperCoin(np.ones(7)).settings()) == "paper-coin, beta of 7 clients"
    assert in_words({"kind": "integral", "gain": 0.0123456, "note": "mine"}) == "integral, gain 0.01235, note mine"
    assert in_words({"kind": "of my own", "epsilon": 2}) == "of my own, epsilon 2 per report"
    assert set(MECHANISMS) == {in_words({"kind": kind}) for kind in MECHANISMS}


def test_what_a_client_keeps_to_itself_is_not_said(tmp_path):
    cost = turnout.PolynomialCosts([[3.14159]], powers=(2,))
    with (
        Ledger.open(tmp_path / "cost.jsonl", datum="cost", limit=Limit(100, 1.0), accept_uncertified=True) as ledger,
        DurableClient(tmp_path, cost, Classical(), ledger=ledger, terms=Terms("a", Prior(0.5))) as client,
        Agent("http://127.0.0.1:1", tmp_path / "device", 3.14159, code="A" * 26) as agent,
    ):
        before = repr(client)
        client.decide(0, signal=2.0)
        assert before == "DurableClient(run 'a', Classical(), no round yet)"
        assert repr(client) == "DurableClient(run 'a', Classical(), last round 0)"
        assert repr(ledger) == (
            "Ledger(total epsilon inf at delta 1e-06 over 1 report, against an observer of every report (reports "
            "without a certificate); 99 more reports of at most epsilon 1 each, 1 release of at most epsilon 1)"
        )
        assert repr(agent) == "Agent(http://127.0.0.1:1, folder 'device', not joined yet)"
        assert repr(cost) == "PolynomialCosts(1 clients, powers=(2,))"


def test_what_a_flower_client_keeps_to_itself_is_not_said():
    flower = pytest.importorskip("turnout.flower")
    from turnout.flower import Device

    assert repr(Device(context={"turnout-cost": 3.14}, last_training_seconds=2.72)) == "Device()"
    mod = flower.self_selection_mod(cost=3.14, mechanism=Clamp(1.0))
    assert "mechanism=Clamp(epsilon=1.0" in repr(mod)
    assert "3.14" not in repr(mod)


SHOWN = {
    "Problem": lambda: WEIGHTED,
    "Optimum": lambda: turnout.optimum(PROBLEM),
    "Forecast": lambda: turnout.predict(PROBLEM, Classical(), 50),
    "Trajectory": run,
    "Plan": planned,
    "Account": lambda: planned().account,
}


@pytest.mark.parametrize("name", SHOWN)
def test_tables_for_notebooks(name):
    shown = SHOWN[name]()._repr_html_()
    assert shown.count("<table>") == shown.count("</table>") == 1
    assert shown.count("<tr>") == shown.count("</tr>") >= 2
    assert f">{name}</caption>" in shown
    assert not re.search(r"(?<![-\w])(color|background)", shown)  # a notebook may be light or dark
    assert len(shown) < 3000


def test_tables_are_escaped():
    shown = card("<i>", {"<b>": "<script>", "left out": None})
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert "<i>" not in shown
    assert "left out" not in shown
