"""What all mechanisms share: shards, settings, boxes in whole words."""

import math
from fractions import Fraction

import numpy as np
import pytest

from turnout import PolynomialCosts
from turnout.algorithm import (
    MECHANISMS,
    CappedCoin,
    Clamp,
    Classical,
    LearnedMemoized,
    Memoized,
    PaperCoin,
    TrackingClamp,
    in_words,
    mechanism_from_settings,
)
from turnout.algorithm.client import Averaging, ClientState, client_step
from turnout.algorithm.mechanism import Mechanism, Public
from turnout.algorithm.mechanisms.memoized import surrogate
from turnout.algorithm.mechanisms.paper_coin import coin_probability
from turnout.algorithm.thresholds import WORDS
from turnout.settings import Table

BETAS = np.array([1.0, 1.5, 2.5, 3.5])


@pytest.mark.parametrize(
    ("clients", "left"), [(2, [2.5]), (np.int64(3), [3.5]), (slice(1, 3), [1.5, 2.5]), (np.array([3, 0]), [3.5, 1.0])]
)
def test_some_of_the_clients(clients, left):
    """One client stays a population, of one."""
    assert PaperCoin(BETAS)[clients].beta.tolist() == left  # type: ignore[attr-defined]
    assert PaperCoin(1.5)[clients] == PaperCoin(1.5)


def test_a_mechanism_must_say_how_it_answers():
    for asked in (lambda: Mechanism.response(0.5, 0.5, ()), lambda: Mechanism.limits(0.5, ())):
        with pytest.raises(NotImplementedError):
            asked()
    assert Mechanism().parameters() == ()
    assert not Mechanism.needs_public_average
    assert not Mechanism.needs_population
    assert TrackingClamp(1.0).needs_public_average
    assert LearnedMemoized(1.0).needs_population
    assert Clamp(1.0).enrol(None, np.zeros(3)) is None


def test_settings_take_the_usual_values_and_ask_for_the_others():
    assert mechanism_from_settings(Table({"kind": "clamp", "epsilon": 2.0})) == Clamp(2.0, 0.5)
    assert mechanism_from_settings(Table({"kind": "tracking-clamp", "epsilon": 2.0})) == TrackingClamp(2.0, 0.005)
    assert mechanism_from_settings(Table({"kind": "paper-coin", "beta": [1.0, 2.0]})).beta.tolist() == [1.0, 2.0]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="epsilon"):
        mechanism_from_settings(Table({"kind": "clamp"}))
    with pytest.raises(ValueError, match="kind must be one of classical, paper-coin"):
        mechanism_from_settings(Table({"kind": "magic"}))


def test_in_words_an_epsilon_says_what_it_is_for():
    assert in_words(Clamp(0.5, 0.25).settings()) == "clamp, epsilon 0.5 per report, center 0.25"
    assert in_words(LearnedMemoized(4.0, 3.0).settings()) == "learned-memoized, total epsilon 4, price 3"
    assert in_words(Classical().settings()) == "classical"


@pytest.mark.parametrize(("beta", "cap"), [(1.0, 0.5), (3.5, 0.9), (1.0, 1.0 - 2.0**-53), (30.0, 0.1)])
def test_the_capped_coins_box_is_the_promised_one_to_the_word(beta, cap):
    """[p, p + (1 - p) cap], outwards to whole words; never certain."""
    low, high = (Fraction(end) * WORDS for end in CappedCoin(beta, cap).box(Public()))
    coin = Fraction(float(coin_probability(beta)))
    assert low == math.floor(coin * WORDS)
    assert abs(high - min(WORDS - 1, math.ceil((coin + (1 - coin) * Fraction(cap)) * WORDS))) <= 1  # a rounding
    assert high < WORDS


