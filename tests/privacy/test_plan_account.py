"""Rounds that differ by plan, and the counting bug that we must not use."""

import math
import sys
import time
from collections import Counter

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.stats import binom

from turnout.errors import MissingExtra
from turnout.privacy import sum_only as plan_account
from turnout.privacy.accounting import UNIT, Walk, dominating_pair, least_epsilon, report_epsilon, total_epsilon
from turnout.privacy.sum_only import (
    _groups,
    _losses,
    distribution,
    epsilon_at,
    rounding_of_transform,
    split_on_grid,
    total_epsilon_of_plan,
)

DELTA = 1e-6


def symmetric(epsilon) -> tuple[float, float]:
    low = 1 / (1 + math.exp(epsilon))
    return low, 1 - low


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1])
@pytest.mark.parametrize("rounds", [100, 1000, 10_000])
def test_nearly_equal_rounds_agree_with_the_exact_binomial(epsilon, rounds):
    half = rounds // 2
    plan = [(*symmetric(epsilon), half), (*symmetric(epsilon * (1 + 1e-7)), half)]
    found = total_epsilon_of_plan(plan, DELTA).epsilon
    exact = total_epsilon(*symmetric(epsilon), rounds, DELTA).epsilon
    assert exact * (1 - 1e-6) <= found <= exact * 1.05


def test_equal_rounds_are_exact():
    assert total_epsilon_of_plan([(0.3, 0.7, 40), (0.3, 0.7, 60)], DELTA) == total_epsilon(0.3, 0.7, 100, DELTA)


def test_asymmetric_boxes_are_not_below_the_pair():
    box = (0.1, 0.1 * math.e)
    found = total_epsilon_of_plan([(*box, 19), (0.1, 0.1 * math.e * (1 - 1e-9), 1)], DELTA).epsilon
    assert found >= 14.10
    assert found == pytest.approx(total_epsilon(*box, 20, DELTA).epsilon, rel=0.001)


def test_a_plan_is_between_its_extremes_and_nothing_is_free():
    found = total_epsilon_of_plan([(*symmetric(0.1), 500), (*symmetric(0.2), 500), (0.4, 0.4, 7)], DELTA)
    assert total_epsilon(*symmetric(0.1), 1000, DELTA).epsilon < found.epsilon
    assert found.epsilon < total_epsilon(*symmetric(0.2), 1000, DELTA).epsilon
    assert found.rounds == 1007
    assert total_epsilon_of_plan([(0.4, 0.4, 7), (0.3, 0.3, 7)], DELTA).epsilon == 0.0
    assert total_epsilon_of_plan([(0.0, 0.4, 7), (0.3, 0.4, 7)], DELTA).epsilon == math.inf
    tiny = total_epsilon_of_plan([(1e-200, 0.5, 1), (0.3, 0.4, 7)], DELTA)
    assert tiny.how == "sum of the reports"


@pytest.mark.parametrize("kinds", [100, 10_000])
def test_ten_thousand_rounds_of_mixed_epsilon_in_under_ten_seconds(kinds):
    values = [0.01 * 100 ** ((i + 0.5) / kinds) for i in range(kinds)]
    started = time.perf_counter()
    found = total_epsilon_of_plan([(*symmetric(value), 10_000 // kinds) for value in values], DELTA).epsilon
    assert time.perf_counter() - started < 10.0
    mean = math.fsum(10_000 / kinds * value * math.tanh(value / 2) for value in values)
    spread = math.sqrt(math.fsum(10_000 / kinds * (value / math.cosh(value / 2)) ** 2 for value in values))
    assert found == pytest.approx(mean + 4.75 * spread, rel=0.02)  # the normal approximation of the loss


def test_dp_accounting_0_6_0_ignores_a_count_and_ours_does_not():
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.RandomizedResponseDpEvent(noise_parameter=2 / (1 + math.exp(0.1)), num_buckets=2)
    accountant.compose(event, 1000)
    wrong = accountant.get_epsilon(DELTA)
    assert wrong == pytest.approx(0.1, abs=0.001)  # if this fails the bug is mended, and this test may go
    ours = total_epsilon_of_plan([(*symmetric(0.1), 999), (*symmetric(0.1 * (1 + 1e-9)), 1)], DELTA).epsilon
    assert 19.3 <= ours <= 19.4


def test_refusals(monkeypatch):
    with pytest.raises(ValueError, match="plan must be"):
        total_epsilon_of_plan([], DELTA)
    with pytest.raises(ValueError, match="delta must be above"):
        total_epsilon_of_plan([(0.3, 0.7, 10), (0.2, 0.8, 10)], 1e-14)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.privacy_loss_distribution", None)
    with pytest.raises(MissingExtra, match="dp-accounting"):
        total_epsilon_of_plan([(0.3, 0.7, 10), (0.2, 0.8, 10)], DELTA)
    assert total_epsilon_of_plan([(0.3, 0.7, 10)], DELTA).epsilon > 0  # equal rounds need nothing


def delta_of(losses, mass, epsilon):
    return float(mass @ np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - losses))))


