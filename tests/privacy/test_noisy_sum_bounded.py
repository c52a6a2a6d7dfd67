"""Bounded noise: the account with a bound is never below exact enumeration, and the least bound costs a tenth of delta.

Where two supports differ, some outcomes have an infinite likelihood ratio: here they are counted, outcome by outcome.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout import Classical, SumNoise
from turnout.algorithm import Memoized
from turnout.privacy import NOISY_SUM, Observer, account_of, least_bound, sigma_for, total_epsilon_noisy_sum
from turnout.privacy.noisy_sum import _beyond, _edge, _left_of_delta
from turnout.simulation import privacy_in_words

DELTA = 1e-6

CASES = [  # sigma, bound, weight: bounds from 1.5 to 6 sigma
    (1.0, 2, 1),
    (1.0, 4, 1),
    (1.7, 5, 1),
    (2.0, 3, 1),
    (2.0, 9, 3),
    (3.0, 12, 2),
    (3.0, 18, 3),
    (4.0, 8, 5),
]


def bounded(sigma, bound):
    """(whole numbers, their masses) of bounded noise."""
    places = np.arange(-bound, bound + 1)
    mass = np.exp(-0.5 * (places / sigma) ** 2)
    return places, mass / mass.sum()


def total(noise, rounds, delta, weight=1):
    return total_epsilon_noisy_sum(noise, rounds, delta, weight).epsilon


def best_adaptive(sigma, bound, weight, rounds, epsilon):
    """The greatest delta of all ways to choose how far the centres are apart, round by round, from all that was seen.

    By backward induction over the loss so far, in units of 1 / (2 sigma^2). Noise z under the first input is z + apart
    under the second: beyond the bound that is impossible, so the loss is infinite and the gain is 1.
    """
    places, mass = bounded(sigma, bound)
    most = weight * (2 * bound + weight)
    value = None
    for left in range(rounds):  # how many rounds follow
        reach = most * (rounds - 1 - left)
        losses = np.arange(-reach, reach + 1)
        choices = []
        for apart in range(-weight, weight + 1):
            after = np.add.outer(losses, apart * (2 * places + apart))
            if value is None:
                gains = -np.expm1(np.minimum(0.0, epsilon - 0.5 * after / sigma**2))
            else:
                gains = value[np.clip(after + reach + most, 0, len(value) - 1)]
            choices.append(np.where(np.abs(places + apart) > bound, 1.0, gains) @ mass)
        value = np.max(choices, axis=0)
    return float(value[0])


def is_possible(sigma, bound, weight, rounds, delta):
    return _left_of_delta({sigma: rounds}, bound, weight, delta) > 0.0


@pytest.mark.parametrize(("sigma", "bound", "weight"), CASES)
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_no_adaptive_choice_is_above_the_account(sigma, bound, weight, rounds):
    """At every delta for which there is an account, from a bound that leaves next to nothing of it on."""
    noise, tried = SumNoise(sigma, bound=bound), 0
    for delta in (0.99, 0.9, 0.7, 0.4, 0.2, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8):
        if is_possible(sigma, bound, weight, rounds, delta):
            tried += 1
            found = total(noise, rounds, delta, weight)
            assert best_adaptive(sigma, bound, weight, rounds, found) <= delta * (1 + 1e-9)
            assert found >= total(replace(noise, bound=None), rounds, delta, weight)
    assert tried or bound < 2 * sigma


@pytest.mark.parametrize(("sigma", "bound", "weight"), CASES)
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_an_account_that_ignores_the_bound_is_refuted(sigma, bound, weight, rounds):
    """The twin: the total without a bound. Just where a bound costs a tenth of delta, and where it costs half."""
    refuted = 0
    for delta in np.geomspace(1e-12, 0.5, 200):
        if 0.3 * delta < _left_of_delta({sigma: rounds}, bound, weight, delta) < 0.9 * delta:
            ignored = total(SumNoise(sigma), rounds, delta, weight)
            refuted += best_adaptive(sigma, bound, weight, rounds, ignored) > delta
            kept = total(SumNoise(sigma, bound=bound), rounds, delta, weight)
            assert best_adaptive(sigma, bound, weight, rounds, kept) <= delta * (1 + 1e-9)
    assert refuted or (bound <= 2 * sigma and rounds > 1)  # there is no such delta below a half


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_the_edge_is_attained_whatever_epsilon_is(rounds):
    """At a large epsilon the edge is all that is left. At 0, the bound costs something too, and no more than that."""
    sigma, bound = 2.0, 7
    edge, cut = rounds * _edge(sigma, bound, 1), rounds * _beyond(sigma, bound)
    largest = best_adaptive(sigma, bound, 1, rounds, 500.0)  # losses without bound alone
    assert 0.99 * edge < largest <= edge / (1 - cut)
    exact = best_adaptive(sigma, bound, 1, rounds, 0.0)
    delta = edge / (1 - cut) + 1e-9
    assert is_possible(sigma, bound, 1, rounds, delta)
    assert not is_possible(sigma, bound, 1, rounds, 0.99 * edge)
    free = best_adaptive(sigma, 60, 1, rounds, 0.0)
    assert free < exact < (free + edge) / (1 - cut)


# Every function of what was seen, hidden states, mixtures


def bits_of(shape, random):
    """Bits as a function of the sums before, for each round."""
    return [random.integers(2, size=shape[:k]) for k in range(len(shape))]


def enumerated(sigma, bound, weight, rounds, tapes, random, greedy):
    """(law under one input, law under the other) of all opened sums, shape (sums,) * rounds.

    Coins and hidden states are tapes, each with its chance. Given the tape, the target's bit is any function of its
    input and of the sums before; so is what the others add, the same for both inputs. A greedy target participates
    always, or never.
    """
    _, mass = bounded(sigma, bound)
    shape = (len(mass) + weight + 1,) * rounds
    chances = random.dirichlet(np.ones(tapes))
    others = [bits_of(shape, random) for _ in range(tapes)]
    laws = []
    for own in range(2):
        law = np.zeros(shape)
        for chance, added in zip(chances, others, strict=True):
            bits, part = bits_of(shape, random), np.full(shape, chance)
            for k, seen in enumerate(np.indices(shape)):
                bit = np.full(shape[:k], own) if greedy else bits[k]
                centre = (weight * bit + added[k]).reshape(shape[:k] + (1,) * (rounds - k))
                place = seen - centre
                inside = (place >= 0) & (place < len(mass))
                part = part * np.where(inside, mass[np.clip(place, 0, len(mass) - 1)], 0.0)
            law += part
        laws.append(law)
    return laws


def divergence(laws, epsilon):
    """The larger of the two directions."""
    return max(float(np.maximum(0.0, p - math.exp(epsilon) * q).sum()) for p, q in (laws, laws[::-1]))


@st.composite
def protocols(draw):
    """(sigma, bound, weight, rounds, a source of chance) of a few rounds."""
    rounds = draw(st.integers(1, 3))
    sigma = draw(st.floats(1.0, 1.5 if rounds == 3 else 3.0))
    bound = draw(st.integers(math.ceil(1.5 * sigma), math.ceil(5.0 * sigma)))
    return sigma, bound, draw(st.integers(1, 2)), rounds, draw(st.integers(0, 2**32))


@settings(max_examples=80, deadline=None)
@given(protocols(), st.integers(1, 3), st.booleans())
def test_no_enumerated_protocol_is_above_the_account(protocol, tapes, greedy):
    sigma, bound, weight, rounds, seed = protocol
    laws = enumerated(sigma, bound, weight, rounds, tapes, np.random.default_rng(seed), greedy)
    assert all(law.sum() == pytest.approx(1.0, abs=1e-12) for law in laws)
    for delta in (0.8, 0.3, 0.1, 1e-2, 1e-4, 1e-6):
        if is_possible(sigma, bound, weight, rounds, delta):
            found = total(SumNoise(sigma, bound=bound), rounds, delta, weight)
            assert divergence(laws, found) <= delta * (1 + 1e-9) + 1e-15


def test_the_enumeration_attains_the_account_and_catches_its_twins():
    """The twins: the bound ignored, and a bound that is taken for one more than it is."""
    sigma, bound, weight, rounds, delta = 1.5, 6, 2, 2, 2.5e-2
    laws = enumerated(sigma, bound, weight, rounds, 1, np.random.default_rng(0), greedy=True)
    found = total(SumNoise(sigma, bound=bound), rounds, delta, weight)
    assert 0.5 * delta < divergence(laws, found) <= delta
    ignored = total(SumNoise(sigma), rounds, delta, weight)
    looser = total(SumNoise(sigma, bound=bound + 1), rounds, delta, weight)
    assert divergence(laws, ignored) > divergence(laws, looser) > divergence(laws, found)
    assert divergence(laws, ignored) > delta


# The tails


@pytest.mark.parametrize("sigma", [1.0, 1.3, 2.0, 7.0, 60.0])
@pytest.mark.parametrize("weight", [1, 2, 5])
def test_the_tails_are_upper_bounds_and_hardly_above(sigma, weight):
    places = np.arange(-math.ceil(40 * sigma), math.ceil(40 * sigma) + 1)
    mass = np.exp(-0.5 * (places / sigma) ** 2)
    mass /= mass.sum()
    for deviations in (1.0, 2.0, 4.0, 6.0, 20.0):
        bound = math.ceil(max(weight, deviations * sigma))
        beyond = math.fsum(mass[np.abs(places) > bound].tolist())
        edge = math.fsum(mass[(places > bound - weight) & (places <= bound)].tolist())
        assert beyond <= _beyond(sigma, bound) <= min(1.0, 2.0 * beyond + 1e-250)
        assert edge <= _edge(sigma, bound, weight) <= 1.01 * edge + 1e-250


def test_a_heavy_weight_is_added_up_in_blocks_from_above():
    sigma, weight = 4.0e6, 10**6 + 1
    for bound in (7 * 10**6, 25 * 10**6):
        inner = np.arange(bound - weight + 1, bound + 1, dtype=np.float64)
        exact = np.sum(np.exp(-0.5 * (inner / sigma) ** 2)) / (sigma * math.sqrt(2 * math.pi))
        assert exact <= _edge(sigma, bound, weight) <= 1.001 * exact
    assert _edge(sigma, weight - 1, weight) == 1.0


# The least bound


@pytest.mark.parametrize("weight", [1, 40])
@pytest.mark.parametrize(("early", "share"), [(0, 0.0), (30, 0.4)])
@pytest.mark.parametrize(("budget", "rounds"), [(0.1, 1000), (1.0, 10_000), (8.0, 100)])
def test_the_least_bound_costs_a_tenth_of_delta_and_one_less_costs_more(budget, rounds, early, share, weight):
    noise = sigma_for(budget, DELTA, rounds, weight, early, share, bounded=True)
    assert (
        noise.bound
        == least_bound(noise, rounds, DELTA, weight)
        == least_bound(replace(noise, bound=None), rounds, DELTA, weight)
    )
    opened = noise.opened(0, rounds)
    assert _left_of_delta(opened, noise.bound, weight, DELTA) >= 0.9 * DELTA
    assert _left_of_delta(opened, noise.bound - 1, weight, DELTA) < 0.9 * DELTA
    assert 0.98 * budget < total(noise, rounds, DELTA, weight) <= budget
    free = sigma_for(budget, DELTA, rounds, weight, early, share)
    assert free.sigma < noise.sigma < 1.03 * free.sigma
    assert noise.bound < 6.5 * noise.sigma + weight


def test_without_a_bound_nothing_changes():
    assert sigma_for(1.0, DELTA, 1000) == sigma_for(1.0, DELTA, 1000, bounded=False)
    assert sigma_for(1.0, DELTA, 1000).bound is None
    far = SumNoise(422.0, bound=10**6)
    assert total(far, 10_000, DELTA) == pytest.approx(total(SumNoise(422.0), 10_000, DELTA), rel=1e-9)
    assert total(far, 10_000, DELTA) >= total(SumNoise(422.0), 10_000, DELTA)


def test_the_least_bound_of_nothing_and_of_too_small_a_delta():
    assert least_bound(SumNoise(9.5, every=100), 50, DELTA) == 10  # no sum is opened
    with pytest.raises(ValueError, match=r"^delta must be one of which a bound costs a tenth at most, got 1e-300: try"):
        least_bound(SumNoise(9.0), 5, 1e-300)


# The account in words


def test_the_account_says_the_bound_and_what_it_costs():
    noise = SumNoise(422.0, bound=2600)
    found = account_of(Classical(), 10_000, DELTA, Observer(NOISY_SUM, noise=noise))
    assert repr(found).startswith(
        "total epsilon 1.005 at delta 1e-06 over 10,000 opened sums, against an observer of the sums with noise "
        "(sigma 422, bounded by 2,600), if "
    )
    assert found.how == "Gaussian curve; the bound costs 5.41e-08 of delta"
    both = account_of(Classical(), 10_000, DELTA, Observer(NOISY_SUM, noise=replace(noise, aggregators=2)))
    assert both.epsilon == found.epsilon
    assert both.against == "either of two aggregators that each add noise to the sums (sigma 422, bounded by 2,600)"


def test_a_bound_without_an_account_is_refused_with_one_that_has():
    noise = SumNoise(422.0, bound=2000)
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the whole message is compared)
        account_of(Classical(), 10_000, DELTA, Observer(NOISY_SUM, noise=noise))
    assert str(refused.value) == (
        "noise.bound must be large enough for a total at delta 1e-06 over 10,000 opened sums at weight 1, got 2,000: "
        "2,558 costs at most a tenth of delta; a smaller weight, fewer rounds or a larger delta need less"
    )
    assert total(replace(noise, bound=2558), 10_000, DELTA) < 1.01
    heavy = Observer(NOISY_SUM, noise=SumNoise(422.0, bound=2600), weights=[1, 5000])
    with pytest.raises(ValueError, match="at weight 5,000, got 2,600"):
        account_of(Classical(), 10, DELTA, heavy)
    assert math.isinf(account_of(Classical(), 10, 0.0, Observer(NOISY_SUM, noise=noise)).epsilon)
    assert total(replace(noise, every=11), 10, DELTA) == 0.0
    assert account_of(Memoized(0.5, 10.0), 10, 0.0, heavy).epsilon == 0.5  # pure, and without need of noise


def test_a_run_with_such_a_bound_says_so():
    run = {"mechanism": Classical().settings(), "rounds": 10_000, "heaviest": 1}
    told = privacy_in_words(run | {"noise": SumNoise(422.0, bound=2600).settings()})
    assert "(sigma 422, bounded by 2,600)" in told
    told = privacy_in_words(run | {"noise": SumNoise(422.0, bound=2000).settings()})
    assert told.startswith("no total: noise.bound must be large enough for a total at delta 1e-06 over 10,000 opened")
