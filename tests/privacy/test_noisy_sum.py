"""Sums with noise: the account is never below the exact law of the sums, and close to it where that is attained."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from turnout import SumNoise
from turnout.algorithm import Mechanism
from turnout.privacy import (
    NOISY_SUM,
    Observer,
    account_of,
    least_epsilon,
    renyi_to_epsilon,
    sigma_for,
    total_epsilon_noisy_sum,
)
from turnout.privacy.noisy_sum import SMALL, SPREAD, _Curve, _gaussian_delta, _ripple, _ripple_of_sum

DELTA = 1e-6


def total(noise, rounds, delta=DELTA, weight=1):
    return total_epsilon_noisy_sum(noise, rounds, delta, weight).epsilon


def of_opened(opened, delta=DELTA, weight=1):
    """The account of so many sums with which sigma."""
    return least_epsilon(_Curve.of(opened, weight, delta).delta, 1e6, delta)


def one_round(sigma, reach=8.5):
    """(whole numbers, their masses) of the noise."""
    places = np.arange(-math.ceil(reach * sigma), math.ceil(reach * sigma) + 1)
    mass = np.exp(-0.5 * (places / sigma) ** 2)
    return places, mass / mass.sum()


def stick(losses, masses, delta):
    """The least epsilon at delta, of losses under the first law."""
    return least_epsilon(lambda e: float(np.sum(masses * -np.expm1(np.minimum(0.0, e - losses)))), 1e6, delta)


# Many rounds: the exact law of the sum of the noise, by a transform


def law_of_sum(sigma, number):
    """(whole numbers, masses) of a sum of so many draws, to some 1e-16 each."""
    places, mass = one_round(sigma, 9.0)
    size = 1 << math.ceil(math.log2(24 * sigma * math.sqrt(number) + len(places)))
    grid = np.zeros(size)
    grid[places % size] = mass
    found = np.maximum(0.0, np.fft.irfft(np.fft.rfft(grid) ** number, size))
    keep = np.flatnonzero(found > 1e-17)
    return np.where(keep > size // 2, keep - size, keep), found[keep]


def exact_epsilon(opened, delta, weight=1):
    """Of the loss (weight S + number weight^2 / 2) / sigma^2, S the sum of the noise of rounds with one sigma."""
    losses, masses = np.zeros(1), np.ones(1)
    for sigma, number in opened.items():
        places, mass = law_of_sum(sigma, number)
        losses = np.add.outer(losses, weight * (places + 0.5 * number * weight) / sigma**2).ravel()
        masses = np.multiply.outer(masses, mass).ravel()
    return stick(losses, masses, delta)


EXACT = [
    {422.0: 10_000},
    {1.0: 1},
    {1.0: 2},
    {1.0: 3},
    {1.0: 990},
    {1.0: 1010},
    {16.0: 3},
    {16.0: 4},
    {7.0: 100},
    {2.0: 3, 4.0: 5},
    {2.0: 3, 4.0: 70},
    {3.0: 200, 8.0: 20},
]


@pytest.mark.parametrize("weight", [1, 3])
@pytest.mark.parametrize("opened", EXACT, ids=str)
def test_never_below_the_exact_law_and_within_a_fifth_of_a_percent(opened, weight):
    for delta in (1e-2, 1e-6):
        exact = exact_epsilon(opened, delta, weight)
        assert exact * (1 - 1e-9) <= of_opened(opened, delta, weight) <= exact * 1.002


def test_the_exact_law_catches_one_percent_less():
    """The twins: a sigma that is 1 % larger than the true one, and a weight of 2 that is taken for 1.

    Of a few draws with a sigma near 1 the true epsilon is not monotone in sigma: the lattice shows.
    """
    for opened in EXACT:
        larger = {1.01 * sigma: number for sigma, number in opened.items()}
        coarse = max(number * sigma**2 for sigma, number in opened.items()) < 50
        assert coarse or of_opened(larger) < exact_epsilon(opened, DELTA)
        assert of_opened(opened) < exact_epsilon(opened, DELTA, weight=2)


# Few rounds: every adaptive choice, hidden states, mixtures


def best_adaptive_delta(sigma, weight, rounds, epsilon):
    """The greatest delta of all ways to choose how far the centres are apart, round by round, from all that was seen.

    By backward induction over the loss so far, a multiple of 1 / (2 sigma^2): centres d apart, noise z, loss
    d (2 z + d).
    """
    places, mass = one_round(sigma)
    most = weight * (2 * int(places[-1]) + weight)
    unit = 0.5 / sigma**2
    value = None
    for left in range(rounds):  # how many rounds follow
        reach = most * (rounds - 1 - left)
        losses = np.arange(-reach, reach + 1)
        choices = []
        for apart in range(-weight, weight + 1):
            after = np.add.outer(losses, apart * (2 * places + apart))
            gains = -np.expm1(np.minimum(0.0, epsilon - after * unit)) if value is None else value[after + reach + most]
            choices.append(gains @ mass)
        value = np.max(choices, axis=0)
    return float(value[0])


@pytest.mark.parametrize(("sigma", "weight"), [(1.0, 1), (1.7, 1), (3.0, 2), (2.0, 3)])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_no_adaptive_choice_is_above_the_account_and_the_widest_attains_it(sigma, weight, rounds):
    for delta in (1e-3, 1e-6):
        found = total(SumNoise(sigma), rounds, delta, weight)
        assert best_adaptive_delta(sigma, weight, rounds, found) <= delta
        assert best_adaptive_delta(sigma, weight, rounds, 0.99 * found) > delta


@st.composite
def protocols(draw):
    """(sigma, weight, rounds, delta, a source of chance) of a few rounds."""
    rounds = draw(st.integers(1, 3))
    sigma = draw(st.floats(1.0, 1.6 if rounds == 3 else 4.0))
    return sigma, draw(st.integers(1, 3)), rounds, draw(st.sampled_from([1e-4, 1e-2])), draw(st.integers(0, 2**32))


def transcript(sigma, weight, rounds, tapes, random, greedy):
    """Two laws of all opened sums, shape (sums,) * rounds: the target has one private input, or another.

    Coins and hidden states are tapes, each with its chance. Given the tape, the target's bit is any function of its
    input and of the sums before, and so is what the others add; that is the same for both inputs. A greedy target
    participates always, or never.
    """
    places, mass = one_round(sigma, 6.0 + (weight + 1) / sigma)
    wide = len(places) + weight + 1
    chances, laws = random.dirichlet(np.ones(tapes)), []
    others = [[random.integers(2, size=(wide,) * k) for k in range(rounds)] for _ in range(tapes)]
    for own in range(2):
        law = np.zeros((wide,) * rounds)
        for chance, added in zip(chances, others, strict=True):
            part = np.full((), chance)
            for k in range(rounds):
                bit = np.full((wide,) * k, own) if greedy else random.integers(2, size=(wide,) * k)
                step = np.zeros((wide,) * (k + 1))
                np.put_along_axis(
                    step,
                    (weight * bit + added[k])[..., None] + np.arange(len(mass)),
                    np.broadcast_to(mass, (*bit.shape, len(mass))),
                    axis=-1,
                )
                part = part[..., None] * step
            law += part
        laws.append(law)
    return laws


def epsilon_of(p, q, delta):
    sides = ((p, q), (q, p))
    return max(
        least_epsilon(lambda e, a=a, b=b: float(np.maximum(0.0, a - math.exp(e) * b).sum()), 300.0, delta)
        for a, b in sides
    )


@settings(max_examples=60, deadline=None)
@given(protocols(), st.integers(1, 3), st.booleans())
def test_no_enumerated_protocol_is_above_the_account(protocol, tapes, greedy):
    sigma, weight, rounds, delta, seed = protocol
    laws = transcript(sigma, weight, rounds, tapes, np.random.default_rng(seed), greedy)
    lost = 1e-7  # beyond the reach of the enumeration
    assert epsilon_of(laws[0], laws[1], delta + lost) <= total(SumNoise(sigma), rounds, delta, weight) * (1 + 1e-9)


def test_the_enumeration_attains_the_account_and_catches_its_twins():
    """The twins: half of the rounds, as if each sum were opened twice; and a weight that is ignored."""
    random = np.random.default_rng(0)
    laws = transcript(1.5, 2, 2, 1, random, greedy=True)
    found = epsilon_of(laws[0], laws[1], 1e-3)
    assert 0.99 * total(SumNoise(1.5), 2, 1e-3, 2) < found < total(SumNoise(1.5), 2, 1e-3, 2)
    assert total(SumNoise(1.5), 1, 1e-3, 2) < found
    assert total(SumNoise(1.5), 2, 1e-3, 1) < found


def test_either_aggregator_knows_its_own_noise():
    """What is opened has the noise of both; less its own, one of the two has the account's exact law, not a better."""
    both, alone = SumNoise(3.0, aggregators=2), SumNoise(3.0)
    assert total(both, 2) == total(alone, 2)
    places, mass = one_round(3.0)
    own = exact_epsilon({3.0: 2}, DELTA)
    assert own <= total(both, 2) * (1 + 1e-9)
    published = np.convolve(mass, mass)  # to one who sees the opened sums alone: less, and not accounted for
    wide = np.arange(2 * places[0], 2 * places[-1] + 1)
    outside = epsilon_of(np.append(published, 0.0), np.append(0.0, published), DELTA)
    assert len(wide) == len(published)
    assert outside < 0.8 * total(both, 1)


