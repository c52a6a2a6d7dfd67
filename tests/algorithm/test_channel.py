"""The best channel is what a linear programme says it is, and always a legal one."""

import sys

import numpy as np
import pytest

from turnout import PolynomialCosts
from turnout.algorithm import LearnedMemoized
from turnout.algorithm.channel import Channel, _tidy, best_channel
from turnout.errors import MissingExtra

LEVELS = np.linspace(0.1, 1.0, 10)
SCALES = np.array([0.5, 1.0, 2.0, 6.0])
SHARE = np.array([0.4, 0.3, 0.2, 0.1])


def cost_and_mean(channel, values, share=SHARE, weights=1.0):
    """What the levels cost the population, and what they bring, if each type fills up its best ones first."""
    chances = channel.chances(values - channel.price * np.outer(np.broadcast_to(weights, share.shape), channel.levels))
    return share @ np.sum(chances * values, axis=1), (share * weights) @ chances @ channel.levels


def at_levels(channel, scales=SCALES):
    return np.outer(scales, channel.levels**2)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_the_price_is_what_a_little_more_turnout_costs(epsilon):
    """And with the types' own worth it accounts for the whole cost: both sides of the programme agree."""
    values = np.outer(SCALES, LEVELS**2)
    costs = {}
    for mean in (0.449, 0.45, 0.451):
        channel = best_channel(values, SHARE, np.ones(4), epsilon, LEVELS, mean)
        cost = SHARE @ channel.worth + channel.price * mean
        costs[mean] = cost
        found, brought = cost_and_mean(channel, at_levels(channel))
        # Ties between levels are broken by the stable order: cost less price times mean is what must agree.
        assert found - channel.price * brought == pytest.approx(cost - channel.price * mean, rel=1e-5)
    assert channel.price == pytest.approx((costs[0.451] - costs[0.449]) / 0.002, rel=0.1)


def test_little_privacy_lets_everyone_choose():
    """At a large epsilon each type releases the level that is best for it at the price."""
    values = np.outer(SCALES, LEVELS**2)
    channel = best_channel(values, SHARE, np.ones(4), 12.0, LEVELS, 0.45)
    wanted = channel.levels[np.argmin(at_levels(channel) - channel.price * channel.levels, axis=1)]
    assert np.all(np.abs(wanted - np.clip(channel.price / (2 * SCALES), 0.1, 1.0)) <= 0.0501)


def test_weights_count_what_a_type_brings():
    weights = np.array([3.0, 1.0, 1.0, 2.0])
    values = np.outer(SCALES * weights, LEVELS**2)  # a heavy client is several that decide alike
    channel = best_channel(values, SHARE, weights, 3.0, LEVELS, 0.9)
    cost = SHARE @ channel.worth + channel.price * 0.9
    found, brought = cost_and_mean(channel, at_levels(channel, SCALES * weights), weights=weights)
    assert found - channel.price * brought == pytest.approx(cost - channel.price * 0.9, rel=1e-5)


def test_public_groups_have_channels_of_their_own_and_share_the_price():
    values = np.outer(SCALES, LEVELS**2)
    one = best_channel(values, SHARE, np.ones(4), 1.0, LEVELS, 0.45)
    cheap, expensive = best_channel(values, SHARE, np.ones(4), 1.0, LEVELS, 0.45, groups=[0, 0, 1, 1])
    assert cheap.price == expensive.price
    assert (
        cheap.levels @ cheap.least / cheap.least.sum()
        > expensive.levels @ expensive.least / expensive.least.sum() + 0.1
    )
    assert SHARE @ cheap.worth + cheap.price * 0.45 < SHARE @ one.worth + one.price * 0.45
    for channel in (cheap, expensive):
        assert np.sum(channel.least) <= 1.0 <= np.exp(1.0) * np.sum(channel.least)


def test_a_mean_that_no_level_reaches_is_refused():
    with pytest.raises(ValueError, match="mean must be what the levels can reach"):
        best_channel(np.outer(SCALES, LEVELS**2), SHARE, np.ones(4), 1.0, LEVELS, 1.1)


def tidy(levels, least, epsilon=1.0):
    return _tidy(epsilon, np.array(levels), np.array(least), 2.0, np.ones(3))


