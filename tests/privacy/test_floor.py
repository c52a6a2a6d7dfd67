"""The floor: below it is no mechanism, ours included; and it is no lower than it must be."""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy.optimize import brentq, linprog
from scipy.stats import ttest_1samp

from turnout import (
    PolynomialCosts,
    Prior,
    Problem,
    SeededCoins,
    SelfTuningController,
    optimum,
    paper_population,
    simulate,
)
from turnout.algorithm import (
    Channel,
    Clamp,
    LearnedMemoized,
    Memoized,
    Public,
    RandomizedResponse,
    TrackingClamp,
    released,
)
from turnout.privacy import floors as module
from turnout.privacy.accounting import total_epsilon
from turnout.privacy.floors import Floor, _by_type, _cost, _groups, _shift, best_release, floor, types_of, values_at

FALSE_ALARM = 1e-6


@cache
def paper(seed=0):
    return paper_population(seed).problem(600)


@cache
def paper_floor(epsilon, seed=0, types=200):
    return floor(paper(seed), epsilon, types)


def settled(problem, mechanism, seed):
    """Averages where the released surrogates want them: where a long run ends, without simulating the way."""
    surrogates = released(problem, mechanism, SeededCoins(seed))
    return optimum(Problem(surrogates, problem.capacity, problem.weights)).average


def gaps(problem, mechanism, seeds):
    best = optimum(problem).cost
    return np.array([problem.cost(settled(problem, mechanism, seed)) / best - 1.0 for seed in range(seeds)])


def below(found, least):
    """Whether gaps found with several seeds are on average below a floor, beyond chance: Student's test."""
    return ttest_1samp(found, least, alternative="less").pvalue < FALSE_ALARM


# The notes give 61 % at total epsilon 2, from a coarser programme. Our channel *attains* 59.6 %, so that the true floor
# is below 60, and with the bound it is known to be between 59.4 and 59.7 %.
@pytest.mark.parametrize(
    ("epsilon", "percent", "points"), [(1.0, 85, 1), (2.0, 61, 1.5), (4.0, 24, 1), (6.0, 6.4, 1), (8.0, 1.9, 1)]
)
def test_the_papers_population(epsilon, percent, points):
    found = paper_floor(epsilon)
    assert 0.0 < found.gap <= found.reached
    assert 100 * found.reached == pytest.approx(percent, abs=points)
    assert 100 * (found.reached - found.gap) <= 1.0  # the truth is between the two


def full_programme(problem, epsilon, levels):
    """The smallest gap of any channel to these levels: one row a client, every pair of clients constrained."""
    clients, outputs = len(problem), len(levels)
    weights = np.broadcast_to(np.asarray(problem.unit_weights, dtype=np.float64), (clients,))
    values = np.stack([problem.costs.value(np.full(clients, level)) for level in levels], axis=1)
    pairs = [(i, j) for i in range(clients) for j in range(clients) if i != j and weights[i] == weights[j]]
    ratio = np.zeros((len(pairs) * outputs, clients * outputs))
    for number, (i, j) in enumerate(pairs):
        rows = slice(number * outputs, (number + 1) * outputs)
        ratio[rows, i * outputs : (i + 1) * outputs] = np.eye(outputs)
        ratio[rows, j * outputs : (j + 1) * outputs] = -np.exp(epsilon) * np.eye(outputs)
    sums = np.vstack([np.kron(np.eye(clients), np.ones(outputs)), (weights[:, None] * levels).reshape(1, -1)])
    solved = linprog(
        values.ravel(),
        A_ub=ratio,
        b_ub=np.zeros(len(ratio)),
        A_eq=sums,
        b_eq=np.append(np.ones(clients), problem.capacity),
        bounds=(0.0, None),
    )
    assert solved.success
    return solved.fun / optimum(problem).cost - 1.0


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_is_a_bound_and_the_channel_is_a_channel(seed):
    """Against the full programme on finer levels, which no step of the real one was made with."""
    generator = np.random.default_rng(seed)
    clients, epsilon = int(generator.integers(5, 9)), float(generator.uniform(0.2, 6.0))
    costs = PolynomialCosts(generator.lognormal(0, 1, (clients, 2)), ((2, 4), (1, 2), (3, 6))[seed % 3])
    weights = generator.choice([1, 3], clients) if seed % 2 else None
    capacity = float((clients if weights is None else weights.sum()) * generator.uniform(0.2, 0.8))
    problem = Problem(costs, capacity, weights)
    truth, found = full_programme(problem, epsilon, np.linspace(0.0, 1.0, 81)), floor(problem, epsilon)
    assert found.gap <= truth + 1e-7
    assert found.reached >= truth - 1e-7
    assert found.gap >= truth - 0.01  # and a useful one
    assert found.reached <= truth + 0.01
    fewer = floor(problem, epsilon, types=3)  # clients put together: a looser bound, still a bound
    assert fewer.gap <= truth + 1e-7
    assert fewer.reached >= truth - 1e-7


