"""A price and a channel learned from released levels alone, while clients join."""

import inspect
import math
from functools import cache

import numpy as np
import pytest

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
from turnout.algorithm import LearnedMemoized, Memoized, mechanism_from_settings
from turnout.algorithm.client import released
from turnout.algorithm.coins import ENROLMENT
from turnout.algorithm.mechanisms.learned_memoized import Learner, groups, levels_around
from turnout.client import DurableClient, Ledger, Limit, Terms
from turnout.privacy import floor
from turnout.settings import Table


@cache
def best_for_the_paper(epsilon):
    """The best channel for the paper's population. Few types will do."""
    return floor(paper_population(0).problem(600), epsilon, types=60).memoized()


def gap(problem, mechanism, seed):
    """The cost gap of averages that settle where the released surrogates want them, without simulating the way."""
    surrogates = released(problem, mechanism, SeededCoins(seed))
    settled = optimum(Problem(surrogates, problem.capacity, problem.weights)).average
    return problem.cost(settled) / optimum(problem).cost - 1.0


def mean_gap(problem, mechanism, seeds):
    return float(np.mean([gap(problem, mechanism, seed) for seed in range(seeds)]))


def test_the_server_learns_from_counts_alone():
    """No argument of the learner is a cost, or made of one: what it knows, an observer knows."""
    assert list(inspect.signature(Learner).parameters) == ["epsilon", "share", "price", "given"]
    assert list(inspect.signature(Learner.see).parameters) == ["self", "channel", "released"]
    first, second = (Learner(4.0, 0.5, 10.0) for _ in range(2))
    for learner in (first, second):
        learner.see(learner.channel, np.arange(len(learner.channel.levels), dtype=float) * 10)
    assert first.price == second.price
    np.testing.assert_array_equal(first.channel.least, second.channel.least)


@pytest.mark.parametrize("off", [3.0, 1 / 3])
@pytest.mark.parametrize("epsilon", [4.0, 6.0, 8.0])
def test_the_price_converges(off, epsilon):
    """To where levels average the share: known exactly, as the channel's expected average is."""
    best, costs = best_for_the_paper(epsilon), paper_population(0, 6000).costs
    given = np.array(best.levels), np.array(best.least)
    learner = Learner(epsilon, 0.5, off * best.price, given)
    uniform = SeededCoins(1).uniform(np.arange(6000), 0, ENROLMENT)
    for group in groups(6000):
        current = Memoized(epsilon, learner.price, best.levels, best.least)
        counts = np.bincount(current.release(costs[group], uniform[group]), minlength=len(best.levels))
        learner.see(learner.channel, counts)
    chances = Memoized(epsilon, learner.price, best.levels, best.least).words_by_level(costs) / 2.0**53
    assert (chances @ given[0]).mean() == pytest.approx(0.5, abs=0.02)
    assert learner.price == pytest.approx(best.price, rel=0.15)
    np.testing.assert_array_equal(learner.channel.least, given[1])  # the channel is kept


@pytest.mark.parametrize("counts", ["lowest", "highest"])
def test_prices_stay_within_bounds_whatever_is_released(counts):
    """Levels that no sensible population releases must not make a price of 0 or infinity."""
    learner = Learner(6.0, 0.5, 10.0, (np.array([0.2, 0.5, 0.9]), np.array([0.01, 0.01, 0.01])))
    for _ in range(30):
        before = learner.price
        learner.see(learner.channel, np.array([50.0, 0, 0] if counts == "lowest" else [0, 0, 50.0]))
        assert 0.0999 <= learner.price / before <= 10.001
    assert math.isfinite(learner.price)
    assert learner.price > 0.0


def test_the_channel_is_designed_anew_and_stays_legal():
    costs = paper_population(0).costs
    learner, uniform = Learner(6.0, 0.5, 30.0), SeededCoins(0).uniform(np.arange(1200), 0, ENROLMENT)
    seen = set()
    for group in groups(1200):
        channel = learner.channel
        seen.add(tuple(channel.levels))
        assert set(channel.levels.tolist()) <= set(levels_around(0.5).tolist())
        current = Memoized(6.0, channel.price, tuple(channel.levels), tuple(channel.least))  # refuses an illegal one
        learner.see(channel, np.bincount(current.release(costs[group], uniform[group]), minlength=len(channel.levels)))
    assert len(seen) >= 3


@pytest.mark.parametrize("clients", [2, 5, 6, 7, 40, 1200, 12_001])
def test_groups_are_a_partition(clients):
    found = groups(clients)
    assert sorted(np.concatenate(found).tolist()) == list(range(clients))
    sizes = [len(group) for group in found]
    assert sizes == sorted(sizes)
    # a public order: a function of the number of clients, and of nothing else (no seed, no cost)
    assert list(inspect.signature(groups).parameters) == ["clients"]
    assert all(np.array_equal(one, other) for one, other in zip(found, groups(clients), strict=True))


