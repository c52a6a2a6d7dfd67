"""The bound holds for the integers that a real coin compares, exactly; floats do not keep it."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from turnout import ClientState, PolynomialCosts, SystemCoins, client_step
from turnout.algorithm import CappedCoin, Clamp, Memoized, RandomizedResponse, TrackingClamp
from turnout.algorithm.client import SMALLEST_AVERAGE
from turnout.algorithm.mechanism import Public
from turnout.algorithm.mechanisms.tracking_clamp import MARGIN, margin
from turnout.algorithm.thresholds import WORDS, growth, holds, on_the_coin, widest_box
from turnout.privacy import certificate

EPSILONS = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0]

ALL_EPSILONS = [*np.geomspace(1e-16, 0.05, 60).tolist(), *np.linspace(0.05, 30.0, 600).tolist()]
"""Dense in (0, 30]."""


def exactly(low, high, epsilon):
    """Both inequalities, in arithmetic of our own: 80 digits, and e^epsilon bounded from below."""
    with localcontext(prec=80):
        factor = Fraction(Decimal(epsilon).exp() * (1 - Decimal(10) ** -70))
    return high <= factor * low and WORDS - low <= factor * (WORDS - high)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("center", [0.5, 0.1, 0.9, 1e-4, 0.3])
def test_the_box_keeps_its_promise_and_is_the_widest(epsilon, center):
    low, high = (round(bound * WORDS) for bound in widest_box(epsilon, center))
    assert exactly(low, high, epsilon)
    wider = low - max(2, low // 10**12), high + max(2, high // 10**12)
    assert not exactly(*wider, epsilon)
    assert low <= center * WORDS <= high
    if center == 0.5:
        assert low + high == WORDS


def test_floats_break_it():
    """A rounded 1 / (1 + e^epsilon) is too small at some epsilon: the sabotaged twin of the exact threshold."""
    broken = []
    for epsilon in (0.1, 0.5, 1.0, 3.0, 4.0):
        low = 1.0 / (1.0 + math.exp(epsilon))
        threshold = math.ceil(low * WORDS)
        if not exactly(threshold, WORDS - threshold, epsilon) or not exactly(
            int(low * WORDS), WORDS - int(low * WORDS), epsilon
        ):
            broken.append(epsilon)
    assert len(broken) >= 3
    assert all(holds(*(round(bound * WORDS) for bound in widest_box(epsilon)), epsilon) for epsilon in broken)  # type: ignore[call-arg]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("make", [RandomizedResponse, Clamp, TrackingClamp], ids=lambda make: make.kind)
def test_every_probability_compares_as_integers_inside_the_bound(epsilon, make):
    """Thresholds are ceil(probability 2^53); any two of them, for the same average, keep the bound."""
    mechanism = make(epsilon)
    intents = np.array([0.0, 1e-9, 0.3, 0.5, 0.7, 1.0, np.nan, np.inf, -np.inf, -3.0])
    for average in (1e-9, 0.01, 0.1, 0.5, 0.77, 0.99, 1.0):
        public = Public(average=np.full(len(intents), average))
        thresholds = [math.ceil(Fraction(float(chance)) * WORDS) for chance in mechanism.probability(intents, public)]
        low, high = min(thresholds), max(thresholds)
        assert exactly(low, high, epsilon)


def broken(boxes, epsilon):
    """Of boxes (low, high) of probabilities, shape (boxes, 2): how many break their promise. Exact integers.

    A probability p says yes for ceil(p 2^53) words. A box whose low lies above its high gives high, always.
    """
    with localcontext(prec=80):
        factor = int(Decimal(epsilon).exp() * (1 - Decimal(10) ** -70) * 2**200)  # a lower bound, times 2^200
    words = np.ceil(np.asarray(boxes) * 2.0**53).astype(np.int64).tolist()  # exact: a power of 2, a whole number
    return sum(
        low < high and (high << 200 > factor * low or (WORDS - low) << 200 > factor * (WORDS - high))
        for low, high in words
    )


def averages_at(floor):
    """Both ends of the boxes' centres, what lies beyond them, and many between and near the ends."""
    near = floor * np.geomspace(1.0, min(20.0, 0.5 / floor), 200)
    return np.concatenate([[SMALLEST_AVERAGE, 0.5, 1.0], near, 1.0 - near, np.linspace(0.0, 1.0, 501)])


FLOORS = [1e-4, 0.001, 0.005, 0.1, 0.4999]