def all_outcomes(pairs):
    """(losses, masses) of all sequences of answers of some rounds, one of which is (right, wrong or blank)."""
    losses, mass = np.zeros(1), np.ones(1)
    for pair in pairs:
        losses = np.add.outer(losses, [pair.loss, -pair.loss, 0.0]).ravel()
        mass = np.multiply.outer(mass, [pair.right, pair.wrong, pair.blank]).ravel()
    return losses, mass


PLANS = [
    [(0.3, 0.7, 1), (0.2, 0.8, 1)],
    [(0.3, 0.7, 3), (0.2, 0.6, 2), (0.5, 0.75, 4)],
    [(0.3, 0.7, 2), (0.2, 0.6, 2), (0.5, 0.75, 3), (0.4, 0.4, 1), (0.45, 0.5, 1)],
    [(0.3, 0.7, 2), (0.2, 0.6, 2), (0.5, 0.75, 2), (0.45, 0.5, 1), (0.1, 0.3, 1)],
]


@pytest.mark.parametrize("plan", PLANS, ids=len)
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_a_plan_is_nearly_its_enumeration_and_never_below(plan, delta):
    pairs = [dominating_pair(low, high) for low, high, count in plan for _ in range(count)]
    losses, mass = all_outcomes(pairs)
    exact = least_epsilon(lambda epsilon: delta_of(losses, mass, epsilon), float(losses.max()), delta)
    found = total_epsilon_of_plan(plan, delta)
    assert exact * (1 - 1e-12) <= found.epsilon <= exact * (1 + 1e-5)
    assert (found.delta, found.rounds, found.how) == (delta, len(pairs), "loss distributions")


def test_the_sum_of_the_reports_is_never_passed_and_is_rounded_upwards():
    plan = [(0.3, 0.7, 1), (0.2, 0.8, 2)]
    pure = report_epsilon(0.3, 0.7) + 2 * report_epsilon(0.2, 0.8)
    for delta, how in ((0.0, "sum of the reports"), (1e-9, "loss distributions")):
        found = total_epsilon_of_plan(plan, delta)
        assert found.how == how
        assert pure < found.epsilon <= pure * (1 + 1e-14)


def test_a_box_that_is_closed_gives_nothing_away_and_needs_nothing():
    """Also at 0, where a box that is open would have no walk, and among more boxes than are told apart."""
    open_boxes = [(0.3, 0.7, 4), (0.2, 0.8, 1)]
    expected = total_epsilon_of_plan(open_boxes, DELTA)
    for closed in (0.0, 0.4, 1.0):
        found = total_epsilon_of_plan([*open_boxes, (closed, closed, 3)], DELTA)
        assert (found.epsilon, found.how, found.rounds) == (expected.epsilon, "loss distributions", 8)
    nothing = total_epsilon_of_plan([(0.4, 0.4, 7), (0.3, 0.3, 7)], DELTA)
    assert (nothing.epsilon, nothing.rounds, nothing.how) == (0.0, 14, "sum of the reports")


