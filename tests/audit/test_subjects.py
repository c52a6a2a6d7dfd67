"""What is audited of ours: none of it is refuted, and each is asked what can try it.

All of ours together have a false-alarm rate of 1e-6.
"""

import math

import numpy as np
import pytest
from scipy.stats import binom

from statistical.binomial import FALSE_ALARM
from turnout import Prior, SeededCoins, SystemCoins
from turnout.algorithm import MECHANISMS, Clamp, Memoized, TrackingClamp
from turnout.audit.claims import Claim, in_total, of_mechanism, of_sum, per_report
from turnout.audit.durable import ours
from turnout.audit.reporters import MechanismReporter, ReporterProblem, usual_signals
from turnout.audit.subjects import (
    ClampByClient,
    Subject,
    mechanism_subject,
    our_mechanisms,
    sum_of,
    sum_subject,
)

SUBJECTS = ours()


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_none_of_ours_is_refuted(subject):
    """The family-wise false-alarm rate over all of them is 1e-6; and a third of the promise would be refuted."""
    outcome = subject.audit(100_000, FALSE_ALARM / len(SUBJECTS), seed=1)
    assert outcome.verdict == "not refuted", str(outcome)
    assert "not refuted" in str(outcome)
    assert outcome.worst.lower > outcome.worst.claim.epsilon / 3.0, str(outcome)


def test_every_certified_mechanism_is_audited():
    names = " ".join(subject.name for subject in SUBJECTS)
    # Each client of learned-memoized is one of memoized, with the channel of its group.
    assert all(kind in names for kind in set(MECHANISMS) - {"classical", "paper-coin", "learned-memoized"})


def test_the_systems_coins_are_audited_too():
    subject = mechanism_subject(Clamp(1.0), 2, coins=lambda seed: SystemCoins())
    assert not subject.audit(100_000, FALSE_ALARM).refuted


def exact_epsilon(low, high, honest, delta):
    """The least epsilon at delta of one sum, the others all at low: by the binomial distribution itself."""
    others = binom.pmf(np.arange(honest + 1), honest, low)
    p, q = (np.append(others, 0.0) * (1.0 - own) + np.append(0.0, others) * own for own in (high, low))
    below, above = 0.0, 10.0
    for _ in range(60):
        middle = 0.5 * (below + above)
        worst = max(np.maximum(0.0, a - math.exp(middle) * b).sum() for a, b in ((p, q), (q, p)))
        below, above = (below, middle) if worst <= delta else (middle, above)
    return below


@pytest.mark.parametrize(("honest", "least"), [(3, 0.93), (5, 0.9), (10, 0.8)])
def test_the_sum_agrees_with_its_account(honest, least):
    """The lower bound stays below what the sum really tells, which is below the account, and comes near both."""
    mechanism, trials = Clamp(1.0), 200_000
    outcome = sum_subject(mechanism, sum_of(honest + 1), 1).audit(trials, FALSE_ALARM, seed=10)
    for found in outcome.findings:
        exact = exact_epsilon(*mechanism.parameters(), honest, found.claim.delta)  # type: ignore[call-arg]
        assert found.lower <= exact <= found.claim.epsilon * (1.0 + 1e-9)
    assert outcome.findings[0].lower > least * outcome.findings[0].claim.epsilon


def bit_of(chance):
    """A reporter whose every answer is this one."""
    return lambda costs, signals, trials, seed: np.full((trials, len(signals)), chance)


def test_what_is_audited_of_ours():
    """Boxes in the middle and aside, averages at both ends, a release over many rounds, and small crowds."""
    found = [(subject.name, subject.claims[0].rounds) for subject in our_mechanisms()]
    assert found == [
        ("randomized-response, epsilon 1 per report", 4),
        ("clamp, epsilon 0.5 per report, center 0.5", 4),
        ("clamp, epsilon 1 per report, center 0.5", 4),
        ("clamp, epsilon 1 per report, center 0.1", 4),
        ("capped-coin, beta 1, cap 0.8", 4),
        ("tracking-clamp, epsilon 1 per report, floor 0.005, from average 0.05", 4),
        ("tracking-clamp, epsilon 1 per report, floor 0.005, from average 0.5", 4),
        ("tracking-clamp, epsilon 1 per report, floor 0.005, from average 0.95", 4),
        ("memoized, total epsilon 4, price 10, 3 levels", 12),
        ("clamp, epsilon 1 per report, center 0.5, only the sum with 5 others", 1),
        ("clamp, epsilon 1 per report, center 0.5, only the sum with 5 others", 2),
        ("clamp, epsilon 1 per report, center 0.5, only the sum with 20 others", 1),
        ("clamp, epsilon 1 per report, center 0.5, only the sum with 5 others, weight 3 among 3, 3, 1, 1, 1", 1),
        ("clamp, epsilon 1 per report, centers 0.5 and 0.05, only the sum with 5 others", 1),
        ("clamp, epsilon 3 per report, center 0.5, only the sum with 30 steep others, every yes refused", 2),
    ]
    assert [claim.rounds for subject in our_mechanisms(2)[:9] for claim in subject.claims[:1]] == [2] * 8 + [6]
    tracking = [subject for subject in our_mechanisms() if "tracking" in subject.name]
    assert {subject.reporter.prior.rounds for subject in tracking} == {20}  # type: ignore[attr-defined]  # with which such a client starts
    assert all(subject.share == 1.0 for subject in our_mechanisms())


