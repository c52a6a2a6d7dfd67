"""Totals against an observer of every report: the notes' tables, brute force, what a careless account gets wrong."""

import itertools
import math
import time
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from turnout.privacy.accounting import (
    UNIT,
    Account,
    Walk,
    dominating_pair,
    is_symmetric,
    least_epsilon,
    report_epsilon,
    shown,
    total_delta,
    total_epsilon,
)

DELTA = 1e-6
TABLE = {
    (0.01, 100): 0.39,
    (0.01, 1000): 1.37,
    (0.01, 10_000): 4.89,
    (0.1, 100): 4.78,
    (0.1, 1000): 19.3,
    (0.1, 10_000): 96.6,
    (1, 100): 83.5,
    (1, 1000): 591,
    (1, 10_000): 5038,
}
EXAMPLE = (0.1, 0.1 * math.e)  # the notes' asymmetric box


def symmetric(epsilon) -> tuple[float, float]:
    low = 1 / (1 + math.exp(epsilon))
    return low, 1 - low


def one_direction(low, high, rounds, epsilon):
    """What a careless account takes: the target always at high against always at low, or the other way round."""

    def loss(yes):
        return yes * math.log(high / low) + (rounds - yes) * math.log((1 - high) / (1 - low))

    def chance(yes, p):
        return math.comb(rounds, yes) * p**yes * (1 - p) ** (rounds - yes)

    forth = sum(chance(j, high) * max(0.0, -math.expm1(epsilon - loss(j))) for j in range(rounds + 1))
    back = sum(chance(j, low) * max(0.0, -math.expm1(epsilon + loss(j))) for j in range(rounds + 1))
    return forth, back


def adaptive(low, high, rounds, epsilon):
    """The exact delta of the best adaptive choice of directions, by going backwards from the last round."""
    yes, no = math.log(high / low), math.log((1 - low) / (1 - high))

    @cache
    def worth(left, a, b):
        if left == 0:
            return max(0.0, -math.expm1(epsilon - a * yes - b * no))
        return max(
            high * worth(left - 1, a + 1, b) + (1 - high) * worth(left - 1, a, b - 1),
            low * worth(left - 1, a - 1, b) + (1 - low) * worth(left - 1, a, b + 1),
        )

    return worth(rounds, 0, 0)


@pytest.mark.parametrize(("epsilon", "rounds"), TABLE)
def test_the_notes_table(epsilon, rounds):
    started = time.perf_counter()
    account = total_epsilon(*symmetric(epsilon), rounds, DELTA)
    assert time.perf_counter() - started < 1.0
    assert account.epsilon == pytest.approx(TABLE[epsilon, rounds], rel=0.01)
    assert account.how == "exact binomial"