def test_a_little_more_than_the_bound_is_refuted():
    """The sabotaged twin: a bound for an epsilon that is smaller by half is above what is possible."""
    costs = PolynomialCosts(np.random.default_rng(0).lognormal(0, 1, (6, 2)), (2, 4))
    truth = full_programme(Problem(costs, 3.0), 2.0, np.linspace(0.0, 1.0, 81))
    assert floor(Problem(costs, 3.0), 1.5).gap > truth + 1e-7


def test_a_finer_grid_moves_the_bound_by_nothing(monkeypatch):
    """The dual is checked at 401 averages; between them it could only be lower, by what is found here."""
    problem = paper_population(0, 200).problem(100)
    for epsilon in (4.0, 6.0):
        coarse = floor(problem, epsilon, types=60).gap
        with monkeypatch.context() as patch:
            patch.setattr(module, "_BETWEEN", np.linspace(0.0, 1.0, 4001))
            assert floor(problem, epsilon, types=60).gap == pytest.approx(coarse, abs=1e-5)


def test_from_random_selection_to_the_optimum():
    problem = paper_population(0, 200).problem(100)
    at_random = problem.cost(np.full(200, 0.5)) / optimum(problem).cost - 1.0
    found = [floor(problem, epsilon, types=60) for epsilon in (0.01, 0.5, 1, 2, 4, 6, 8, 20)]
    for less, more in itertools.pairwise(found):
        assert less.gap >= more.gap
        assert less.reached >= more.reached
    assert found[0].gap == pytest.approx(at_random, abs=0.005)
    assert found[0].reached == pytest.approx(at_random, abs=0.005)
    assert found[-1].gap == 0.0
    assert found[-1].reached < 0.002  # what 41 levels cost


@pytest.mark.parametrize("types", [200, 5])
def test_equal_weights_are_a_unit(types):
    costs = paper_population(0, 40).costs
    plain, watts = floor(Problem(costs, 20.0), 4.0, types), floor(Problem(costs, 60.0, np.full(40, 3)), 4.0, types)
    assert watts.gap == pytest.approx(plain.gap, abs=1e-4)
    assert watts.reached == pytest.approx(plain.reached, abs=1e-4)
    assert watts.channels[0].price == pytest.approx(plain.channels[0].price / 3, rel=1e-3)


def test_each_weight_has_a_channel():
    costs = paper_population(0, 100).costs
    found = floor(Problem(costs, 125.0, 1 + np.arange(100) % 4), 4.0, types=60)
    assert len(found.channels) == 4
    assert 0.0 < found.gap <= found.reached
    with pytest.raises(ValueError, match="the same for all clients, got 4 different ones"):
        found.memoized()
    with pytest.raises(ValueError, match="at most 12 different sizes"):
        floor(Problem(costs, 200.0, 1 + np.arange(100) % 13), 4.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, 31.0])