def test_coins_and_delta_reach_every_subject():
    def coins(seed):
        return SeededCoins(seed + 1)

    subjects = our_mechanisms(delta=1e-4, coins=coins)
    assert all(subject.reporter.coins is coins for subject in subjects)  # type: ignore[attr-defined]
    deltas = [{claim.delta for claim in subject.claims} - {0.0} for subject in subjects]
    assert deltas == [{1e-4, 0.01, 0.1}] * 8 + [set()] + [{1e-4, 0.01, 0.1}] * 6  # a lifetime's promise has none
    assert all(1e-6 in {claim.delta for claim in subject.claims} for subject in our_mechanisms()[:8])


def test_a_mechanism_is_tried_with_its_certificate_and_with_signals_about_its_price():
    subject = mechanism_subject(Clamp(1.0), 3)
    assert subject.reporter == MechanismReporter(Clamp(1.0), Prior(0.5, 10))
    assert subject.claims == of_mechanism(Clamp(1.0), 3)
    np.testing.assert_equal(dict(subject.signals), usual_signals(3, 1.0))
    priced = mechanism_subject(Memoized(2.0, price=7.0), 3)
    np.testing.assert_equal(dict(priced.signals), usual_signals(3, 7.0))
    assert priced.claims == of_mechanism(Memoized(2.0, price=7.0), 3)
    other = mechanism_subject(TrackingClamp(1.0), 2, prior=Prior(0.25, 8), claims=in_total(0.5, 2))
    assert (other.claims, other.reporter.prior) == (in_total(0.5, 2), Prior(0.25, 8))  # type: ignore[attr-defined]
    assert other.name == "tracking-clamp, epsilon 1 per report, floor 0.005, from average 0.25"


def test_a_sum_may_be_anything_up_to_all_of_them():
    """With five others, 0 to 6; with weights, up to their sum."""
    six = sum_of(6)
    subject = sum_subject(Clamp(1.0), six, rounds=1)
    assert (subject.reporter.mechanism, subject.reporter.observer) == (Clamp(1.0), six)  # type: ignore[attr-defined]
    assert subject.claims == of_sum(Clamp(1.0), six, 1)
    assert (subject.values, subject.signals, subject.costs) == (7, None, None)
    assert sum_subject(Clamp(1.0), six, 1, claims=in_total(0.5, 1)).claims == in_total(0.5, 1)
    assert sum_subject(Clamp(1.0), sum_of(3, [20, 1, 5]), 1).values == 27
    mixed = sum_subject(ClampByClient.around(1.0, [0.5, 0.1]), sum_of(2), 1, name="two boxes")
    assert (mixed.name, mixed.values) == ("two boxes, only the sum with 1 others", 3)


def test_a_slow_subject_gets_its_share_of_the_trials_and_at_least_one():
    claims = per_report(1.0, 1)
    for share, trials in ((1.0, 300), (0.5, 150), (0.001, 1)):
        subject = Subject("always", bit_of(1), claims, share=share)
        assert subject.audit(300, 0.1).trials == trials
    assert Subject("always", bit_of(1), claims).audit(120, 0.1).trials == 120
    with pytest.raises(ReporterProblem, match="must be 0 or 1, got 2"):
        Subject("two", bit_of(2), claims).audit(100, 0.1)


def test_a_subject_passes_on_all_that_it_is_tried_with():
    told = []
    subject = Subject("mine", bit_of(1), (Claim(1.0, 2),), {"up": np.array([1.0, 2.0])}, values=3)
    outcome = subject.audit(100, 0.25, seed=4, progress=lambda done, total: told.append(total))
    assert (outcome.name, outcome.false_alarm) == ("mine", 0.25)
    assert told[0] == 4 * 1 * (100 + 100)  # the four usual costs, one sequence of signals
