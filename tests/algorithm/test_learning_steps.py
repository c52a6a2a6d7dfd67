"""How a server learns from counts: what it expects, when it thinks anew, and how far it moves."""

import numpy as np
import pytest
from scipy.optimize import brentq

from turnout.algorithm.channel import Channel, best_channel
from turnout.algorithm.mechanisms import learned_memoized as learning
from turnout.algorithm.mechanisms.learned_memoized import (
    RATIOS,
    REDESIGN_AFTER,
    Learner,
    _balancing,
    _burden,
    _guess,
    levels_around,
)


@pytest.mark.parametrize("mark", [50, 150, 400, 1200, 4000])
def test_the_channel_is_designed_anew_when_so_many_have_released(mark, monkeypatch):
    """Just then: a design is a linear programme, and one release before it the channel is the old one."""
    assert mark in REDESIGN_AFTER
    designs = []
    learner = Learner(4.0, 0.5, 10.0)
    monkeypatch.setattr(learning, "_design", lambda *asked: designs.append(asked) or THREE)

    def see(total):
        """So many released levels, as if all were equally frequent."""
        levels = len(learner.channel.levels)
        learner.see(learner.channel, np.full(levels, total / levels))
        return len(designs)

    before = see(mark - 1.5)
    assert see(1.0) == before
    assert see(0.5) == before + 1
    np.testing.assert_array_equal(learner.channel.levels, THREE.levels)
    np.testing.assert_array_equal(learner.channel.least, THREE.least)
    assert learner.price == THREE.price
    assert see(1.0) == before + 1
    assert see(1e6) == before + 1 + (mark < 4000)


THREE = Channel(4.0, np.array([0.2, 0.5, 0.9]), np.array([0.01, 0.01, 0.01]), price=2.0)


@pytest.mark.parametrize("share", [0.4, 0.5, 0.6])
def test_the_balancing_price_brings_the_share(share):
    types = np.geomspace(0.05, 1.0, 60)
    shares = np.full(60, 1.0 / 60)
    price = _balancing(THREE, types, shares, share)
    at = Channel(4.0, THREE.levels, THREE.least, price)
    assert shares @ at.chances(_burden(types, at)) @ at.levels == pytest.approx(share, abs=0.02)  # one type's step
    assert 2.0 / 3.0 < price < 6.0


def test_a_price_moves_at_most_threefold_and_stays_where_nothing_answers():
    shares = np.full(60, 1.0 / 60)
    assert _balancing(THREE, np.geomspace(1e-3, 0.2, 60), shares, 0.8) == pytest.approx(6.0)  # too expensive: raise it
    assert _balancing(THREE, np.geomspace(0.3, 10.0, 60), shares, 0.25) == pytest.approx(2.0 / 3.0)
    for far in (1e-6, 1e6):  # everyone releases one level, whatever the price
        assert _balancing(THREE, np.full(60, far), shares, 0.5) == 2.0


def test_the_estimate_explains_what_was_released():
    """Levels released by a known population, as often as expected: the estimate gives the same frequencies."""
    learner = Learner(6.0, 0.5, 10.0)
    channel, types = learner.channel, RATIOS * 0.5 / 10.0
    truth = np.exp(-2.0 * np.log(RATIOS / 1.5) ** 2)
    truth /= truth.sum()
    frequencies = truth @ channel.chances(_burden(types, channel))
    learner.see(channel, 1e5 * frequencies)
    estimate = learner._estimate(types, 10.0)
    assert estimate.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(estimate @ channel.chances(_burden(types, channel)), frequencies, atol=0.004)
    assert np.abs(np.cumsum(estimate - truth)).max() < 0.12


def test_levels_to_choose_from():
    for share, least, most in ((0.2, 0.04, 1.0), (0.9, 0.04, 1.0), (0.19, 0.019, 1.0), (0.05, 0.005, 0.5)):
        levels = levels_around(share)
        assert len(levels) == 25
        assert (levels[0], levels[-1]) == (pytest.approx(least), pytest.approx(most))
        assert np.all(np.diff(levels) > 0)
    assert levels_around(0.05)[12] == pytest.approx(0.05)


def test_types_lie_alike_on_both_sides_of_the_mean_from_a_fiftieth_to_fiftyfold():
    np.testing.assert_allclose(RATIOS * RATIOS[::-1], 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.diff(np.log(RATIOS)), np.log(2500.0) / (len(RATIOS) - 1), rtol=1e-9)
    for share in (0.9, 0.5, 0.05, 0.001):
        levels = levels_around(share)
        wanted = np.argmin(np.abs(levels - RATIOS[:, None] * share), axis=1)
        assert len(set(wanted.tolist())) >= 23  # of 25


def test_the_first_guess_is_a_bell_on_a_scale_of_factors_of_width_e():
    """ln(guess) = const - ln(ratio)^2 / 2."""
    np.testing.assert_allclose(np.polyfit(np.log(RATIOS), np.log(_guess()), 2)[:2], [-0.5, 0.0], atol=1e-9)
    assert _guess().sum() == pytest.approx(1.0)


def test_quadratic_types_weigh_what_a_level_costs_against_what_it_brings():
    """c = 2: (1/2)^2 / 4 - 3 / 2."""
    channel = Channel(1.0, np.array([0.5, 1.0]), np.array([0.4, 0.4]), price=3.0)
    np.testing.assert_allclose(_burden(np.array([2.0, 0.5]), channel), [[-1.4375, -2.75], [-1.25, -2.0]])