def test_bad_epsilon(bad):
    with pytest.raises(ValueError, match="total epsilon must be above 0"):
        floor(paper(), bad)


def test_the_channel_keeps_its_promise_and_brings_the_capacity():
    found = paper_floor(6.0)
    mechanism = found.memoized()
    assert mechanism.epsilon == 6.0
    rows = mechanism.words_by_level(paper().costs)
    assert (rows.max(axis=0) <= np.exp(6.0) * rows.min(axis=0) * (1 + 1e-12)).all()
    brought = float(np.sum(rows / 2.0**53 @ np.array(mechanism.levels)))
    assert brought == pytest.approx(600.0, rel=0.02)


@pytest.mark.parametrize("epsilon", [4.0, 6.0, 8.0])
def test_none_of_ours_is_below(epsilon):
    """Each at its own total epsilon, pure, against an observer of every report for ever; a mean over seeds."""
    problem, found = paper(), paper_floor(epsilon)
    best = found.memoized()
    for mechanism, seeds in (
        (Memoized(epsilon, found.best.price), 30),
        (best, 30),
        (LearnedMemoized(epsilon, 3.0 * best.price, best.levels, best.least), 20),
    ):
        assert not below(gaps(problem, mechanism, seeds), found.gap), mechanism
    learned = gaps(problem, LearnedMemoized(epsilon, 3.0 * best.price), 3)  # slow, and well above
    assert learned.mean() >= found.gap


@pytest.mark.parametrize("epsilon", [4.0, 6.0])
def test_who_is_below_has_broken_its_promise(epsilon):
    """The sabotaged twin: it says epsilon, and draws with epsilon + 1."""
    assert below(gaps(paper(), paper_floor(epsilon + 1.0, types=60).memoized(), 20), paper_floor(epsilon).gap)


@pytest.mark.parametrize(
    ("make", "per_report", "rounds"),
    [
        (make, per_report, rounds)
        for make in (Clamp, TrackingClamp, RandomizedResponse)
        for per_report, rounds in ((0.5, 8), (1.0, 4), (1.0, 8), (2.0, 4), (4.0, 1))
    ],
)
def test_per_report_mechanisms_are_far_above(make, per_report, rounds):
    """A few rounds, whose pure total is what the floor is for. Short runs do not meet the capacity exactly.

    So the comparison is with the bound for what they did bring: the dual's price times the difference.
    """
    mechanism = make(per_report)
    box = mechanism.box(Public(average=np.float64(0.5)))
    total = total_epsilon(*(float(end) for end in box), rounds, 0.0).epsilon  # type: ignore[call-arg]
    assert total == pytest.approx(per_report * rounds, abs=1e-6)
    problem, found = paper(), paper_floor(float(round(total)))
    measured = []
    for seed in range(4):
        run = simulate(
            problem,
            mechanism,
            SelfTuningController(found.best.price),
            rounds,
            seed=seed,
            start=Prior(0.5, 1),
            engine="numpy",
        )
        excess = float(run.average.sum()) - problem.capacity
        cost = problem.cost(run.average) - found.channels[0].price * excess
        measured.append(cost / found.best.cost - 1.0)
    assert min(measured) > found.gap


@pytest.mark.parametrize("epsilon", [4.0, 6.0, 8.0])
def test_the_best_channel_on_populations_it_has_not_seen(epsilon):
    """Designed for seed 0, used on seeds 1 to 4: within 1.3 times their own best channels, 20 draws each."""
    channel = paper_floor(epsilon).memoized()
    used = [float(gaps(paper(seed), channel, 20).mean()) for seed in (1, 2, 3, 4)]
    own = [paper_floor(epsilon, seed, types=60).reached for seed in (1, 2, 3, 4)]
    assert np.mean(used) <= 1.3 * np.mean(own)
    assert max(np.array(used) / np.array(own)) <= 1.3


