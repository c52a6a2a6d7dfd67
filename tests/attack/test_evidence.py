"""What reports say: the averages that anyone can work out, and rounds counted together."""

import numpy as np
import pytest

from attack.attacked_runs import START, simulate
from turnout import Averaging, Classical, IntegralController, Keep, PaperCoin, PolynomialCosts, Prior, paper_population
from turnout.algorithm import Clamp, Public, RandomizedResponse, TrackingClamp, intent
from turnout.attack import evidence as attack_evidence
from turnout.attack.evidence import _LEAST, ReportEvidence, Reports, _Cells, _merge, _public_averages, evidence_at
from turnout.attack.reports import reports_of


@pytest.mark.parametrize("averaging", [Averaging(), Averaging(remember=30)], ids=["all", "forgetting"])
@pytest.mark.parametrize("start", [None, Prior(0.4, 7.5)], ids=["paper", "prior"])
def test_averages_are_what_clients_had(averaging, start):
    problem = paper_population(1, 40).problem(20)
    options = {"start": start, "averaging": averaging, "keep": Keep(every=1, averages="all")}
    run = simulate(problem, PaperCoin(2.0), IntegralController(0.1, 1.0), 90, **options)
    averages, state = _public_averages(reports_of(run), start, averaging, 0, 90, None)
    np.testing.assert_array_equal(averages[1:], run.averages[:-1])
    np.testing.assert_array_equal(state.average, run.average)


def exact_log_likelihood(reports, mechanism, costs, scale):
    """Every round by itself."""
    averages, _ = _public_averages(reports, START, Averaging(), 0, reports.rounds, None)
    total = np.zeros((reports.clients, scale.shape[1]))
    for round in range(reports.rounds):
        average = averages[round][:, None]
        wish = intent(reports.signals[round], 1, average, costs.slope(averages[round])[:, None] * scale)
        chance = mechanism.probability(wish, Public(average=average))
        total += np.log(np.maximum(np.where(reports.bits[round][:, None], chance, 1 - chance), _LEAST))
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


# Rounds counted together


def cells_of(signal, average, client=0, yes=1.0, no=0.0):
    """One cell for each, some of which may be given once for all."""
    columns = np.broadcast_arrays(client, yes, no, signal, average)
    return _Cells(np.array(columns[0], np.int64), *(np.array(column, np.float64) for column in columns[1:]))


def test_cells_that_agree_are_counted_together_with_their_mean_signal_and_average():
    """Agreement is to one per cent in the signal and in the odds of the average."""
    found = _merge(cells_of([10.0, 10.02, 10.0], [0.5, 0.5005, 0.5], yes=[3.0, 0.0, 1.0], no=[0.0, 4.0, 2.0]))
    assert (found.client.tolist(), found.yes.tolist(), found.no.tolist()) == ([0], [4.0], [6.0])
    np.testing.assert_allclose(found.signal, [10.0 + 0.4 * 0.02])
    np.testing.assert_allclose(found.average, [0.5 + 0.4 * 0.0005])


def test_cells_that_differ_by_a_per_cent_are_kept_apart():
    steps = np.exp(0.01 * np.arange(-5, 6))
    assert len(_merge(cells_of(steps, 0.5)).signal) == 11
    assert len(_merge(cells_of(1.0, steps / (1.0 + steps))).signal) == 11
    inside = np.exp(np.linspace(-0.0049, 0.0049, 11))
    assert len(_merge(cells_of(inside, inside / (1.0 + inside))).signal) == 1


def test_each_client_has_cells_of_its_own_in_its_order():
    """Whatever signals and averages there are."""
    signals, averages = (some.ravel() for some in np.meshgrid([-1.0, 0.0, 1e-9, 1.0, 1e12, 1e300], [0.0, 0.5, 1.0]))
    clients = np.repeat([0, 1, 5, 2**20], len(signals))
    found = _merge(cells_of(np.tile(signals, 4), np.tile(averages, 4), clients))
    number = 3 * 3  # at most 1e-9, 1, and at least 1e12
    np.testing.assert_array_equal(found.client, np.repeat([0, 1, 5, 2**20], number))
    assert found.yes.sum() == 72
    tied = np.isclose(found.signal, 1.0)
    np.testing.assert_allclose(found.average[tied], np.tile([0.0, 0.5, 1.0], 4))


def test_how_far_signals_and_averages_are_told_apart():
    for signals, number in (([1e-9, 2e-9], 2), ([1e-9, 1e-10], 1), ([1e12, 5e11], 2), ([1e12, 2e12], 1)):
        assert len(_merge(cells_of(signals, 0.5)).signal) == number
    for averages, number in (([1e-9, 2e-9], 2), ([1e-9, 0.0], 1), ([0.9999, 0.99985], 2), ([0.9999, 1.0], 1)):
        assert len(_merge(cells_of(1.0, averages)).signal) == number


def test_more_rounds_add_to_what_was_seen():
    evidence = ReportEvidence(Classical())
    assert [len(column) for column in evidence.cells] == [0] * 5
    for _ in range(3):
        evidence.add(np.array([10.0, np.inf]), np.array([[0.5, 0.25], [0.5, 0.25]]), np.array([[1, 0], [1, 1]]))
    cells = evidence.cells
    assert cells.client.tolist() == [0, 0, 1, 1]
    assert (cells.yes.tolist(), cells.no.tolist()) == ([3.0, 3.0, 0.0, 3.0], [0.0, 0.0, 3.0, 0.0])
    np.testing.assert_allclose(cells.signal, [10.0, 1e12, 10.0, 1e12])  # what is infinite counts as the largest
    np.testing.assert_allclose(cells.average, [0.5, 0.5, 0.25, 0.25])
    assert evidence.cells is cells


