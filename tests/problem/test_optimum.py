import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from problem.test_costs import Exponential
from turnout import Optimum, PolynomialCosts, Problem, optimum, paper_population
from turnout.problem.solve import kkt_residual


def random_problem(seed: int, *, weighted: bool, linear: bool, share: float) -> Problem:
    generator = np.random.default_rng(seed)
    clients = int(generator.integers(2, 25))
    powers = (1, 2, 4) if linear else (2, 4, 6)
    table = generator.lognormal(0, 1.5, (clients, 3)) * (generator.random((clients, 3)) < 0.6)
    table[:, 1] += 0.05
    weights = generator.integers(1, 20, clients) if weighted else None
    costs = PolynomialCosts(table, powers)
    return Problem(costs, share * (clients if weights is None else int(weights.sum())), weights)


def solve(problem, start, weights, scale):
    """The smallest cost that SciPy finds."""
    found = scipy.optimize.minimize(
        lambda x: problem.cost(x) / scale,
        np.clip(start, 0, 1),
        jac=lambda x: problem.costs.slope(x) / scale,
        bounds=[(0, 1)] * len(problem),
        constraints={"type": "eq", "fun": lambda x: weights @ x - problem.capacity, "jac": lambda x: weights},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    return found.fun * scale


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_agrees_with_an_independent_solver(weighted, linear, share):
    at_bounds = 0
    for seed in range(8):
        problem = random_problem(seed, weighted=weighted, linear=linear, share=share)
        best, n = optimum(problem), len(problem)
        weights = np.ones(n) * problem.unit_weights
        noise = np.random.default_rng(1).normal(0, 0.01, n)
        # SLSQP stops early now and then: the better of two starts, one far from and one near our answer.
        tries = [solve(problem, start, weights, best.cost) for start in (np.full(n, share), best.average + noise)]
        other = min(tries)
        assert best.cost <= other * (1 + 1e-9)
        assert best.cost == pytest.approx(other, rel=1e-6)
        at_bounds += int(np.sum((best.average == 0) | (best.average == 1)))
    assert at_bounds > 0 or share < 0.9 or not linear


@pytest.mark.filterwarnings("ignore:capacity")  # of a share: it is meant
@settings(max_examples=60)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.floats(0.001, 1.0))
def test_kkt_conditions_hold(seed, weighted, linear, share):
    problem = random_problem(seed, weighted=weighted, linear=linear, share=share)
    assert kkt_residual(problem, optimum(problem)) <= 1e-9


def test_kkt_residual_sees_a_wrong_answer(paper_problem, paper_optimum):
    for change in (1e-6, -1e-6):
        wrong = Optimum(paper_optimum.average * (1 + change), paper_optimum.price, paper_optimum.cost)
        assert kkt_residual(paper_problem, wrong) > 1e-7


def test_the_papers_population(paper_optimum):
    """Paper: Problem (2)."""
    assert paper_optimum.cost == pytest.approx(1753.56, abs=0.01)
    assert paper_optimum.price == pytest.approx(9.9761, abs=1e-4)
    assert np.sum(paper_optimum.average == 1) == 105


def test_a_million_clients():
    problem = paper_population(0, 1_000_000).problem(500_000)
    assert kkt_residual(problem, optimum(problem)) <= 1e-9


def test_everyone_always():
    problem = paper_population(0).problem(1200)
    best = optimum(problem)
    assert np.all(best.average == 1)
    assert kkt_residual(problem, best) == 0


def test_costs_without_an_inverse():
    problem = Problem(Exponential([0.5, 1.0, 5.0]), 1.4)
    best = optimum(problem)
    assert kkt_residual(problem, best) <= 1e-9
    assert best.average[2] == 0
