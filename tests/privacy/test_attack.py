"""The attack of the paper's Section III: as strong as it can be, and stopped by what stops it."""

import functools

import numpy as np
import pytest

from conformance.populations import problems
from statistical.binomial import FALSE_ALARM, assert_proportion
from turnout import (
    Averaging,
    Classical,
    IntegralController,
    Keep,
    PaperCoin,
    PolynomialCosts,
    Prior,
    SeededCoins,
    paper_population,
)
from turnout import simulate as simulate_with_any
from turnout.algorithm.client import average_of, intent
from turnout.algorithm.enrolment import released
from turnout.algorithm.mechanism import Public
from turnout.algorithm.mechanisms import CappedCoin, Clamp, Memoized, RandomizedResponse, TrackingClamp
from turnout.privacy import attack_release
from turnout.privacy.attack import attack_errors, infer
from turnout.privacy.attack_belief import summary
from turnout.privacy.attack_evidence import LEAST, ReportEvidence, evidence_at, public_averages
from turnout.privacy.attack_release import ReleaseAttack, _channel, _seen
from turnout.privacy.cost_family import CostFamily, mixtures
from turnout.privacy.reports import Reports
from turnout.simulation.attack_run import AttackCase, attack_case
from turnout.simulation.reports import reports_of
from turnout.simulation.run_settings import Run
from turnout.simulation.schedule import Schedule

SERVER = IntegralController(0.0075, 0.35)
CLIENTS = 600  # every second client of the paper's run is attacked, which takes half of the time
simulate = functools.partial(simulate_with_any, engine="numpy")  # compiles nothing

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


def errors(reports, mechanism, costs, **options):
    found = infer(reports, CostFamily.around(costs), mechanism, **options)
    return [attack_errors(estimates, costs) for estimates in found]


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


def test_a_release_never_says_more_than_its_epsilon():
    """However the reports came out, no two costs differ by more than a factor e^epsilon in belief over prior."""
    family = CostFamily((2,), np.full((40, 1), 40.0))
    run = simulate(problems(40)["one term"], Memoized(2.0, 9.0), IntegralController(0.1, 1.0), 400)
    reports = reports_of(run)
    ((_, evidence, _),) = evidence_at(reports, [400], Memoized(2.0, 9.0), 1, None, Averaging(), None)
    for members, _, releases, chances in ReleaseAttack(Memoized(2.0, 9.0), family)._groups:
        belief = _seen(evidence, members, releases) @ chances.T
        assert np.max(np.log(belief.max(axis=1) / belief.min(axis=1))) < 2.0 + 0.02


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


@pytest.mark.parametrize("averaging", [Averaging(), Averaging(remember=30)], ids=["all", "forgetting"])
@pytest.mark.parametrize("start", [None, Prior(0.4, 7.5)], ids=["paper", "prior"])
def test_averages_are_what_clients_had(averaging, start):
    problem = paper_population(1, 40).problem(20)
    options = {"start": start, "averaging": averaging, "keep": Keep(every=1, averages="all")}
    run = simulate(problem, PaperCoin(2.0), IntegralController(0.1, 1.0), 90, **options)
    averages, state = public_averages(reports_of(run), start, averaging, 0, 90, None)
    np.testing.assert_array_equal(averages[1:], run.averages[:-1])
    np.testing.assert_array_equal(state.average, run.average)


START = Prior(0.5, 20)


def exact_log_likelihood(reports, mechanism, costs, scale):
    """Every round by itself."""
    averages, _ = public_averages(reports, START, Averaging(), 0, reports.rounds, None)
    total = np.zeros((reports.clients, scale.shape[1]))
    for round in range(reports.rounds):
        average = averages[round][:, None]
        wish = intent(reports.signals[round], 1, average, costs.slope(averages[round])[:, None] * scale)
        chance = mechanism.probability(wish, Public(average=average))
        total += np.log(np.maximum(np.where(reports.bits[round][:, None], chance, 1 - chance), LEAST))
    return total


