"""The attack of the paper's Section III: as strong as it can be, and stopped by what stops it."""

import functools

import numpy as np
import pytest

from attack.attacked_runs import errors, simulate
from conformance.populations import problems
from statistical.binomial import FALSE_ALARM, assert_proportion
from turnout import (
    Averaging,
    Classical,
    IntegralController,
    PaperCoin,
    PolynomialCosts,
    Prior,
    paper_population,
)
from turnout import simulate as simulate_with_any
from turnout.algorithm import CappedCoin, Clamp, Memoized, RandomizedResponse, TrackingClamp, average_of
from turnout.attack.attack import Estimates, attack_errors, infer
from turnout.attack.cost_family import CostFamily, mixtures
from turnout.attack.evidence import ReportEvidence, Reports
from turnout.attack.reports import reports_of
from turnout.attack.run import AttackCase, attack_case
from turnout.simulation import Run, Schedule

SERVER = IntegralController(0.0075, 0.35)
CLIENTS = 600  # every second client of the paper's run is attacked, which takes half of the time

# Median relative error of the recovered costs at 10,000 rounds, and that of a first, simpler attack on such runs.
PINNED = {
    Classical(): (0.0082, 0.009),
    PaperCoin(3.5): (0.0092, 0.010),
    PaperCoin(1.0): (0.0130, 0.017),
    Clamp(1.0): (0.0150, 0.036),
    Clamp(0.5): (0.0896, 0.14),
    Clamp(0.1): (0.193, 0.24),
}
TOLERANCE = 0.25
"""About four standard errors of a median over 600 clients: other coins of the same strength stay within it."""


@pytest.fixture(scope="module")
def costs():
    return paper_population(0).costs[::2]


@functools.cache
def seen(mechanism):
    """Reports of 10,000 rounds of the paper's run."""
    run = simulate_with_any(paper_population(0).problem(600), mechanism, SERVER, 10_000)
    reports = reports_of(run)
    return Reports(reports.signals, reports.bits[:, ::2])


@functools.cache
def errors_at_the_end(mechanism):
    """What the attack recovers from them."""
    return errors(seen(mechanism), mechanism, paper_population(0).costs[::2])[0]


@pytest.mark.parametrize("mechanism", PINNED, ids=repr)
def test_the_attack_is_as_strong_as_it_was_and_no_mechanism_got_weaker(mechanism):
    """A change must make neither the attack weaker nor a mechanism easier to attack."""
    pinned, first_attempt = PINNED[mechanism]
    found = errors_at_the_end(mechanism)
    assert found.cost == pytest.approx(pinned, rel=TOLERANCE)
    assert found.cost < first_attempt  # what a first, simpler attack reached


def test_costs_with_one_coefficient_are_recovered_to_one_percent():
    assert errors_at_the_end(Classical()).single_term < 0.011
    assert errors_at_the_end(PaperCoin(3.5)).single_term < 0.012


def test_the_error_falls_with_the_root_of_the_rounds(costs):
    few, many = errors(seen(Classical()), Classical(), costs, checkpoints=[400, 6400])
    assert few.cost / many.cost == pytest.approx(4.0, rel=TOLERANCE)


def test_the_prior_alone():
    """Of a number uniform in (0, top) the best guess is 2/3 top, with an error of 1/3 in the median."""
    nothing = Reports(np.empty(0), np.empty((0, 300)))
    family = CostFamily((2,), np.full((300, 1), 40.0))
    (found,) = infer(nothing, family, Classical())
    np.testing.assert_allclose(found.coefficients, 80 / 3, rtol=0.02)
    np.testing.assert_allclose(found.likely, np.tile(2 * np.array([2.0, 38.0]), (300, 1)), rtol=0.03)
    drawn = np.random.default_rng(0).uniform(0, 40, (300, 1))
    assert attack_errors(found, PolynomialCosts(drawn, (2,))).cost == pytest.approx(1 / 3, rel=TOLERANCE)


def test_reports_that_are_shuffled_give_nothing_away(costs):
    """The twin: who took part is permuted within each round, as a shuffler would."""
    reports = seen(Classical()).first(1000)
    generator = np.random.default_rng(1)
    shuffled = Reports(reports.signals, generator.permuted(reports.bits, axis=1))
    prior, found = errors(shuffled, Classical(), costs, checkpoints=[0, 1000])
    assert found.cost > 0.9 * prior.cost
    (true,) = errors(reports, Classical(), costs)
    assert true.cost < 0.1 * prior.cost


