"""Whatever happens to its files, an owner is never shown less than was given away, and a cost is released once."""

import json
import math
import multiprocessing
import random
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from client import histories
from client.histories import Falsehood, Life, exact_delta, lives
from turnout.client import durable
from turnout.client.durable import DurableClient
from turnout.client.ledger import BudgetSpent, Ledger
from turnout.flower import client_state
from turnout.privacy import Kind, Spending, total_epsilon, total_of
from turnout.problem import PolynomialCosts
from turnout.service.agent import rounds as decider


def test_random_lives():
    assert lives(range(150)) > 500


@pytest.mark.deployment
def test_ten_thousand_random_lives():
    """In two processes, since they are independent; some ten minutes in one."""
    parts = [range(1_000, 6_000), range(6_000, 11_000)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of any thread beside a fork
        with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
            assert sum(pool.map(lives, parts)) > 40_000


def test_the_truth_is_exact():
    """The enumeration that lives are judged by, against the binomial account."""
    for epsilon, number in ((0.5, 9), (1.0, 14)):
        total = total_epsilon(*Kind(epsilon).box, number, 1e-6).epsilon
        assert exact_delta([epsilon] * number, total) == pytest.approx(1e-6, rel=1e-6)
        assert exact_delta([epsilon] * number, 0.999 * total) > 1e-6


# What used to be false, put back on purpose: a life shows it.


def keyed_by_settings(patch):
    """A price that differs by 1e-6 was another release of the same cost."""

    def release_is_due(ledger, mechanism):
        used = ledger.__dict__.setdefault("used", set())
        return ledger.releases == 0 or (json.dumps(mechanism) not in used and not used.add(json.dumps(mechanism)))

    def check_release(ledger, epsilon):
        if epsilon > ledger.limit.for_release:
            raise BudgetSpent("too much")

    patch.setattr(Ledger, "release_is_due", release_is_due)
    patch.setattr(Ledger, "check_release", check_release)


def released_anew(patch):
    """What is acted on was made again from the cost of the day."""
    released = DurableClient._released

    def again(client):
        if released(client) is None:
            return None
        costs = PolynomialCosts([[random.choice((0.5, 3.0, 20.0))]], (2,))  # whatever it is on that day
        return client._mechanism.enrol(costs, [0.5], client._terms.weight)

    patch.setattr(DurableClient, "_released", again)
    patch.setattr(Life, "report", noting_unknown_levels(Life.report))


def noting_unknown_levels(report):
    def noted(life, run, round, bit):
        mechanism, level = life.tosses[run, round]
        if level is not None:
            life.drawn.setdefault(level, mechanism.epsilon)
        return report(life, run, round, bit)

    return noted


def from_what_is_proposed(patch):
    """All reports counted as if they had been made with the mechanism of the last."""

    def account(ledger, delta, more=None, releasing=()):
        last = [Kind(0.25), *ledger._spending.reports][-1]
        return Spending(Counter({last: ledger.spent}), list(ledger._spending.releases)).total(delta, more, releasing)

    patch.setattr(Ledger, "account", account)
    patch.setattr(Spending, "total", lambda spent, delta, *_: total_of({Kind(0.25): spent.spent}, delta))


def consent_that_sticks(patch):
    """Once accepted without a certificate, everything was allowed ever after."""
    check = Ledger._check_budget

    def sticking(ledger, epsilon):
        if not any(math.isinf(kind.epsilon) for kind in ledger._spending.reports):
            check(ledger, epsilon)

    patch.setattr(Ledger, "_check_budget", sticking)
    init = DurableClient._check

    def checked(client, follow_at):
        if not any(math.isinf(kind.epsilon) for kind in client._ledger._spending.reports):
            init(client, follow_at)

    patch.setattr(DurableClient, "_check", checked)


def excused_by_a_release(patch):
    """A release in the ledger excused every report that it lacks."""
    account_for = Ledger.account_for

    def excused(ledger, *arguments):
        if not ledger.releases:
            account_for(ledger, *arguments)

    patch.setattr(Ledger, "account_for", excused)


def told_its_certificate(patch):
    """Whatever epsilon the client was handed was believed."""
    certificate = durable.certificate  # type: ignore[attr-defined]

    def believed(mechanism, observer):
        found = certificate(mechanism, observer)
        return found if math.isinf(found.epsilon) else replace(found, epsilon=found.epsilon / 2.0)

    patch.setattr(durable, "certificate", believed)


def missing_are_all_alike(patch):
    """What is missing was counted, but not what it was."""
    beyond = Spending.beyond

    def alike(spending, other):
        return Spending(Counter({Kind(0.01): beyond(spending, other).spent}))

    patch.setattr(Spending, "beyond", alike)


def runs_that_are_not_open(patch):
    """Ledger and witness lost: only the run that is open was compared."""
    for module in (durable, client_state, decider, histories):
        patch.setattr(module, "account_for_all", lambda ledger, folder: None)


TWINS = (
    (keyed_by_settings, "released 2 times, agreed to 1"),
    (released_anew, "released 2 times, agreed to 1"),
    (from_what_is_proposed, "pure, given away"),
    (consent_that_sticks, "a report of .* where its owner allows 1.0"),
    (excused_by_a_release, "pure, given away"),
    (told_its_certificate, "pure, given away"),
    (missing_are_all_alike, "pure, given away"),
    (runs_that_are_not_open, "pure, given away"),
)


@pytest.mark.parametrize(("twin", "falsehood"), TWINS, ids=lambda given: getattr(given, "__name__", ""))
def test_a_sabotaged_twin_is_caught(monkeypatch, twin, falsehood):
    twin(monkeypatch)
    first = 460 if twin is excused_by_a_release else 0  # it takes a release, reports, and two files restored
    with pytest.raises(Falsehood, match=falsehood):
        lives(range(first, first + 600))
