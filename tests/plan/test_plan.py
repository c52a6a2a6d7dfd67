"""Plans keep what they say: the account, and the band in which simulated gaps fall."""

import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from turnout import (
    Averaging,
    Keep,
    PolynomialCosts,
    Prior,
    Problem,
    optimum,
    paper_population,
    predict,
    replicate,
    simulate,
)
from turnout.algorithm import Clamp, TrackingClamp
from turnout.plan.goal import Goal
from turnout.plan.offers import largest_within, makers, outlook, smallest_within
from turnout.plan.planning import Impossible, plan
from turnout.privacy import (
    EVERY_REPORT,
    OTHERS_REPORT,
    PUBLIC_DESIGN,
    PUBLIC_HISTORY,
    RELEASED_ONCE,
    SUM,
    TRUSTED_AGGREGATOR,
    Observer,
    PublicAccount,
    account_of,
)
from turnout.problem import population_from_table
from turnout.service import rules_from_settings
from turnout.settings import Table
from turnout.simulation import privacy_in_words, run_from_settings

PAPER = paper_population(0).problem(600)
IN_A_CROWD = Observer("sum", honest=100, averaging=Averaging(by="probability"))


def quadratic(clients=400, share=0.3):
    generator = np.random.default_rng(4)
    return Problem(PolynomialCosts(generator.lognormal(0.0, 1.0, (clients, 1)), (2,)), share * clients)


def weighted(clients=300):
    generator = np.random.default_rng(5)
    costs = PolynomialCosts(generator.uniform(1.0, 40.0, (clients, 2)), (2, 4))
    return Problem(costs, 500, generator.choice([1, 3], clients))


GOALS = {
    "budget 4": Goal(PAPER, 1000, budget=4.0),
    "budget 8, long": Goal(PAPER, 5000, budget=8.0),
    "gap 10 %": Goal(PAPER, 2000, gap=0.1),
    "gap 20 %, sum": Goal(PAPER, 500, gap=0.2, observer="sum"),
    "budget 2.5, sum": Goal(PAPER, 500, budget=2.5, observer="sum"),
    "budget 1, sum, some honest": Goal(PAPER, 200, budget=1.0, observer="sum", honest=800),
    "guessed": Goal(PAPER, 1000, budget=6.0, guessed=True),
    "quadratic": Goal(quadratic(), 1000, budget=6.0),
    "quadratic, sum": Goal(quadratic(), 300, budget=4.0, observer="sum"),
    "weights": Goal(weighted(), 1000, gap=0.15),
}


def simulated_gaps(found, seeds):
    goal = found.goal
    runs = replicate(
        goal.problem,
        found.mechanism,
        found.outlook.controller,
        goal.rounds,
        seeds=seeds,
        start=found.start,
        averaging=goal.averaging,
        keep=Keep(every=goal.rounds),
    )
    return np.array([run.cost[-1] for run in runs]) / optimum(goal.problem).cost - 1.0, runs


