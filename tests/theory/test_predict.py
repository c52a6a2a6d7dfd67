"""Forecast against simulation: the same number of rounds, the mean over 20 seeds."""

import numpy as np
import pytest

from turnout import (
    Classical,
    IntegralController,
    Keep,
    PaperCoin,
    PolynomialCosts,
    Problem,
    optimum,
    paper_population,
    predict,
    replicate,
)
from turnout.algorithm import Clamp
from turnout.theory.feasibility import check_feasible
from turnout.theory.fixed_point import long_run
from turnout.theory.mean_field import MeanField, Moments
from turnout.theory.tuning import tune

ROUNDS = 10_000
MECHANISMS = {"classical": Classical()} | {f"beta={beta}": PaperCoin(beta) for beta in (3.5, 2.5, 1.5, 1.0)}


def linear_costs(clients):
    """a x + b x^2 with a and b alike, so that f'(0) > 0 keeps some clients away for long."""
    return PolynomialCosts(np.random.default_rng(0).uniform(1, 20, (clients, 2)), (1, 2))


POPULATIONS = {
    "paper": lambda: paper_population(0).problem(600),
    "few": lambda: paper_population(1, 100).problem(50),
    "many": lambda: paper_population(2, 100_000).problem(50_000),
    "C/N = 0.9": lambda: paper_population(3).problem(1080),
    "C/N = 0.1": lambda: paper_population(4).problem(120),
    "linear term": lambda: Problem(linear_costs(1200), 600),
}


MANY = pytest.param("many", marks=pytest.mark.deployment)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("population", [MANY if name == "many" else name for name in POPULATIONS])
def test_forecast_is_what_simulation_gives(population, mechanism):
    problem, made = POPULATIONS[population](), MECHANISMS[mechanism]
    if population == "C/N = 0.1" and mechanism not in ("classical", "beta=3.5"):
        with pytest.raises(ValueError, match="with a smaller coin"):
            predict(problem, made)
        with pytest.raises(ValueError, match="with a smaller coin"):
            tune(problem, made)
        return
    server = IntegralController(0.0075, 0.35) if population == "paper" else tune(problem, made).controller()
    forecast = predict(problem, made, ROUNDS, server)
    seeds = range(4 if population == "many" else 20)  # a hundred thousand clients are their own average
    runs = replicate(problem, made, server, ROUNDS, seeds=seeds, keep=Keep(every=ROUNDS), threads=2)
    best = optimum(problem).cost
    signal = np.mean([run.signal[ROUNDS // 2 :].mean() for run in runs])
    gap = np.mean([run.cost[-1] for run in runs]) / best - 1
    assert forecast.signal == pytest.approx(signal, rel=0.01)
    assert abs(forecast.gap - gap) <= max(0.03 * abs(gap), 0.001)
    spread = np.mean([run.last(2000).std() for run in runs])
    assert forecast.spread == pytest.approx(spread, rel=0.05)


def test_the_limit_solves_its_equations(paper_problem):
    made = PaperCoin(2.5)
    field = MeanField(paper_problem, made)
    signal, average = long_run(field, 1.0)
    np.testing.assert_allclose(field.chances(signal, average), average, atol=1e-10)
    assert average.sum() == pytest.approx(600, abs=1e-6)


def test_the_notes_figures():
    """Gaps at the fixed point of one population like the paper's, worked out independently."""
    problem = paper_population(0).problem(600)
    for beta, gap in ((3.5, 12.04), (2.5, 47.07), (1.5, 132.2), (1.0, 162.6)):
        forecast = predict(problem, PaperCoin(beta))
        assert forecast.cost - forecast.best.cost == pytest.approx(gap, rel=0.001)
    assert predict(problem, PaperCoin(3.5)).signal == pytest.approx(9.03, abs=0.005)


def test_without_privacy_the_limit_is_the_optimum(paper_problem, paper_optimum):
    forecast = predict(paper_problem, Classical())
    np.testing.assert_allclose(forecast.average, paper_optimum.average, atol=1e-9)
    assert forecast.signal == pytest.approx(paper_optimum.price, rel=1e-9)


def test_weights(paper_problem):
    weights = np.random.default_rng(0).integers(1, 9, 1200)
    problem = Problem(paper_problem.costs, 0.4 * weights.sum(), weights)
    forecast = predict(problem, Classical())
    np.testing.assert_allclose(forecast.average, optimum(problem).average, atol=1e-8)


def test_a_million_clients():
    problem = paper_population(0, 1_000_000).problem(500_000)
    assert predict(problem, PaperCoin(3.5)).gap == pytest.approx(0.0068, abs=0.0002)


def test_two_points_have_the_moments_they_stand_for():
    generator = np.random.default_rng(0)
    mean = generator.uniform(0.001, 0.999, 500)
    variance = generator.uniform(0, 1, 500) * mean * (1 - mean) * 0.99
    (first, low), (second, high) = Moments(mean, variance).points()
    assert np.all((low >= 0) & (high <= 1))
    np.testing.assert_allclose(first * low + second * high, mean, atol=1e-6)
    np.testing.assert_allclose(first * (low - mean) ** 2 + second * (high - mean) ** 2, variance, atol=1e-6)


def test_a_forecast_needs_some_rounds(paper_problem):
    with pytest.raises(ValueError, match="10 or more"):
        predict(paper_problem, Classical(), 1)
    early = predict(paper_problem, Classical(), 300)
    assert early.path.rounds[-1] == pytest.approx(299, abs=1)
    assert "after 300 rounds" in repr(early)


def test_a_capacity_that_cannot_be_brought_is_refused_with_what_helps():
    problem = paper_population(0, 400).problem
    for capacity, mechanism, remedy in (
        (50, PaperCoin(1.0), "raise capacity, or choose parameters with a smaller coin"),
        (390, Clamp(0.5), "lower capacity, or choose parameters with a wider box"),
    ):
        with pytest.raises(ValueError, match=rf"the turnouts that the mechanism can reach\), got {capacity}.*{remedy}"):
            check_feasible(problem(capacity), mechanism)
    with pytest.raises(ValueError, match=r"at most 400\.0 .*lower capacity, or add clients"):
        check_feasible(problem(200), PaperCoin(1.0), capacity=500)
