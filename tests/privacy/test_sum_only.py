"""One that sees only the sum: the notes' figures, and an enumeration of small crowds."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from turnout.privacy import sum_only
from turnout.privacy.accounting import least_epsilon, report_epsilon, total_epsilon
from turnout.privacy.sum_only import (
    _band,
    _binomial,
    _by_distributions,
    _by_renyi,
    _log_factorials,
    total_epsilon_sum_only,
    view_of_sum,
)

DELTA = 1e-6


def symmetric(epsilon):
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
    assert "sees only the sum, with 1,199 honest others" in repr(found)


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
def test_several_rounds_are_never_below_any_crowd(box):
    for delta in (0.001, 0.01, 0.1):
        for honest, rounds in ((2, 2), (3, 3)):
            found = total_epsilon_sum_only(*box, rounds, delta, honest).epsilon
            assert worst_delta(*box, honest, found, rounds) <= delta * (1 + 1e-9)


def test_half_of_an_account_is_caught():
    found = total_epsilon_sum_only(0.3, 0.7, 3, 0.01, 3).epsilon
    assert worst_delta(0.3, 0.7, 3, 0.5 * found, 3) > 0.01


@pytest.mark.parametrize("box", [(0.3, 0.7), (0.1, 0.25)])
def test_more_honest_others_hide_better_and_nobody_hides_nothing(box):
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
    assert _by_renyi(view, 3, 2.0 * view.lost, pure) == 3 * pure  # a delta below what the tails lose


@pytest.mark.parametrize("box", [(0.3, 0.7), (0.1, 0.25), (0.6, 0.95), (1e-4, 3e-4)])
@pytest.mark.parametrize("honest", [1, 7, 500, 100_000])
def test_a_view_holds_two_distributions_and_their_ratio(box, honest):
    view = view_of_sum(*box, honest)
    assert view.p.sum() == pytest.approx(1.0, abs=1e-9)
    assert view.q.sum() == pytest.approx(1.0, abs=1e-9)
    inner = (view.p > 1e-15) & (view.q > 1e-15)  # where no tail was cut
    np.testing.assert_allclose(view.excess[inner], view.p[inner] / view.q[inner] - 1.0, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose((1.0 + view.reverse()) * (1.0 + view.excess), 1.0, rtol=1e-12)
    assert 0.0 < view.lost < 1e-16
    assert 0.0 < view.slack < 1e-7


@pytest.mark.parametrize("chance", [1e-5, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("trials", [0, 5, 300, 1_000_000])
def test_a_band_holds_all_but_a_negligible_tail_and_is_no_wider_than_need_be(trials, chance):
    first, last = _band(trials, chance)
    assert 0 <= first <= last <= trials
    assert binom.cdf(first - 1, trials, chance) <= 1e-18
    assert binom.sf(last, trials, chance) <= 1e-18
    spread = math.sqrt(trials * chance * (1 - chance))
    assert last - first <= 2 * (9.2 * spread + 30.0)


def test_binomial_masses():
    table = _log_factorials(30)
    for chance in (0.001, 0.3, 0.999):
        np.testing.assert_allclose(
            _binomial(30, chance, 4, 29, table), binom.pmf(np.arange(4, 30), 30, chance), rtol=1e-11
        )
    assert _binomial(3, 1.0, 0, 3, table).tolist() == [0.0, 0.0, 0.0, 1.0]


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