# A box is not a smaller weight


@dataclass(frozen=True, eq=False)
class Box(Mechanism):
    low: float
    high: float
    kind = "a box"

    @staticmethod
    def response(intent, average, parameters):
        return intent

    def parameters(self):
        return self.low, self.high

    @staticmethod
    def limits(average, parameters):
        return parameters


def test_high_minus_low_is_no_sensitivity():
    """Box [0.02, 0.5], sigma 3, epsilon 0.6: delta is 7.8e-5, not the 4.5e-6 of a centre that moves by 0.48."""
    low, high, sigma = 0.02, 0.5, 3.0
    _, mass = one_round(sigma)
    with_one, without = np.append(0.0, mass), np.append(mass, 0.0)
    p, q = (end * with_one + (1 - end) * without for end in (high, low))
    divergence = lambda p, q: max(float(np.maximum(0.0, a - math.exp(0.6) * b).sum()) for a, b in ((p, q), (q, p)))  # noqa: E731
    x = np.linspace(-40.0, 41.0, 810_001)
    density = [np.exp(-0.5 * ((x - centre) / sigma) ** 2) * 1e-4 / math.sqrt(2 * math.pi) / sigma for centre in (0, 1)]
    mixtures = [end * density[1] + (1 - end) * density[0] for end in (high, low)]
    assert divergence(*mixtures) == pytest.approx(7.8e-5, rel=0.01)
    assert divergence(p, q) == pytest.approx(8.2e-5, rel=0.01)  # with discrete noise
    assert _gaussian_delta((high - low) / sigma, 0.6) == pytest.approx(4.5e-6, rel=0.02)
    observer = Observer(NOISY_SUM, noise=SumNoise(sigma))
    for delta in (4.5e-6, 7.8e-5 * 0.99):
        assert account_of(Box(low, high), 1, delta, observer).epsilon > 0.6
        assert account_of(Box(low, high), 1, delta, observer).epsilon >= epsilon_of(p, q, delta)


