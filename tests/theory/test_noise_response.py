"""What noise on the sums does to the turnout: the forecast against simulations, and against closed forms."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from turnout import Classical, FallingGainController, Prior, Schedule, SumNoise, paper_population, predict, simulate
from turnout.plan import Goal
from turnout.theory import predict_change, tune_floor

FALSE_ALARM = 1e-3
"""The chance that one comparison fails though the forecast is right, if seeds were drawn; they are fixed."""

START = Prior(0.5, 10)


def planned(clients, budget, rounds, wrong=1.0):
    """(problem, noise, server): as `turnout plan` makes them, from a first price that is wrong by a factor."""
    problem = paper_population(seed=7, clients=clients).problem(clients // 2)
    noise = Goal(problem, rounds, budget=budget, observer="noisy-sum").noise(budget)
    server = tune_floor(problem, Classical(), noise, rounds).controller()
    return problem, noise, replace(server, initial=wrong * server.initial)


def errors_of(problem, server, noise, rounds, seeds, **asked):
    """The errors of the turnout, shape (seeds, rounds)."""
    runs = [
        simulate(problem, Classical(), server, rounds, seed=seed, start=START, noise=noise, **asked) for seed in seeds
    ]
    return np.array([run.participants - run.capacity for run in runs], float)


def by_chance(squares):
    """How far a mean of the runs' squares may be off, in parts of it: Student's t, as there are few runs."""
    limit = student.isf(FALSE_ALARM / 2, len(squares) - 1)
    return limit * squares.std(ddof=1) / math.sqrt(len(squares)) / np.mean(squares)


def compared(forecast, found):
    """(root mean square error of the runs, how far the forecast may be from it: 5 %, and what chance does)."""
    squares = np.mean(np.square(found), axis=1)
    return math.sqrt(np.mean(squares)), (0.05 + by_chance(squares) / 2.0) * forecast


def settled(squares, last):
    """The round from which the error stays within 1.5 times the last one; means over some 12 % of the rounds so far."""
    rounds, sums = np.arange(len(squares)), np.concatenate([[0.0], np.cumsum(squares)])
    width = np.maximum(2, (0.06 * rounds).astype(int))
    low, high = np.maximum(0, rounds - width), np.minimum(len(squares), rounds + width + 1)
    beyond = np.flatnonzero(np.sqrt((sums[high] - sums[low]) / (high - low)) > 1.5 * last)
    return int(beyond[-1]) + 1 if len(beyond) else 0


GRID = [
    (clients, budget, rounds, wrong)
    for clients, rounds in ((300, 1_000), (1_200, 1_000), (1_200, 4_000), (6_000, 1_000))
    for budget in (1.0, 4.0)
    for wrong in (1.0, 3.0)
]


@pytest.mark.deployment
@pytest.mark.parametrize(("clients", "budget", "rounds", "wrong"), GRID)
def test_the_spread_is_within_5_percent_of_simulations(clients, budget, rounds, wrong):
    """Beyond 5 %, chance alone gives more with a probability of 1e-3. The twin is a forecast without the noise."""
    problem, noise, server = planned(clients, budget, rounds, wrong)
    forecast = predict(problem, Classical(), rounds, server, start=START, noise=noise).errors
    found = errors_of(problem, server, noise, rounds, range(500, 512))[:, forecast.settling_rounds :]
    spread, allowed = compared(forecast.spread, found)
    assert abs(forecast.spread - spread) < allowed
    if (clients, budget) == (300, 1.0):
        exact = predict(problem, Classical(), rounds, server, start=START).errors.spread
        assert abs(exact - spread) > allowed


@pytest.mark.deployment
@pytest.mark.parametrize(("clients", "budget", "rounds", "wrong"), [cell for cell in GRID if cell[2] == 4_000])
def test_the_settling_time_is_within_25_percent_of_simulations(clients, budget, rounds, wrong):
    """As both are read off a curve that chance moves, two rounds are added. The twin has no larger gain at first."""
    problem, noise, server = planned(clients, budget, rounds, wrong)
    forecast = predict(problem, Classical(), rounds, server, start=START, noise=noise).errors
    early = max(60, 4 * forecast.settling_rounds)
    found = errors_of(problem, server, noise, early, range(200))
    seen = settled(np.mean(np.square(found), axis=0), forecast.error[-1])
    assert abs(seen - forecast.settling_rounds) <= 0.25 * seen + 2
    if wrong != 1.0:
        slower = replace(server, early=2)
        twin = predict(problem, Classical(), rounds, slower, start=START, noise=noise).errors.settling_rounds
        assert twin is None or abs(seen - twin) > 0.25 * seen + 2


@pytest.mark.parametrize("every", [1, 3])
def test_a_small_run_is_forecast(every):
    """The same as the grid, in seconds: 40 runs of 300 rounds, and the same twin."""
    problem, noise, server = planned(300, 1.0, 300)
    if every > 1:
        noise = replace(noise, every=every)
        server = tune_floor(problem, Classical(), noise, 300).controller()
    forecast = predict(problem, Classical(), 300, server, start=START, noise=noise).errors
    found = errors_of(problem, server, noise, 300, range(40))[:, forecast.settling_rounds :]
    spread, allowed = compared(forecast.spread, found)
    assert abs(forecast.spread - spread) < allowed < 0.2 * spread
    exact = predict(problem, Classical(), 300, server, start=START).errors.spread
    assert abs(exact - spread) > allowed


def test_the_mean_turnout_cannot_be_known_better_than_the_sums_tell():
    """With a constant gain the errors of all rounds add up to what the noise adds up to, but for the last steps.

    The first round has a gain of 1, a hundred times that of the others: its noise counts as much more.
    """
    problem, rounds, sigma = paper_population(clients=300).problem(150), 4_000, 60.0
    server = FallingGainController(0.01, 10.0, early=1)
    forecast = predict(problem, Classical(), rounds, server, start=START, noise=SumNoise(sigma)).errors
    assert forecast.mean == pytest.approx(sigma * math.hypot(math.sqrt(rounds), 1.0 / 0.01) / rounds, rel=0.1)
    run = simulate(problem, Classical(), server, rounds, seed=3, start=START, noise=SumNoise(sigma))
    noise = run.seen - run.participants
    moved = 150.0 * math.log(run.signal[-1] / run.signal[1])
    errors = np.sum(run.participants[1:-1] - 150.0 + noise[1:-1])
    assert errors == pytest.approx(-moved / 0.01, abs=1.0)


def test_more_noise_and_a_larger_floor_give_a_larger_spread():
    problem = paper_population(clients=400).problem(200)

    def spread(sigma, floor, **other):
        server, noise = FallingGainController(floor, 10.0), SumNoise(sigma, **other)
        return predict(problem, Classical(), 1_000, server, start=START, noise=noise).errors.spread

    assert spread(50.0, 0.01) < spread(100.0, 0.01) < spread(100.0, 0.03) < spread(100.0, 0.03, aggregators=2)


def test_the_floor_is_a_choice_between_tracking_and_noise():
    problem, noise = paper_population(clients=600).problem(300), SumNoise(200.0, 30, 60.0)
    tuned = tune_floor(problem, Classical(), noise, 2_000)
    spreads, follows = [each.spread for each in tuned.choices], [each.follows for each in tuned.choices]
    assert spreads == sorted(spreads)
    assert follows == sorted(follows, reverse=True)
    assert tuned.floor in [each.floor for each in tuned.choices]
    assert min(spreads) > tuned.coins
    assert tuned.controller() == FallingGainController(tuned.floor, tuned.signal, 30)
    louder = tune_floor(problem, Classical(), SumNoise(800.0, 30, 240.0), 2_000)
    assert louder.floor <= tuned.floor
    seldom = tune_floor(problem, Classical(), SumNoise(200.0, 30, 60.0, every=5), 2_000)
    assert seldom.floor >= tuned.floor
    assert seldom.early == 6

    assert seldom.choices[2].follows * seldom.floor == pytest.approx(5 * tuned.choices[2].follows * tuned.floor)


def test_too_few_rounds_are_refused():
    problem = paper_population(clients=60).problem(30)
    with pytest.raises(ValueError, match="rounds must be 10 or more, got 9: tune for as many as the run will have"):
        tune_floor(problem, Classical(), SumNoise(20.0), 9)


# Changes that the server knows of

CHANGES = {
    "the capacity halves": ({"capacity": 300.0}, Schedule(capacity={1_500: 300.0})),
    "a third of the clients leave": ({"staying": slice(400, None)}, Schedule(leave={1_500: slice(0, 400)})),
}


@pytest.mark.deployment
@pytest.mark.parametrize("change", CHANGES)
def test_the_error_after_a_change_is_forecast_and_settles_in_time(change):
    """Within 15 % in each stretch of rounds, and what chance adds (1e-3). The twin: the error without a change."""
    told, schedule = CHANGES[change]
    problem, noise, server = planned(1_200, 2.0, 3_000)
    forecast = predict_change(problem, Classical(), server, noise, at=1_500, rounds=1_500, start=START, **told)
    found = errors_of(problem, server, noise, 3_000, range(48), schedule=schedule)[:, 1_500:]
    before = predict(problem, Classical(), 3_000, server, start=START, noise=noise).errors.spread
    for first, stop in ((0, 30), (30, 120), (120, 500), (500, 1_500)):
        squares = np.mean(np.square(found[:, first:stop]), axis=1)
        wanted = math.sqrt(np.mean(np.square(forecast.error[first:stop])))
        allowed = 0.15 * wanted + by_chance(squares) / 2.0 * math.sqrt(np.mean(squares))
        assert abs(math.sqrt(np.mean(squares)) - wanted) < allowed, (first, wanted)
        assert first or abs(math.sqrt(np.mean(squares)) - before) > allowed
    assert forecast.settling_rounds is not None
    late = np.mean(np.square(found[:, forecast.settling_rounds :]), axis=1)
    most = 1.5 * forecast.error[-1]
    assert math.sqrt(np.mean(late)) < (1.0 + by_chance(late) / 2.0) * most


def test_a_change_that_the_clients_cannot_follow_is_refused():
    problem, noise, server = planned(300, 4.0, 500)
    with pytest.raises(ValueError, match="capacity must be "):
        predict_change(problem, Classical(), server, noise, at=200, rounds=100, staying=slice(0, 100), start=START)


def test_nothing_changes_where_nothing_does():
    problem, noise, server = planned(300, 4.0, 500)
    same = predict_change(problem, Classical(), server, noise, at=400, rounds=100, start=START)
    assert same.settling_rounds == 0
    whole = predict(problem, Classical(), 500, server, start=START, noise=noise).errors
    assert same.spread == pytest.approx(whole.spread, rel=0.05)
