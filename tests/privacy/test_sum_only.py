"""One that sees only the sum: the notes' figures, and an enumeration of small crowds."""

import itertools
import math
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from turnout.privacy import sum_only
from turnout.privacy.accounting import UNIT, least_epsilon, report_epsilon, total_epsilon
from turnout.privacy.filter import renyi_to_epsilon
from turnout.privacy.sum_only import (
    MOST_CROWDS,
    ORDERS,
    _binomial,
    _by_distributions,
    _by_renyi,
    _log_factorials,
    total_epsilon_sum_only,
    view_of_sum,
)

DELTA = 1e-6


def symmetric(epsilon) -> tuple[float, float]:
    low = 1 / (1 + math.exp(epsilon))
    return low, 1 - low


def poisson_binomial(chances):
    masses = [1.0]
    for chance in chances:
        masses = [
            (masses[i] if i < len(masses) else 0.0) * (1 - chance) + (masses[i - 1] * chance if i else 0.0)
            for i in range(len(masses) + 1)
        ]
    return masses


def worst_delta(low, high, honest, epsilon, rounds=1):
    """The greatest delta of the sums over a grid of the others' probabilities and of the target's directions."""
    middle = 0.5 * (low + high)
    factor, worst = math.exp(epsilon), 0.0
    for others in itertools.combinations_with_replacement((low, middle, high), honest):
        forth = (poisson_binomial((*others, high)), poisson_binomial((*others, low)))
        for directions in itertools.product((forth, forth[::-1]), repeat=rounds):
            delta = sum(
                max(0.0, math.prod(p for p, _ in sums) - factor * math.prod(q for _, q in sums))
                for sums in itertools.product(*(tuple(zip(*pair, strict=True)) for pair in directions))
            )
            worst = max(worst, delta)
    return worst


@pytest.mark.parametrize(("epsilon", "figure"), [(0.5, 0.057), (1, 0.135), (2, 0.359)])
def test_one_round_of_the_notes(epsilon, figure):
    found = total_epsilon_sum_only(*symmetric(epsilon), 1, DELTA, 1199)
    assert found.epsilon == pytest.approx(figure, rel=0.01)
    assert "an observer of the sum alone, with 1,199 honest others" in repr(found)


@pytest.mark.parametrize(("epsilon", "figure"), [(0.5, 2.4), (1, 5.8)])
def test_a_thousand_rounds_of_the_notes(epsilon, figure):
    found = total_epsilon_sum_only(*symmetric(epsilon), 1000, DELTA, 1199).epsilon
    assert found == pytest.approx(figure, rel=0.05)
    assert found < total_epsilon(*symmetric(epsilon), 1000, DELTA).epsilon / 50


@pytest.mark.parametrize("box", [(0.3, 0.7), (0.1, 0.25), (0.6, 0.95)])
@pytest.mark.parametrize("honest", [1, 2, 4, 6])
def test_one_round_is_never_below_any_crowd_and_equals_the_enumerated_view(box, honest):
    low, high = box
    certain = low + 1 - high
    heads = low / certain
    for epsilon in (0.0, 0.05, 0.2, 0.5):
        exact = [0.0, 0.0]
        for crowd in range(honest + 1):
            weight = math.comb(honest, crowd) * certain**crowd * (1 - certain) ** (honest - crowd)
            p, q = (poisson_binomial((*[heads] * crowd, target)) for target in (high, low))
            for i, (a, b) in enumerate(((p, q), (q, p))):
                stick = sum(max(0.0, x - math.exp(epsilon) * y) for x, y in zip(a, b, strict=True))
                exact[i] += weight * stick
        found = view_of_sum(low, high, honest).delta(epsilon)
        assert found == pytest.approx(max(exact), rel=1e-9, abs=1e-15)
        assert found >= worst_delta(low, high, honest, epsilon) * (1 - 1e-9)


@pytest.mark.parametrize("box", [(0.3, 0.7), (0.1, 0.25), (0.6, 0.95)])
def test_several_rounds_are_never_below_any_crowd(box: tuple[float, float]):
    for delta in (0.001, 0.01, 0.1):
        for honest, rounds in ((2, 2), (3, 3)):
            found = total_epsilon_sum_only(*box, rounds, delta, honest).epsilon
            assert worst_delta(*box, honest, found, rounds) <= delta * (1 + 1e-9)


def test_half_of_an_account_is_caught():
    found = total_epsilon_sum_only(0.3, 0.7, 3, 0.01, 3).epsilon
    assert worst_delta(0.3, 0.7, 3, 0.5 * found, 3) > 0.01