@pytest.mark.parametrize("floor", FLOORS)
def test_a_tracking_box_keeps_its_promise_at_every_epsilon_and_average(floor):
    """Exactly, for the words of the real coin: docs/proofs/tracking-clamp.md."""
    averages = averages_at(floor)
    for epsilon in ALL_EPSILONS:
        low, high = TrackingClamp(epsilon, floor).box(Public(average=averages))
        assert broken(np.stack([low, high], axis=1), epsilon) == 0, epsilon


@pytest.mark.parametrize(("floor", "first"), [(1e-4, 14.0), (0.005, 16.1), (0.4999, 16.6)])
def test_a_margin_that_does_not_grow_breaks_it(floor, first):
    """The sabotaged twin: 5e-10 for every epsilon, which was not enough from about 14 on."""
    averages = averages_at(floor)

    def breaks(epsilon):
        parameters = float(growth(epsilon, less=MARGIN)), floor
        return broken(np.stack(TrackingClamp.limits(averages, parameters), axis=1), epsilon) > 0

    assert sum(breaks(epsilon) for epsilon in np.linspace(17.0, 30.0, 20)) >= 6
    assert any(breaks(epsilon) for epsilon in np.linspace(first - 0.5, first, 11))
    assert not any(breaks(epsilon) for epsilon in np.linspace(1.0, 12.0, 12))


def test_the_margin_grows_only_where_it_must():
    """Runs of a usual epsilon stay as they were, to the bit."""
    for epsilon in np.linspace(0.01, 14.4, 200):
        assert TrackingClamp(epsilon).parameters() == (float(growth(epsilon, less=MARGIN)), 0.005)
        assert margin(min(epsilon, 10.7), 1e-4) == MARGIN
    growing = [margin(epsilon, 0.005) for epsilon in np.linspace(14.5, 30.0, 50)]
    assert growing == sorted(set(growing))
    assert MARGIN < growing[0] < growing[-1] < Decimal("0.003")


@pytest.mark.parametrize("center", [0.5, 1e-4, 0.05, 0.7, 1.0 - 1e-4])
def test_fixed_boxes_keep_their_promise_at_every_epsilon(center):
    """Clamp, and randomized response, which has the box in the middle."""
    kinds = [Clamp, RandomizedResponse] if center == 0.5 else [Clamp]
    for epsilon in ALL_EPSILONS[20:]:  # with a smaller one, no box of whole words is left
        for make in kinds:
            mechanism = make(epsilon, center) if make is Clamp else make(epsilon)
            chances = mechanism.probability([0.0, 0.25, 0.5, 1.0, np.nan], Public())
            assert broken([(min(chances), max(chances))], epsilon) == 0, epsilon


def test_a_capped_coin_keeps_its_certificate_at_every_epsilon():
    """The epsilon follows from the box, rounded upwards."""
    found = []
    for beta in np.geomspace(1e-6, 30.0, 60):
        for cap in (1e-12, 1e-3, 0.3, 0.8, 1.0 - 1e-6, 1.0 - 2.0**-53):
            mechanism = CappedCoin(float(beta), cap)
            found.append(certificate(mechanism).epsilon)
            chances = mechanism.probability([0.0, 0.25, 0.5, 1.0, np.nan], Public())
            assert broken([(min(chances), max(chances))], found[-1]) == 0, mechanism
    assert min(found) < 1e-5
    assert max(found) > 30.0


def test_a_release_keeps_its_promise_at_every_epsilon():
    """Of any two costs, each level is released by at most e^epsilon times as many words."""
    costs = PolynomialCosts([[1e-9], [1e9], [1.0], [5.0], [20.0]], (2,))
    for epsilon in ALL_EPSILONS[20::3]:
        words = Memoized(epsilon, price=10.0).words_by_level(costs)
        assert set(words.sum(axis=1).tolist()) == {WORDS}
        with localcontext(prec=80):
            factor = Fraction(Decimal(epsilon).exp() * (1 - Decimal(10) ** -70))
        for least, most in zip(words.min(axis=0).tolist(), words.max(axis=0).tolist(), strict=True):
            assert 0 < least <= most <= factor * least


def test_a_real_client_reports_whatever_happens():
    costs = PolynomialCosts([[1.0]], (2,))
    for signal in (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e308):
        _, came, *_ = client_step(
            costs, Clamp(1.0), ClientState(np.ones(1), 2.0), signal, SystemCoins().uniform([0], 0)
        )
        assert came.dtype == bool


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, 31.0])
def test_bad_epsilon(bad):
    with pytest.raises(ValueError, match="above 0 and at most 30"):
        widest_box(bad)


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 1.5, np.nan])
def test_bad_centres(bad):
    with pytest.raises(ValueError, match="center must be above 0 and below 1"):
        widest_box(1.0, bad)


