"""The least error of the turnout: exact mechanisms are above it, those that are less private go below."""

import math

import numpy as np
import pytest

from turnout import Classical, PolynomialCosts, Prior, Problem, SumNoise, paper_population, predict, simulate
from turnout.algorithm import FallingGainController
from turnout.privacy import least_turnout_error, sigma_for, total_epsilon_noisy_sum
from turnout.privacy.noisy_sum import gaussian_mu
from turnout.privacy.turnout_error import _alike, _alike_of_normal, _least
from turnout.theory import tune_floor

PAPER = paper_population(seed=0).problem(600)


def odds(groups):
    """Of 0 to `groups` groups, as in the proof."""
    chances = np.sin(math.pi / (groups + 2) * np.arange(1, groups + 2)) ** 2
    return chances / chances.sum()


def bayes(laws, chances, size):
    """The root mean square error of the best estimate of the number of clients, exactly."""
    joint = laws * chances[:, None]
    places = size * np.arange(len(chances))
    seen = joint.sum(axis=0)
    mean = (places @ joint) / np.maximum(seen, 1e-300)
    return math.sqrt(float(np.sum(joint * (places[:, None] - mean) ** 2)))


def geometric(epsilon, size, groups):
    """The laws of (groups of clients + the two-sided geometric number that is private at this epsilon)."""
    values = np.arange(-math.ceil(60 / epsilon), size * groups + math.ceil(60 / epsilon))
    laws = np.exp(-epsilon * np.abs(values - size * np.arange(groups + 1)[:, None]))
    return laws / laws.sum(axis=1, keepdims=True)


def responses(epsilon, size, groups):
    """The laws of a randomized response of everyone: the number of "yes"."""
    from scipy import stats

    clients, yes = size * groups, 1.0 / (1.0 + math.exp(-epsilon))
    values = np.arange(clients + 1)
    some = [(stats.binom.pmf(values, n, yes), stats.binom.pmf(values, clients - n, 1 - yes)) for n in
            size * np.arange(groups + 1)]  # fmt: skip
    return np.array([np.convolve(a, b) for a, b in some])


@pytest.mark.parametrize("laws", [geometric, responses])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize(("size", "groups"), [(1, 1), (1, 40), (2, 20), (5, 3)])
def test_no_exact_mechanism_is_below_the_bound(laws, epsilon, size, groups):
    best = bayes(laws(epsilon, size, groups), odds(groups), size)
    bound = _least(size, size * groups, _alike(epsilon, 0.0))
    assert bound <= best


def test_the_bound_is_not_empty_and_a_mechanism_that_is_less_private_is_below_it():
    best = bayes(geometric(1.0, 1, 300), odds(300), 1)
    assert _least(1, 300, _alike(1.0, 0.0)) > 0.75 * best  # 1.06 of 1.34
    twin = bayes(geometric(2.0, 1, 300), odds(300), 1)  # sold as 1
    assert twin < _least(1, 300, _alike(1.0, 0.0))


@pytest.mark.parametrize(("mu", "size", "groups"), [(0.1, 1, 200), (0.5, 1, 50), (0.5, 3, 10), (2.0, 1, 6)])
def test_normal_noise_is_just_above_its_bound(mu, size, groups):
    values = np.linspace(-9 / mu, size * groups + 9 / mu, 20_001)
    laws = np.exp(-0.5 * (mu * (values - size * np.arange(groups + 1)[:, None])) ** 2)
    laws /= laws.sum(axis=1, keepdims=True)
    best, bound = bayes(laws, odds(groups), size), _least(size, size * groups, _alike_of_normal(mu))
    assert bound <= best * (1.0 + 1e-6)
    if size * mu <= 0.5:
        assert bound > 0.9 * best
        assert best < _least(size, size * groups, _alike_of_normal(mu / 1.2))  # the twin: noise that is too small


def test_the_coefficient_of_a_group_is_a_lower_bound():
    """For the pair of laws that all private pairs are made from, and for a group of discrete normal numbers."""
    for epsilon, delta in ((0.3, 0.0), (1.0, 1e-3), (2.0, 0.1)):
        high = (1 - delta) / (1 + math.exp(-epsilon))
        low = 1 - delta - high
        assert _alike(epsilon, delta)(1) == pytest.approx(2 * math.sqrt(high * low))
    z = np.arange(-400, 500)
    for sigma in (2.0, 30.0):
        epsilon = total_epsilon_noisy_sum(SumNoise(sigma), 1, 1e-6).epsilon
        for size in (1, 2, 5):
            one, other = (np.exp(-0.5 * ((z - moved) / sigma) ** 2) for moved in (0, size))
            true = float(np.sum(np.sqrt(one * other)) / one.sum())
            assert _alike(epsilon, 1e-6)(size) <= true
            assert _alike_of_normal(1.0 / sigma)(size) == pytest.approx(true, rel=1e-6)
            assert _alike_of_normal(gaussian_mu(epsilon, 1e-6))(size) <= true * (1.0 + 1e-3)
    assert _alike(1.0, 1e-6)(1000) == 0.0


