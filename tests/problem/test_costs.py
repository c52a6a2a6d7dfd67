import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from turnout import PolynomialCosts, Problem
from turnout.problem.costs import Costs, bisect_slope, check_costs, inverse_slope

coefficients = arrays(np.float64, (5, 3), elements=st.floats(0.01, 100))


class Exponential:
    """A user's own costs, without an inverse: e^(r x) - 1, so f'(0) = r > 0."""

    def __init__(self, rate):
        self.rate = np.asarray(rate, dtype=float)

    def __len__(self):
        return len(self.rate)

    def __getitem__(self, clients):
        return Exponential(np.atleast_1d(self.rate[clients]))

    def value(self, average):
        return np.exp(self.rate * average) - 1

    def slope(self, average):
        return self.rate * np.exp(self.rate * average)


@given(coefficients, st.floats(0.0, 1.0), st.sampled_from([(1, 2, 3), (2, 4, 6), (2, 3, 7), (3, 5, 64)]))
def test_value_and_slope_are_the_written_out_polynomial(table, x, powers):
    costs = PolynomialCosts(table, powers)
    average = np.full(5, x)
    powers = np.array(powers)
    np.testing.assert_allclose(costs.value(average), (table * x**powers).sum(1), rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(costs.slope(average), (table * powers * x ** (powers - 1.0)).sum(1), 1e-13, 1e-300)


@given(coefficients, st.floats(1e-6, 1e4))
def test_inverse_slope_undoes_slope_and_is_clipped(table, price):
    costs = PolynomialCosts(table, (1, 2, 4))
    average = costs.inverse_slope(price)
    inside = (average > 0) & (average < 1)
    np.testing.assert_allclose(costs.slope(average)[inside], price, rtol=1e-12)
    assert np.all(costs.slope(np.ones(5))[average == 1] <= price * (1 + 1e-12))
    assert np.all(costs.slope(np.zeros(5))[average == 0] >= price)
    np.testing.assert_allclose(bisect_slope(costs, price), average, atol=1e-12)


def test_powers_may_come_in_any_order():
    straight, mixed = PolynomialCosts([[1.0, 2.0, 3.0]], (2, 4, 6)), PolynomialCosts([[3.0, 1.0, 2.0]], (6, 2, 4))
    assert mixed.powers == (2, 4, 6)
    np.testing.assert_array_equal(mixed.coefficients, straight.coefficients)


def test_a_shard_is_the_same_clients(paper_problem):
    costs, x = paper_problem.costs, np.linspace(0, 1, 1200)
    for some in (slice(100, 900), [3, 1, 2], 17, np.arange(1200) % 3 == 0):
        part = costs[some]
        np.testing.assert_array_equal(part.slope(np.atleast_1d(x[some])), np.atleast_1d(costs.slope(x)[some]))
    assert len(costs[17]) == 1


def test_users_own_costs_are_costs_and_need_no_inverse():
    costs = Exponential([0.5, 2.0])
    assert isinstance(costs, Costs)
    np.testing.assert_allclose(inverse_slope(costs, 2.5), [1.0, np.log(1.25) / 2], atol=1e-12)
    assert inverse_slope(costs, 0.1).tolist() == [0.0, 0.0]
    Problem(costs, 1.0)


def test_a_negative_coefficient_is_fine_where_the_cost_stays_convex():
    costs = PolynomialCosts([[2.0, -0.1]], (2, 4))
    average = costs.inverse_slope(2.0)
    np.testing.assert_allclose(costs.slope(average), 2.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("table", "powers", "says"),
    [
        ([[1.0], [np.nan]], (2,), "finite numbers, got nan for client 1, power 2"),
        ([[1.0], [2.0], [np.inf]], (2,), "got inf for client 2"),
        ([[1.0, 0.0], [0.0, 0.0]], (2, 4), "a flat or linear cost for client 1"),
        ([[1.0, 2.0], [1.0, 0.0]], (1, 2), "a flat or linear cost for client 1"),
        ([[1.0], [-1.0]], (2,), "for client 1"),
        ([[1.0, 0.0], [5.0, -1.0]], (1, 2), "a slope that does not increase"),
        ([[1.0, 0.0], [-1.0, 1.0]], (1, 2), "a falling or flat cost"),
        ([1.0, 2.0], (2,), "a table of shape"),
        ([[1.0, 2.0]], (2,), "a table of shape"),
        ([[1.0]], (0,), "whole numbers from 1 to 64"),
        ([[1.0, 1.0]], (2, 2), "different whole numbers"),
        ([[1.0]], (2.5,), "whole numbers"),
    ],
)
def test_costs_that_break_the_papers_assumptions_are_refused(table, powers, says):
    """Paper: Section III-A."""
    with pytest.raises(ValueError, match="must be") as refusal:
        PolynomialCosts(table, powers)
    assert says in str(refusal.value)


@pytest.mark.parametrize("rate", [[1.0, np.nan], [1.0, -1.0], [1.0, 0.0]])
def test_users_own_costs_are_checked_too(rate):
    with pytest.raises(ValueError, match="client 1"):
        check_costs(Exponential(rate))
