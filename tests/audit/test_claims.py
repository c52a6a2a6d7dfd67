"""What an audit tries to refute: in words, and which bounds a promise implies."""

import math
from dataclasses import replace

import pytest

from turnout import Averaging, Classical
from turnout.algorithm import Clamp, Memoized, RandomizedResponse, TrackingClamp
from turnout.audit.claims import Claim, in_total, of_budget, of_mechanism, of_sum, per_report
from turnout.privacy import PUBLIC_HISTORY, RELEASED_ONCE, Observer, total_epsilon, total_epsilon_sum_only

SERVER = "an observer of every report"


@pytest.mark.parametrize(("claim", "words"), [
    (Claim(1.0, 3), "total epsilon 1.000, pure, over 3 rounds"),
    (Claim(0.0, 1), "total epsilon 0.0, pure, over 1 round"),
    (Claim(1.0, 3, 0.01, reports=3), "total epsilon 1.000, at delta 0.01, over 3 rounds"),
    (Claim(1.0, 3, 1e-6, reports=2), "total epsilon 1.000, at delta 1e-06, over 3 rounds (2 reports)"),
    (Claim(1.0, 3, 1.0), "total epsilon 1.000, at delta 1, over 3 rounds"),
    (Claim(0.5, 3, of="report"), "epsilon 0.5000 per report, given all before it"),
    (Claim(0.0, 3, of="retry"), "epsilon 0.0 per round asked for again"),
    (Claim(0.0, 3, of="after", reports=2), "epsilon 0.0 per round after the last of 2 reports"),
])  # fmt: skip
def test_a_claim_in_words(claim, words):
    assert claim.what == words
    assert str(claim) == f"{words}, against {SERVER}"


def test_a_claim_needs_a_bound_and_a_round():
    assert Claim(0.0, 1).rounds == 1
    for epsilon in (-1e-9, math.nan):
        with pytest.raises(ValueError, match="claimed epsilon must be at least 0"):
            Claim(epsilon, 1)
    with pytest.raises(ValueError, match="rounds must be a whole number of at least 1, got 0"):
        Claim(1.0, 0)


def told(claims):
    """What each is of, its epsilon and its delta."""
    return [(claim.of, pytest.approx(claim.epsilon), claim.delta) for claim in claims]


@pytest.mark.parametrize("delta", [1e-6, 1e-4])
def test_what_an_epsilon_per_report_implies(delta):
    """The totals of randomized response; a pure one only where it says more than the one per report."""
    low = 1.0 / (1.0 + math.e)

    def totals(rounds):
        deltas = (delta, 0.01, 0.1)
        return [("total", total_epsilon(low, 1.0 - low, rounds, each).epsilon, each) for each in deltas]

    options = {} if delta == 1e-6 else {"delta": delta}  # a millionth, unless given
    assert told(per_report(1.0, 1, **options)) == [("report", 1.0, 0.0), *totals(1)]
    assert told(per_report(1.0, 2, **options)) == [("report", 1.0, 0.0), ("total", 2.0, 0.0), *totals(2)]
    again = [("report", 1.0, 0.0), ("retry", 0.0, 0.0)]
    assert told(per_report(1.0, 1, retries=True, **options)) == [*again, ("total", 1.0, 0.0), *totals(1)]
    assert told(per_report(1.0, 3, retries=True, **options)) == [*again, ("total", 3.0, 0.0), *totals(3)]
    assert {claim.against for claim in per_report(1.0, 2)} == {SERVER}


def test_a_box_of_ones_own_makes_the_totals_smaller():
    narrow = per_report(1.0, 2, box=(0.1, 0.1 * math.e))
    assert told(narrow[2:]) == [
        ("total", total_epsilon(0.1, 0.1 * math.e, 2, delta).epsilon, delta) for delta in (1e-6, 0.01, 0.1)
    ]
    assert all(own.epsilon < usual.epsilon for own, usual in zip(narrow[2:], per_report(1.0, 2)[2:], strict=True))


def test_an_epsilon_too_large_for_a_number_is_no_error():
    assert per_report(1000.0, 2)[:2] == (Claim(1000.0, 2, of="report"), Claim(2000.0, 2))


def test_a_pure_promise_alone_has_no_delta_of_its_own():
    assert [claim.delta for claim in per_report(1.0, 2, delta=0.0)] == [0.0, 0.0, 0.01, 0.1]
    assert [claim.delta for claim in of_budget((0.25, 0.75), 2, 5, delta=0.0)] == [0.0, 0.0, 0.01, 0.1]
    assert in_total(2.0, 7) == (Claim(2.0, 7),)
    assert in_total(2.0, 7, 0.1) == (Claim(2.0, 7, 0.1),)


def test_a_budget_promises_totals_and_silence_after_them():
    after, *totals = of_budget((0.25, 0.75), reports=2, rounds=5)
    assert after == Claim(0.0, 5, of="after", reports=2)
    expected = [("total", total_epsilon(0.25, 0.75, 2, delta).epsilon, delta) for delta in (0.0, 1e-6, 0.01, 0.1)]
    assert told(totals) == expected
    assert {(claim.rounds, claim.reports) for claim in totals} == {(5, 2)}


def test_the_account_of_a_sum():
    low, high = Clamp(1.0).parameters()
    three = Observer("sum", 3, averaging=Averaging(by="probability"))
    found = of_sum(Clamp(1.0), three, rounds=1)
    deltas = (1e-6, 0.01, 0.1)
    assert told(found) == [("total", total_epsilon_sum_only(low, high, 1, each, 3).epsilon, each) for each in deltas]
    assert all("an observer of the sum alone, with 3 honest others, if an aggregator" in str(claim) for claim in found)
    with pytest.raises(ValueError, match="where averages are not public"):
        of_sum(TrackingClamp(1.0), three, 1)


def test_what_the_certificate_of_a_mechanism_implies():
    """Per report by its box; without one that is public, by randomized response; for a lifetime, once."""
    low, high = Clamp(1.0, center=0.1).parameters()
    assert of_mechanism(Clamp(1.0, center=0.1), 3) == per_report(1.0, 3, box=(low, high))
    assert of_mechanism(Clamp(1.0, center=0.1), 3) != per_report(1.0, 3)
    public = [replace(claim, assumptions=(PUBLIC_HISTORY,)) for claim in per_report(1.0, 3, 1e-4)]
    assert of_mechanism(TrackingClamp(1.0), 3, 1e-4) == tuple(public)
    assert of_mechanism(RandomizedResponse(2.0), 2)[0] == Claim(2.0, 2, of="report")
    (once,) = of_mechanism(Memoized(4.0, price=10.0), 12)
    assert (once,) == tuple(replace(claim, assumptions=(RELEASED_ONCE,)) for claim in in_total(4.0, 12))
    with pytest.raises(ValueError, match="classical must be one with a bound"):
        of_mechanism(Classical(), 2)