def test_alike_clients_are_put_together():
    """Cut at the mean of the most uneven type's widest feature; public groups stay apart."""
    features = np.array([[0.0, 5.0], [0.2, 5.0], [9.0, 5.0], [9.4, 5.0], [0.0, 0.0], [0.0, 1.0]])
    one = np.zeros(6, np.int64)
    assert types_of(features, one, 1).tolist() == [0] * 6
    first = types_of(features, one, 2)
    assert first[2] == first[3] != first[0] == first[1] == first[4] == first[5]
    second = types_of(features, one, 3)
    assert second[0] == second[1] != second[4] == second[5]
    assert len(set(types_of(features, one, 6).tolist())) == 6
    assert len(set(types_of(features, one, 100).tolist())) == 6  # who is alone cannot be cut
    apart = types_of(features, np.array([0, 0, 0, 1, 1, 1]), 2)
    assert apart.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_type_stands_for_the_mean_of_its_clients():
    found = _by_type(np.array([[1.0, 10.0], [3.0, 30.0], [7.0, 0.0]]), np.array([0, 0, 1]))
    np.testing.assert_allclose(found, [[2.0, 20.0], [7.0, 0.0]])
    problem = Problem(PolynomialCosts([[1.0], [3.0]], (2,)), 1)
    np.testing.assert_allclose(values_at(problem, np.array([0.5, 1.0])), [[0.25, 1.0], [0.75, 3.0]])


@pytest.mark.parametrize("weights", [None, 1 + np.arange(24) % 3], ids=["equal", "different"])
def test_bound_and_channel_meet_where_every_client_is_a_type(weights):
    """Both sides of the programme: what no channel undercuts, and what the best one costs."""
    brought = 24.0 if weights is None else float(weights.sum())
    found = floor(Problem(paper_population(0, 24).costs, 0.5 * brought, weights), 4.0, types=1000)
    assert 0.0 <= found.reached - found.gap < 0.005


def test_who_is_at_the_mean_stays_below_the_cut():
    assert types_of(np.array([[0.0], [1.0], [2.0]]), np.zeros(3, np.int64), 2).tolist() == [0, 0, 1]
    assert types_of(np.array([[3.0], [3.0]]), np.zeros(2, np.int64), 2).tolist() == [0, 0]  # alike: not cut
    many = np.array([[0.0], [1.0], [0.0], [1.0], [0.0], [1.0], [0.0], [1.2]])  # six a little apart, two a little more
    assert types_of(many, np.array([0, 0, 0, 0, 0, 0, 1, 1]), 3).tolist() == [0, 2, 0, 2, 0, 2, 1, 1]


def test_a_dozen_weights_and_no_more():
    assert _groups(np.array([5.0, 3.0, 5.0])).tolist() == [1, 0, 1]
    assert _groups(np.arange(12.0)).tolist() == list(range(12))
    with pytest.raises(
        ValueError, match="weights must be of at most 12 different sizes for the best channel, got 13 sizes"
    ):
        _groups(np.arange(13.0))


def test_clients_are_compared_by_what_a_unit_costs_them(monkeypatch):
    """Twice the weight at twice the cost is the same type; the levels are multiples of 1/40."""
    seen = []
    monkeypatch.setattr(module, "types_of", lambda *given: seen.append(given) or types_of(*given))
    weights = np.array([1, 2, 4, 1, 2, 4])
    problem = Problem(PolynomialCosts(weights[:, None] * np.repeat([[1.0], [5.0]], 3, axis=0), (2,)), 7.0, weights)
    found = best_release(problem, 2.0, types=2)
    ((features, group, types),) = seen
    np.testing.assert_allclose(features, np.repeat(features[[0, 3]], 3, axis=0), rtol=1e-12)
    assert features.shape == (6, 41)
    assert (group.tolist(), types, found.gap) == ([0] * 6, 2, 0.0)
    (channel,) = found.channels
    np.testing.assert_allclose(channel.levels * 40.0, np.rint(channel.levels * 40.0), atol=1e-9)
    exact = floor(problem, 2.0)  # each weight has a channel of its own, and for costs like these it is the same one
    assert found.reached == pytest.approx(exact.reached, abs=1e-6)
    assert 0.0 < exact.gap <= exact.reached