def test_what_is_too_small_for_a_walk_is_summed():
    for low, how in ((0.99e-100, "sum of the reports"), (1e-100, "loss distributions")):
        assert total_epsilon_of_plan([(low, 0.5, 1), (0.3, 0.4, 2)], DELTA).how == how
    assert total_epsilon_of_plan([(0.5, 1.0, 1), (0.3, 0.4, 2)], DELTA).epsilon == math.inf


def test_a_split_keeps_the_masses_and_the_mean_of_the_ratio_and_moves_less_than_a_step():
    generator = np.random.default_rng(0)
    for _ in range(20):
        losses, mass = generator.normal(0.0, 1.0, 7), generator.dirichlet(np.ones(7))
        first, grid = split_on_grid(losses, mass, 0.125)
        places = 0.125 * (first + np.arange(len(grid)))
        assert grid.sum() == pytest.approx(1.0, rel=1e-13)
        assert grid @ np.exp(-places) == pytest.approx(mass @ np.exp(-losses), rel=1e-13)
        assert all(np.min(np.abs(losses - place)) < 0.125 for place in places[grid > 0.0])
        for epsilon in (0.0, 0.3, 1.0):
            assert delta_of(places, grid, epsilon) >= delta_of(losses, mass, epsilon) * (1 - 1e-12)
    first, grid = split_on_grid(np.array([-0.5, 0.25]), np.array([0.25, 0.75]), 0.25)
    assert (first, grid.tolist()) == (-2, [0.25, 0.0, 0.0, 0.75, 0.0])


def test_a_distribution_has_its_masses_where_the_grid_has_them():
    found = distribution(-1, np.array([0.2, 0.0, 0.3, 0.4]), 0.5, 0.1, "a test")
    for epsilon in (-1.0, 0.0, 0.7):
        exact = 0.1 + delta_of(np.array([-0.5, 0.5, 1.0]), np.array([0.2, 0.3, 0.4]), epsilon)
        assert found.get_delta_for_epsilon(epsilon) == pytest.approx(exact, rel=1e-12)


class Noted:
    """Stands in for a loss distribution: notes how it is put together, and what it is asked for."""

    def __init__(self, size):
        self.size, self.made = size, 0.0

    def compose(self, other, tail_mass_truncation):
        together = Noted(self.size + other.size)
        together.made = self.made + other.made + rounding_of_transform(together.size)
        assert tail_mass_truncation == plan_account.TAIL
        return together

    def get_epsilon_for_delta(self, delta):
        self.delta = delta
        return 0.5


def test_each_composition_takes_what_it_may_round_from_delta(monkeypatch):
    made = []
    monkeypatch.setattr(plan_account, "distribution", lambda first, grid, *_: made.append(Noted(len(grid))) or made[-1])
    asked = []
    monkeypatch.setattr(plan_account, "epsilon_at", lambda *arguments: asked.append(arguments) or 0.5)
    total_epsilon_of_plan(PLANS[-1], DELTA)
    ((composed, delta, margin),) = asked
    assert (len(made), composed.size, delta) == (5, sum(one.size for one in made), DELTA)
    assert margin == pytest.approx(composed.made, rel=1e-12, abs=0.0)


def test_half_of_delta_at_most_is_kept_for_rounding():
    composed = Noted(10)
    found = epsilon_at(composed, 1e-6, 0.499e-6)
    assert composed.delta == pytest.approx(0.501e-6)
    assert 0.5 < found < 0.5 * (1 + 1e-13)
    with pytest.raises(ValueError, match=r"delta must be above 1.0e-06, for rounds that differ or are summed"):
        epsilon_at(composed, 1e-6, 0.5e-6)