@pytest.mark.parametrize("bad", [{"beta": 0.0}, {"beta": 30.1}, {"beta": np.nan}, {"cap": 0.0}, {"cap": 1.0}])
def test_bad_capped_coins(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be above 0"):
        CappedCoin(**({"beta": 1.0, "cap": 0.5} | bad))


@pytest.mark.parametrize("floor", [0.5, 0.0, 0.00009, np.nan])
def test_bad_floors(floor):
    with pytest.raises(ValueError, match=r"floor must be from 0\.0001"):
        TrackingClamp(1.0, floor)
    with pytest.raises(ValueError, match="epsilon must be above 0"):
        TrackingClamp(0.0)


def test_a_tracking_box_follows_the_average_up_to_its_floor():
    """Around 1/2 it is the clamp's; below the floor, and above 1 less it, it stays."""
    mechanism = TrackingClamp(1.0, floor=0.1)
    low, high = mechanism.box(Public(average=np.array([0.0, 0.1, 0.5, 0.9, 1.0])))
    assert (low[0], high[0], low[4], high[4]) == (low[1], high[1], low[3], high[3])
    np.testing.assert_allclose([low[2], high[2]], Clamp(1.0).box(Public()), rtol=1e-8)
    np.testing.assert_allclose([low[1], high[1]], Clamp(1.0, 0.1).box(Public()), rtol=1e-8)
    np.testing.assert_allclose([low[3], high[3]], Clamp(1.0, 0.9).box(Public()), rtol=1e-8)
    assert TrackingClamp(1.0, 0.0001).floor == 0.0001


def test_levels_of_a_learned_price_keep_their_least():
    mechanism = LearnedMemoized(2.0, 3.0, levels=(0.9, 0.2), least=(0.2, 0.3))
    assert (mechanism.levels, mechanism.least) == ((0.2, 0.9), (0.3, 0.2))


def test_two_clients_can_learn_a_price_and_one_cannot():
    costs = PolynomialCosts([[2.0], [9.0]], (2,))
    mechanism = LearnedMemoized(4.0, 5.0, levels=(0.2, 0.8), least=(0.1, 0.1))
    joined = mechanism.enrol(costs, np.array([0.3, 0.6]), share=0.5)
    weighted = mechanism.enrol(costs, np.array([0.3, 0.6]), np.ones(2), share=0.5)
    np.testing.assert_array_equal(joined.coefficients, weighted.coefficients)
    assert joined.coefficients.shape == (2, 2)
    with pytest.raises(ValueError, match="joined by a whole population"):
        mechanism.enrol(costs[[0]], np.array([0.3]), share=0.5)
    with pytest.raises(ValueError, match="joined by a whole population"):
        mechanism.enrol(costs, np.array([0.3, 0.6]))


def test_a_beta_is_a_number_or_an_array():
    assert type(PaperCoin(2).beta) is float
    assert isinstance(PaperCoin([1.5, 2.0]).beta, np.ndarray)
    found = PaperCoin([1.5, 2.0]).probability([0.0, 0.0], Public())
    np.testing.assert_allclose(found, [0.75 * math.exp(-1.5), math.exp(-2.0)])


def test_a_client_brings_one_unit_unless_told_otherwise():
    costs, coins, one = PolynomialCosts([[2.0], [9.0], [30.0]], (2,)), np.array([0.3, 0.6, 0.9]), np.ones(3)
    memoized = Memoized(4.0, 20.0, (0.2, 0.5, 0.9))
    assert memoized.words_by_level(costs).tolist() == memoized.words_by_level(costs, one).tolist()
    assert memoized.words_by_level(costs).tolist() != memoized.words_by_level(costs, 2 * one).tolist()
    assert memoized.release(costs, coins).tolist() == memoized.release(costs, coins, one).tolist()
    for mechanism in (memoized, LearnedMemoized(4.0, 20.0, (0.2, 0.9), (0.1, 0.1))):
        plain = mechanism.enrol(costs, coins, share=0.5).coefficients
        np.testing.assert_array_equal(plain, mechanism.enrol(costs, coins, one, share=0.5).coefficients)
    np.testing.assert_array_equal(surrogate(coins, 3.0).coefficients, surrogate(coins, 3.0, one).coefficients)
    state = ClientState(one, 4.0)
    bare, weighed = (
        client_step(costs, Classical(), state, 1.0, coins, averaging=Averaging(1, "probability"), **options)[0]
        for options in ({}, {"weights": one})
    )
    np.testing.assert_array_equal(bare.participations, weighed.participations)


def test_who_has_a_release_of_its_own_says_so():
    class Plain(Clamp):
        pass

    class Releasing(Clamp):
        def enrol(self, costs, uniform, weights=1, share=None):
            return costs

    class Inheriting(Releasing):
        pass

    released = [each.releases_once for each in (Mechanism, Plain, Releasing, Inheriting, Memoized, LearnedMemoized)]
    assert released == [False, False, True, True, True, True]
    assert not any(MECHANISMS[kind].releases_once for kind in ("classical", "paper-coin", "clamp", "tracking-clamp"))


def test_in_words_a_list_is_told_by_its_length():
    memoized = Memoized(4.0, 10.0, (0.2, 0.5, 0.9))
    assert in_words(memoized.settings()) == "memoized, total epsilon 4, price 10, 3 levels"
    assert in_words(PaperCoin(BETAS).settings()) == "paper-coin, beta of 4 clients"
    assert in_words({"kind": "integral", "gain": 0.00751239, "by": "bit"}) == "integral, gain 0.007512, by bit"


@pytest.mark.parametrize("cap", [0.07, 0.1, 0.11, 0.13])
def test_a_capped_coins_box_is_rounded_outwards(cap):
    """In floats: to an eighth of a word, which they are finer by below one half."""
    low, high = (Fraction(end) * WORDS for end in CappedCoin(30.0, cap).box(Public()))
    coin = Fraction(float(coin_probability(30.0)))
    exact = (coin + (1 - coin) * Fraction(cap)) * WORDS
    assert exact - Fraction(1, 8) <= high < exact + 1 + Fraction(1, 8)
    assert coin * WORDS - 1 < low <= coin * WORDS


def test_a_capped_coin_may_be_rare_and_is_never_certain():
    assert CappedCoin(0.5, 0.5).beta == 0.5
    for beta in (1.0, 1.01):  # floats make 1 of the second
        assert CappedCoin(beta, 1.0 - 2.0**-53).box(Public())[1] == 1.0 - 2.0**-53
    found = CappedCoin(1.0, 0.5).probability([0.0, 0.25, 0.5, 0.9], Public())
    coin = 0.5 / math.e
    np.testing.assert_allclose(found, [coin, coin + (1 - coin) / 4, coin + (1 - coin) / 2, coin + (1 - coin) / 2])


@pytest.mark.parametrize("beta", [0.5, np.array([2.0, 0.5])])
def test_a_coin_that_gets_smaller_again_is_warned_of_where_it_is_made(beta):
    with pytest.warns(UserWarning, match=r"0\.5 brings 0\.152, 1 brings 0\.184") as warned:
        PaperCoin(beta)
    assert warned[0].filename == __file__


def test_a_tracking_box_gives_up_a_margin_of_its_epsilon():
    """5e-10 of e^epsilon, for the rounding of floats and coins."""
    for epsilon in (0.1, 1.0, 8.0):
        factor, floor = TrackingClamp(epsilon, 0.01).parameters()
        assert factor / math.exp(epsilon) - 1.0 == pytest.approx(-5e-10, rel=1e-5)
        assert floor == 0.01


def test_a_mechanism_is_asked_for_intents_from_none_to_certain_alone():
    class Halfway(Mechanism):
        """Never near the ends of its box."""

        @staticmethod
        def response(intent, average, parameters):
            return 0.25 + 0.5 * intent

        @staticmethod
        def limits(average, parameters):
            return 0.0, 1.0

    found = Halfway().probability([-1.0, 0.0, 0.5, 1.0, 1.4, np.inf], Public())
    assert found.tolist() == [0.25, 0.25, 0.5, 0.75, 0.75, 0.75]