@pytest.mark.deployment
@pytest.mark.parametrize("name", GOALS)
def test_simulations_fall_inside_the_band_and_the_account_keeps_the_goal(name):
    """At least 16 of 20 inside a 95 % band: by chance alone it fails less than once in 300 (binomial, 0.26 %)."""
    goal = GOALS[name]
    found = plan(goal)
    gaps, runs = simulated_gaps(found, range(1000, 1020))
    low, high = found.outlook.band
    assert np.sum((gaps >= low) & (gaps <= high)) >= 16
    assert high - low < 2.5 * (2 * 1.96) * gaps.std(ddof=1)  # and no wider than it must be
    if goal.budget is not None:
        assert found.account.epsilon <= goal.budget * (1 + 1e-9)
    if goal.gap is not None:
        assert found.outlook.gap <= 1.01 * goal.gap
    again = account_of(found.mechanism, goal.rounds, goal.delta, goal.seen_by)
    assert again.epsilon == found.account.epsilon
    spread = np.mean([run.last(goal.rounds // 2).std() for run in runs])
    assert spread == pytest.approx(found.outlook.forecast.spread, rel=0.1)
    often = np.mean([np.mean(run.last(goal.rounds // 2) >= goal.problem.capacity - spread) for run in runs])
    assert often == pytest.approx(
        found.outlook.chance_of_at_least(goal.problem.capacity - spread, goal.problem.capacity), abs=0.04
    )


def test_a_band_around_another_gap_is_missed():
    """The twin: the band of one plan does not hold the gaps of another."""
    found, other = plan(GOALS["budget 2.5, sum"]), plan(GOALS["gap 20 %, sum"])
    gaps, _ = simulated_gaps(other, range(1000, 1020))
    low, high = found.outlook.band
    assert np.sum((gaps >= low) & (gaps <= high)) < 16


def test_the_chosen_one_is_the_best_offer():
    found = plan(GOALS["budget 4"])
    assert found.mechanism.kind == "memoized"
    kinds = [offer.name for offer in found.others]
    assert {"clamp", "randomized-response", "tracking-clamp", "learned-memoized", "paper-coin", "classical"} <= set(
        kinds
    )
    assert all(offer.against_it for offer in found.others)
    assert plan(GOALS["budget 2.5, sum"]).mechanism.kind == "clamp"
    assert plan(GOALS["guessed"]).mechanism.kind == "learned-memoized"


@pytest.mark.parametrize(
    ("goal", "told"),
    [
        (
            Goal(PAPER, 1000, budget=4.0, gap=0.01),
            r"in 1,000 rounds against an observer of every report: .* smallest gap is 23.* %; .* total epsilon 9\.",
        ),
        (
            Goal(PAPER, 1000, budget=8.6, gap=0.01),
            r"in 1,000 rounds against an observer of every report: .* smallest gap is 1\.5.* %; .* total epsilon 9\.",
        ),
        (Goal(PAPER, 1000, gap=1e-8), "the smallest gap planned for is"),
        (
            Goal(PAPER, 20, gap=0.01),
            r"impossible in 20 rounds against an .* every report: the smallest .* \(memoized\): plan for more rounds",
        ),
    ],
)
def test_an_impossible_goal_is_refused_with_the_nearest_possible_one(goal, told):
    with pytest.raises(Impossible, match=told):
        plan(goal)


def test_the_nearest_possible_goal_is_possible():
    refused = Goal(PAPER, 1000, budget=4.0, gap=0.01)
    with pytest.raises(Impossible) as told:
        plan(refused)
    words = str(told.value).split()
    smallest, total = float(words[words.index("%;") - 1]) / 100, float(words[-2])
    assert plan(replace(refused, gap=smallest)).account.epsilon <= 4.0
    assert plan(replace(refused, budget=total)).outlook.gap <= 0.0101


def test_what_speaks_against_the_others_says_when():
    """Two numbers of one line have one horizon, or each says its own."""
    told = {offer.name: offer.against_it for offer in plan(GOALS["budget 4"]).others}
    assert re.fullmatch(r"\S+ % above the optimum in the long run, against 23\.\d %", told["clamp"])
    assert re.fullmatch(r"\S+ % above the optimum after 1,000 rounds, .* in the long run", told["tracking-clamp"])
    told = {offer.name: offer.against_it for offer in plan(GOALS["gap 10 %"]).others}
    assert re.fullmatch(r"total epsilon \S+ for that gap in the long run, against 5\.\d+", told["clamp"])


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({}, "budget or gap is missing"),
        ({"budget": 0.0}, "budget must be"),
        ({"gap": math.nan}, "gap must be"),
        ({"gap": 1}, r"gap must be a share above 0 and below 1, got 1 \(100 %\): 0.01 is one percent"),
        ({"budget": 1.0, "rounds": 5}, "rounds must be 10 or more"),
        ({"budget": 1.0, "delta": 0.0}, "delta must be"),
        ({"budget": 1.0, "observer": "everyone"}, "observer must be 'every-report' or 'sum'"),
        ({"budget": 1.0, "honest": 5}, "honest must be from 0 to 1198, and only for an observer of the 'sum'"),
        ({"budget": 1.0, "observer": "sum", "honest": 1199}, "honest must be from 0 to 1198"),
    ],
)
def test_bad_goales(bad, named):
    with pytest.raises(ValueError, match=named):
        Goal(PAPER, **({"rounds": 100} | bad))


def test_weights_count_where_only_the_sum_is_seen():
    """Five clients of weight 200 among 1,195 of weight 1: 1.99 was printed for what is 49.8 for a heavy one."""
    weights = np.array([200] * 5 + [1] * 1195)
    problem = Problem(PAPER.costs, weights.sum() / 2, weights)
    goal = Goal(problem, 100, budget=2.0, observer=SUM)
    clamp = next(maker for maker in makers(goal) if maker.kind == Clamp.kind)
    assert clamp.account(1.180995317760719).epsilon > 49.8
    assert (
        clamp.account(1.180995317760719).epsilon
        > account_of(Clamp(1.180995317760719), 100, 1e-6, replace(goal.seen_by, weights=None)).epsilon * 20
    )
    epsilon = largest_within(clamp, 2.0)
    # Three others of its weight hide it: that is worth a factor of two, not of twenty-five.
    assert clamp.account(epsilon).epsilon <= 2.0
    assert epsilon < 2.1 * largest_within(next(iter(makers(replace(goal, observer=EVERY_REPORT)))), 2.0)


def test_one_other_may_look_on():
    assert Goal(PAPER, 100, budget=2.0, observer=SUM).seen_by.honest == 1198
    assert Goal(PAPER, 100, budget=2.0, observer=SUM, honest=7).seen_by.honest == 7
    two = Problem(PAPER.costs[:2], 1.0)
    assert Goal(two, 100, budget=2.0, observer=SUM).seen_by.honest == 0
    assert Goal(PAPER, 100, budget=2.0).seen_by.honest is None


def test_every_offer_carries_what_it_rests_on():
    goal = Goal(PAPER, 100, budget=2.0)
    hidden = (TRUSTED_AGGREGATOR, OTHERS_REPORT)
    for asked, usual in ((goal, ()), (replace(goal, observer=SUM), hidden)):
        found = {maker.kind: maker.assumptions for maker in makers(asked)}
        assert found["clamp"] == found["randomized-response"] == (*usual, PUBLIC_DESIGN)
        assert found["memoized"] == found["learned-memoized"] == (RELEASED_ONCE, PUBLIC_DESIGN)
        assert found.get("tracking-clamp", (PUBLIC_HISTORY, PUBLIC_DESIGN)) == (PUBLIC_HISTORY, PUBLIC_DESIGN)
        for maker in makers(asked):
            assert maker.account(1.0).assumptions == maker.assumptions
    guessed = {maker.kind: maker.assumptions for maker in makers(replace(goal, guessed=True))}
    assert "memoized" not in guessed
    assert guessed["learned-memoized"] == (RELEASED_ONCE,)
    assert guessed["clamp"] == ()


def test_a_plan_says_what_it_rests_on():
    found = plan(GOALS["budget 2.5, sum"])
    assert found.account.assumptions == (TRUSTED_AGGREGATOR, OTHERS_REPORT, PUBLIC_DESIGN)
    assert TRUSTED_AGGREGATOR in repr(found)
    assert TRUSTED_AGGREGATOR in found._repr_html_()
    assert found.settings()["observer"] == SUM
    assert found.settings()["honest"] == 1198
    assert "observer" not in plan(GOALS["budget 4"]).settings()
    assert PUBLIC_DESIGN in repr(plan(GOALS["budget 4"]))


def test_searches_end_at_the_limit():
    goal = Goal(PAPER, 500, budget=30.0)
    clamp = next(maker for maker in makers(goal) if maker.kind == Clamp.kind)
    epsilon = largest_within(clamp, 30.0)
    assert clamp.account(epsilon).epsilon <= 30.0 < clamp.account(1.02 * epsilon).epsilon
    least = smallest_within(clamp, 0.1)
    assert clamp.gap(least) <= 0.1 < clamp.gap(0.98 * least)


@pytest.mark.parametrize("mechanism", [Clamp(0.5), Clamp(0.5, 0.2), TrackingClamp(0.5)], ids=repr)
def test_an_account_grows_with_the_rounds_and_shrinks_in_a_crowd(mechanism):
    few, many = account_of(mechanism, 10, 1e-6), account_of(mechanism, 100, 1e-6)
    assert few.epsilon < many.epsilon <= 100 * 0.5 * (1 + 1e-9)
    if mechanism.needs_public_average:
        with pytest.raises(ValueError, match="averages are not public"):
            account_of(mechanism, 10, 1e-6, IN_A_CROWD)
    else:
        assert account_of(mechanism, 10, 1e-6, IN_A_CROWD).epsilon < few.epsilon


def test_forecasts_from_a_prior_and_by_probability_agree_with_simulation():
    """Means of 8 runs within four standard errors, or a hundredth of the gap."""
    from turnout import IntegralController, Prior

    server = IntegralController(0.004, 9.0)
    for mechanism, start, by in (
        (Clamp(1.0), Prior(0.5, 10), "bit"),
        (TrackingClamp(1.0), Prior(0.5, 20), "bit"),
        (Clamp(2.0, 0.4), Prior(0.3, 5), "probability"),
    ):
        averaging = Averaging(by=by)
        told = predict(PAPER, mechanism, 1000, server, start=start, averaging=averaging).gap
        runs = replicate(
            PAPER, mechanism, server, 1000, seeds=range(8), start=start, averaging=averaging, keep=Keep(every=1000)
        )
        gaps = np.array([run.cost[-1] for run in runs]) / optimum(PAPER).cost - 1
        assert abs(gaps.mean() - told) < max(4 * gaps.std(ddof=1) / math.sqrt(8), 0.01 * told)
    quick = predict(PAPER, Clamp(1.0), 5000, server, exact=200).gap
    assert quick == pytest.approx(predict(PAPER, Clamp(1.0), 5000, server).gap, rel=0.01)
    with pytest.raises(ValueError, match=r"averaging\.remember"):
        predict(PAPER, Clamp(1.0), averaging=Averaging(remember=100))


def test_the_settings_of_a_plan_run(tmp_path):
    from turnout.settings import Table
    from turnout.simulation import run_from_settings

    found = plan(GOALS["budget 2.5, sum"])
    run = run_from_settings(Table({"population": {"kind": "paper"}} | found.settings()))
    direct = simulate(
        PAPER,
        found.mechanism,
        found.outlook.controller,
        500,
        start=found.start,
        averaging=found.goal.averaging,
    )
    np.testing.assert_array_equal(run.go().participants, direct.participants)


@pytest.mark.deployment
def test_a_plan_for_the_papers_population_is_quick():
    """In processor time: some five seconds, and never so long that a person gives up."""
    for goal in (Goal(PAPER, 10_000, budget=6.0), Goal(PAPER, 10_000, gap=0.1)):
        begun = time.process_time()
        plan(goal)
        assert time.process_time() - begun < 30.0


def test_how_a_channel_was_designed_is_said_wherever_its_plan_is_used(paper_problem):
    """The plan's file carries the assumption: a run of it, and a fleet with it, print it too."""
    found = plan(Goal(paper_problem, rounds=500, budget=6.0))
    assert PUBLIC_DESIGN in found.account.assumptions
    settings = json.loads(json.dumps(found.settings()))
    run = run_from_settings(Table({"population": {"kind": "paper"}} | settings | {"rounds": 20}))
    assert PUBLIC_DESIGN in privacy_in_words(run.go().provenance)
    rules = rules_from_settings(Table(settings | {"safety": {"missing": "absent"}}))
    assert rules_from_settings(Table(json.loads(json.dumps(rules.settings())))) == rules
    assert PUBLIC_DESIGN in PublicAccount(rules.mechanism, 1e-6, rules.observers[0]).sentence(10)
    guessed = plan(Goal(paper_problem, rounds=500, budget=6.0, guessed=True))
    assert "assuming" not in guessed.settings()


@pytest.mark.deployment
def test_the_table_of_the_page_on_a_first_deployment():
    """The cost of each total epsilon, for the page's fleet: 300 devices, 120 in each round, costs from 1 to 10."""
    page = (Path(__file__).parents[2] / "docs" / "first-deployment.md").read_text()
    names = ("`--budget`", "cost above the optimum")
    budgets, gaps = (re.search(rf"^\| {name} \| (.*) \|$", page, re.MULTILINE)[1].split(" | ") for name in names)
    group = {"clients": 300, "cost": {"2": {"uniform": [1.0, 10.0]}}}
    problem = population_from_table(Table({"seed": 0, "groups": [group]})).problem(120)
    goal = Goal(problem, 35_040, budget=6.0)
    assert round(100 * (problem.random_cost() / optimum(problem).cost - 1)) == 40
    assert len(budgets) == 5
    for budget, gap in zip(budgets, gaps, strict=True):
        made, _ = goal.channel(float(budget))
        found = 100 * outlook(problem, made, goal.rounds, goal.averaging, Prior(0.4, 10)).gap
        assert gap == (f"{found:.0f} %" if found > 10 else f"{found:.1f} %")
