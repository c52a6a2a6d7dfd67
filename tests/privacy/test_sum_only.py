"""One that sees only the sum: the notes' figures, and an enumeration of small crowds."""

import itertools
import math

import pytest

from turnout.privacy.accounting import total_epsilon
from turnout.privacy.sum_only import total_epsilon_sum_only, view_of_sum

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