def test_a_box_that_is_nearly_closed_gives_nothing_away():
    """The other twin: the attack knows that the reports are noise, and stays with the prior."""
    problem = paper_population(2, 400).problem(200)
    run = simulate(problem, Clamp(1e-4), IntegralController(0.02, 1.0), 300)
    prior, found = errors(reports_of(run), Clamp(1e-4), problem.costs, checkpoints=[1, 300], start=Prior(0.5, 1))
    assert found.single_term == pytest.approx(prior.single_term, rel=0.01)


def attack_with_budget(budget, checkpoints, mechanism, rounds=1200):
    problem = paper_population(0, 400).problem(200)
    run = Run(
        problem, mechanism, IntegralController(0.02, 0.35), rounds, 0, "numpy", None, Schedule(), Averaging(), None
    )
    return list(attack_case(AttackCase("", mechanism, budget), run, checkpoints))


def test_a_spent_budget_stops_the_attack():
    before, at_stop, later, last = attack_with_budget(200, [50, 200, 600, 1200], Clamp(1.0))
    assert before.cost > at_stop.cost
    assert at_stop.cost == later.cost == last.cost
    *_, without = attack_with_budget(None, [1200], Clamp(1.0))
    assert without.cost < 0.6 * last.cost  # the twin: no stop, and it goes on


def test_one_release_stops_the_attack():
    """Memoized: after some rounds the release is known, and nothing else ever."""
    mechanism = Memoized(4.0, 10.0)
    prior, few, many = attack_with_budget(None, [0, 120, 1200], mechanism)
    assert 0.4 * prior.single_term < many.single_term < 0.95 * prior.single_term
    assert many.single_term == pytest.approx(few.single_term, abs=0.01)
    open_book = attack_with_budget(None, [1200], Memoized(20.0, 10.0, tuple(np.linspace(0.02, 1, 50))))
    assert open_book[0].single_term < 0.5 * many.single_term  # the twin: a release that hides nothing


OTHERS = [
    (CappedCoin(1.0, 0.8), {}),
    (RandomizedResponse(2.0), {}),
    (TrackingClamp(1.0), {"start": Prior(0.5, 20)}),
    (PaperCoin(np.linspace(1.0, 4.0, 200)), {}),
    (PaperCoin(3.5), {"start": Prior(0.5, 10)}),
    (PaperCoin(3.5), {"averaging": Averaging(remember=100)}),
    (PaperCoin(3.5), {"averaging": Averaging(by="probability")}),
]


@pytest.mark.parametrize(("mechanism", "options"), OTHERS, ids=lambda value: str(value)[:40])
def test_every_mechanism_and_option_is_attacked(mechanism, options):
    problem = paper_population(4, 200).problem(100)
    run = simulate(problem, mechanism, IntegralController(0.04, 1.0), 1000, **options)
    prior, found = errors(reports_of(run), mechanism, problem.costs, checkpoints=[0, 1000], **options)
    assert found.cost < 0.5 * prior.cost


def test_weights_are_taken_into_account():
    problem = problems(200)["weighted"]
    run = simulate(problem, Classical(), IntegralController(0.002, 1.0), 1000)
    reports = reports_of(run)
    right, wrong = (errors(reports, Classical(), problem.costs, weights=one) for one in (problem.weights, 1))
    assert right[0].cost < 0.05
    assert wrong[0].cost > 0.2


def test_the_belief_is_calibrated(costs):
    """Nine of ten costs lie where the belief puts 90 %: it is neither too sure nor too vague."""
    reports = seen(PaperCoin(1.0)).first(2000)
    family = CostFamily.around(costs)
    (found,) = infer(reports, family, PaperCoin(1.0))
    assert_proportion(inside(found, costs), CLIENTS, 0.9)
    (misled,) = infer(reports, family, PaperCoin(2.0))  # the twin: told another mechanism
    with pytest.raises(AssertionError, match="is no coin"):
        assert_proportion(inside(misled, costs), CLIENTS, 0.9)
    assert FALSE_ALARM == 1e-6


def inside(found, costs):
    slope = costs.slope(found.average)
    return int(np.sum((found.likely[:, 0] <= slope) & (slope <= found.likely[:, 1])))


