"""What every family of costs must do. To add one: a line in ENTRIES."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from page_blocks import FENCE
from turnout import Classical, PolynomialCosts, Problem, SelfTuningController, optimum, simulate
from turnout.problem.costs import Costs, bisect_slope, check_costs, inverse_slope
from turnout.problem.drawn import drawn_paper_costs
from turnout.problem.functions import FunctionCosts
from turnout.problem.solve import kkt_residual

PAGE = Path(__file__).parents[2] / "docs" / "add-a-cost-family.md"


def from_the_page(name):
    """A class of the page's example, which so passes what the page asks for."""
    space = {}
    exec(next(text for _, text in FENCE.findall(PAGE.read_text()) if f"class {name}" in text), space)
    return space[name]


Exponential = from_the_page("Exponential")
CLIENTS = 40
draw = np.random.default_rng(2)
RATES = np.random.default_rng(4).uniform(1, 4, CLIENTS)


def quietly(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return FunctionCosts(*arguments, **options)


ENTRIES = {
    "polynomial": PolynomialCosts(draw.uniform(0.5, 9.0, (CLIENTS, 3)), (2, 4, 6)),
    "with a slope at 0": PolynomialCosts(draw.uniform(0.5, 9.0, (CLIENTS, 2)), (1, 2)),
    "with a negative coefficient": PolynomialCosts(np.tile([2.0, -0.1], (CLIENTS, 1)), (2, 4)),
    "drawn": drawn_paper_costs(CLIENTS, 3)[:],
    "exponential": Exponential(draw.uniform(1, 4, CLIENTS), draw.uniform(0.2, 1, CLIENTS)),
    "a function's values": quietly(lambda x: np.expm1(RATES * x), clients=CLIENTS),
    "a function's slopes": quietly(slope=lambda x: RATES * np.exp(RATES * x), clients=CLIENTS),
    "values, client by client": quietly([lambda x, rate=rate: rate * x**2 for rate in RATES]),
    "slopes, client by client": quietly(slope=[lambda x, rate=rate: rate * x**3 for rate in RATES]),
}


@pytest.mark.parametrize("costs", ENTRIES.values(), ids=ENTRIES)
class TestCosts:
    def test_it_is_one_and_keeps_the_assumptions(self, costs):
        assert isinstance(costs, Costs)
        assert len(costs) == CLIENTS
        check_costs(costs)

    def test_the_slope_is_the_value_s(self, costs):
        """The value between two places is the slope's integral, by Simpson's rule on small pieces."""
        places = np.linspace(0.0, 1.0, 201)
        slopes = np.array([costs.slope(np.full(CLIENTS, x)) for x in places])
        weights = np.full(201, 2.0)
        weights[1::2], weights[[0, -1]] = 4.0, 1.0
        area = weights @ slopes / 600.0
        rise = costs.value(np.ones(CLIENTS)) - costs.value(np.zeros(CLIENTS))
        np.testing.assert_allclose(area, rise, rtol=1e-6)

    def test_the_inverse_undoes_the_slope_and_is_clipped(self, costs):
        for x in (0.1, 0.5, 0.9):
            average = np.full(CLIENTS, x)
            np.testing.assert_allclose(inverse_slope(costs, costs.slope(average)), average, atol=1e-9)
        for price in (1e-9, 1.0, 8.0, 1e9):
            found = inverse_slope(costs, np.full(CLIENTS, price))
            np.testing.assert_allclose(found, bisect_slope(costs, price), atol=1e-9)
            assert np.all((found >= 0.0) & (found <= 1.0))

    @pytest.mark.parametrize("some", [slice(3, 9), np.array([7, 2]), np.arange(CLIENTS) % 3 == 0, [5]])
    def test_a_part_is_the_same_clients(self, costs, some):
        x = np.linspace(0.05, 0.95, CLIENTS)
        part = costs[some]
        assert len(part) == len(x[some])
        np.testing.assert_array_equal(part.slope(x[some]), costs.slope(x)[some])
        np.testing.assert_array_equal(part.value(x[some]), costs.value(x)[some])

    def test_one_client_is_a_population(self, costs):
        one = costs[4]
        assert len(one) == 1
        np.testing.assert_array_equal(one.slope(np.array([0.3])), costs.slope(np.full(CLIENTS, 0.3))[4:5])

    def test_the_optimum_is_found_and_clients_find_it(self, costs):
        problem = Problem(costs, capacity=0.4 * CLIENTS)
        best = optimum(problem)
        assert kkt_residual(problem, best) < 1e-9
        run = simulate(problem, Classical(), SelfTuningController(), 3000, engine="numpy")
        assert run.cost[-1] < 1.05 * best.cost


def test_a_wrong_slope_is_noticed():
    """The sabotaged twin: a slope that is off by a thousandth."""

    class Wrong(Exponential):
        def slope(self, average):
            return 1.001 * super().slope(average)

    with pytest.raises(AssertionError):
        TestCosts().test_the_slope_is_the_value_s(Wrong(np.full(CLIENTS, 2.0), np.ones(CLIENTS)))
