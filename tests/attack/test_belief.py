"""From likelihoods to a belief: exact where it can be worked out by hand, and narrowed to where it lies."""

import numpy as np
import pytest

from attack.attacked_runs import START, quantiles
from turnout import Averaging, Classical, PaperCoin, PolynomialCosts
from turnout.attack.attack import infer
from turnout.attack.beliefs import _finer, belief, looked_at, steepness, summary
from turnout.attack.cost_family import CostFamily
from turnout.attack.evidence import ReportEvidence, Reports, evidence_at


def test_the_best_guess_of_a_belief():
    """The harmonic mean of the narrowest half, checked by search."""
    values = np.sort(np.random.default_rng(3).lognormal(0.0, 0.7, 4001))
    weight = np.full((1, 4001), 1 / 4001)
    best, likely = summary(values[None], weight)
    tried = np.linspace(0.2, 3.0, 800)
    median = np.median(np.abs(tried[:, None] / values - 1), axis=1)
    assert np.median(np.abs(best / values - 1)) < 1.01 * median.min()
    np.testing.assert_allclose(likely[0], np.quantile(values, [0.05, 0.95]), rtol=0.01)


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
    participations, rounds = START.participations, float(START.rounds)
    for bit in bits[:, 0]:
        average = participations / rounds
        wanted = np.minimum(1.0, signals[0] * average / (2.0 * a * average + 4.0 * b * average**3))
        chance = coin + (1.0 - coin) * wanted
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


# The prior alone


def believed(family, average, evidence=None):
    """The belief about all clients of a family whose members have the same terms."""
    has = np.flatnonzero(family.unknown[0])
    return belief(np.arange(len(family)), evidence or ReportEvidence(Classical()), family, np.array(average), has)


def test_without_reports_a_coefficient_is_uniform():
    """256 steps from the largest slope down to next to nothing; the two ends count half."""
    slope, units, weight = believed(CostFamily((2, 4), np.array([[0.0, 40.0], [0.0, 10.0]])), [0.5, 0.2])
    steep = 4.0 * np.array([0.5, 0.2]) ** 3  # of x^4 at the averages
    top = steep * [40.0, 10.0]
    np.testing.assert_allclose(slope, top[:, None] * np.linspace(1e-4, 1.0, 257), rtol=1e-12)
    np.testing.assert_allclose(units, np.stack([[0.0, 0.0], 1.0 / steep], axis=1)[:, None, :])
    ends = np.where(np.isin(np.arange(257), (0, 256)), 0.5, 1.0)
    np.testing.assert_allclose(weight, np.tile(ends / 256, (2, 1, 1)))


@pytest.mark.parametrize("largest", [[20.0, 10.0], [3.0, 8.0, 2.0]])
def test_without_reports_all_that_the_family_holds_is_as_likely(largest):
    """In shares and slope a volume grows with the slope, once for each term but the first; outside there is nothing."""
    terms, average = len(largest), 0.6
    slope, units, weight = believed(CostFamily((2, 4, 6)[:terms], np.array([largest, largest])), [average, average])
    candidates = units[:, :, None, :] * slope[:, None, :, None]
    inside = np.all(candidates <= np.array(largest) * (1.0 + 1e-8), axis=3)
    volume = inside * slope[:, None, :] ** (terms - 1.0)
    volume[:, :, [0, -1]] /= 2.0
    np.testing.assert_allclose(weight, volume / volume.sum(axis=(1, 2), keepdims=True), atol=1e-15)


def test_without_reports_a_slope_is_a_sum_of_uniform_numbers():
    """2 a x + 4 b x^3 at x = 1/2: one uniform below 20 and one below 5, whose sum has a density like a roof."""
    slope, _, weight = believed(CostFamily((2, 4), np.array([[20.0, 10.0]])), [0.5])
    found = quantiles(slope[0], weight[0].sum(axis=0), [0.05, 0.5, 0.95])
    np.testing.assert_allclose(found, [np.sqrt(2 * 0.05 * 100), 12.5, 25 - np.sqrt(2 * 0.05 * 100)], rtol=0.02)


def test_slopes_are_compared_at_the_average_but_never_at_0():
    assert looked_at(np.array([0.0, 5e-4, 2e-3, 1.0])).tolist() == [1e-3, 1e-3, 2e-3, 1.0]
    costs = PolynomialCosts([[1.0, 0.0], [0.0, 1.0]], (2, 5))
    for average in (0.0, 0.3, 1.0):
        at = looked_at(np.full(2, average))
        np.testing.assert_allclose(steepness((2, 5), np.array([average]))[0], costs.slope(at))


# Narrowed by reports