# An independent computation


@pytest.mark.parametrize(
    "noise",
    [
        SumNoise(422.0),
        SumNoise(504.2, early=30, early_sigma=42.25),
        SumNoise(154.4),
        SumNoise(78.05, early=1, early_sigma=1.2),
    ],
    ids=str,
)
def test_against_the_loss_distributions_of_dp_accounting(noise):
    """Its losses rounded downwards are never above, upwards never below; ours lies between, within 1 % of each."""
    bounds, step = [], 1e-6 if noise.sigma > 100 else 1e-5
    for upwards in (False, True):
        composed = None
        for sigma, number in noise.opened(0, 10_000).items():
            one = pld.from_discrete_gaussian_mechanism(
                sigma, 1, pessimistic_estimate=upwards, value_discretization_interval=step, use_connect_dots=upwards
            ).self_compose(number)
            composed = one if composed is None else composed.compose(one)
        bounds.append(composed.get_epsilon_for_delta(DELTA))
    found = total(noise, 10_000)
    assert bounds[0] <= found <= 1.01 * bounds[0]
    assert bounds[1] * (1 - 1e-3) <= found <= bounds[1] * 1.01
    less = replace(noise, sigma=1.02 * noise.sigma)  # the twin
    assert total(less, 10_000) < bounds[1]