# The likelihood


@pytest.mark.parametrize("weights", [1, 2, np.array([1.0, 2.0, 3.0])], ids=["one", "two", "each"])
def test_the_likelihood_is_that_of_every_report(weights):
    """Report by report, for some of the clients and for mixtures of two terms."""
    generator = np.random.default_rng(8)
    signals, averages = np.array([4.0, 9.0, 15.0]), generator.uniform(0.2, 0.8, (3, 3))
    bits = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]])
    evidence = ReportEvidence(PaperCoin(2.0), weights)
    evidence.add(signals, averages, bits)
    clients, shares = np.array([2, 0]), [(9.0, 0.0), (2.0, 7.0), (4.0, 4.0)]
    units, scale = PolynomialCosts([*shares, *shares], (2, 4)), np.array([[0.5, 1.0, 2.0, 3.0], [1.0, 1.5, 2.5, 4.0]])
    coin = np.exp(-2.0)  # beta / 2 e^-beta
    expected = np.zeros((2, 3, 4))
    for place, client in enumerate(clients):
        own = weights if np.ndim(weights) == 0 else weights[client]
        for mixture, (a, b) in enumerate(shares):
            for average, signal, bit in zip(averages[:, client], signals, bits[:, client], strict=True):
                slope = (2.0 * a * average + 4.0 * b * average**3) * scale[place]
                chance = coin + (1.0 - coin) * np.minimum(1.0, signal * own * average / slope)
                expected[place, mixture] += np.log(np.maximum(chance if bit else 1.0 - chance, 1e-12))
    np.testing.assert_allclose(evidence.log_likelihood(clients, units, scale), expected, rtol=1e-9)


def test_nothing_seen_says_nothing_and_nothing_is_ruled_out():
    """A report that cannot be counts as one in a million millions; without weights given, each client brings 1."""
    cost, scale = PolynomialCosts([[1.0]], (2,)), np.ones((1, 2))
    evidence = ReportEvidence(Classical())
    assert evidence.weights == 1
    assert evidence.log_likelihood(np.array([0]), cost, scale).tolist() == [[[0.0, 0.0]]]
    evidence.add(np.array([100.0]), np.array([[0.5]]), np.array([[0]]))  # at such a signal it comes, for certain
    np.testing.assert_allclose(evidence.log_likelihood(np.array([0]), cost, scale), np.log(1e-12))


# Rounds and checkpoints


@pytest.mark.parametrize("start", [None, START], ids=["paper", "prior"])
@pytest.mark.parametrize("block", [1, 3, 1000])
def test_evidence_is_of_as_many_rounds_as_the_checkpoint_says(start, block, monkeypatch):
    """In the paper everybody comes in round 0, which says nothing; however many rounds are taken in together."""
    monkeypatch.setattr(attack_evidence, "_BLOCK", block)
    bits = np.random.default_rng(0).integers(0, 2, (10, 2))
    bits[0] = 1
    reports = Reports(np.full(10, 5.0), bits)
    forced = 1 if start is None else 0
    for stop in (None, 6):
        seen = []
        for rounds, evidence, average in evidence_at(reports, [0, 4, 7, 10], Classical(), 1, start, Averaging(), stop):
            until = rounds if stop is None else min(rounds, stop)
            cells = evidence.cells
            seen.append((rounds, cells.yes.sum(), (cells.yes + cells.no).sum()))
            came = bits[forced:until].sum()
            assert seen[-1] == (rounds, came, 2 * max(until - forced, 0))
            history, worth = (1.0, 1.0) if start is None else (10.0, 20.0)
            after = (history + bits[forced:until].sum(axis=0)) / (worth + max(until - forced, 0))
            np.testing.assert_allclose(average, after)
        assert [rounds for rounds, *_ in seen] == [0, 4, 7, 10]


def test_signals_and_averages_belong_to_their_round():
    """The average is that before the round; a second block goes on where the first ended."""
    reports = Reports(np.array([1.0, 2.0, 4.0, 8.0]), np.array([[1], [0], [1], [1]]))
    for start, averages in ((None, [1.0, 1 / 2, 2 / 3]), (Prior(0.5, 2), [0.5, 2 / 3, 0.5, 3 / 5])):
        ((_, evidence, _),) = evidence_at(reports, [4], Classical(), 1, start, Averaging(), None)
        by_signal = dict(zip(evidence.cells.signal.tolist(), evidence.cells.average.tolist(), strict=True))
        signals = [1.0, 2.0, 4.0, 8.0][-len(averages) :]
        assert by_signal == pytest.approx(dict(zip(signals, averages, strict=True)))
        whole, state = _public_averages(reports, start, Averaging(), 0, 4, None)
        first, between = _public_averages(reports, start, Averaging(), 0, 2, None)
        second, end = _public_averages(reports, start, Averaging(), 2, 4, between)
        np.testing.assert_array_equal(whole, np.concatenate([first, second]))
        np.testing.assert_array_equal(state.average, end.average)
