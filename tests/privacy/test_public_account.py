"""The public account: from the mechanism and the number of reports alone, and in a sentence for the log."""

import math

import pytest

from turnout import Classical, PaperCoin
from turnout.algorithm import Clamp, Memoized, TrackingClamp
from turnout.privacy.accounts import PublicAccount, account_of
from turnout.privacy.observer import FIXED_NUMBER

DELTA = 1e-6


def test_the_total_is_that_of_the_mechanism():
    clamp = Clamp(0.1)
    account = PublicAccount(clamp, DELTA)
    for reports in (1, 2, 1000):
        assert account.total(reports) == account_of(clamp, reports, DELTA).assuming(FIXED_NUMBER)
    assert 0.0999 < account.total(1).epsilon <= 0.1 * (1 + 1e-12)  # pure, but for delta
    assert account.delta == DELTA


def test_before_the_first_report_nothing_is_given_away_but_a_release():
    nothing = PublicAccount(Clamp(0.1), DELTA).total(0)
    assert (nothing.epsilon, nothing.delta, nothing.rounds, nothing.how) == (0.0, DELTA, 0, "no report yet")
    assert nothing.against == "an observer of every report"
    for reports in (0, 1, 50):
        found = PublicAccount(Memoized(4.0, 10.0), DELTA).total(reports)
        assert (found.epsilon, found.delta, found.rounds) == (4.0, 0.0, max(1, reports))
    assert PublicAccount(Classical(), DELTA).total(0).epsilon == 0.0
    assert PublicAccount(Classical(), DELTA).total(1).epsilon == math.inf


@pytest.mark.parametrize(
    ("mechanism", "sentence"),
    [
        (Classical(), "no bound per report: the probability is the intent itself"),
        (PaperCoin(1.0), 'no bound per report: at intent 1 a "no" cannot happen'),
        (
            Memoized(4.0, 10.0),
            "pure epsilon 4 per lifetime, against an observer of every report, if the cost is released once, by this "
            "mechanism, across all runs and servers (one release at joining; reports hold nothing else)",
        ),
        (
            Clamp(0.1),
            "epsilon 0.1000 per report; total epsilon 19.35 at delta 1e-06 over 1,000 reports, "
            f"against an observer of every report, if {FIXED_NUMBER} (exact binomial)",
        ),
        (
            TrackingClamp(0.1),
            "epsilon 0.1000 per report; total epsilon 19.35 at delta 1e-06 over 1,000 reports, "
            "against an observer of every report, if the client's whole history is public, "
            f"and {FIXED_NUMBER} (exact binomial)",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_sentence_says_per_what_over_how_many_and_against_whom(mechanism, sentence):
    assert PublicAccount(mechanism, DELTA).sentence(1000) == sentence


def test_a_chance_is_asked_for():
    with pytest.raises(ValueError, match="delta must be at least 0 and below 1"):
        PublicAccount(Clamp(1.0), 1.0)
    pure = PublicAccount(TrackingClamp(1.0), 0.0).total(10).epsilon
    assert pure == pytest.approx(10.0)
    assert PublicAccount(TrackingClamp(1.0), 1e-3).total(10).epsilon < pure