@pytest.mark.parametrize("length", [64, 3_000, 20_000])
def test_a_transform_rounds_by_less_than_is_kept(length):
    """Against a convolution term by term; the bound is a few roundings of log2(length), and sqrt(length) of that."""
    masses = np.random.default_rng(length).dirichlet(np.ones(length // 2), 2)
    error = float(np.abs(fftconvolve(*masses) - np.convolve(*masses)).sum())
    few = UNIT * math.log2(length) * math.sqrt(length)
    assert error < 8 * few < rounding_of_transform(length) < 40 * few


@pytest.mark.parametrize("rounds", [5, 4_000])
def test_losses_of_a_walk_on_both_sides_and_far_tails_count_as_infinite(rounds):
    pair = dominating_pair(0.25, 0.75)
    walk = Walk.of(pair, rounds)
    losses, mass, lost = _losses(walk)
    places = np.rint(losses / pair.loss)
    np.testing.assert_allclose(losses, places * pair.loss, rtol=1e-12, atol=1e-15)
    right = ((places + rounds) / 2)[::2].astype(int)  # answers; between two of these numbers there is none
    np.testing.assert_allclose(mass[::2], binom.pmf(right, rounds, 0.75), rtol=1e-9)
    assert not mass[1::2].any()
    not_in_a_tail = (binom.ppf(1e-15, rounds, 0.75), rounds - binom.ppf(1e-15, rounds, 0.25))
    assert (right[0], right[-1]) == not_in_a_tail
    tails = binom.cdf(right[0] - 1, rounds, 0.75) + binom.sf(right[-1], rounds, 0.75)
    assert lost == pytest.approx(tails, rel=1e-6, abs=1e-300)
    if rounds == 5:  # so few roundings that one sees that losses and masses are rounded upwards
        assert np.all(losses[places > 0] > places[places > 0] * pair.loss * (1.0 + 4.0 * UNIT))
        assert 1.0 + 0.9 * walk.slack < mass.sum() < 1.0 + 1.1 * walk.slack


@pytest.mark.parametrize(
    ("boxes", "most", "parts"),
    [
        ([symmetric(0.5 * (1 + 1e-5 * i)) for i in range(10)], 9, 1024),
        ([symmetric(0.5 * math.exp(i / 4096)) for i in range(64)], 9, 512),
        ([symmetric(3.0 * math.exp(i / 4096)) for i in range(64)], 5, 256),
        ([(0.2 * (1 + 1e-5 * i), 0.4 * (1 + 1e-5 * i)) for i in range(10)], 9, 1024),
        ([(0.1 * math.exp(i / 4096), 0.3 * math.exp(i / 4096)) for i in range(64)], 9, 512),
    ],
)
def test_too_many_boxes_are_replaced_by_slightly_stronger_ones(monkeypatch, boxes, most, parts):
    """By less than a factor e^(1 / parts), the least of those that are tried, in loss and in how often one speaks."""
    monkeypatch.setattr(plan_account, "MOST_GROUPS", most)
    counts = Counter({dominating_pair(*box): 2 for box in boxes})
    groups = _groups(counts)
    assert len(groups) <= most
    assert groups.total() == 2 * len(boxes)
    factor = math.exp(1 / parts) * (1 + 1e-12)
    for pair in counts:
        stronger = [
            one
            for one in groups
            if pair.loss <= one.loss <= pair.loss * factor
            and pair.right + pair.wrong <= (one.right + one.wrong) * (1 + 1e-12) <= (pair.right + pair.wrong) * factor
        ]
        assert stronger
    for pair in groups:
        assert math.log(pair.right / pair.wrong) == pytest.approx(pair.loss, rel=1e-12)
        assert pair.right + pair.wrong + pair.blank == pytest.approx(1.0, rel=1e-12)
        assert pair.blank >= 0.0


def test_few_boxes_are_left_as_they_are(monkeypatch):
    monkeypatch.setattr(plan_account, "MOST_GROUPS", 3)
    counts = Counter({dominating_pair(*symmetric(epsilon)): 2 for epsilon in (0.1, 0.10001, 0.3)})
    assert _groups(counts) == counts


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_what_is_no_chance_and_no_count(delta):
    with pytest.raises(ValueError, match="delta must be at least 0"):
        total_epsilon_of_plan([(0.3, 0.7, 10), (0.2, 0.8, 10)], delta)
    with pytest.raises(ValueError, match="rounds must be"):
        total_epsilon_of_plan([(0.3, 0.7, 10), (0.2, 0.8, 0)], DELTA)
    with pytest.raises(ValueError, match="low and high must be"):
        total_epsilon_of_plan([(0.3, 0.7, 10), (0.8, 0.2, 1)], DELTA)