class Watched:
    """Costs 2 x^2, 3 x^2, … of clients 0, 1, … that note who was asked for the value of which level."""

    def __init__(self, clients, asked):
        self.clients, self.asked = clients, asked

    def __len__(self):
        return len(self.clients)

    def __getitem__(self, clients):
        return Watched(self.clients[clients], self.asked)

    def value(self, average):
        self.asked.extend(zip(self.clients.tolist(), average.tolist(), strict=True))
        return (2.0 + self.clients) * average**2

    def slope(self, average):
        raise AssertionError("a release looks at the values alone")


def test_each_client_releases_once():
    """Each client's cost is looked at in one release only: at most once a level."""
    asked = []
    costs = Watched(np.arange(300), asked)
    LearnedMemoized(6.0, 300.0).enrol(costs, SeededCoins(0).uniform(np.arange(300), 0, ENROLMENT), share=0.5)
    assert len(asked) == len(set(asked))
    assert {client for client, _ in asked} == set(range(300))


def test_same_seed_same_result():
    problem, mechanism = paper_population(0, 300).problem(150), LearnedMemoized(6.0, 30.0)
    first, again, other = (released(problem, mechanism, SeededCoins(seed)).coefficients for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_later_client_changes_nothing_for_those_before():
    """What a client releases depends on those who joined before it, never on those after."""
    costs, uniform = paper_population(0, 300).costs, SeededCoins(0).uniform(np.arange(300), 0, ENROLMENT)
    last = groups(300)[-1]
    moved = uniform.copy()
    moved[last] = 1.0 - moved[last] - 2.0**-53
    best = best_for_the_paper(6.0)
    mechanism = LearnedMemoized(6.0, 30.0, best.levels, best.least)
    one, other = (mechanism.enrol(costs, draws, share=0.5).coefficients for draws in (uniform, moved))
    before = np.setdiff1d(np.arange(300), last)
    np.testing.assert_array_equal(one[before], other[before])
    assert not np.array_equal(one[last], other[last])


@pytest.mark.parametrize("weights", [None, 1 + np.arange(200) % 4])
def test_engines_agree(weights):
    costs = paper_population(0, 200).costs
    problem = Problem(costs, 100.0 if weights is None else 0.5 * weights.sum(), weights)
    mechanism = LearnedMemoized(6.0, 30.0, (0.2, 0.5, 0.9), (0.01, 0.01, 0.01))
    runs = [
        simulate(problem, mechanism, SelfTuningController(5.0), 300, engine=engine, start=Prior(0.5, 2))
        for engine in ("numpy", "numba")
    ]
    np.testing.assert_array_equal(runs[0].participants, runs[1].participants)
    np.testing.assert_array_equal(runs[0].signal, runs[1].signal)
    np.testing.assert_array_equal(runs[0].average, runs[1].average)


def test_weights_are_what_a_client_brings():
    """The server counts what levels bring: a population in watts learns the price of a watt."""
    costs, weights = paper_population(0, 1200).costs, np.full(1200, 3)
    mechanism = LearnedMemoized(6.0, 10.0)
    plain = released(Problem(costs, 600.0), mechanism, SeededCoins(0))
    heavy = released(Problem(costs, 1800.0, weights), LearnedMemoized(6.0, 10.0 / 3), SeededCoins(0))
    np.testing.assert_allclose(heavy.coefficients, plain.coefficients, rtol=1e-6)


def test_a_client_of_its_own_is_refused():
    mechanism, uniform = LearnedMemoized(4.0, 10.0), np.array([0.5])
    with pytest.raises(ValueError, match="joined by a whole population"):
        mechanism.enrol(PolynomialCosts([[3.0]], (2,)), uniform, share=0.5)
    with pytest.raises(ValueError, match="use memoized instead"):
        mechanism.enrol(PolynomialCosts([[3.0], [4.0]], (2,)), np.array([0.5, 0.5]))


def test_a_durable_client_refuses_it_and_spends_nothing(tmp_path):
    with Ledger.open(tmp_path / "cost.jsonl", datum="cost", limit=Limit(10, 4.0)) as ledger:
        with pytest.raises(ValueError, match="one that a client can use by itself"):
            DurableClient(
                tmp_path,
                PolynomialCosts([[3.0]], (2,)),
                LearnedMemoized(4.0, 10.0),
                ledger=ledger,
                terms=Terms("a", Prior(0.5)),
            )
        assert ledger.remaining == 10


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"epsilon": 0.0}, "above 0 and at most 30"),
        ({"price": 0.0}, "price must be above 0"),
        ({"price": math.nan}, "price must be above 0"),
        ({"price": math.inf}, "price must be above 0"),
        ({"price": -1.0}, "price must be above 0"),
        ({"least": (0.1, 0.1)}, "given with levels only"),
        ({"levels": (0.5,)}, "2 to 64 different averages"),
        ({"levels": (0.2, 0.8), "least": (0.9, 0.9)}, "a sum between"),
    ],
)
def test_bad_arguments(arguments, says):
    with pytest.raises(ValueError, match=says):
        LearnedMemoized(**({"epsilon": 4.0} | arguments))