@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
@pytest.mark.parametrize("box", [(0.3, 0.7), (0.1, 0.4), (0.55, 0.9), (0.01, 0.02)])
def test_delta_equals_an_enumeration_of_the_pair(box: tuple[float, float], rounds):
    pair = dominating_pair(*box)
    masses = ((pair.right, pair.wrong), (pair.blank, pair.blank), (pair.wrong, pair.right))
    for epsilon in (0.0, 0.1, 0.5, 1.3):
        exact = 0.0
        for outcome in itertools.product(masses, repeat=rounds):
            p, q = math.prod(m[0] for m in outcome), math.prod(m[1] for m in outcome)
            exact += max(0.0, p - math.exp(epsilon) * q)
        assert total_delta(*box, rounds, epsilon).delta == pytest.approx(exact, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("rounds", [1, 5, 20])
def test_symmetric_boxes_are_exact_against_an_adaptive_observer(rounds):
    for epsilon in (0.0, 0.4, 2.0):
        exact = adaptive(0.3, 0.7, rounds, epsilon)
        assert total_delta(0.3, 0.7, rounds, epsilon).delta == pytest.approx(exact, rel=1e-9, abs=1e-15)


def test_the_asymmetric_example_is_not_below_any_mix_of_directions():
    total = total_epsilon(*EXAMPLE, 20, DELTA).epsilon
    exact = least_epsilon(lambda epsilon: adaptive(*EXAMPLE, 20, epsilon), 20.0, DELTA)
    assert total >= exact >= 14.10
    assert total <= total_epsilon(*symmetric(1), 20, DELTA).epsilon
    assert total == pytest.approx(total_epsilon(1 - EXAMPLE[1], 1 - EXAMPLE[0], 20, DELTA).epsilon, rel=1e-9)


def test_a_one_direction_account_of_the_example_is_caught():
    careless = least_epsilon(lambda epsilon: max(one_direction(*EXAMPLE, 20, epsilon)), 20.0, DELTA)
    assert careless == pytest.approx(13.94, abs=0.01)
    assert adaptive(*EXAMPLE, 20, careless) > DELTA


boxes = some.tuples(some.floats(0.001, 0.999), some.floats(0.001, 0.999)).map(sorted).map(tuple)


@settings(deadline=None, max_examples=60)
@given(box=boxes, rounds=some.integers(1, 12), epsilon=some.floats(0.0, 8.0))
def test_never_below_the_adaptive_truth_nor_a_direction_nor_above_randomized_response(
    box: tuple[float, float], rounds, epsilon
):
    found = total_delta(*box, rounds, epsilon).delta
    if box[0] < box[1]:
        assert found >= adaptive(*box, rounds, epsilon) * (1 - 1e-9) - 1e-12
        assert found >= max(one_direction(*box, rounds, epsilon)) * (1 - 1e-9) - 1e-12
    assert found <= total_delta(*symmetric(report_epsilon(*box)), rounds, epsilon).delta + 1e-9


@settings(deadline=None, max_examples=60)
@given(box=boxes, rounds=some.integers(1, 400), wider=some.floats(0.0, 1.0))
def test_more_rounds_and_wider_boxes_cost_more(box, rounds, wider):
    low, high = box
    total = total_epsilon(low, high, rounds, DELTA).epsilon
    assert total <= total_epsilon(low, high, rounds + 1, DELTA).epsilon * (1 + 1e-9)
    wide = total_epsilon(low * (1 - 0.5 * wider), high + (1 - high) * 0.5 * wider, rounds, DELTA).epsilon
    assert total <= wide * (1 + 1e-9)
    assert total <= rounds * report_epsilon(low, high) * (1 + 1e-12)
    assert total_delta(low, high, rounds, total).delta <= DELTA


def test_a_report():
    assert report_epsilon(*symmetric(1)) == pytest.approx(1, rel=1e-12)
    assert report_epsilon(*symmetric(1)) >= 1 - 1e-16
    assert report_epsilon(0.2, 0.2) == 0.0
    assert report_epsilon(0.9, 0.99) == pytest.approx(math.log(10))
    assert report_epsilon(0.0, 0.5) == report_epsilon(0.5, 1.0) == math.inf
    assert total_epsilon(0.0, 0.5, 10, DELTA).epsilon == math.inf
    assert total_epsilon(0.2, 0.2, 10, DELTA).epsilon == 0.0
    assert total_epsilon(0.25, 0.75, 10, 0.0).epsilon == pytest.approx(10 * math.log(3))
    assert total_delta(0.0, 0.5, 10, 3.0).delta == 1.0
    assert total_epsilon(1e-200, 0.5, 10, DELTA).epsilon == pytest.approx(10 * math.log(0.5e200))
    assert total_epsilon(0.3, 0.7, 50, 1e-300).epsilon == pytest.approx(50 * report_epsilon(0.3, 0.7))  # underflow


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.5, 0.4, 1, DELTA), "low and high must be"),
        ((math.nan, 0.4, 1, DELTA), "low and high must be"),
        ((0.1, 0.4, 0, DELTA), "rounds must be"),
        ((0.1, 0.4, 1, 1.0), "delta must be"),
        ((0.1, 0.4, 1, math.nan), "delta must be"),
    ],
)
def test_nonsense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        total_epsilon(*arguments)
    with pytest.raises(ValueError, match="epsilon must be"):
        total_delta(0.1, 0.4, 1, -1.0)
    with pytest.raises(ValueError, match="box must be"):
        dominating_pair(0.0, 0.5)


def test_an_account_says_total_and_against_whom():
    account = total_epsilon(*symmetric(1), 1000, DELTA)
    assert isinstance(account, Account)
    assert repr(account) == (
        "total epsilon 591.1 at delta 1e-06 over 1,000 reports, against an observer of every report (exact binomial)"
    )