SURE = np.array([0.1, 0.4, 0.9]), np.full(3, 1e-9)  # at a total epsilon of 25 nobody lies


@pytest.mark.parametrize("releases", [1.0, 6.0, 60.0])
def test_the_first_guess_is_worth_six_releases(releases):
    """Where nobody lies, the share of who wants a level is that of the guess and of those who released it, weighed."""
    share, price = 0.3, 2.0
    learner = Learner(25.0, share, price, SURE)
    types = RATIOS * share / price
    learner.see(learner.channel, np.array([0.0, releases, 0.0]))
    found = learner._estimate(types, price)
    wanting = np.argmin(_burden(types, Channel(25.0, *SURE, price)), axis=1) == 1
    assert 0.1 < _guess()[wanting].sum() < 0.9
    expected = (6.0 * _guess()[wanting].sum() + releases) / (6.0 + releases)
    assert found[wanting].sum() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("off", "counts"), [(1.3, True), (1.4, False), (2.6, False)])
@pytest.mark.parametrize("up", [True, False])
def test_levels_released_at_a_price_far_off_do_not_count(off, counts, up):
    learner = Learner(25.0, 0.3, 2.0, SURE)
    learner.see(learner.channel, np.array([0.0, 0.0, 1e4]))
    price = 2.0 * off if up else 2.0 / off
    learner._shares = _guess()
    found = learner._estimate(RATIOS * 0.3 / price, price)
    assert (np.abs(found - _guess()).max() > 0.01) == counts


@pytest.mark.parametrize(("share", "price"), [(0.3, 2.0), (0.6, 0.25), (0.001, 5.0)])
def test_who_is_as_guessed_changes_no_guess_and_is_asked_the_price_that_balances(share, price):
    """A population of exactly the types that the first guess has: then the estimate is exact, and so is the price."""
    channel, types = Channel(4.0, levels_around(share), np.full(25, 0.01), price), RATIOS * share / price
    learner = Learner(4.0, share, price, (channel.levels, channel.least))
    learner.see(channel, 1000.0 * (_guess() @ channel.chances(_burden(types, channel))))
    np.testing.assert_allclose(learner._shares, _guess(), rtol=1e-9)

    def excess(at):
        there = Channel(4.0, channel.levels, channel.least, at)
        return _guess() @ there.chances(_burden(types, there)) @ there.levels - share

    assert excess(learner.price) == pytest.approx(0.0, abs=1e-3 * share)
    assert learner.price == pytest.approx(brentq(excess, price / 3.0, 3.0 * price), rel=0.01)


def test_a_learned_channel_is_the_populations_own():
    """Costs of another scale than the guess, and less spread: within a tenth in the price, a fiftieth in the cost."""
    share, price = 0.3, 2.0
    types, shares = RATIOS * share / price, np.exp(-1.5 * np.log(RATIOS / 1.4) ** 2)
    shares /= shares.sum()
    values = levels_around(share) ** 2 / (2.0 * types[:, None])
    best = best_channel(values, shares, np.ones(len(types)), 4.0, levels_around(share), share)
    learner = Learner(4.0, share, 1.3 * price)
    for total in (30.0, 5000.0):
        learner.see(learner.channel, total * (shares @ learner.channel.chances(_burden(types, learner.channel))))
    assert learner.price == pytest.approx(best.price, rel=0.1)

    def lost(channel):
        """Cost less worth at the best price, on average."""
        there = Channel(4.0, channel.levels, channel.least, best.price)
        burden = _burden(types, there)
        return shares @ np.sum(there.chances(burden) * burden, axis=1)

    assert lost(best) <= lost(learner.channel) <= 0.98 * lost(best)  # both are below 0


@pytest.mark.parametrize("mean", [0.4, 0.05])
def test_a_design_takes_two_neighbours_as_one(mean):
    """So types that come in equal pairs lose nothing: the linear programme of one of each gives the same."""
    types, shares = np.geomspace(0.1, 2.0, 8), np.arange(1.0, 9.0) / 36.0
    levels = levels_around(mean)
    alone = best_channel(levels**2 / (2.0 * types[:, None]), shares, np.ones(8), 3.0, levels, mean)
    found = learning._design(np.repeat(types, 2), np.repeat(shares, 2) / 2.0, 3.0, mean)
    np.testing.assert_array_equal(found.levels, alone.levels)
    np.testing.assert_allclose(found.least, alone.least, rtol=1e-4)
    assert found.price == pytest.approx(alone.price, rel=1e-4)


@pytest.mark.parametrize(("change", "moves"), [(0.04, False), (0.06, True)])
@pytest.mark.parametrize("up", [True, False])
def test_a_price_moves_only_where_it_changes_what_is_released_by_a_twentieth_of_the_share(change, moves, up):
    """Two levels, 0.2 and 0.6, and one type that changes from one to the other when the price is doubled or halved."""
    share, far, switch = (0.8, 3.0, 2.0) if up else (0.16, 1.0 / 3.0, 0.5)
    least = 0.5 - share * change / (2.0 * 0.4)  # then its mean moves by (1 - 2 least) 0.4 = change * share
    channel = Channel(4.0, np.array([0.2, 0.6]), np.full(2, least), price=1.0)
    types = np.array([0.4 / switch])  # it is indifferent at (0.2 + 0.6) / (2 c)
    assert _balancing(channel, types, np.ones(1), share) == pytest.approx(far if moves else 1.0)