def test_an_adaptive_protocol_of_two_rounds_is_above_the_bound_in_its_worst_case():
    """Sums with noise, all outcomes: the others follow a signal that corrects the first sum."""
    clients, capacity, sigma = 40, 20, 4.0
    problem = Problem(paper_population(0, clients).costs, capacity)
    z = np.arange(-60, 61)
    law = np.exp(-0.5 * (z / sigma) ** 2)
    law /= law.sum()
    errors = []
    for gain in (0.0, 0.5, 1.0, 2.0):
        worst = 0.0
        for always in range(capacity + 1):
            first = always + 10  # ten of the others
            second = always + np.clip(np.round(10 - gain * (first + z - capacity)), 0, capacity)
            mean = 0.5 * (first + second) - capacity
            worst = max(worst, float(law @ mean**2))
        errors.append(math.sqrt(worst))
    epsilon = total_epsilon_noisy_sum(SumNoise(sigma), 1, 1e-6).epsilon  # the second sum is not opened
    assert min(errors) > least_turnout_error(problem, epsilon, 1e-6)
    assert min(errors) > 0.9 * least_turnout_error(problem, epsilon, 1e-6, gaussian=True) > 1.0


def test_the_bound_of_the_document():
    assert f"{least_turnout_error(PAPER, 1.0, 1e-6):.2f}" == "1.07"
    assert f"{least_turnout_error(PAPER, 1.0, 1e-6, gaussian=True):.2f}" == "4.22"
    many = paper_population(0, 120_000).problem(60_000)
    assert least_turnout_error(many, 0.1, 1e-6) == pytest.approx(1.08 / 0.1, rel=2e-3)
    assert least_turnout_error(many, 1.0, 1e-6, gaussian=True) == pytest.approx(1 / gaussian_mu(1.0, 1e-6), rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_our_forecasts_are_above_it(epsilon):
    """The mean turnout is within 30 % of the best that normal noise can do, and 10 % at total epsilon 1."""
    noise = sigma_for(epsilon, 1e-6, 10_000, early=300, share=0.3)
    tuned = tune_floor(PAPER, Classical(), noise, 10_000)
    found = predict(PAPER, Classical(), 10_000, tuned.controller(), start=Prior(0.5, 10), noise=noise)
    normal = least_turnout_error(PAPER, epsilon, 1e-6, gaussian=True)
    any_noise = least_turnout_error(PAPER, epsilon, 1e-6)
    assert any_noise < normal < found.errors.mean < 1.3 * normal
    assert found.spread**2 - tuned.coins**2 > normal**2
    if epsilon == 1.0:
        assert f"{found.errors.mean:.2f}" == "4.33"
        assert f"{math.sqrt(found.spread**2 - tuned.coins**2):.1f}" == "7.4"
        assert f"{tuned.coins:.1f}" == "14.7"


@pytest.mark.deployment
def test_runs_with_clients_that_always_or_never_participate_are_above_it():
    """The mean turnout of twelve runs, by a server that knows the odds and not the number."""
    clients, capacity, rounds, epsilon = 200, 100, 1000, 1.0
    others = paper_population(0, clients // 2).costs
    drawn = np.random.default_rng(5).choice(capacity + 1, size=12, p=odds(capacity))
    noise = sigma_for(epsilon, 1e-6, rounds, early=30, share=0.3)
    errors, middle = [], None
    for seed, always in enumerate([capacity // 2, *drawn.tolist()]):
        extreme = np.where(np.arange(capacity) < always, 1e-6, 1e6)
        fixed = np.zeros((capacity, others.coefficients.shape[1]))
        fixed[:, 0] = extreme
        problem = Problem(PolynomialCosts(np.vstack([fixed, others.coefficients]), others.powers), capacity)
        middle = middle or tune_floor(problem, Classical(), noise, rounds).signal
        server = FallingGainController(0.01, middle, 30)
        run = simulate(problem, Classical(), server, rounds, seed=seed, start=Prior(0.5, 10), noise=noise)
        errors.append(float(run.participants[1:].mean()) - capacity)
    reached = math.sqrt(np.mean(np.square(errors[1:])))
    assert (
        reached
        > least_turnout_error(problem, epsilon, 1e-6, gaussian=True)
        > least_turnout_error(problem, epsilon, 1e-6)
    )


def test_weights_and_small_crowds():
    costs = paper_population(0, 40).costs
    light = least_turnout_error(Problem(costs, 20), 1.0, 1e-6)
    heavy = least_turnout_error(Problem(costs, 60, np.full(40, 3)), 1.0, 1e-6)
    assert heavy == pytest.approx(3 * light)
    mixed = least_turnout_error(Problem(costs, 60, np.array([1] * 36 + [20] * 4)), 1.0, 1e-6)
    assert mixed > 3 * light  # the error is in units of weight
    assert least_turnout_error(Problem(costs, 40), 1.0, 1e-6) == 0.0  # everyone is needed
    assert least_turnout_error(Problem(costs, 20), 1.0, 0.5) < light
    assert least_turnout_error(Problem(costs, 20), 50.0, 1e-6) < 1e-9


def test_small_budgets_approach_the_spread_of_the_odds():
    """Nothing is learnt at all: the error is a share of the number of clients."""
    found = least_turnout_error(Problem(paper_population(0, 400).costs, 200), 1e-9, 0.0)
    assert 0.3 * 200 < found < 0.5 * 200


@pytest.mark.parametrize(("epsilon", "delta", "says"), [(0.0, 1e-6, "epsilon"), (1.0, 1.0, "delta"), (1.0, -1, "del")])
def test_bad_input(epsilon, delta, says):
    with pytest.raises(ValueError, match=says):
        least_turnout_error(PAPER, epsilon, delta)