@pytest.mark.parametrize(("budget", "figures"), [(1.0, (45, 143, 453, 848)), (3.0, (16, 52, 164, 308))])
def test_the_figures_of_the_notes(budget, figures):
    """By concentrated differential privacy; the curve needs some 7 % less noise."""
    orders = 1.0 + np.geomspace(0.1, 3000.0, 2000)
    for rounds, sigma in zip((100, 1_000, 10_000, 35_040), figures, strict=True):
        rho = 0.5 * rounds / sigma**2
        concentrated = min(renyi_to_epsilon(order * rho, order, DELTA) for order in orders)
        assert concentrated == pytest.approx(budget, rel=0.04)  # whole sigmas
        assert total(SumNoise(float(sigma)), rounds) < concentrated
        assert 0.92 * sigma < sigma_for(budget, DELTA, rounds).sigma < 0.99 * sigma


def test_422_at_epsilon_1_over_10_000_rounds():
    account = total_epsilon_noisy_sum(SumNoise(422.0), 10_000, DELTA)
    assert account.epsilon == pytest.approx(1.0, abs=0.0015)
    assert repr(account) == (
        "total epsilon 1.002 at delta 1e-06 over 10,000 opened sums, for a client of weight 1, against an observer of "
        f"the sums with noise (sigma 422), if {', and '.join(account.assumptions)} (Gaussian curve)"
    )


# The parts


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.24, 1.0, 5.0, 30.0, 200.0])
def test_the_gaussian_curve_is_rounded_upwards_and_hardly(mu):
    for place in (-30.0, -3.0, -0.5, 0.0, 0.5, 2.0, 5.0, 8.0, 20.0, 35.0):
        epsilon = mu * (place + 0.5 * mu)
        first, second = log_ndtr(-place), epsilon + log_ndtr(-place - mu)
        exact = math.exp(first) * -math.expm1(min(0.0, second - first))
        slack = 1e-11 * math.exp(first) * (1 + place**2) * (1 + mu)
        assert exact - 1e-2 * slack <= _gaussian_delta(mu, epsilon) <= exact * (1 + 1e-5) + slack


def test_the_gaussian_curve_near_0_and_far_away():
    assert _gaussian_delta(1.0, 0.0) == pytest.approx(2 * ndtr(0.5) - 1, rel=1e-12)
    assert _gaussian_delta(1e-9, 1.0) == 0.0
    assert _gaussian_delta(1e4, 1e12) == 0.0
    assert _gaussian_delta(1e4, -1e12) == pytest.approx(1.0)
    near, far = (_gaussian_delta(20.0, 20.0 * (b - 10.0)) for b in (37 * (1 - 1e-14), 37 * (1 + 1e-14)))
    assert near == pytest.approx(far, rel=1e-5)  # two formulas meet


@pytest.mark.parametrize("variance", [0.4, 0.5, 1.0, SPREAD])
def test_the_sum_of_a_density_over_whole_numbers(variance):
    places, ends = np.arange(-40, 41), []
    for mean in np.linspace(0.0, 0.5, 51):
        density = np.exp(-0.5 * (places - mean) ** 2 / variance) / math.sqrt(2 * math.pi * variance)
        ends.append(abs(math.log(math.fsum(density))))
    assert max(ends) <= _ripple(variance) + 1e-15
    assert _ripple(variance) < 1.1 * max(ends) + 1e-12
    assert max(ends) > _ripple(1.1 * variance) or variance >= SPREAD  # the twin


