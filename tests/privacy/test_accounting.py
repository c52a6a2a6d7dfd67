"""Totals against one that sees every report: the notes' tables, brute force, and what a careless account gets wrong."""

import itertools
import math
import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from turnout.privacy.accounting import (
    Account,
    dominating_pair,
    least_epsilon,
    report_epsilon,
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


def symmetric(epsilon):
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
def test_delta_equals_an_enumeration_of_the_pair(box, rounds):
    pair = dominating_pair(*box)
    masses = ((pair.right, pair.wrong), (pair.blank, pair.blank), (pair.wrong, pair.right))
    for epsilon in (0.0, 0.1, 0.5, 1.3):
        exact = 0.0
        for outcome in itertools.product(masses, repeat=rounds):
            p, q = math.prod(m[0] for m in outcome), math.prod(m[1] for m in outcome)
            exact += max(0.0, p - math.exp(epsilon) * q)
        assert total_delta(*box, rounds, epsilon).delta == pytest.approx(exact, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("rounds", [1, 5, 20])
def test_symmetric_boxes_are_exact_against_an_adaptive_adversary(rounds):
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
def test_never_below_the_adaptive_truth_nor_a_direction_nor_above_randomized_response(box, rounds, epsilon):
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
        "total epsilon 591.1 at delta 1e-06 over 1,000 reports, against one that sees every report (exact binomial)"
    )
