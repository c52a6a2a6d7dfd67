"""Plans for sums with noise: what they promise is what simulated runs do, with settings from the plan alone."""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import norm

from statistical.binomial import FALSE_ALARM
from turnout import Classical, FallingGainController, PolynomialCosts, Problem, optimum, paper_population, simulate
from turnout.plan import Goal, least_clients, not_sensible, plan, settled_again
from turnout.privacy import PUBLIC_DESIGN, total_epsilon_noisy_sum

LIMIT = norm.isf(FALSE_ALARM)


def guessed(factor, clients=1_200):
    """A public guess of the paper's clients, whose price is wrong by a factor."""
    costs = paper_population(seed=1_000, clients=clients).problem(clients // 2).costs
    assert isinstance(costs, PolynomialCosts)
    return Problem(PolynomialCosts(costs.coefficients * factor, costs.powers), clients / 2)


@lru_cache(maxsize=8)
def planned(factor=1.0, rounds=10_000, clients=1_200, **asked):
    asked = {"budget": 1.0} | asked
    return plan(Goal(guessed(factor, clients), rounds, observer="noisy-sum", guessed=True, **asked))


def runs_of(found, seeds, clients=1_200, with_noise=True):
    """[(cost above the optimum of its own turnout, mean turnout / capacity - 1, root mean square error), …]."""
    outlook, rounds, result = found.outlook, found.goal.rounds, []
    first = max(outlook.settling_rounds, round(0.03 * rounds))
    for seed in seeds:
        problem = paper_population(seed=seed, clients=clients).problem(clients // 2)
        noise = outlook.noise if with_noise else None
        run = simulate(problem, found.mechanism, outlook.controller, rounds, seed=seed, start=found.start, noise=noise)
        own = optimum(Problem(problem.costs, float(run.average.sum()))).cost
        error = run.participants - problem.capacity
        result.append(
            (run.cost[-1] / own - 1, np.mean(error) / problem.capacity, math.sqrt(np.mean(error[first:] ** 2)))
        )
    return np.array(result)


@pytest.mark.parametrize(
    ("asked", "sums", "first", "later"),
    [
        ({}, 10_000, 133.6, 497.4),
        ({"budget": 0.5}, 10_000, 260.0, 965.0),
        ({"rounds": 1_000}, 1_000, 42.0, 158.0),
        ({"aggregators": 2}, 10_000, 133.6, 497.4),
    ],
)
def test_the_total_is_the_budget_and_the_account_of_its_own_noise(asked, sums, first, later):
    found = planned(**asked)
    noise = found.outlook.noise
    assert type(found.mechanism) is Classical
    assert type(found.outlook.controller) is FallingGainController
    assert (noise.early_sigma, noise.sigma) == pytest.approx((first, later), rel=0.03)
    assert noise.early == 0.03 * sums
    account = total_epsilon_noisy_sum(noise, sums, 1e-6)
    assert found.account.epsilon == account.epsilon
    assert 0.99 * found.goal.budget < account.epsilon <= found.goal.budget
    assert noise.aggregators == asked.get("aggregators", 1)
    assert found.outlook.controller.early == noise.early


def test_a_design_from_the_costs_that_it_protects_is_an_assumption():
    goal = Goal(paper_population(clients=300).problem(150), 2_000, budget=4.0, observer="noisy-sum")
    assert PUBLIC_DESIGN in plan(goal).account.assumptions
    assert PUBLIC_DESIGN not in planned().account.assumptions


def test_the_heaviest_client_has_the_budget():
    problem = Problem(guessed(1.0, 300).costs, 3_000.0, np.where(np.arange(300) < 20, 200.0, 10.0))
    found = plan(Goal(problem, 500, budget=8.0, observer="noisy-sum"))
    heaviest = total_epsilon_noisy_sum(found.outlook.noise, 500, 1e-6, weight=200).epsilon
    assert found.account.epsilon == heaviest <= 8.0
    assert "for the heaviest client, of weight 200" in str(found.account)
    light = total_epsilon_noisy_sum(found.outlook.noise, 500, 1e-6, weight=10).epsilon
    assert light < 0.1 * heaviest


@pytest.mark.parametrize(("clients", "sensible"), [(200, False), (1_200, True)])
def test_it_says_when_the_crowd_is_too_small(clients, sensible):
    found = planned(clients=clients)
    told = not_sensible(found.outlook, clients, clients / 2)
    assert (told == "") == sensible
    least = least_clients(found.outlook, clients, clients / 2)
    assert (least <= clients) == sensible
    assert 200 < least < 400
    if not sensible:
        assert told.startswith("not sensible for 200 clients: the noise alone makes the turnout wrong by 6.")


def test_there_is_no_forecast_where_the_noise_is_too_large():
    """It would be false: at 120 clients and epsilon 0.1 it said 0.00 %, and a run had 6.8 %."""
    found = plan(Goal(guessed(1.0, 120), 500, budget=0.1, observer="noisy-sum", guessed=True))
    assert found.outlook.noise is None
    (rejected,) = (other for other in found.others if other.name == "noise on the sum")
    assert rejected.mechanism is None
    told = "the noise makes the turnout wrong by more than 25 %, and there is no forecast (sensible from some "
    assert told in rejected.against_it


def test_gaps_are_compared_after_the_planned_rounds():
    """In the long run memoized has the smaller gap at a total of 12, but not after 300 rounds."""
    found = plan(Goal(guessed(1.0, 300), 300, budget=12.0, observer="noisy-sum", guessed=True))
    assert found.outlook.noise is not None
    assert all(found.outlook.gap < other.gap for other in found.others)


@pytest.mark.parametrize("rounds", [10, 20, 40, 200])
def test_early_noise_is_smaller_or_there_is_none(rounds):
    noise = Goal(guessed(1.0, 100), rounds, budget=8.0, observer="noisy-sum").noise(8.0)
    assert noise.early_sigma is None or noise.early_sigma < 0.8 * noise.sigma
    assert (noise.early_sigma is None) == (rounds < 100)


def test_it_says_when_it_is_settled_again():
    found = planned()
    told = settled_again(found.goal, found.outlook, found.start)
    assert set(told) == {"the capacity halves"}  # half of the clients cannot bring half of all
    assert 300 < told["the capacity halves"] < 5_000


def test_a_gap_is_reached_with_the_smallest_total():
    problem = paper_population(clients=100).problem(50)
    found = plan(Goal(problem, 200, gap=0.05, observer="noisy-sum"))
    assert found.outlook.gap <= 0.0505
    assert found.account.epsilon < 4.0


@pytest.mark.deployment
@pytest.mark.parametrize("factor", [3.0, 1 / 3])
@pytest.mark.parametrize(
    ("asked", "cost", "times"),
    [
        ({}, 0.001, 1.35),
        ({"budget": 0.5}, 0.001, 2.0),
        ({"rounds": 1_000}, 0.004, 1.5),
        ({"aggregators": 2}, 0.001, 1.6),
    ],
)
def test_settings_from_the_plan_alone_with_a_wrong_price(factor, asked, cost, times):
    """Six runs of other populations: means, with what chance may add to them (1e-6, from the forecast's own spread)."""
    found = planned(factor, **asked)
    with_noise, without = runs_of(found, range(30, 36)), runs_of(found, range(30, 32), with_noise=False)
    assert np.max(with_noise[:, 0]) < cost
    errors = found.outlook.forecast.errors
    by_chance = LIMIT * errors.mean / found.goal.problem.capacity / math.sqrt(6)
    assert abs(np.mean(with_noise[:, 1])) < 0.005 + by_chance
    ratio = math.sqrt(np.mean(with_noise[:, 2] ** 2) / np.mean(without[:, 2] ** 2))
    assert ratio < times
    if not asked:  # the twin: four times the noise that the budget needs
        loud = replace(found.outlook.noise, sigma=4 * found.outlook.noise.sigma, early_sigma=600.0)
        loud = replace(found, outlook=replace(found.outlook, noise=loud))
        assert np.mean(runs_of(loud, range(30, 32))[:, 2]) > times * np.mean(without[:, 2])