def constant_signal(came, rounds=400):
    """Clients that came so often, evenly spread, at signal 10; a x^2 with a in (0, 40): intent 5 / a."""
    share = np.array(came) / rounds
    bits = np.diff(np.floor(np.arange(rounds + 1)[:, None] * share + 1e-9), axis=0)
    reports = Reports(np.full(rounds, 10.0), bits)
    ((_, evidence, average),) = evidence_at(reports, [rounds], Classical(), 1, START, Averaging(), None)
    return evidence, average


CAME = [90, 130, 200, 390]


@pytest.mark.parametrize("largest", [[40.0], [40.0, 25.0]], ids=["one term", "two terms"])
def test_a_grid_is_narrowed_to_where_the_belief_lies(largest):
    """What is e^9 times less likely than the best is left out, and little of what is looked at is."""
    evidence, average = constant_signal(CAME)
    slope, _, weight = believed(CostFamily((2, 4)[: len(largest)], np.tile(largest, (4, 1))), average, evidence)
    height = np.log(weight.max(axis=1) / weight.max(axis=(1, 2))[:, None])  # of the best mixture
    ends = height[:, [0, -1]] + np.log(2.0)  # they count half
    assert np.all(ends < -9.0)
    assert np.all(np.mean(height > -9.0, axis=1) > 0.65)
    np.testing.assert_allclose(weight.sum(axis=(1, 2)), 1.0)
    best = slope[np.arange(4), np.argmax(height, axis=1)]
    np.testing.assert_allclose(best, 2.0 * average * 5.0 / (np.array(CAME) / 400), rtol=0.05)


def test_clients_are_believed_in_as_if_each_were_alone():
    """However far the grids of the others are narrowed."""
    evidence, average = constant_signal([0, 1, *CAME, 400])
    family = CostFamily((2, 4), np.tile([40.0, 20.0], (7, 1)))
    together = believed(family, average, evidence)
    for client in range(7):
        alone = belief(np.array([client]), evidence, family, average[[client]], np.arange(2))
        for all_of_them, one in zip(together, alone, strict=True):
            np.testing.assert_allclose(all_of_them[client], one[0], rtol=1e-9)


def test_a_grid_keeps_the_end_where_the_belief_is_highest():
    """Who always came may have any small cost, and who never came any dear one."""
    evidence, average = constant_signal([400, 0])
    slope, _, _ = believed(CostFamily((2,), np.full((2, 1), 40.0)), average, evidence)
    top = 2.0 * 40.0 * average
    assert slope[0, 0] == pytest.approx(1e-4 * top[0], rel=1e-12)
    assert slope[0, -1] < 0.2 * top[0]
    assert slope[1, -1] == pytest.approx(top[1], rel=1e-12)


def test_straight_lines_between_the_points_of_a_grid():
    values = np.random.default_rng(4).normal(size=(2, 3, 33))
    found = _finer(values)
    assert found.shape == (2, 3, 257)
    places = np.arange(257) / 8.0
    for line, fine in zip(values.reshape(6, 33), found.reshape(6, 257), strict=True):
        np.testing.assert_allclose(fine, np.interp(places, np.arange(33), line), atol=1e-12)


# The guess


def test_a_belief_in_three_candidates():
    """A candidate stands for the middle of its part of the belief: here 5 %, one half and 95 %."""
    values = np.array([[2.0, 8.0, 1.0], [30.0, 10.0, 20.0]])
    weight = np.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    best, likely = summary(values, weight)
    np.testing.assert_allclose(likely, [[1.0, 8.0], [10.0, 30.0]])
    # From 25 % on, half of the belief: geometric between candidates. The narrowest half has the smallest ratio.
    share = np.linspace(0.0, 1.0, 201)
    for client, places in enumerate(([1.0, 2.0, 8.0], [10.0, 20.0, 30.0])):
        quantile = np.exp(np.interp(share, [0.05, 0.5, 0.95], np.log(places)))
        ratios = [quantile[at + 100] / quantile[at] for at in range(101)]
        left = int(np.argmin(ratios))
        ends = quantile[left], quantile[left + 100]
        assert best[client] == pytest.approx(2.0 / (1.0 / ends[0] + 1.0 / ends[1]))


def test_the_guess_of_a_number_uniform_below_a_top():
    """The half with the smallest ratio of its ends is the upper one: the guess is 2 / (1 / 1 + 1 / 0.5) of the top."""
    values = np.tile((np.arange(4000) + 0.5) / 4000, (2, 1)) * [[1.0], [7.0]]
    best, likely = summary(values, np.full((2, 4000), 1 / 4000))
    np.testing.assert_allclose(best, [2 / 3, 14 / 3], rtol=1e-3)
    np.testing.assert_allclose(likely, [[0.05, 0.95], [0.35, 6.65]], rtol=1e-3)