@pytest.mark.parametrize("digits", [3, 6, 28, 80])
def test_a_callers_decimals_change_no_box(digits):
    """Decimal's precision is anyone's to set in the same thread: it must neither widen a box nor keep us busy."""

    def found():
        widest_box.cache_clear()
        boxes = [widest_box(epsilon, center) for epsilon in (0.01, 1.01, 7.3) for center in (0.5, 0.3)]
        return boxes, [TrackingClamp(epsilon).parameters() for epsilon in (0.01, 1.01, 7.3)], growth(1.01)

    expected = found()
    with localcontext(prec=digits):
        assert found() == expected


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("center", [0.5, 0.1, 0.9, 1e-4, 0.3])
def test_the_ends_are_the_words_next_to_the_formulas(epsilon, center):
    """low = o / (o + z) and high = o z / (1 + o z), z^2 - m (E - 1) z - E = 0, in 80 digits, rounded inwards."""
    with localcontext(prec=80):
        factor, odds = Decimal(epsilon).exp(), Decimal(center) / (1 - Decimal(center))
        m = min(odds, 1 / odds) * (factor - 1)
        z = (m + (m * m + 4 * factor).sqrt()) / 2
        assert abs(z * z - m * z - factor) < Decimal("1e-60")
        least = (WORDS * odds / (odds + z)).to_integral_value(ROUND_CEILING)
        most = (WORDS * odds * z / (1 + odds * z)).to_integral_value(ROUND_FLOOR)
    assert [round(end * WORDS) for end in widest_box(epsilon, center)] == [least, most]


def test_a_box_may_be_one_word():
    low, high = widest_box(1e-17, 0.7)
    assert low == high == pytest.approx(0.7)


def test_a_box_of_words_is_never_certain_and_may_be_one_point():
    assert WORDS == 2**53  # as long as a real coin's draw
    assert holds(1, 1, 0.01)
    assert holds(WORDS - 1, WORDS - 1, 0.01)
    for low, high in ((0, 0), (0, 1), (WORDS, WORDS), (WORDS - 1, WORDS), (6, 5)):
        assert holds(low, high, 30.0) is False


@pytest.mark.parametrize("words", [WORDS // 8, WORDS // 2, 7 * WORDS // 8])
def test_both_inequalities_are_kept_to_the_last_word(words):
    """The last word that e^epsilon allows is allowed, and the next is not: for a yes, and mirrored for a no."""
    epsilon = 0.1
    with localcontext(prec=80):
        factor = Fraction(Decimal(epsilon).exp())
    for high in (int(factor * words), int(WORDS - (WORDS - words) / factor)):
        assert holds(words, high, epsilon) == exactly(words, high, epsilon)
        assert holds(words, high + 1, epsilon) == exactly(words, high + 1, epsilon)
    tightest = min(int(factor * words), int(WORDS - (WORDS - words) / factor))
    assert holds(words, tightest, epsilon)
    assert not holds(words, tightest + 1, epsilon)


def test_the_growth_is_a_lower_bound_and_hardly_less():
    for epsilon in EPSILONS:
        found, less = growth(epsilon), growth(epsilon, less=Decimal("0.25"))  # in whatever precision there is
        with localcontext(prec=80):
            exact = Decimal(epsilon).exp()
            assert exact * (1 - Decimal("1e-58")) < found < exact
            assert exact * (1 - Decimal("1e-58")) < less / Decimal("0.75") < exact


@pytest.mark.parametrize(("epsilon", "center"), [(1.0, 0.2), (2.0, 0.7), (0.3, 0.01)])
def test_both_ends_lie_equally_far_from_the_centre_in_log_odds(epsilon, center):
    low, high = widest_box(epsilon, center)
    odds = [p / (1 - p) for p in (low, center, high)]
    assert odds[1] / odds[0] == pytest.approx(odds[2] / odds[1], rel=1e-9)


def test_the_largest_epsilon_has_a_box_and_a_hopeless_one_is_refused():
    low, high = widest_box(30.0)
    assert 0.0 < low < 1e-12
    assert high == 1.0 - low
    with pytest.raises(ValueError, match="large enough for a box of 53 bits"):
        widest_box(1e-17, 0.3)


@pytest.mark.parametrize("chance", [0.1, 0.3, 1e-5])
def test_both_ends_of_a_box_on_the_coin_count_its_words(chance):
    words = math.ceil(Fraction(chance) * WORDS)
    assert words != math.floor(Fraction(chance) * WORDS), "or nothing would be rounded"
    low, high = on_the_coin(chance, chance)
    assert (Fraction(low) * WORDS, Fraction(high) * WORDS) == (words, words)