@pytest.mark.parametrize(
    "mechanism", [PaperCoin(2.0), Clamp(1.0), TrackingClamp(1.0), RandomizedResponse(1.0)], ids=repr
)
def test_counting_rounds_together_changes_next_to_nothing(mechanism):
    """Cells against every round by itself, as differences of log likelihoods that run into the hundreds."""
    problem = paper_population(1, 80).problem(40)
    reports = reports_of(simulate(problem, mechanism, IntegralController(0.1, 5.0), 1500, start=START))
    ((_, evidence, _),) = evidence_at(reports, [1500], mechanism, 1, START, Averaging(), None)
    scale = np.tile(np.linspace(0.8, 1.25, 10), (80, 1))
    quick = evidence.log_likelihood(np.arange(80), problem.costs, scale)[:, 0]
    exact = exact_log_likelihood(reports, mechanism, problem.costs, scale)
    assert len(evidence.cells.client) < 0.4 * reports.bits.size
    quick, exact = (found - found[:, 4:5] for found in (quick, exact))  # the fourth is the truth
    possible = exact > -20
    assert possible.mean() > 0.3
    assert exact[possible].std() > 3
    np.testing.assert_allclose(quick[possible], exact[possible], atol=0.35)


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


def test_the_best_guess_of_a_belief():
    """The harmonic mean of the narrowest half, checked by search."""
    values = np.sort(np.random.default_rng(3).lognormal(0.0, 0.7, 4001))
    weight = np.full((1, 4001), 1 / 4001)
    best, likely = summary(values[None], weight)
    tried = np.linspace(0.2, 3.0, 800)
    median = np.median(np.abs(tried[:, None] / values - 1), axis=1)
    assert np.median(np.abs(best / values - 1)) < 1.01 * median.min()
    np.testing.assert_allclose(likely[0], np.quantile(values, [0.05, 0.95]), rtol=0.01)


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
    (lambda: CostFamily((1, 2, 3, 4, 5), np.ones((1, 5))), "of 4 terms a client at most"),
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


def quantiles(values, weight, shares):
    """Of a belief given by candidates and their weights."""
    order = np.argsort(values.ravel())
    mass = weight.ravel()[order]
    return np.interp(shares, (np.cumsum(mass) - 0.5 * mass) / mass.sum(), values.ravel()[order])


@pytest.mark.parametrize("came", [30, 90, 150])
def test_one_coefficient_has_the_exact_belief(came):
    """a x^2 at a constant signal: intent 10 / (2 a), clipped; a uniform in (0, 40); reports are a binomial sample."""
    bits = np.zeros((200, 1), dtype=bool)
    bits[np.random.default_rng(came).permutation(200)[:came]] = True
    (found,) = infer(Reports(np.full(200, 10.0), bits), CostFamily((2,), np.array([[40.0]])), Classical(), start=START)
    cost = np.linspace(0.004, 40.0, 200_001)
    chance = np.minimum(1.0, 10.0 / (2.0 * cost))
    with np.errstate(divide="ignore"):
        belief = came * np.log(chance) + (200 - came) * np.log1p(-chance)
    weight = np.exp(belief - belief.max())
    slope = 2.0 * cost * found.average[0]
    np.testing.assert_allclose(found.likely[0], quantiles(slope, weight, [0.05, 0.95]), rtol=0.005)
    low, high = quantiles(cost, weight, [0.25, 0.75])
    assert low < found.coefficients[0, 0] < high
    assert found.coefficients[0, 0] == pytest.approx(found.slope[0] / (2.0 * found.average[0]), rel=1e-6)


