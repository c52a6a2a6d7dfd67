"""An observer of sums with noise: who it is, what it is told, and what runs say against it."""

import itertools
import math

import numpy as np
import pytest

from turnout import Averaging, Classical, SumNoise
from turnout.algorithm import Clamp, Memoized, RandomizedResponse, TrackingClamp
from turnout.privacy import (
    FIXED_ROUNDS,
    NOISE_ADDED,
    NOISE_ONCE,
    NOISY_SUM,
    NOTHING_ELSE,
    OTHER_HONEST,
    OWN_BIT,
    RELEASED_ONCE,
    UNKNOWN_SEED,
    Observer,
    account_of,
    certificate,
    total_epsilon_noisy_sum,
)
from turnout.simulation import privacy_in_words

DELTA = 1e-6


def total(noise, rounds, weight=1):
    return total_epsilon_noisy_sum(noise, rounds, DELTA, weight).epsilon


NOISE, TWO = SumNoise(422.0), SumNoise(422.0, aggregators=2)


def seen(noise=NOISE, **circumstances):
    return Observer(NOISY_SUM, noise=noise, **circumstances)


def test_who_it_is_and_what_must_hold():
    assert str(seen()) == "an observer of the sums with noise (sigma 422)"
    assert str(seen(SumNoise(422.0, 30, 60.0))) == (
        "an observer of the sums with noise (sigma 60 in the first 30 rounds, then 422)"
    )
    assert str(seen(TWO)) == "either of two aggregators that each add noise to the sums (sigma 422)"
    for noise, who in ((NOISE, NOISE_ADDED), (TWO, OTHER_HONEST)):
        account = account_of(Classical(), 10_000, DELTA, seen(noise, assuming=("it rains",)))
        assert account.assumptions == (who, NOISE_ONCE, NOTHING_ELSE, "it rains")
        assert account.against == str(seen(noise))
        assert account.epsilon == total(noise, 10_000)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"sees": NOISY_SUM}, "noise must be given for an observer that sees 'noisy-sum'"),
        ({"noise": NOISE}, "noise must be given for an observer that sees 'noisy-sum', and for no other"),
        ({"sees": NOISY_SUM, "noise": NOISE, "honest": 3}, "honest must be given for an observer of the sum alone"),
        ({"sees": NOISY_SUM, "noise": 422.0}, "noise must be a turnout.SumNoise"),
        ({"sees": NOISY_SUM, "noise": NOISE, "weights": [1.0, 2.5]}, "weights must be whole numbers"),
    ],
)
def test_observers_that_make_no_sense(given, told):
    with pytest.raises((ValueError, TypeError), match=told):
        Observer(**given)


def test_any_mechanism_and_any_averaging_will_do():
    for mechanism, by, missing in itertools.product(
        (Classical(), TrackingClamp(1.0), RandomizedResponse(9.0)), ("bit", "probability"), ("absent", "last")
    ):
        observer = seen(averaging=Averaging(by=by), missing=missing)
        assert account_of(mechanism, 10_000, DELTA, observer).epsilon == total(NOISE, 10_000)


def test_the_smaller_of_two_accounts_with_its_own_assumptions():
    memoized = Memoized(0.5, 10.0)
    by_noise, by_release = (account_of(one, 10_000, DELTA, seen()) for one in (Memoized(4.0, 10.0), memoized))
    assert (by_noise.epsilon, by_noise.delta) == (total(NOISE, 10_000), DELTA)
    assert (by_release.epsilon, by_release.delta, by_release.assumptions) == (0.5, 0.0, (RELEASED_ONCE,))
    assert by_release.against == str(seen())
    assert by_release.how == "one release at joining, pure; as if every report were seen"
    one = account_of(Clamp(0.01), 3, DELTA, seen(SumNoise(3.0)))
    assert one.epsilon == account_of(Clamp(0.01), 3, DELTA).epsilon
    assert account_of(Clamp(1.0), 3, 0.0, seen()).epsilon == pytest.approx(3.0)  # pure: by the box alone
    assert math.isinf(account_of(Classical(), 3, 0.0, seen()).epsilon)