def test_the_best_channel_as_a_mechanism_keeps_its_levels_off_zero():
    channel = Channel(2.0, np.array([0.0, 0.1234567, 1.0]), np.array([0.2, 0.1, 0.1]), 7.0)
    mechanism = Floor(2.0, 0.1, 0.2, (channel,), None).memoized()
    assert mechanism.levels == (0.25 / 40.0, 0.123457, 1.0)  # a quarter of the programme's smallest level
    assert (mechanism.epsilon, mechanism.price, mechanism.least) == (2.0, 7.0, (0.2, 0.1, 0.1))
    with pytest.raises(ValueError, match="weights must be the same for all clients, got 2 different ones"):
        Floor(2.0, 0.1, 0.2, (channel, channel), None).memoized()


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_a_bound_is_lowered_by_just_as_much_as_it_must_be(epsilon):
    """Until at each average what clients pay more, and e^epsilon times what they pay less, adds up to 0 or more."""

    def worst(rest, shift):
        lower = rest + shift
        return min(float(column[column > 0].sum() + np.exp(epsilon) * column[column < 0].sum()) for column in lower.T)

    for seed in range(5):
        rest = np.random.default_rng(seed).normal(0.0, 1.0, (6, 9))
        root = brentq(lambda shift, rest=rest: worst(rest, shift), 0.0, 9.0, xtol=1e-14)
        assert root < _shift(rest, epsilon) * (1 + 1e-9) < root * (1 + 2e-9) + 1e-10
    assert _shift(np.zeros((3, 2)), epsilon) == _shift(np.ones((3, 2)), epsilon) == 0.0
    assert _shift(np.full((3, 2), -1.0), epsilon) == pytest.approx(1.0, abs=1e-10)
    enough = np.array([[-1.0], [np.exp(epsilon) + 1e-9]])
    assert _shift(enough, epsilon) == 0.0
    assert _shift(enough - 1e-3, epsilon) > 0.0


@pytest.mark.parametrize("price", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("share", [0.32, 0.4, 0.5, 0.65, 0.68])
def test_the_cost_of_channels_is_that_of_a_coin_between_two_prices(price, share):
    """All clients rank two levels alike, so that shares between 0.32 and 0.68 come about by mixing alone.

    With levels 0.2 and 0.8 at e^epsilon = 4, the favoured level has chance 0.8 and the other 0.2. The ranking turns
    at a price of 1, as 0.8^2 is 0.6 more than 0.2^2, for 0.6 more of taking part.
    """
    weights = np.array([1.0, 1.0, 3.0])
    group = np.array([0, 0, 1])
    problem = Problem(PolynomialCosts(weights[:, None], (2,)), share * 5.0, np.array([1, 1, 3]))
    channel = Channel(np.log(4.0), np.array([0.2, 0.8]), np.array([0.2, 0.2]), price)
    few, many = (a * 0.2**2 + (1 - a) * 0.8**2 for a in (0.8, 0.2))
    mix = (share - 0.32) / 0.36
    exact = 5.0 * ((1 - mix) * few + mix * many)
    assert _cost(problem, [channel, channel], weights, group) == pytest.approx(exact, rel=1e-9)


def test_a_capacity_that_no_price_brings_costs_what_the_nearest_does():
    channel = Channel(np.log(4.0), np.array([0.2, 0.8]), np.array([0.2, 0.2]), 1.0)
    costs, one = PolynomialCosts([[1.0], [1.0]], (2,)), np.zeros(2, np.int64)
    for capacity, favoured in ((0.1, 0.2), (1.9, 0.8)):
        exact = 2.0 * (0.8 * favoured**2 + 0.2 * (1.0 - favoured) ** 2)
        assert _cost(Problem(costs, capacity), [channel], np.ones(2), one) == pytest.approx(exact, rel=1e-9)