def test_two_coefficients_have_the_exact_belief():
    """a x^2 + b x^4, both uniform: every candidate's likelihood over all rounds, one by one."""
    generator = np.random.default_rng(5)
    bits, signals = generator.random((150, 1)) < 0.6, generator.uniform(8.0, 16.0, 150)
    signals[1:] = signals[0]  # which round's signal decides is tested elsewhere
    family = CostFamily((2, 4), np.array([[20.0, 10.0]]))
    (found,) = infer(Reports(signals, bits), family, PaperCoin(2.0), start=START)
    a, b = np.meshgrid((np.arange(300) + 0.5) / 15.0, (np.arange(300) + 0.5) / 30.0)
    belief, coin = np.zeros_like(a), np.exp(-2.0)
    participations, rounds = START.average * START.rounds, float(START.rounds)
    for bit in bits[:, 0]:
        average = participations / rounds
        wish = np.minimum(1.0, signals[0] * average / (2.0 * a * average + 4.0 * b * average**3))
        chance = coin + (1.0 - coin) * wish
        with np.errstate(divide="ignore"):
            belief += np.log(chance) if bit else np.log1p(-chance)
        participations, rounds = participations + bit, rounds + 1.0
    weight = np.exp(belief - belief.max())
    assert found.average[0] == pytest.approx(participations / rounds)
    average = found.average[0]
    slope = 2.0 * a * average + 4.0 * b * average**3
    np.testing.assert_allclose(found.likely[0], quantiles(slope, weight, [0.05, 0.95]), rtol=0.02)
    for term, values in enumerate((a, b)):
        low, high = quantiles(values, weight, [0.1, 0.9])
        assert low < found.coefficients[0, term] < high


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


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_releases_are_as_frequent_as_the_mechanism_makes_them(weight):
    """The adversary's table, by trying tosses, against the exact words of the mechanism; levels fall as costs rise."""
    mechanism, family = Memoized(2.0, 9.0), CostFamily((2, 4), np.array([[40.0, 0.0]]))
    candidates, releases, chances = _channel(mechanism, family, 0, weight)
    np.testing.assert_allclose(candidates[:, 0], (np.arange(256) + 0.5) * 40.0 / 256)
    assert not candidates[:, 1].any()
    exact = mechanism.words_by_level(PolynomialCosts(candidates, (2, 4)), weight) / 2.0**53
    np.testing.assert_allclose(chances, exact[:, ::-1], atol=1.5 / 2048)
    wanted = releases.inverse_slope(9.0 * weight)[::-1]
    np.testing.assert_allclose(wanted, mechanism.levels, rtol=1e-6)


def test_candidates_cover_every_term_that_a_client_may_have():
    candidates, _, chances = _channel(Memoized(2.0, 9.0), CostFamily((2, 4), np.array([[20.0, 10.0]])), 0, 1.0)
    assert candidates.shape == (256, 2)
    np.testing.assert_allclose(candidates.max(axis=0), np.array([20.0, 10.0]) * 31 / 32)
    np.testing.assert_allclose(candidates.min(axis=0), np.array([20.0, 10.0]) / 32)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-3)
    assert chances.min() >= 1e-4


def test_clients_of_whom_the_same_is_known_are_looked_at_together(monkeypatch):
    monkeypatch.setattr(attack_release, "_COINS", 16)
    family = CostFamily((2,), np.array([[40.0], [20.0], [40.0]]))
    alike = [members.tolist() for members, *_ in ReleaseAttack(Memoized(2.0, 9.0), family)._groups]
    assert sorted(alike) == [[0, 2], [1]]
    weighted = ReleaseAttack(Memoized(2.0, 9.0), family, np.array([1.0, 1.0, 2.0]))._groups
    assert sorted(members.tolist() for members, *_ in weighted) == [[0], [1], [2]]


def test_reports_show_the_release_and_the_belief_is_about_its_costs():
    problem, mechanism = problems(40)["one term"], Memoized(3.0, 9.0)
    run = simulate_with_any(
        problem, mechanism, IntegralController(0.05, 9.0), 1500, seed=4, engine="numpy", start=START
    )
    reports = reports_of(run)
    family = CostFamily((2,), np.full((40, 1), 40.0))
    ((_, evidence, average),) = evidence_at(reports, [1500], mechanism, 1, START, Averaging(), None)
    ((members, candidates, releases, chances),) = ReleaseAttack(mechanism, family)._groups
    seen = _seen(evidence, members, releases)
    assert np.all(seen.max(axis=1) == 1.0)
    truth = released(problem, mechanism, SeededCoins(4)).coefficients[:, 0]
    shown = releases.coefficients[np.argmax(seen, axis=1), 0]
    assert np.mean(np.abs(shown / truth - 1.0) < 1e-9) > 0.9
    (found,) = infer(reports, family, mechanism, start=START)
    for client in range(40):
        weight = chances[:, np.argmax(seen[client])]
        if np.sort(seen[client])[-2] < 1e-3:  # the release is known: what is left is what it says about the cost
            expected = quantiles(2.0 * candidates[:, 0] * average[client], weight, [0.05, 0.95])
            np.testing.assert_allclose(found.likely[client], expected, rtol=0.05)
            middle = quantiles(candidates[:, 0], weight, [0.2, 0.8])
            assert middle[0] < found.coefficients[client, 0] < middle[1]