@pytest.mark.parametrize("box", [(0.3, 0.7), (0.1, 0.25)])
def test_more_honest_others_hide_better_and_nobody_hides_nothing(box: tuple[float, float]):
    for rounds in (1, 30):
        seen = total_epsilon(*box, rounds, DELTA).epsilon
        totals = [total_epsilon_sum_only(*box, rounds, DELTA, honest).epsilon for honest in (0, 1, 10, 100, 1000)]
        assert totals[0] == seen
        assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(totals))
        more = total_epsilon_sum_only(*box, 2 * rounds, DELTA, 1000).epsilon
        assert totals[-1] < more


def test_a_crowd_of_a_million_and_a_rare_box():
    box = (1e-4 * math.exp(-0.5), 1e-4 * math.exp(0.5))
    rare = total_epsilon_sum_only(*box, 1000, DELTA, 999_999)
    assert rare.epsilon < 0.05
    assert rare.how == "Rényi divergences"
    assert total_epsilon_sum_only(*symmetric(1), 1000, DELTA, 1_000_000).epsilon < 0.2


def test_edges():
    assert total_epsilon_sum_only(0.0, 0.5, 5, DELTA, 100).epsilon == math.inf
    assert total_epsilon_sum_only(0.3, 0.3, 5, DELTA, 100).epsilon == 0.0
    assert total_epsilon_sum_only(0.3, 0.7, 5, 0.0, 100).epsilon == total_epsilon(0.3, 0.7, 5, 0.0).epsilon
    with pytest.raises(ValueError, match="honest must be"):
        total_epsilon_sum_only(0.3, 0.7, 5, DELTA, -1)


def composed_epsilon(view, rounds, delta):
    """The least epsilon of equal rounds of a view in one direction, from all combinations of outcomes."""
    keep = view.p > 0.0
    losses, mass = np.log1p(view.excess[keep]), view.p[keep]
    total, chance = losses, mass
    for _ in range(rounds - 1):
        total, chance = np.add.outer(total, losses).ravel(), np.multiply.outer(chance, mass).ravel()
    return least_epsilon(
        lambda eps: float(chance @ np.maximum(0.0, -np.expm1(np.minimum(0.0, eps - total)))), 20.0, delta
    )


@pytest.mark.parametrize(("honest", "rounds"), [(2, 2), (3, 3), (30, 2)])
def test_several_rounds_of_a_symmetric_box_are_nearly_exact(honest, rounds):
    found = total_epsilon_sum_only(0.3, 0.7, rounds, 1e-3, honest)
    exact = composed_epsilon(view_of_sum(0.3, 0.7, honest), rounds, 1e-3)
    assert exact * (1 - 1e-9) <= found.epsilon <= 1.02 * exact
    assert found.how == "loss distributions"


def test_divergences_are_a_bound_and_lose_little():
    """For a symmetric view, whose account by distributions is nearly exact."""
    view, pure = view_of_sum(0.3, 0.7, 40), report_epsilon(0.3, 0.7)
    exact = _by_distributions(view, 100, 1e-5)
    assert exact <= _by_renyi(view, 100, 1e-5, pure) < 1.3 * exact
    for delta in (2.0 * view.lost, 3 * view.lost):  # no more than what the tails lose
        assert _by_renyi(view, 3, delta, pure) == 3 * pure