def test_levels_that_are_not_used_are_dropped():
    channel = tidy([0.2, 0.4, 0.6], [0.3, 1e-11, 0.3])
    assert channel.levels.tolist() == [0.2, 0.6]
    assert channel.least.tolist() == [0.3, 0.3]
    assert len(tidy([0.2, 0.4, 0.6], [0.3, 1e-8, 0.3]).levels) == 3
    assert (channel.epsilon, channel.price, channel.worth.tolist()) == (1.0, 2.0, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("off", [1e-6, -1e-6])
def test_a_solvers_rounding_leaves_no_row_that_cannot_sum_to_one(off):
    """The least must not sum to more than 1, nor e^epsilon times them to less."""
    for total in (1.0, np.exp(-1.0)):
        channel = tidy([0.2, 0.6], np.array([0.5, 0.5]) * total * (1.0 + off))
        assert channel.least.sum() <= 1.0 <= np.e * channel.least.sum()
        assert channel.least.sum() == pytest.approx(total, rel=2e-6)
        chances = channel.chances(np.array([[0.0, 1.0], [1.0, 0.0]]))
        np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(("level", "expected"), [(0.5, [0.49, 0.51]), (1.0, [0.99, 1.0]), (0.004, [0.002, 0.006])])
def test_a_single_level_becomes_two_that_are_as_good(level, expected):
    channel = tidy([0.3, level], [0.0, 0.8])
    np.testing.assert_allclose(channel.levels, expected, rtol=1e-12)
    np.testing.assert_allclose(channel.least, [0.4, 0.4], rtol=1e-12)


@pytest.mark.parametrize(("epsilon", "share"), [(0.01, 0.005), (6.0, 1.0)])
def test_clients_can_join_where_one_level_is_all_there_is(epsilon, share):
    """Hardly any budget where few take part; or all must come, always."""
    costs = PolynomialCosts(np.linspace(2.0, 40.0, 30)[:, None], powers=(2,))
    joined = LearnedMemoized(epsilon).enrol(costs, np.linspace(0.0, 0.999, 30), share=share)
    assert np.all((joined.inverse_slope(1e12) > joined.inverse_slope(1.0)) | (share == 1.0))
    assert np.all(np.isfinite(joined.coefficients) & (joined.coefficients > 0.0))


def test_a_channel_fills_up_the_best_level_first():
    channel = Channel(np.log(3.0), np.array([0.1, 0.5, 0.9]), np.array([0.2, 0.1, 0.2]), price=1.0)
    burden = np.array([[0.0, 1.0, 2.0], [2.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    np.testing.assert_allclose(channel.chances(burden), [[0.6, 0.2, 0.2], [0.2, 0.3, 0.5], [0.6, 0.2, 0.2]])


def test_levels_count_as_unused_by_their_part_of_all():
    """However small all of them are."""
    small = _tidy(9.0, np.array([0.2, 0.4, 0.6]), np.array([1e-4, 1e-12, 1e-4]), 2.0, np.ones(3))
    assert small.levels.tolist() == [0.2, 0.4, 0.6]
    assert len(_tidy(9.0, small.levels, np.array([1e-4, 1e-14, 1e-4]), 2.0, np.ones(3)).levels) == 2


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_two_opposites_get_randomized_response(epsilon):
    """Half the types want the one level, half the other: the truth comes with e^epsilon / (1 + e^epsilon)."""
    channel = best_channel(np.eye(2), np.full(2, 0.5), np.ones(2), epsilon, np.array([0.0, 1.0]), 0.5)
    np.testing.assert_allclose(channel.least, 1.0 / (1.0 + np.exp(epsilon)), rtol=1e-6)
    assert channel.levels.tolist() == [0.0, 1.0]


def test_costs_of_any_size_have_a_channel():
    """In the solver they are all brought to one size; and where nothing costs anything, nothing has a price."""
    free = best_channel(np.zeros((4, 10)), SHARE, np.ones(4), 1.0, LEVELS, 0.45)
    assert free.price == pytest.approx(0.0, abs=1e-9)
    assert np.abs(free.worth).max() == pytest.approx(0.0, abs=1e-9)
    values = np.outer(SCALES, np.append(0.0, LEVELS) ** 2)
    plain = best_channel(values, SHARE, np.ones(4), 2.0, np.append(0.0, LEVELS), 0.45)
    for size in (1e-9, 1e9):
        sized = best_channel(size * values, SHARE, np.ones(4), 2.0, np.append(0.0, LEVELS), 0.45)
        assert sized.price == pytest.approx(size * plain.price, rel=1e-4)
        np.testing.assert_allclose(sized.least, plain.least, atol=1e-5)


@pytest.mark.parametrize("library", ["scipy", "scipy.optimize"])
def test_a_missing_solver_is_named(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match="scipy"):
        best_channel(np.outer(SCALES, LEVELS**2), SHARE, np.ones(4), 1.0, LEVELS, 0.45)