def test_the_attack_uses_nothing_else(costs):
    """A pure function: its arguments untouched, and early answers know nothing of later rounds."""
    reports = seen(PaperCoin(3.5)).first(600)
    bits, signals = reports.bits.copy(), reports.signals.copy()
    family = CostFamily.around(costs)
    early, _ = infer(reports, family, PaperCoin(3.5), checkpoints=[600, 200])
    (alone,) = infer(reports.first(200), family, PaperCoin(3.5))
    np.testing.assert_array_equal(early.coefficients, alone.coefficients)
    np.testing.assert_array_equal(reports.bits, bits)
    np.testing.assert_array_equal(reports.signals, signals)


def test_signals_may_be_anything():
    """A hostile server's signals: no warning, no failure."""
    signals = np.array([0.0, -3.0, np.nan, np.inf, 1e300, 5.0])
    bits = np.random.default_rng(0).integers(0, 2, (6, 4))
    (found,) = infer(Reports(signals, bits), CostFamily((2, 4), np.full((4, 2), 10.0)), Clamp(1.0))
    assert np.all(np.isfinite(found.coefficients))
    assert np.all(found.slope > 0)


def test_families():
    costs = PolynomialCosts([[39.7, 0.0], [3.1, 0.0], [0.0, 0.1234], [1.0, 2.0]], (2, 4))
    np.testing.assert_allclose(CostFamily.around(costs).largest, [[40, 0], [40, 0], [0, 0.13], [1, 2]])
    np.testing.assert_allclose(CostFamily.around(paper_population(0).costs).largest[[0, 300, 600, 900]],
                               [[40, 0, 0], [0, 20, 0], [0, 14, 40], [40, 0, 0]])  # fmt: skip
    assert [len(mixtures(terms)) for terms in (1, 2, 3, 4)] == [1, 16, 21, 20]
    for terms in (1, 2, 3, 4):
        np.testing.assert_allclose(mixtures(terms).sum(axis=1), 1.0)
        np.testing.assert_allclose(mixtures(terms).mean(axis=0), 1.0 / terms)
        assert np.all(mixtures(terms) > 0)


BAD = [
    (lambda: Reports(np.zeros(3), np.zeros((2, 5))), "signals and bits must be of shapes"),
    (lambda: Reports(np.zeros(1), np.full((1, 2), 3)), "bits must be 0 or 1"),
    (lambda: CostFamily((2,), np.zeros((3, 1))), "above 0 for a term of each client"),
    (lambda: CostFamily((2,), np.ones((3, 2))), "largest must be of shape"),
    (lambda: CostFamily((1, 2, 3, 4, 5), np.ones((1, 5))), "of 4 terms per client at most"),
    (lambda: CostFamily.around(PolynomialCosts([[9.0, -1.0]], (2, 4))), "coefficients must be"),
    (lambda: attack_two(family=3), "family must be of 2 clients"),
    (lambda: attack_two(checkpoints=[4]), "checkpoints must be from 0 to 3 rounds"),
    (lambda: attack_two(stop=-1), "stop must be a round from 0 up"),
]


def attack_two(family=2, **options):
    return list(
        infer(Reports(np.ones(3), np.ones((3, 2))), CostFamily((2,), np.ones((family, 1))), Classical(), **options)
    )