def test_the_heaviest_client_counts():
    weights = np.array([1, 3, 200, 1])
    found = account_of(Classical(), 1000, DELTA, seen(weights=weights))
    assert found.epsilon == total(NOISE, 1000, 200)
    assert "over 1,000 opened sums, for the heaviest client, of weight 200, against" in repr(found)
    same = account_of(Classical(), 1000, DELTA, seen(weights=np.full(5, 200)))
    assert (same.epsilon, same.over) == (found.epsilon, "1,000 opened sums, for a client of weight 200")
    assert account_of(Classical(), 1000, DELTA, seen(weights=np.ones(5))).over == "1,000 opened sums"


def test_a_certificate_has_what_is_pure_and_says_where_the_rest_is():
    assert str(certificate(Classical(), seen())) == (
        "no bound per report: noise on the sum has no pure epsilon, but a total at a delta: see the account"
    )
    assert not certificate(TrackingClamp(1.0), seen(averaging=Averaging(by="probability"))).is_bounded
    clamp = certificate(Clamp(1.0), seen())
    assert (clamp.epsilon, clamp.per, clamp.against, clamp.assumptions) == (1.0, "report", str(seen()), ())
    assert certificate(Memoized(4.0, 10.0), seen()).assumptions == (RELEASED_ONCE,)


# A run


ACCOUNT = account_of(Classical(), 10_000, DELTA, seen(weights=[1]))


def test_a_run_with_noise_states_its_total():
    run = {"mechanism": Classical().settings(), "rounds": 10_000, "noise": NOISE.settings(), "heaviest": 1}
    told = privacy_in_words(run)
    assert told == str(ACCOUNT.assuming(UNKNOWN_SEED, FIXED_ROUNDS))
    assert told.startswith("total epsilon 1.002 at delta 1e-06 over 10,000 opened sums, against an observer of")
    assert "of weight 200" in privacy_in_words(run | {"heaviest": 200})
    unknown = {name: value for name, value in run.items() if name != "heaviest"}
    assert "over 10,000 opened sums, for a client of weight 1, against" in privacy_in_words(unknown)
    own = privacy_in_words(run | {"mechanism": {"kind": "own"}})  # noise hides any mechanism that keeps to one client
    assert own == str(ACCOUNT.assuming(OWN_BIT, UNKNOWN_SEED, FIXED_ROUNDS))
    designed = privacy_in_words(run | {"observer": {"sees": NOISY_SUM, "honest": None, "assuming": ["it rains"]}})
    assert "it rains" in designed
    memoized = Memoized(0.5, 10.0).settings()
    assert "one release" in privacy_in_words(run | {"mechanism": memoized})


def test_a_run_of_several_parts_has_the_noise_of_all_or_of_none():
    clamp, noise = Clamp(1.0).settings(), NOISE.settings()
    earlier = {"rounds": 4000, "mechanism": clamp, "averaging": {"by": "bit"}}
    run = {"mechanism": clamp, "rounds": 10_000, "noise": noise, "heaviest": 1, "averaging": {"by": "bit"}}
    all_noisy = privacy_in_words(run | {"earlier": [earlier | {"noise": noise}]})
    assert all_noisy == str(ACCOUNT.assuming(UNKNOWN_SEED, FIXED_ROUNDS))
    for before in (earlier, earlier | {"noise": SumNoise(9.0).settings()}):
        told = privacy_in_words(run | {"earlier": [before]})
        assert told.startswith("pure epsilon 1 per report, against an observer of every report")
    given_up = {key: value for key, value in run.items() if key != "noise"}
    told = privacy_in_words(given_up | {"earlier": [earlier | {"noise": noise}]})
    assert told.startswith("pure epsilon 1 per report, against an observer of every report")
