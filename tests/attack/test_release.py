"""Against one release at joining: reports show the release, and no more than that."""

import numpy as np
import pytest

from attack.attacked_runs import START, quantiles, simulate
from conformance.populations import problems
from turnout import Averaging, Classical, IntegralController, PolynomialCosts, Prior, SeededCoins
from turnout.algorithm import Memoized, released
from turnout.attack import release as attack_release
from turnout.attack.attack import infer
from turnout.attack.cost_family import CostFamily
from turnout.attack.evidence import Reports, evidence_at
from turnout.attack.release import ReleaseAttack, _channel, _seen
from turnout.attack.reports import reports_of


@pytest.fixture
def few_coins(monkeypatch):
    """For what does not depend on how finely the probabilities of releases are known."""
    monkeypatch.setattr(attack_release, "_COINS", 16)


def test_a_release_never_says_more_than_its_epsilon():
    """However the reports came out, no two costs differ by more than a factor e^epsilon in belief over prior."""
    family = CostFamily((2,), np.full((40, 1), 40.0))
    run = simulate(problems(40)["one term"], Memoized(2.0, 9.0), IntegralController(0.1, 1.0), 400)
    reports = reports_of(run)
    ((_, evidence, _),) = evidence_at(reports, [400], Memoized(2.0, 9.0), 1, None, Averaging(), None)
    for members, _, releases, chances in ReleaseAttack(Memoized(2.0, 9.0), family)._groups:
        belief = _seen(evidence, members, releases) @ chances.T
        assert np.max(np.log(belief.max(axis=1) / belief.min(axis=1))) < 2.0 + 0.02


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_releases_are_as_frequent_as_the_mechanism_makes_them(weight, monkeypatch):
    """The observer's table, by trying tosses, against the exact words of the mechanism; levels fall as costs rise."""
    monkeypatch.setattr(attack_release, "_CANDIDATES", 16)
    mechanism, family = Memoized(2.0, 9.0), CostFamily((2, 4), np.array([[40.0, 0.0]]))
    candidates, releases, chances = _channel(mechanism, family, 0, weight)
    np.testing.assert_allclose(candidates[:, 0], (np.arange(16) + 0.5) * 40.0 / 16)
    assert not candidates[:, 1].any()
    exact = mechanism.words_by_level(PolynomialCosts(candidates, (2, 4)), weight) / 2.0**53
    np.testing.assert_allclose(chances, exact[:, ::-1], atol=1.5 / 2048)
    # Tosses lie in the middles of their steps, so that the chance of a release or a lower one is right to half a step.
    np.testing.assert_allclose(np.cumsum(chances[:, ::-1], axis=1), np.cumsum(exact, axis=1), atol=0.5001 / 2048)
    wanted = releases.inverse_slope(9.0 * weight)[::-1]
    np.testing.assert_allclose(wanted, mechanism.levels, rtol=1e-6)


def test_candidates_cover_every_term_that_a_client_may_have(few_coins):
    candidates, _, chances = _channel(Memoized(2.0, 9.0), CostFamily((2, 4), np.array([[20.0, 10.0]])), 0, 1.0)
    assert candidates.shape == (256, 2)
    np.testing.assert_allclose(candidates.max(axis=0), np.array([20.0, 10.0]) * 31 / 32)
    np.testing.assert_allclose(candidates.min(axis=0), np.array([20.0, 10.0]) / 32)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-3)
    assert chances.min() >= 1e-4


def test_clients_of_whom_the_same_is_known_are_looked_at_together(few_coins):
    family = CostFamily((2,), np.array([[40.0], [20.0], [40.0]]))
    alike = [members.tolist() for members, *_ in ReleaseAttack(Memoized(2.0, 9.0), family)._groups]
    assert sorted(alike) == [[0, 2], [1]]
    weighted = ReleaseAttack(Memoized(2.0, 9.0), family, np.array([1.0, 1.0, 2.0]))._groups
    assert sorted(members.tolist() for members, *_ in weighted) == [[0], [1], [2]]


def test_reports_show_the_release_and_the_belief_is_about_its_costs():
    problem, mechanism = problems(40)["one term"], Memoized(3.0, 9.0)
    run = simulate(problem, mechanism, IntegralController(0.05, 9.0), 1500, seed=4, start=START)
    reports = reports_of(run)
    family = CostFamily((2,), np.full((40, 1), 40.0))
    ((_, evidence, average),) = evidence_at(reports, [1500], mechanism, 1, START, Averaging(), None)
    ((members, candidates, releases, chances),) = ReleaseAttack(mechanism, family)._groups
    seen = _seen(evidence, members, releases)
    assert np.all(seen.max(axis=1) == 1.0)
    truth = released(problem, mechanism, SeededCoins(4)).coefficients[:, 0]
    shown = releases.coefficients[np.argmax(seen, axis=1), 0]  # type: ignore[attr-defined]
    assert np.mean(np.abs(shown / truth - 1.0) < 1e-9) > 0.9
    (found,) = infer(reports, family, mechanism, start=START)
    for client in range(40):
        weight = chances[:, np.argmax(seen[client])]
        if np.sort(seen[client])[-2] < 1e-3:  # the release is known: what is left is what it says about the cost
            expected = quantiles(2.0 * candidates[:, 0] * average[client], weight, [0.05, 0.95])
            np.testing.assert_allclose(found.likely[client], expected, rtol=0.05)
            middle = quantiles(candidates[:, 0], weight, [0.2, 0.8])
            assert middle[0] < found.coefficients[client, 0] < middle[1]