@pytest.mark.parametrize(("sigma", "number"), [(1.0, 2), (1.0, 3), (1.0, 50), (1.0, 200), (1.2, 10)])
def test_the_law_of_a_sum_is_nearly_one_discrete_gaussian(sigma, number):
    masses = np.array([1.0])
    for _ in range(number):
        masses = np.convolve(masses, one_round(sigma, 14.0)[1])
    reach = len(masses) // 2
    places = np.arange(-reach, reach + 1)
    near = np.abs(places) <= 6 * sigma * math.sqrt(number)
    logarithm = np.log(masses[near]) + 0.5 * places[near] ** 2 / (number * sigma**2)
    assert 0.5 * np.ptp(logarithm) <= _ripple_of_sum(sigma, number) + 1e-12
    assert _ripple_of_sum(sigma, 1) == 0.0


def test_a_normal_number_makes_a_discrete_gaussian():
    """Output n with a chance in proportion to the density of variance SPREAD at n - x, x normal around 0."""
    variance = 40.0
    x = np.linspace(-80.0, 80.0, 160_001)
    normal = np.exp(-0.5 * x**2 / (variance - SPREAD))
    kernel = lambda n: np.exp(-0.5 * (n - x) ** 2 / SPREAD)  # noqa: E731
    whole = sum(kernel(n) for n in range(-90, 91))
    made = np.array([np.sum(normal * kernel(n) / whole) for n in range(-20, 21)])
    places = np.arange(-20, 21)
    logarithm = np.log(made) + 0.5 * places**2 / variance
    assert 0.5 * np.ptp(logarithm) <= _ripple(SPREAD) + 1e-11
    wrong = np.log(made) + 0.5 * places**2 / (variance + SPREAD)  # the twin
    assert np.ptp(wrong) > 1e-3


def test_which_method():
    how = lambda noise, rounds, delta=DELTA: total_epsilon_noisy_sum(noise, rounds, delta).how  # noqa: E731
    few = int(SMALL / 9)
    assert how(SumNoise(3.0), few) == "discrete Gaussian curve"
    assert how(SumNoise(3.0), few + 1) == "Gaussian curve"
    assert how(SumNoise(40.0, 2, 3.0), 100) == "discrete Gaussian and Gaussian curves"
    assert how(SumNoise(3.0), 5, 1e-295) == "zero-concentrated"
    assert how(SumNoise(3.0), 5, 0.0) == "Gaussian noise has no pure bound"
    assert math.isinf(total(SumNoise(3.0), 5, 0.0))
    assert how(SumNoise(3.0, every=6), 5) == "no sum is opened"
    assert total(SumNoise(3.0, every=6), 5) == 0.0
    assert math.isfinite(total(SumNoise(3.0), 5, 1e-295))


def test_the_extremes_are_finite():
    assert total(SumNoise(2.0**40), 1) == 0.0
    assert 0 < total(SumNoise(2.0**40), 1, 1e-30) < 1e-6
    heavy = total(SumNoise(1.0), 100_000, DELTA, weight=1_000_000)
    assert heavy == pytest.approx(0.5e17, rel=1e-3)
    assert total(SumNoise(1.0), 1, DELTA, weight=10**6) == pytest.approx(0.5e12, rel=1e-4)
    assert total(SumNoise(1.0), 1, 0.999) == 0.0


# Monotone, and in proportion