def exact_logarithm(above, below):
    """ln(above / below) of two floats as they are, to 50 digits."""
    ratio = Fraction(above) / Fraction(below)
    with localcontext(prec=60):
        return (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()


def exact_report(low, high):
    low, high = Fraction(low), Fraction(high)
    return max(exact_logarithm(high, low), exact_logarithm(1 - low, 1 - high))


@given(box=boxes, apart=some.sampled_from([None, 1e-15, 1e-9, 1e-3]))
def test_an_epsilon_per_report_is_rounded_upwards_and_hardly(box, apart):
    low, high = box if apart is None else (box[0], min(0.9999, box[0] * (1.0 + apart)))
    found, exact = Decimal(report_epsilon(low, high)), exact_report(low, high)
    assert exact <= found <= exact * (1 + Decimal("1e-14"))
    pure = Decimal(total_epsilon(low, high, 7, 0.0).epsilon)
    assert 7 * exact <= pure <= 7 * exact * (1 + Decimal("1e-14"))


@settings(deadline=None, max_examples=40)
@given(box=boxes.filter(lambda box: box[0] < box[1]), rounds=some.integers(1, 6), part=some.floats(0.0, 0.99))
def test_a_total_delta_is_rounded_upwards_and_hardly(box, rounds, part):
    """Against the same sum in rational numbers."""
    low, high = box
    pair = dominating_pair(low, high)
    epsilon = part * rounds * pair.loss
    right, wrong = Fraction(pair.right), Fraction(pair.wrong)
    blank = 1 - right - wrong
    with localcontext(prec=60):
        factor = Fraction(Decimal(epsilon).exp())
    exact = Fraction(0)
    for rights in range(rounds + 1):
        for wrongs in range(rounds + 1 - rights):
            blanks = rounds - rights - wrongs
            ways = math.factorial(rounds) // (math.factorial(rights) * math.factorial(wrongs) * math.factorial(blanks))
            p, q = right**rights * wrong**wrongs, wrong**rights * right**wrongs
            exact += ways * blank**blanks * max(Fraction(0), p - factor * q)
    found = Fraction(total_delta(low, high, rounds, epsilon).delta)
    assert exact <= found <= exact * (1 + Fraction(1, 10**11)) + Fraction(1, 10**13)


def test_where_a_total_needs_no_walk():
    pure = report_epsilon(0.25, 0.75) * 2
    assert (total_delta(0.25, 0.75, 2, pure).delta, total_delta(0.25, 0.75, 2, pure).how) == (0.0, "sum of the reports")
    assert total_delta(0.25, 0.75, 2, pure * 0.99).delta > 0.0
    assert total_delta(0.99e-100, 0.5, 2, 1.0).how == total_delta(0.5, 1.0, 2, 1.0).how == "no bound"
    assert total_delta(1e-100, 0.5, 2, 1.0).how == "dominating pair, exact trinomial"
    assert total_epsilon(0.99e-100, 0.5, 2, DELTA).how == "sum of the reports"
    assert total_epsilon(1e-100, 0.5, 2, DELTA).how == "dominating pair, exact trinomial"
    assert total_delta(0.0, 0.5, 1, math.inf).delta == 0.0


@pytest.mark.parametrize("rounds", [3, 700])
def test_an_asymmetric_total_over_many_rounds_is_a_trinomial(rounds):
    """Against the masses of the walk by repeated convolution."""
    pair = dominating_pair(0.2, 0.5)
    mass = np.array([1.0])
    for _ in range(rounds):
        mass = np.convolve(mass, [pair.wrong, pair.blank, pair.right])
    losses = np.arange(-rounds, rounds + 1) * math.log(pair.right / pair.wrong)
    for epsilon in (0.0, 0.1 * rounds, 0.3 * rounds):
        exact = float(mass @ np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - losses))))
        assert total_delta(0.2, 0.5, rounds, epsilon).delta == pytest.approx(exact, rel=1e-9)


def test_the_least_epsilon_is_just_enough():
    for delta in (0.5, 1e-3, 1e-9):
        found = least_epsilon(lambda epsilon: math.exp(-epsilon), 50.0, delta)
        assert math.exp(-found) <= delta < math.exp(-found * (1.0 - 1e-13))
    assert least_epsilon(lambda epsilon: 0.25, 50.0, 0.25) == 0.0
    assert least_epsilon(lambda epsilon: 1.0, 50.0, 0.25) == 50.0  # known to do, whatever it says


def test_a_bound_is_shown_rounded_upwards():
    small = {0.0: "0.0", 1e-5: "0.00001000", 0.09999: "0.09999", 0.1: "0.1000", 0.99991: "1.0000", 1.0: "1.000"}
    large = {9.9991: "10.000", 12.3401: "12.35", 999.91: "1000.0", 1000.0: "1000.0", 123456.01: "123456.1"}
    for value, text in (small | large | {math.inf: "inf"}).items():
        assert shown(value) == text
        assert float(text) >= value


