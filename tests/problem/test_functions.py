"""Costs from plain functions: as exact as they say, and every mistake is told with the remedy."""

import numpy as np
import pytest

from turnout import PaperCoin, PolynomialCosts, Problem, SelfTuningController, optimum, predict, simulate
from turnout.problem import FunctionCosts

SCALES = np.random.default_rng(0).uniform(1.0, 10.0, 60)
EXACT = Problem(PolynomialCosts(np.column_stack([SCALES, SCALES / 3.0]), (2, 6)), 20)

VALUES = [lambda x, c=c: c * x**2 + c / 3.0 * x**6 for c in SCALES]
SLOPES = [lambda x, c=c: 2.0 * c * x + 2.0 * c * x**5 for c in SCALES]


def value(x):
    return SCALES * x**2 + SCALES / 3.0 * x**6


def slope(x):
    return 2.0 * SCALES * x + 2.0 * SCALES * x**5


WAYS = {
    "values, one by one": lambda: VALUES,
    "values": lambda: FunctionCosts(value, clients=60),
    "slopes, one by one": lambda: FunctionCosts(slope=SLOPES),
    "slopes": lambda: FunctionCosts(slope=slope, clients=60),
}


@pytest.fixture(params=WAYS)
def problem(request):
    with pytest.warns(UserWarning, match="costs from functions: .*__len__, __getitem__, value, slope is exact"):
        return Problem(WAYS[request.param](), 20)


def test_the_optimum_is_that_of_the_same_polynomials(problem):
    found, best = optimum(problem), optimum(EXACT)
    assert found.cost == pytest.approx(best.cost, rel=1e-9)
    assert found.price == pytest.approx(best.price, rel=1e-8)
    np.testing.assert_allclose(found.average, best.average, atol=1e-8)


def test_slopes_and_values_keep_their_digits_up_to_both_ends(problem):
    for x in np.linspace(0.0, 1.0, 65):
        average = np.full(60, x)
        np.testing.assert_allclose(problem.costs.slope(average), EXACT.costs.slope(average), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(problem.costs.value(average), EXACT.costs.value(average), rtol=1e-12, atol=1e-12)


def test_runs_and_forecasts_are_those_of_the_same_polynomials(problem):
    ours = simulate(problem, PaperCoin(3.5), SelfTuningController(), 300)
    theirs = simulate(EXACT, PaperCoin(3.5), SelfTuningController(), 300)
    np.testing.assert_array_equal(ours.participants, theirs.participants)
    assert ours.provenance["engine"] == "numpy"
    assert predict(problem, PaperCoin(3.5)).gap == pytest.approx(predict(EXACT, PaperCoin(3.5)).gap, rel=1e-4)


@pytest.mark.parametrize("engine", ["numba", "jax"])
def test_compiled_engines_refuse_them(problem, engine):
    with pytest.raises(ValueError, match="'numpy', 'ray' or 'auto' for these costs"):
        simulate(problem, PaperCoin(3.5), SelfTuningController(), 10, engine=engine)


def test_nothing_is_evaluated_outside_the_averages():
    def careful(x):
        assert np.all((x >= 0.0) & (x <= 1.0))
        return x**2

    with pytest.warns(UserWarning, match="differences of values"):
        costs = FunctionCosts(careful, clients=3)
    for x in (0.0, 1e-9, 0.5, 1.0 - 1e-9, 1.0):
        np.testing.assert_allclose(costs.slope(np.full(3, x)), 2.0 * x, atol=1e-9)


def test_both_in_numpy_warn_of_nothing():
    Problem(FunctionCosts(value, slope, clients=60), 20)


def test_a_flat_start_is_no_falling_cost_and_a_falling_one_is_refused():
    with pytest.warns(UserWarning, match="differences of values"):
        Problem([lambda x: x**4, lambda x: x**6], 1.0)
    falling = pytest.raises(ValueError, match="a falling or flat cost at x = 0 for client 1")
    with pytest.warns(UserWarning, match="differences of values"), falling:
        Problem([lambda x: x**2, lambda x: (x - 0.01) ** 2], 1.0)
    bent = pytest.raises(ValueError, match="a slope that does not increase")
    with pytest.warns(UserWarning, match="differences of values"), bent:
        Problem([lambda x: x**2, lambda x: x**0.5 + x], 1.0)


class Half:
    def value(self, average):
        return average**2


class WithoutSlope(Half):
    def __len__(self):
        return 3

    def __getitem__(self, clients):
        return self


WRONG = {
    "some of the methods": (lambda: Problem(Half(), 1), "got Half without __len__, __getitem__, slope: add them"),
    "all but one": (lambda: Problem(WithoutSlope(), 1), "got WithoutSlope without slope: add it; .*FunctionCosts"),
    "one function": (
        lambda: Problem(lambda x: x, 1),
        r"got one function: give a list .*FunctionCosts\(function, clients",
    ),
    "a function and a number": (lambda: Problem([lambda x: x**2, 3.0], 1), "got list: numbers are coefficients"),
    "nothing": (FunctionCosts, "value or slope is missing"),
    "no number of clients": (lambda: FunctionCosts(value), r"clients is missing: .*clients=100"),
    "half a client": (lambda: FunctionCosts(value, clients=0.5), "clients must be a whole number from 1 up, got 0.5"),
    "two sizes": (lambda: FunctionCosts(VALUES[:2], SLOPES[:3]), r"of as many clients, got \[2, 3\]"),
    "another shape": (
        lambda: FunctionCosts(lambda x: x.sum(), clients=3),
        r"of shape \(3,\), as the averages, got shape",
    ),
    "numbers": (lambda: FunctionCosts([1.0, 2.0]), "value must be a function of all averages, or a list of functions"),
    "as many as functions": (lambda: FunctionCosts(VALUES, clients=3), "clients must be 60, as many as functions"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_told_with_the_four_methods_or_the_remedy(name):
    call, says = WRONG[name]
    with pytest.raises(ValueError, match=says) as refused:
        call()
    if str(refused.value).startswith("costs must be"):
        assert "__len__, __getitem__, value and slope" in str(refused.value)