def test_2048_tosses_are_tried_and_no_release_is_ruled_out(monkeypatch):
    """What came in none of them may yet have a chance of less than 1 in 2048."""
    monkeypatch.setattr(attack_release, "_CANDIDATES", 8)
    family = CostFamily((2,), np.array([[40.0]]))
    _, _, chances = _channel(Memoized(20.0, 9.0), family, 0, 1.0)
    assert chances.min() == 1e-4
    came = np.where(chances == 1e-4, 0.0, chances) * 2048
    np.testing.assert_array_equal(came, np.rint(came))
    np.testing.assert_array_equal(came.sum(axis=1), 2048)


@pytest.mark.parametrize(("terms", "side"), [(1, 256), (2, 16), (3, 6), (4, 4)])
def test_candidates_are_the_middles_of_a_lattice(terms, side, few_coins):
    """About 256 of them, whatever the number of terms; small ranges are ranges, too."""
    largest = np.array([0.5, 8.0, 3.0, 40.0])[:terms]
    family = CostFamily((2, 3, 4, 6, 8), np.array([[0.0, *largest, *[0.0] * (4 - terms)]]))
    candidates, _, _ = _channel(Memoized(2.0, 9.0), family, 0, 1.0)
    assert candidates.shape == (side**terms, 5)
    assert len(np.unique(candidates, axis=0)) == side**terms
    for term, top in enumerate(largest):
        each = np.unique(candidates[:, term + 1])
        np.testing.assert_allclose(each, top * (np.arange(side) + 0.5) / side)
    assert not candidates[:, 0].any()
    assert not candidates[:, terms + 1 :].any()


def test_a_client_brings_one_unless_weights_are_given(few_coins):
    family, mechanism = CostFamily((2,), np.array([[40.0]])), Memoized(2.0, 9.0)
    (usual,), (one,), (two,) = (ReleaseAttack(mechanism, family, *given)._groups for given in ((), (1,), (2,)))
    np.testing.assert_array_equal(usual[3], one[3])
    assert not np.array_equal(usual[3], two[3])
    np.testing.assert_array_equal(two[3], _channel(mechanism, family, 0, 2.0)[2])


def test_a_group_has_the_ranges_and_the_weight_of_its_members(few_coins):
    family = CostFamily((2, 4), np.array([[40.0, 0.0], [20.0, 0.0], [0.0, 8.0], [40.0, 0.0]]))
    weights = np.array([1.0, 2.0, 3.0, 1.0])
    groups = ReleaseAttack(Memoized(2.0, 9.0), family, weights)._groups
    assert sorted(members.tolist() for members, *_ in groups) == [[0, 3], [1], [2]]
    for members, *channel in groups:
        for member in members:
            candidates, releases, chances = _channel(Memoized(2.0, 9.0), family, member, weights[member])
            np.testing.assert_array_equal(channel[0], candidates)
            np.testing.assert_array_equal(channel[1].coefficients, releases.coefficients)  # type: ignore[attr-defined]
            np.testing.assert_array_equal(channel[2], chances)


def test_without_reports_the_belief_is_the_prior(few_coins):
    """Slopes at the average of uniform coefficients; clients of two kinds, and each coefficient in its own place."""
    family = CostFamily((2, 4), np.array([[20.0, 10.0], [0.0, 6.0], [20.0, 10.0]]))
    nothing = Reports(np.empty(0), np.empty((0, 3)))
    (found,) = infer(nothing, family, Memoized(2.0, 9.0), start=Prior(0.5, 10))
    lattice = (np.arange(400) + 0.5) / 400
    two = np.add.outer(20.0 * lattice, 0.5 * 10.0 * lattice).ravel()  # 2 a x + 4 b x^3 at x = 1/2
    for client, slopes in ((0, two), (1, 0.5 * 6.0 * lattice), (2, two)):
        np.testing.assert_allclose(found.likely[client], np.quantile(slopes, [0.05, 0.95]), rtol=0.05)
    # Of a number uniform below a top the best guess is 2/3 of it.
    np.testing.assert_allclose(found.coefficients, np.array([[20, 10], [0, 6], [20, 10]]) * 2 / 3, rtol=0.05)
    assert found.slope[1] == pytest.approx(0.5 * 6.0 * 2 / 3, rel=0.02)
    np.testing.assert_array_equal(found.slope[0], found.slope[2])


def test_each_client_is_judged_by_its_own_reports(few_coins):
    """Two that are alike beforehand: one came always, one never. Together or alone, the belief is the same."""
    bits, mechanism = np.tile([1, 0], (60, 1)), Memoized(4.0, 9.0)
    both = infer_two(bits, mechanism)
    for client in (0, 1):
        alone = infer_two(bits[:, [client]], mechanism)
        np.testing.assert_allclose(both.coefficients[client], alone.coefficients[0])
        np.testing.assert_allclose(both.likely[client], alone.likely[0])
    assert both.coefficients[0, 0] < 0.7 * both.coefficients[1, 0]


def infer_two(bits, mechanism):
    family = CostFamily((2,), np.full((bits.shape[1], 1), 40.0))
    (found,) = infer(Reports(np.full(len(bits), 9.0), bits), family, mechanism, start=START)
    return found


def test_a_release_of_something_else_is_not_attacked(few_coins):
    class Whispers(Classical):
        kind = "whispers"
        releases_once = True

        def enrol(self, costs, uniform, weights=1):
            return "a secret"

    with pytest.raises(ValueError, match="mechanism must be one that releases polynomial costs, got whispers"):
        ReleaseAttack(Whispers(), CostFamily((2,), np.array([[40.0]])))