@pytest.mark.parametrize("box", [(0.3, 0.7), (0.1, 0.25), (0.6, 0.95), (1e-4, 3e-4)])
@pytest.mark.parametrize("honest", [1, 7, 500, 100_000])
def test_a_view_holds_two_distributions_and_their_ratio(box: tuple[float, float], honest):
    view = view_of_sum(*box, honest)
    assert view.p.sum() == pytest.approx(1.0, abs=1e-9)
    assert view.q.sum() == pytest.approx(1.0, abs=1e-9)
    inner = (view.p > 1e-15) & (view.q > 1e-15)  # where no tail was cut
    np.testing.assert_allclose(view.excess[inner], view.p[inner] / view.q[inner] - 1.0, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose((1.0 + view.reverse) * (1.0 + view.excess), 1.0, rtol=1e-12)
    assert view.lost == pytest.approx(4e-18, abs=0.0)  # four tails: of the crowd, and of its ones
    assert 0.0 < view.slack < 1e-7


@pytest.mark.parametrize("chance", [1e-5, 0.1, 0.5, 0.9, 1.0 - 1e-9])
@pytest.mark.parametrize("trials", [0, 5, 300, 100_000])
def test_binomial_masses_are_right_and_all_but_negligible_tails_are_there(trials, chance):
    first, masses = _binomial(trials, 3.0 * chance, 3.0 * (1.0 - chance), _log_factorials(trials))
    last = first + len(masses) - 1
    assert 0 <= first <= last <= trials
    assert binom.cdf(first - 1, trials, chance) <= 1e-18
    assert binom.sf(last, trials, chance) <= 1e-18
    spread = math.sqrt(trials * chance * (1 - chance))
    assert last - first <= 2 * (9.2 * spread + 29.0)
    np.testing.assert_allclose(masses, binom.pmf(np.arange(first, last + 1), trials, chance), rtol=1e-8)


def test_binomial_masses_where_a_no_is_rare_lose_no_digits():
    """The chance of a "no" is given by itself, so that it does not vanish beside 1."""
    _, masses = _binomial(3, 1.0, 1e-20, _log_factorials(3))
    np.testing.assert_allclose(masses, [1e-60, 3e-40, 3e-20, 1.0], rtol=1e-13)


def exact_delta(low, high, honest, epsilon):
    """The greater hockey-stick divergence of the worst view, in rational numbers."""
    low, high = Fraction(low), Fraction(high)
    with localcontext(prec=60):
        factor = Fraction(Decimal(epsilon).exp())
    sticks = [Fraction(0), Fraction(0)]
    for crowd in range(honest + 1):
        weight = math.comb(honest, crowd) * (high - low) ** (honest - crowd)
        noise = [math.comb(crowd, k) * low**k * (1 - high) ** (crowd - k) for k in range(crowd + 1)]
        without, with_one = [*noise, 0], [0, *noise]
        p, q = (
            [chance * a + (1 - chance) * b for a, b in zip(with_one, without, strict=True)] for chance in (high, low)
        )
        for i, (a, b) in enumerate(((p, q), (q, p))):
            sticks[i] += weight * sum(max(Fraction(0), x - factor * y) for x, y in zip(a, b, strict=True))
    return max(sticks)


@pytest.mark.parametrize("box", [(0.3, 0.7), (0.1, 0.25), (0.6, 0.95), (1e-9, 1 - 1e-9), (1e-9, 0.4), (0.7, 1 - 1e-9)])
@pytest.mark.parametrize("honest", [1, 4])
def test_one_round_is_rounded_upwards_and_hardly(box: tuple[float, float], honest):
    """Also where a total is within a rounding of the loss of an outcome."""
    view = view_of_sum(*box, honest)
    losses = np.log1p(np.concatenate([view.excess, view.reverse]))
    edges = [loss * (1.0 - near) for loss in losses[losses > 0.0] for near in (1e-3, 1.5e-15)]
    for epsilon in (0.0, 0.3, *edges):
        exact, found = exact_delta(*box, honest, epsilon), Fraction(view.delta(epsilon))
        assert exact <= found <= exact * (1 + Fraction(1, 10**12)) + Fraction(1, 10**14)


def test_a_chance_is_at_most_one_and_a_total_may_be_without_end():
    assert view_of_sum(2.0**-53, 1.0 - 2.0**-53, 1).delta(0.0) == 1.0
    view = view_of_sum(0.3, 0.7, 4)
    assert view.delta(1e4) == view.delta(math.inf) == view.lost


@pytest.mark.parametrize("honest", [40, 2_000])
def test_the_slack_covers_the_error_of_every_chance(honest):
    """Chances in 60 digits; an exponent's error is at most a few roundings of its largest term, ln honest!."""
    low, high = 0.3, 0.6
    with localcontext(prec=60):
        certain = Decimal(low) + 1 - Decimal(high)
        heads = Decimal(low) / certain
        first, noise = _binomial(honest, low, 1.0 - high, _log_factorials(honest))
        exact = [
            math.comb(honest, first + k) * heads ** (first + k) * (1 - heads) ** (honest - first - k)
            for k in range(len(noise))
        ]
        error = max(abs(float(Decimal(float(mass)) / true - 1)) for mass, true in zip(noise, exact, strict=True))
    slack = view_of_sum(low, high, honest).slack
    assert 2.0 * error <= slack
    term = UNIT * math.lgamma(honest + 1.0)  # of which an exponent has three, each with a dozen roundings at most
    assert 32.0 * term <= slack <= 96.0 * (term + 64.0 * UNIT)


def test_what_is_left_out_and_what_is_not_exact_is_counted_against_the_client():
    """A chance that is lost is a loss without bound; masses may be greater by the slack."""
    view = replace(view_of_sum(0.1, 0.3, 4), lost=0.0, slack=0.0)
    lossy, vague = replace(view, lost=0.01), replace(view, slack=0.01)
    assert lossy.delta(0.2) == pytest.approx(view.delta(0.2) + 0.01, rel=1e-12)
    assert vague.delta(0.2) == pytest.approx(view.delta(0.2) * 1.01, rel=1e-12)
    exact, more, wider = (math.expm1(2.0 * one.divergence(3.0)) for one in (view, lossy, vague))
    assert more == pytest.approx(exact + 3.0 * 0.01, rel=1e-9)
    assert wider == pytest.approx(exact * 1.01, rel=1e-9)


def exact_divergence(low, high, honest, order):
    """The greater Rényi divergence of one round, as the definition has it: ln(sum of P^order Q^(1 - order))."""
    certain, found = low + 1 - high, [0.0, 0.0]
    for crowd in range(honest + 1):
        noise = binom.pmf(np.arange(-1, crowd + 2), crowd, low / certain)
        p, q = (binom.pmf(crowd, honest, certain) * (a * noise[:-1] + (1 - a) * noise[1:]) for a in (high, low))
        found[0] += float(np.sum(q * (p / q) ** order))
        found[1] += float(np.sum(p * (q / p) ** order))
    return math.log(max(found)) / (order - 1)


@pytest.mark.parametrize("box", [(0.1, 0.3), (0.75, 0.9)])
@pytest.mark.parametrize(("rounds", "delta"), [(2, 1e-3), (50, 1e-6), (5_000, 1e-9)])
def test_divergences_are_those_of_the_definition_and_the_best_order_is_taken(box: tuple[float, float], rounds, delta):
    view, pure = view_of_sum(*box, 6), rounds * report_epsilon(*box)
    left = delta - rounds * view.lost  # the tails count as a loss without bound
    exact = min(renyi_to_epsilon(rounds * exact_divergence(*box, 6, order), order, left) for order in ORDERS[:75])
    assert exact * (1 + 1e-11) <= _by_renyi(view, rounds, delta, report_epsilon(*box)) <= exact * (1 + 1e-8)
    assert exact < pure


@pytest.mark.parametrize("total", [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0])
def test_an_order_near_the_best_is_at_hand(total):
    """For a divergence of rho times the order, as many small reports have: rho such that the best gives the total."""
    nats = math.log(1e6)
    rho = (math.sqrt(nats + total) - math.sqrt(nats)) ** 2
    fine = 1.0 + np.geomspace(1e-3, 1e6, 3_000)
    best, found = (min(renyi_to_epsilon(rho * order, order, 1e-6) for order in orders) for orders in (fine, ORDERS))
    assert best <= found <= 1.01 * best
    assert ORDERS[0] > 1.0


def test_large_losses_are_left_to_the_sum_of_the_reports():
    """Powers of e^epsilon that no float holds are not tried; those that one holds are."""
    box = (1e-9, 1 - 1e-3)  # 20.7 per report: order 100 would overflow
    view, pure = view_of_sum(*box, 3), report_epsilon(*box)
    assert _by_renyi(view, 2, 1e-6, pure) <= 2 * pure
    assert _by_renyi(view, 2, 1e-6, 601.0) == 2 * 601.0  # as if not even the first order could be taken
    assert _by_renyi(view_of_sum(0.1, 0.3, 6), 50, 1e-6, 500.0) < 100.0  # the first orders are tried


class Noted:
    """Stands in for a loss distribution: notes what it is asked for."""

    def __init__(self, size=None):
        if size is not None:
            self._pmf_remove = np.zeros(size)

    def self_compose(self, rounds):
        self.rounds = rounds
        return self

    def get_epsilon_for_delta(self, delta):
        self.delta = delta
        return 0.5


@pytest.mark.parametrize("size", [5_000, None], ids=["a size that is told", "none told"])
def test_what_transforms_may_round_is_taken_from_delta(monkeypatch, size):
    """The error of a power of a transform: a few roundings of log2(length), in the 1-norm sqrt(length) of that."""
    composed, told = Noted(size), []
    monkeypatch.setattr(sum_only, "distribution", lambda *arguments: told.append(arguments) or composed)
    view = view_of_sum(0.3, 0.7, 4)
    assert _by_distributions(view, 20, 1e-3) == pytest.approx(0.5, rel=1e-12)
    ((_, grid, step, lost, feature),) = told
    assert (composed.rounds, lost, feature) == (20, view.lost, "a sum-only account of several rounds")
    assert grid.sum() > 1.0 + 0.9 * view.slack  # masses are rounded upwards
    assert 50.0 * step == pytest.approx(math.sqrt(view.p @ np.log(view.p / view.q) ** 2))  # of a typical loss
    length = size or 20 * len(grid)
    few = 20 * UNIT * math.log2(length) * math.sqrt(length) * math.sqrt(np.sum(grid**2))
    assert 8 * few <= 1e-3 - composed.delta <= 40 * few


def test_every_crowd_is_counted_once_and_never_as_a_larger_one(monkeypatch):
    seen = []
    real = sum_only._outcomes
    monkeypatch.setattr(sum_only, "_outcomes", lambda *given: seen.append(given[4:6]) or real(*given))
    for honest, most in ((400, MOST_CROWDS), (400, 8), (401, 10), (4, 5), (4, 4)):
        monkeypatch.setattr(sum_only, "MOST_CROWDS", most)
        seen.clear()
        view_of_sum(0.3, 0.7, honest)
        crowds, weights = zip(*seen, strict=True)
        assert len(crowds) <= most
        ends = [*crowds[1:], honest + 1]
        exact = [
            binom.cdf(end - 1, honest, 0.6) - binom.cdf(crowd - 1, honest, 0.6)
            for crowd, end in zip(crowds, ends, strict=True)
        ]
        np.testing.assert_allclose(weights, exact, rtol=1e-9, atol=1e-15)
        strides = set(np.diff(crowds).tolist())
        assert len(strides) == 1
        assert (crowds[-1] - crowds[0]) / (strides.pop() - 0.5) > 0.6 * most or most == MOST_CROWDS


def test_a_large_crowd_is_rounded_down_and_only_loses_privacy(monkeypatch):
    fine, fewer = view_of_sum(0.3, 0.7, 400), view_of_sum(0.3, 0.7, 300)
    monkeypatch.setattr(sum_only, "MOST_CROWDS", 8)
    coarse = view_of_sum(0.3, 0.7, 400)
    assert len(coarse.p) < len(fine.p) / 5
    assert coarse.p.sum() == pytest.approx(1.0)
    for epsilon in (0.0, 0.05, 0.2):
        assert fine.delta(epsilon) <= coarse.delta(epsilon) < fewer.delta(epsilon)
    monkeypatch.setattr(sum_only, "MOST_HONEST", 50)
    most = total_epsilon_sum_only(0.3, 0.7, 1, DELTA, 50).epsilon
    assert (
        total_epsilon_sum_only(0.3, 0.7, 1, DELTA, 60).epsilon
        == most
        < total_epsilon_sum_only(0.3, 0.7, 1, DELTA, 40).epsilon
    )


def test_which_method_and_what_is_no_crowd():
    assert total_epsilon_sum_only(0.3, 0.7, 1, DELTA, 10).how == "exact, one round"
    assert total_epsilon_sum_only(0.1, 0.25, 2, DELTA, 10).how == "Rényi divergences"
    for arguments in ((0.3, 0.7, 5, DELTA, 0), (0.3, 0.3, 5, DELTA, 9), (0.3, 0.7, 5, 0.0, 9), (0.3, 1.0, 5, DELTA, 9)):
        assert total_epsilon_sum_only(*arguments).how == "as if every report were seen"
    with pytest.raises(ValueError, match="honest must be"):
        total_epsilon_sum_only(0.3, 0.7, 5, DELTA, 1.5)
    for box, rounds, delta in (((0.7, 0.3), 1, DELTA), ((0.3, 0.7), 0, DELTA), ((0.3, 0.7), 1, 1.0)):
        with pytest.raises(ValueError, match="must be"):
            total_epsilon_sum_only(*box, rounds, delta, 10)


def test_a_box_is_symmetric_up_to_rounding():
    for low, high, how in (
        (0.25, 0.75 + 8e-16, "loss distributions"),
        (0.25, 0.75 + 1.5e-15, "Rényi divergences"),
        (0.25 - 1.5e-15, 0.75, "Rényi divergences"),
    ):
        assert total_epsilon_sum_only(low, high, 2, 1e-3, 3).how == how