@pytest.mark.parametrize(("call", "says"), BAD, ids=[says for _, says in BAD])
def test_bad_arguments(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_an_average_of_nothing():
    """No report at all from a client: its belief is about dear costs, and finite."""
    reports = Reports(np.full(200, 5.0), np.concatenate([np.ones((1, 2)), np.tile([0, 1], (199, 1))]))
    (found,) = infer(reports, CostFamily((4,), np.full((2, 1), 20.0)), PaperCoin(3.5))
    assert found.average[0] == average_of(1.0, 200.0)
    assert np.all(np.isfinite(found.coefficients))
    assert isinstance(ReportEvidence(Classical()).cells.client, np.ndarray)


def test_where_an_attack_may_begin_and_end():
    reports = Reports(np.full(5, 10.0), np.ones((5, 2)))
    family = CostFamily((2,), np.full((2, 1), 40.0))
    assert [found.rounds for found in infer(reports, family, Classical(), checkpoints=[5, 0, 3])] == [0, 3, 5]
    (stopped,) = infer(reports, family, Classical(), stop=0)
    (prior,) = infer(reports, family, Classical(), checkpoints=[0])
    np.testing.assert_array_equal(stopped.coefficients, prior.coefficients)
    for bad in ({"checkpoints": [6]}, {"checkpoints": [-1]}, {"checkpoints": []}, {"stop": -1}):
        with pytest.raises(ValueError, match="must be"):
            next(infer(reports, family, Classical(), **bad))
    with pytest.raises(ValueError, match="family must be of 2 clients"):
        next(infer(reports, CostFamily((2,), np.full((3, 1), 40.0)), Classical()))


def test_checkpoints_are_rounds_that_were_seen():
    """The first and the last of them decide, in whatever order they come."""
    for good in ([0], [3], [0, 3], [2, 2]):
        assert len(attack_two(checkpoints=good)) == len(set(good))
    for bad in ([-1, 2], [2, -1], [1, 4], [4, 1], [], [-1], [4]):
        with pytest.raises(ValueError, match="checkpoints must be from 0 to 3 rounds"):
            attack_two(checkpoints=bad)
    assert [found.rounds for found in attack_two()] == [3]
    for stop in (0, 1):
        assert len(attack_two(stop=stop)) == 1


def test_a_client_brings_one_unless_weights_are_given():
    reports, family = Reports(np.full(30, 9.0), np.tile([0, 1, 1], 10)[:, None]), CostFamily((2,), np.array([[40.0]]))
    usual, one, two = (
        next(infer(reports, family, Classical(), **given)) for given in ({}, {"weights": 1}, {"weights": 2})
    )
    assert usual.coefficients == one.coefficients
    assert two.coefficients == pytest.approx(2.0 * one.coefficients, rel=0.05)  # as much, from each unit
    averaged = next(infer(reports, family, Classical(), averaging=Averaging()))
    assert averaged.coefficients == usual.coefficients


def test_clients_of_all_kinds_are_attacked_as_if_each_were_alone():
    """Many of one kind, which are worked on in parts, some with another term, and some with both."""
    generator = np.random.default_rng(9)
    largest = np.array([[40.0, 0.0]] * 45 + [[0.0, 20.0]] * 2 + [[30.0, 10.0]] * 3)[generator.permutation(50)]
    family, bits = CostFamily((2, 4), largest), generator.random((40, 50)) < generator.random(50)
    signals = generator.uniform(5.0, 15.0, 40)
    (found,) = infer(Reports(signals, bits), family, PaperCoin(2.0), start=Prior(0.5, 10))
    assert (found.likely.shape, found.slope.shape) == ((50, 2), (50,))
    assert np.all((found.coefficients > 0.0) == (largest > 0.0))
    chosen = [int(np.flatnonzero((largest == kind).all(axis=1))[-1]) for kind in np.unique(largest, axis=0)]
    for client in (0, 30, *chosen):
        own, one = Reports(signals, bits[:, [client]]), CostFamily((2, 4), largest[[client]])
        (alone,) = infer(own, one, PaperCoin(2.0), start=Prior(0.5, 10))
        for name in ("coefficients", "average", "slope", "likely"):
            np.testing.assert_allclose(getattr(found, name)[client], getattr(alone, name)[0], rtol=1e-9)


def test_errors_are_relative_and_medians():
    """Slopes over all clients and over those with one term; coefficients over all that there are, however small."""
    costs = PolynomialCosts([[10.0, 0.0], [0.0, 0.5], [4.0, 2.0], [6.0, 6.0]], (2, 4))
    average = np.array([0.5, 0.0, 0.5, 1.0])
    slope = costs.slope(np.array([0.5, 1e-3, 0.5, 1.0])) * [1.1, 0.7, 1.6, 1.5]
    guess = costs.coefficients * [[1.2, 9.0], [9.0, 0.6], [1.8, 0.3], [1.0, 2.9]]
    found = attack_errors(Estimates(7, guess, average, slope, np.zeros((4, 2))), costs)
    assert found.rounds == 7
    assert found.cost == pytest.approx((0.3 + 0.5) / 2)
    assert found.single_term == pytest.approx((0.1 + 0.3) / 2)
    assert found.coefficient == pytest.approx((0.4 + 0.7) / 2)  # of 0, 0.2, 0.4, 0.7, 0.8 and 1.9
    pair = Estimates(7, guess[2:], average[2:], slope[2:], np.zeros((2, 2)))
    assert attack_errors(pair, costs[np.array([2, 3])]).single_term is None
