"""Plans for sums with noise: what they promise is what simulated runs do, with settings from the plan alone."""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import norm

from statistical.binomial import FALSE_ALARM
from turnout import (
    Classical,
    FallingGainController,
    PolynomialCosts,
    Problem,
    SumNoise,
    optimum,
    paper_population,
    simulate,
)
from turnout.plan import Goal, least_clients, not_sensible, plan, settled_again
from turnout.plan.noisy import hard_limit
from turnout.privacy import PUBLIC_DESIGN, least_bound, total_epsilon_noisy_sum

LIMIT = norm.isf(FALSE_ALARM)


def guessed(factor, clients=1_200):
    """A public guess of the paper's clients, whose price is wrong by a factor."""
    costs = paper_population(seed=1_000, clients=clients).problem(clients // 2).costs
    assert isinstance(costs, PolynomialCosts)
    return Problem(PolynomialCosts(costs.coefficients * factor, costs.powers), clients / 2)


@lru_cache(maxsize=16)
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


@pytest.mark.parametrize("rounds", [300, 1_000])
def test_its_mean_turnout_and_chance_are_those_of_whole_runs(rounds):
    """The first rounds have too few: 300 rounds had 590 of 600 in the mean, where a plan said 600."""
    found, seeds = planned(rounds=rounds), 8
    outlook, problem = found.outlook, found.goal.problem
    runs = [
        simulate(
            problem, found.mechanism, outlook.controller, rounds, seed=seed, start=found.start, noise=outlook.noise
        ).participants
        for seed in range(seeds)
    ]
    by_chance = LIMIT * outlook.forecast.errors.mean / math.sqrt(seeds)
    mean = outlook.mean_turnout(600)
    assert 588 < mean < 596
    assert np.mean(runs) == pytest.approx(mean, abs=by_chance)
    assert np.mean(np.array(runs) >= 590) == pytest.approx(outlook.chance_of_at_least(590, 600), abs=0.1)
    assert outlook.chance_of_at_least(590, 600) < 0.64  # 71 % once it has settled around 600


@pytest.mark.deployment
def test_the_smallest_crowd_does_not_depend_on_the_crowd_of_the_plan():
    """It was 265, 295 and 991: the gain that suits a large crowd is too large for a small one."""
    least = [least_clients(planned(clients=number).outlook, number, number / 2) for number in (300, 1_200, 12_000)]
    assert 250 < min(least) <= max(least) < 1.1 * min(least)
    enough = 4 * math.ceil(max(least) / 4)
    assert not planned(clients=enough).warning
    assert planned(clients=enough - 40).warning


def test_no_cost_is_forecast_for_a_crowd_that_is_too_small():
    """It was 0.03 % for 200 clients with weights up to 200, where runs had 0.16 %."""
    weights = np.arange(1, 201)
    problem = Problem(PolynomialCosts(np.linspace(1.0, 10.0, 200)[:, None], (2,)), 10_000.0, weights)
    found = plan(problem, rounds=300, budget=1.0, observer="noisy-sum", guessed=True)
    assert found.warning.startswith("not sensible for 200 clients")
    assert "no forecast" in repr(found)
    assert all("against 0" not in other.against_it for other in found.others)
    assert "no forecast" in found._repr_html_()


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


def test_a_gap_is_reached_with_the_smallest_sensible_total():
    """It was the smallest total within the gap, whatever the noise did to the turnout."""
    problem = paper_population(clients=100).problem(50)
    found = plan(Goal(problem, 200, gap=0.05, observer="noisy-sum"))
    assert found.outlook.gap <= 0.0505
    assert found.account.epsilon < 4.0
    assert found.outlook.noise is not None
    assert not found.warning


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


# A hard limit


@pytest.mark.parametrize("aggregators", [1, 2])
def test_a_hard_limit_has_bounded_noise_within_the_budget(aggregators):
    found = planned(rounds=1_000, hard_limit=5_000.0, aggregators=aggregators)
    noise, limit = found.outlook.noise, found.limit
    assert noise.bound == least_bound(noise, 1_000, 1e-6) == limit.bound
    assert limit.margin == aggregators * noise.bound
    assert 0.99 < found.account.epsilon <= 1.0
    assert f"then {noise.sigma:g}, bounded by {noise.bound:,})" in repr(found.account)
    assert "; the bound costs " in found.account.how
    assert found.settings()["noise"]["bound"] == noise.bound
    free = planned(rounds=1_000, aggregators=aggregators)
    assert free.limit is None
    assert free.outlook.noise.bound is None
    assert free.outlook.noise.sigma < noise.sigma < 1.02 * free.outlook.noise.sigma


def test_the_heaviest_client_makes_the_margin():
    problem = Problem(guessed(1.0, 300).costs, 3_000.0, np.where(np.arange(300) < 20, 200.0, 10.0))
    found = plan(Goal(problem, 500, budget=8.0, observer="noisy-sum", hard_limit=6_000.0))
    noise = found.outlook.noise
    assert found.limit.bound == least_bound(noise, 500, 1e-6, weight=200) > least_bound(noise, 500, 1e-6)
    assert found.limit.everyone == 20 * 200 + 280 * 10
    assert found.account.epsilon <= 8.0


def test_the_chance_to_go_ahead_is_that_of_simulated_runs_and_no_limit_is_broken():
    """Within what chance does once in a million in a tenth as many rounds. The twin forgets the round's own noise."""
    found = planned(rounds=1_000, budget=3.0, hard_limit=1_000.0)
    noise, capacity = found.outlook.noise, found.goal.problem.capacity
    most = capacity + 40 + found.limit.margin
    expected = hard_limit(replace(found.goal, hard_limit=most), found.outlook).goes_ahead
    share = []
    for seed in range(20, 24):
        problem = paper_population(seed=seed, clients=1_200).problem(600)
        run = simulate(
            problem, found.mechanism, found.outlook.controller, 1_000, seed=seed, start=found.start, noise=noise
        )
        goes = run.seen + found.limit.margin <= most
        assert np.all(run.participants[goes] <= most)
        assert np.abs(run.seen - run.participants).max() <= noise.bound
        share.append(goes[200:].mean())
    allowed = LIMIT * math.sqrt(expected * (1 - expected) / (0.1 * 4 * 800))
    assert abs(np.mean(share) - expected) < allowed
    without = norm.cdf(40.5 / found.outlook.forecast.spread)
    assert abs(np.mean(share) - without) > allowed


@pytest.mark.parametrize("aggregators", [1, 2])
def test_no_sum_above_the_limit_goes_ahead_whatever_the_noise(aggregators):
    """Every round has one participant too many. In the twin the noise has no bound."""
    held = SumNoise(20.0, aggregators=aggregators, bound=30)
    too_many = 101
    assert not np.any(too_many + held.seeded(1, 0, 20_000) + aggregators * 30 <= 100)
    assert np.any(too_many - 1 + held.seeded(1, 0, 20_000) + aggregators * 30 <= 100)  # no margin is given away
    free = replace(held, bound=None)
    assert np.any(too_many + free.seeded(1, 0, 20_000) + aggregators * 30 <= 100)


@pytest.mark.deployment
def test_a_limit_that_would_do_does_and_so_do_the_crowd_and_the_budget():
    found = planned(rounds=1_000, budget=3.0, hard_limit=800.0)
    assert not found.limit.is_sensible
    assert f"a limit of {found.limit.least:,} would do. Or take a larger budget, or " in str(found.limit)
    for limit, is_sensible in ((found.limit.least, True), (found.limit.least - 3, False)):
        assert hard_limit(replace(found.goal, hard_limit=float(limit)), found.outlook).is_sensible == is_sensible
    crowd = 4 * math.ceil(found.limit.least_clients / 4)
    larger = planned(rounds=1_000, budget=3.0, clients=crowd, hard_limit=800.0 * crowd / 1_200)
    assert larger.limit.is_sensible
    smaller = 4 * math.floor(found.limit.least_clients / 4.4)
    smaller = planned(rounds=1_000, budget=3.0, clients=smaller, hard_limit=800.0 * smaller / 1_200)
    assert not smaller.limit.is_sensible
    assert planned(rounds=1_000, budget=10.0, hard_limit=800.0).limit.is_sensible


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (1_200.0, "Not needed: all clients together are 1,200"),
        (1_100.0, "Sensible: 99.4"),
        (650.0, "a limit of 1,08"),
        (600.0, "would do. Or take a larger budget, and in any case a limit above the capacity"),
    ],
)
def test_what_it_says_of_a_limit(limit, told):
    found = planned(rounds=1_000, budget=3.0, hard_limit=1_000.0)
    words = str(hard_limit(replace(found.goal, hard_limit=limit), found.outlook))
    assert told in words
    most = f"{math.floor(limit - found.limit.margin):,}"
    assert words.startswith(f"a round goes ahead if its opened sum is at most {most}, which is {limit:,.10g} less a ")


def test_no_limit_below_everyone():
    told = str(planned(hard_limit=1_000.0).limit)
    assert "Not sensible: 0 % of the rounds go ahead" in told
    assert "; this noise allows no limit below all 1,200. Or take a larger budget, or " in told


@pytest.mark.parametrize("asked", [{"hard_limit": 0.0}, {"hard_limit": math.inf}, {"observer": "every-report"}])
def test_limits_that_make_no_sense(asked):
    with pytest.raises(ValueError, match="hard_limit must be a finite number above 0, for an observer of the 'noisy-"):
        Goal(guessed(1.0), 100, budget=1.0, **{"observer": "noisy-sum", "hard_limit": 9.0} | asked)


def test_a_plan_without_noise_has_no_limit():
    found = plan(Goal(guessed(1.0, 120), 500, budget=0.1, observer="noisy-sum", guessed=True, hard_limit=100.0))
    assert found.outlook.noise is None
    assert found.limit is None