def test_settings_make_it_again():
    for mechanism in (LearnedMemoized(4.0, 3.0), LearnedMemoized(4.0, 3.0, (0.9, 0.2), (0.3, 0.2))):
        assert mechanism_from_settings(Table(mechanism.settings())) == mechanism


@pytest.mark.parametrize("off", [3.0, 1 / 3])
@pytest.mark.parametrize("epsilon", [4.0, 6.0, 8.0])
def test_a_learned_price_is_nearly_as_good_as_the_given_one(epsilon, off):
    """12,000 clients like the paper's, the best channel given: within 10 % of the gap that the given price has.

    Measured (3 seeds), from three times too high: 0.6, 2.4 and 8.4 % more at total epsilon 4, 6 and 8.
    """
    problem, best = paper_population(0, 12_000).problem(6000), best_for_the_paper(epsilon)
    learned = LearnedMemoized(epsilon, off * best.price, best.levels, best.least)
    assert mean_gap(problem, learned, 3) <= 1.10 * mean_gap(problem, best, 3)


@pytest.mark.parametrize(("epsilon", "points"), [(4.0, 2.0), (6.0, 1.5), (8.0, 1.0)])
def test_few_clients_pay_for_their_teachers(epsilon, points):
    """1,200 clients: the same, but those who join first, at a price that nobody knows yet, are a larger part.

    A rule of thumb, not a proof: the price's relative error after n released levels has a variance of about v / n, and
    a small error costs a client in proportion to its square. The sum of v / n over n up to N, per client, is
    v log(N) / N: a cost in points, not in parts of the gap. Measured (12 seeds): 1.2, 0.65 and 0.6 points at total
    epsilon 4, 6 and 8, which is 5, 10 and 35 % of the gap: this many clients do not keep to the 10 % above. The bounds
    here are above the measured ones by a half to more, so that a learner that gets worse is noticed.
    """
    problem, best = paper_population(0).problem(600), best_for_the_paper(epsilon)
    learned = LearnedMemoized(epsilon, 3.0 * best.price, best.levels, best.least)
    more = [gap(problem, learned, seed) - gap(problem, best, seed) for seed in range(8)]  # the same coins in both
    assert 0.0 <= 100 * np.mean(more) <= points


@pytest.mark.parametrize(("epsilon", "most"), [(6.0, 1.3), (8.0, 1.4)])
def test_a_learned_channel_too(epsilon, most):
    """Nothing known but a price three times too high: 12,000 clients come close to the channel that knows them."""
    problem, best = paper_population(0, 12_000).problem(6000), best_for_the_paper(epsilon)
    assert mean_gap(problem, LearnedMemoized(epsilon, 3.0 * best.price), 3) <= most * mean_gap(problem, best, 3)


@pytest.mark.parametrize(
    ("clients", "sizes"),
    [(2, [2]), (8, [8]), (9, [6, 3]), (14, [6, 8]), (40, [6, 6, 6, 6, 7, 9]), (100, [6] * 4 + [7, 9, 12, 15, 20, 13])],
)
def test_six_begin_and_then_a_group_is_three_tenths_of_those_before(clients, sizes):
    """Whoever is left, if fewer than one and a half groups, joins together."""
    assert [len(group) for group in groups(clients)] == sizes


def test_the_order_of_joining_has_nothing_to_do_with_the_clients_own():
    """Every group has clients from everywhere: so a population that is sorted teaches no falsehood."""
    for group in groups(3000):
        assert abs(group.mean() / 3000 - 0.5) < 0.25
        assert len(group) < 30 or np.all(np.bincount(group // 1000, minlength=3) > len(group) / 5)


def test_nothing_but_the_total_must_be_given():
    assert LearnedMemoized(4.0) == LearnedMemoized(4.0, price=1.0, levels=(), least=())
    assert LearnedMemoized(4.0, price=0.25).price == 0.25