@settings(max_examples=60, deadline=None)
@given(st.floats(1.0, 500.0), st.integers(1, 3000), st.integers(1, 20), st.floats(-12.0, -2.0))
def test_more_noise_fewer_rounds_a_smaller_weight_and_a_larger_delta_give_less(sigma, rounds, weight, digits):
    delta, once = 10.0**digits, 1.0 + 1.5e-3  # two methods meet at SMALL, within a fifth of a percent
    found = total(SumNoise(sigma), rounds, delta, weight)
    if rounds * sigma**2 > 100:  # below, the lattice shows, and the true curve is not monotone in sigma
        assert total(SumNoise(sigma * 1.1), rounds, delta, weight) <= found * once
    assert total(SumNoise(sigma), rounds + 1 + rounds // 10, delta, weight) * once >= found
    assert total(SumNoise(sigma), rounds, delta, weight + 1) * once >= found
    assert total(SumNoise(sigma), rounds, delta * 2, weight) <= found * once
    assert total(SumNoise(sigma, every=2), rounds, delta, weight) <= found * once
    rho = 0.5 * rounds * (weight / sigma) ** 2
    assert found <= (rho + 2 * math.sqrt(-rho * math.log(delta))) * once


@pytest.mark.parametrize("weight", [2, 7, 200])
def test_a_weight_is_as_much_less_noise(weight):
    heavy, light = total(SumNoise(300.0 * weight), 1000, DELTA, weight), total(SumNoise(300.0), 1000)
    assert heavy == pytest.approx(light, rel=1e-6)
    assert total(SumNoise(300.0), 1000, DELTA, weight) > weight * light


def test_the_order_of_rounds_does_not_matter_and_early_rounds_count():
    front = total_epsilon_noisy_sum(SumNoise(400.0, 30, 60.0), 100, DELTA)
    assert front.epsilon == of_opened({400.0: 70, 60.0: 30})
    later = total_epsilon_noisy_sum(SumNoise(400.0, 30, 60.0), 70, DELTA, first=30)
    assert later.epsilon == total(SumNoise(400.0), 70)
    assert total_epsilon_noisy_sum(SumNoise(9.0, every=4), 10, DELTA).over == "2 opened sums, for a client of weight 1"


# The least noise for a budget


@pytest.mark.parametrize("weight", [1, 40])
@pytest.mark.parametrize(("early", "share"), [(0, 0.0), (30, 0.4), (1, 0.5)])
@pytest.mark.parametrize(("budget", "rounds"), [(0.1, 1000), (1.0, 10_000), (8.0, 100)])
def test_the_noise_for_a_budget_keeps_it_and_no_more(budget, rounds, early, share, weight):
    noise = sigma_for(budget, DELTA, rounds, weight, early, share)
    assert total(noise, rounds, DELTA, weight) <= budget
    smaller = SumNoise(max(1.0, noise.sigma * 0.995), early, None if not early else max(1.0, noise.early_sigma * 0.995))
    assert total(smaller, rounds, DELTA, weight) > budget
    if early and noise.early_sigma > 1.0:
        spent = {s: n / s**2 for s, n in noise.opened(0, rounds).items()}
        assert spent[noise.early_sigma] / sum(spent.values()) == pytest.approx(share, rel=2e-3)


def test_noise_for_two_aggregators_for_some_rounds_and_for_a_budget_that_needs_none():
    assert sigma_for(1.0, DELTA, 1000, aggregators=2) == replace(sigma_for(1.0, DELTA, 1000), aggregators=2)
    rare = sigma_for(1.0, DELTA, 1000, every=10)
    assert (rare.sigma, rare.every) == (sigma_for(1.0, DELTA, 100).sigma, 10)
    assert sigma_for(1e6, DELTA, 10).sigma == 1.0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"budget": 0.0}, "budget must be a total epsilon above 0"),
        ({"delta": 0.0}, "delta must be above 0 and below 1"),
        ({"rounds": 0}, "rounds must be"),
        ({"weight": 1.5}, "weight must be a whole number"),
        ({"early": 3}, "early and share must be both 0"),
        ({"share": 0.3}, "early and share must be both 0"),
        ({"early": 100, "share": 0.3}, "early and share must be"),
        ({"early": 3, "share": 1.0}, "share must be"),
        ({"every": 101}, "every must be such that a sum is opened"),
        ({"every": 10, "early": 5, "share": 0.3}, "every must be such that a sum is opened"),
        ({"budget": 1e-13, "delta": 1e-13}, "budget must be one that a sigma of 1e"),
    ],
)
def test_what_no_noise_can_be_found_for(asked, told):
    with pytest.raises(ValueError, match=told):
        sigma_for(**({"budget": 1.0, "delta": DELTA, "rounds": 100} | asked))


def test_an_account_of_nothing_is_refused():
    for asked in ({"rounds": 0}, {"delta": 1.0}, {"weight": 0}, {"weight": 2.0}):
        with pytest.raises(ValueError, match="must be"):
            total_epsilon_noisy_sum(**({"noise": SumNoise(9.0), "rounds": 5, "delta": DELTA} | asked))