@pytest.mark.parametrize(("rounds", "delta"), [(1.5, 0.1), (0, 0.1), (-1, 0.1), (1, -1e-9), (1, 1.0), (1, 2.0)])
def test_what_is_no_count_and_no_chance(rounds, delta):
    with pytest.raises(ValueError, match=r"(rounds|delta) must be"):
        total_epsilon(0.3, 0.7, rounds, delta)


def test_the_whole_unit_interval_is_a_box():
    assert report_epsilon(0.0, 1.0) == math.inf
    assert report_epsilon(0.0, 0.0) == report_epsilon(1.0, 1.0) == 0.0
    with pytest.raises(ValueError, match="low and high must be"):
        report_epsilon(-0.1, 0.5)
    with pytest.raises(ValueError, match="low and high must be"):
        report_epsilon(0.5, 1.1)
    with pytest.raises(ValueError, match="box must be inside"):
        dominating_pair(0.5, 1.0)
    assert dominating_pair(0.25, 0.75).blank == 0.0
    above, below = dominating_pair(0.6, 0.9), dominating_pair(0.1, 0.4)
    for name in ("right", "wrong", "blank", "loss"):
        assert getattr(above, name) == pytest.approx(getattr(below, name), rel=1e-12)


def test_a_total_delta_is_at_most_one():
    """Also where nearly all of it is lost, and roundings would add up to more."""
    narrow = 2.0**-53
    assert total_delta(narrow, 1.0 - narrow, 3, 0.0).delta == 1.0
    assert total_delta(0.3, 0.7, 3, 0.0).delta < 1.0


@pytest.mark.parametrize("box", [(0.25, 0.75), (0.2, 0.5), (1e-6, 0.9)])
@pytest.mark.parametrize("rounds", [1, 60])
def test_the_masses_of_a_walk_are_right_up_to_its_slack(box, rounds):
    """Against whole numbers: ways to have so many more right than wrong answers, times rational chances."""
    pair = dominating_pair(*box)
    walk = Walk.of(pair, rounds)
    right, wrong = Fraction(pair.right), Fraction(pair.wrong)
    blank = 1 - right - wrong
    for ahead in range(0, rounds + 1, max(1, rounds // 7)):
        exact = sum(
            math.comb(rounds, wrongs)
            * math.comb(rounds - wrongs, wrongs + ahead)
            * right ** (wrongs + ahead)
            * wrong**wrongs
            * blank ** (rounds - 2 * wrongs - ahead)
            for wrongs in range((rounds - ahead) // 2 + 1)
        )
        assert abs(Fraction(float(walk.mass[ahead])) - exact) <= Fraction(walk.slack) * exact / 4
    assert len(walk.mass) == rounds + 1
    # 8 roundings a step, and three of each exponent, which reaches rounds * ln(1 / wrong)
    least = UNIT * rounds * (4.0 - 1.5 * math.log(pair.wrong))
    assert least <= walk.slack <= 24.0 * least + 100.0 * UNIT


def test_a_walk_of_many_rounds_does_not_overflow():
    """Coefficients beyond every float, against the normal law of the whole number of right answers."""
    walk = Walk.of(dominating_pair(0.25, 0.75), 5_000)
    assert 2 * walk.mass[0] == pytest.approx(0.0, abs=1e-250)
    assert walk.mass.sum() == pytest.approx(1.0, rel=1e-9)
    assert np.arange(5_001) @ walk.mass == pytest.approx(2_500.0, rel=1e-9)  # right less wrong, on average
    assert (np.arange(5_001) - 2_500.0) ** 2 @ walk.mass == pytest.approx(4 * 5_000 * 0.25 * 0.75, rel=1e-9)


def test_a_box_is_symmetric_up_to_a_few_roundings():
    assert is_symmetric(0.25, 0.75 + 8e-16)
    assert is_symmetric(0.25 - 8e-16, 0.75)
    assert not is_symmetric(0.25, 0.75 + 1.5e-15)
    assert not is_symmetric(0.25 - 1.5e-15, 0.75)


def test_the_least_epsilon_may_be_as_small_as_can_be():
    assert 0.0 < least_epsilon(lambda epsilon: float(epsilon == 0.0), 1.0, 0.5) < 1e-299
    found = least_epsilon(lambda epsilon: float(epsilon < 1e-200), 1.0, 0.5)
    assert 1e-200 <= found <= 1e-200 * (1 + 1e-14)
    assert least_epsilon(lambda epsilon: float(epsilon < 3.0), 7.0, 0.0) == pytest.approx(3.0, rel=1e-14)
