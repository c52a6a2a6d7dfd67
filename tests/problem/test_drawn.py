"""Costs that are never stored."""

import numpy as np
import pytest
from scipy.stats import kstest

from turnout import PolynomialCosts, Problem, optimum
from turnout.problem.drawn import DrawnCosts, Term, drawn_paper_costs
from turnout.problem.population import drawn_paper_population, read_population


@pytest.fixture(scope="module")
def costs():
    return drawn_paper_costs(4 * 1001, seed=3)


def test_any_part_is_the_same_wherever_it_is_made(costs):
    whole = costs[:]
    assert isinstance(whole, PolynomialCosts)
    some = np.array([0, 5, 1000, 1001, 3003, 4003])
    for part in (slice(999, 1007), slice(0, 4004, 7), some, np.arange(4004) % 500 == 0):
        np.testing.assert_array_equal(costs[part].coefficients, whole.coefficients[part])
    np.testing.assert_array_equal(costs[17].coefficients, whole.coefficients[[17]])
    assert not np.array_equal(whole.coefficients, drawn_paper_costs(4 * 1001, seed=4)[:].coefficients)


def test_the_families_are_the_papers(costs):
    table = costs[:].coefficients
    first, second, third, fourth = np.split(table, 4)
    present = [tuple(np.flatnonzero(family.any(axis=0))) for family in (first, second, third, fourth)]
    assert present == [(0,), (1,), (1, 2), (0,)]
    drawn = (first[:, 0], second[:, 1] * 2, third[:, 1] * 3, third[:, 2], fourth[:, 0])
    for values in drawn:
        assert kstest(values / 40.0, "uniform").pvalue > 1e-6
        assert values.min() > 0.0
    assert kstest(second[:, 1] / 40.0, "uniform").pvalue < 1e-6  # the twin: not halved
    assert abs(np.corrcoef(third[:, 1], third[:, 2])[0, 1]) < 0.2  # a and b are different words


def test_values_slopes_and_the_optimum_are_those_of_the_stored_costs(costs):
    average = np.linspace(0.01, 1, len(costs))
    for name in ("value", "slope"):
        np.testing.assert_array_equal(getattr(costs, name)(average), getattr(costs[:], name)(average))
    drawn, stored = (optimum(Problem(made, 2000)) for made in (costs, costs[:]))
    assert drawn.cost == pytest.approx(stored.cost, rel=1e-12)


def test_billions_of_clients_take_no_memory():
    costs = drawn_paper_population(clients=8_000_000_000).problem(4e9).costs
    assert len(costs) == 8_000_000_000
    last = costs[7_999_999_998:]
    assert isinstance(last, PolynomialCosts)
    assert last.coefficients.shape == (2, 3)
    assert last.coefficients[0, 0] > 0.0


def test_by_name():
    assert isinstance(read_population("paper-drawn", seed=2, clients=40).costs, DrawnCosts)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: drawn_paper_costs(10), "clients must be a multiple of 4"),
        (lambda: drawn_paper_costs(8, seed=-1), "population seed must be"),
        (lambda: DrawnCosts([4], [(Term(1, 0, 1.0),)], 0), "rising, convex costs"),
        (lambda: DrawnCosts([0], [(Term(2, 0, 1.0),)], 0), "rising, convex costs"),
        (lambda: DrawnCosts([4], [(Term(2, 0, -1.0),)], 0), "rising, convex costs"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
