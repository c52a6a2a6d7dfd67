"""One release for a lifetime: the integers that release a level keep the promise exactly, whatever the cost."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statistical.binomial import assert_proportion
from turnout import PolynomialCosts, paper_population
from turnout.algorithm import LearnedMemoized, Memoized, mechanism_from_settings
from turnout.algorithm.channel import Channel
from turnout.algorithm.coins import ENROLMENT, SeededCoins
from turnout.algorithm.mechanisms import memoized
from turnout.algorithm.mechanisms.memoized import HEADROOM, surrogate, usual_levels
from turnout.algorithm.thresholds import WORDS
from turnout.settings import Table

EPSILONS = [0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0]


class Given:
    """Costs by table, legal or not: what f_i returns, whatever the average, from the first level up."""

    def __init__(self, table, levels):
        self.table, self.levels = np.asarray(table, dtype=np.float64), np.asarray(levels)

    def __len__(self):
        return len(self.table)

    def __getitem__(self, clients):
        return Given(self.table[clients], self.levels)

    def value(self, average):
        return self.table[np.arange(len(self.table)), np.searchsorted(self.levels, average)]

    def slope(self, average):
        raise AssertionError("a release looks at the values alone")


def bound(epsilon):
    """e^epsilon from below, in arithmetic of our own: 80 digits."""
    with localcontext() as context:
        context.prec = 80
        return Fraction(Decimal(epsilon).exp() * (1 - Decimal(10) ** -70))


def random_channel(epsilon, generator):
    """Levels, and least probabilities whose sum is legal, from one end of the range to the other."""
    levels = generator.choice(np.arange(1, 101) / 100, int(generator.integers(2, 30)), replace=False)
    least = generator.lognormal(0.0, 2.0, len(levels)) + 1e-6
    wanted = np.exp(-epsilon * generator.uniform(0.001, 0.999))
    return Memoized(epsilon, float(generator.uniform(0.1, 50)), tuple(levels), tuple(wanted * least / least.sum()))


def hostile(mechanism):
    """Every kind of nonsense that a cost can return, alone and mixed."""
    kinds = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-308, 0.0, -0.0, 1.0])
    generator = np.random.default_rng(1)
    number = len(mechanism.levels)
    mixed = generator.choice(kinds, (200, number))
    worth = mechanism.price * np.array(mechanism.levels)
    ties = np.stack([worth, worth + 1.0, worth * (1 + 1e-16)])  # f(o) - price o is the same for every level
    return Given(np.concatenate([np.repeat(kinds, number).reshape(-1, number), mixed, ties]), mechanism.levels)


def assert_kept(mechanism, rows):
    """The promise for these rows of words: any two of them, for every level, are within e^epsilon."""
    least, most = mechanism.words()
    factor = bound(mechanism.epsilon)
    assert all(low > 0 and high <= factor * low for low, high in zip(least.tolist(), most.tolist(), strict=True))
    assert (rows.sum(axis=1) == WORDS).all()
    assert ((rows >= least) & (rows <= most)).all()
    smallest, largest = rows.min(axis=0).tolist(), rows.max(axis=0).tolist()
    assert all(high <= factor * low for low, high in zip(smallest, largest, strict=True))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_promise_is_exact(epsilon):
    generator = np.random.default_rng(int(1000 * epsilon))
    usual = Memoized(epsilon, 10.0)
    for mechanism in (usual, *(random_channel(epsilon, generator) for _ in range(25))):
        friendly = PolynomialCosts(np.exp(generator.normal(0, 6, (300, 2))), (1, 3))
        for weights in (1, generator.integers(1, 10**9, 300)):
            assert_kept(mechanism, mechanism.words_by_level(friendly, weights))
        assert_kept(mechanism, mechanism.words_by_level(hostile(mechanism)))


@given(
    st.floats(0.01, 10.0),
    st.lists(st.lists(st.floats(), min_size=3, max_size=3), min_size=2, max_size=8),
    st.lists(st.floats(1e-6, 1.0), min_size=3, max_size=3),
)
def test_the_promise_is_exact_for_any_floats(epsilon, table, parts):
    least = np.exp(-epsilon / 2) * np.array(parts) / sum(parts)
    mechanism = Memoized(epsilon, 10.0, (0.2, 0.5, 0.9), tuple(least))
    assert_kept(mechanism, mechanism.words_by_level(Given(table, mechanism.levels)))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_an_epsilon_that_is_a_little_smaller_is_broken(epsilon):
    """The sabotaged twin: the same words do not keep a promise that is a hundredth stronger."""
    mechanism = Memoized(0.99 * epsilon, 10.0)
    wider = Memoized(epsilon, 10.0, mechanism.levels)
    rows = wider.words_by_level(PolynomialCosts([[0.1], [1000.0]], (2,)))
    with pytest.raises(AssertionError):
        assert_kept(mechanism, rows)


@pytest.mark.parametrize("digits", [3, 6, 28])
def test_a_callers_decimals_change_nothing(digits):
    """Decimal's precision is anyone's to set in the same thread: a bound must not be rounded up by it."""
    mechanisms = Memoized(1.0, 10.0), Memoized(7.3, 10.0)
    expected = [np.stack(mechanism.words()).tolist() for mechanism in mechanisms]
    with localcontext() as context:
        context.prec = digits
        assert [np.stack(mechanism.words()).tolist() for mechanism in mechanisms] == expected


def test_levels_are_filled_up_from_the_best():
    """What is left when all have their least goes to the smallest f(o) - price w o, then to the next."""
    mechanism = Memoized(2.0, 10.0, (0.2, 0.5, 0.9), (0.1, 0.1, 0.1))
    least, most = mechanism.words()
    rest = WORDS - most[0] - least[2]  # two levels at their most and least leave this for the third
    rows = mechanism.words_by_level(Given([[0.0, 9.0, 99.0], [99.0, 9.0, 0.0]], mechanism.levels))
    assert rows.tolist() == [[most[0], rest, least[2]], [least[0], rest, most[2]]]
    # at equal burden the lower level comes first
    tie = mechanism.words_by_level(Given([[2.0, 5.0, 9.0]], mechanism.levels))
    assert tie.tolist() == [[most[0], rest, least[2]]]


def test_a_weight_makes_a_level_worth_more():
    """A client that brings twice as much ranks the levels as one whose cost is half."""
    mechanism = Memoized(4.0, 10.0)
    costs = PolynomialCosts(np.linspace(1.0, 60.0, 50)[:, None], (2,))
    halves = PolynomialCosts(np.linspace(0.5, 30.0, 50)[:, None], (2,))
    alike = mechanism.words_by_level(costs, np.full(50, 2))
    np.testing.assert_array_equal(alike, mechanism.words_by_level(halves))
    assert not np.array_equal(alike, mechanism.words_by_level(costs))


def test_the_channel_in_floats_is_the_same():
    """What the theory computes with, and what a client draws from."""
    costs = paper_population(0).costs
    generator = np.random.default_rng(2)
    for epsilon in EPSILONS:
        mechanism = random_channel(epsilon, generator)
        levels = np.array(mechanism.levels)
        burden = np.stack([costs.value(np.full(len(costs), o)) - mechanism.price * o for o in levels], axis=1)
        chances = Channel(epsilon, levels, np.array(mechanism.least), mechanism.price).chances(burden)
        np.testing.assert_allclose(chances, mechanism.words_by_level(costs) / WORDS, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weights", [1, np.array([1, 7, 3])])
def test_the_boundary_words_release_the_right_level(weights):
    mechanism = Memoized(3.0, 10.0, (0.2, 0.4, 0.7, 0.9), (0.05, 0.06, 0.07, 0.05))
    costs = PolynomialCosts([[3.0], [12.0], [40.0]], (2,))
    stops = np.cumsum(mechanism.words_by_level(costs, weights), axis=1)
    for level in range(4):
        first = np.zeros(3, np.int64) if level == 0 else stops[:, level - 1]
        for word in (first, stops[:, level] - 1):
            assert mechanism.release(costs, word / WORDS, weights).tolist() == [level] * 3
    assert stops[:, -1].tolist() == [WORDS] * 3


def test_a_release_does_not_depend_on_who_else_is_there():
    """Thousands together (more than are looked at in one go) release what each alone does."""
    mechanism, costs = Memoized(6.0, 10.0), paper_population(0, 20_000).costs
    weights = np.random.default_rng(0).integers(1, 5, 20_000)
    uniform = SeededCoins(4).uniform(np.arange(20_000), 0, ENROLMENT)
    together = mechanism.release(costs, uniform, weights)
    for client in (0, 16_383, 16_384, 19_999):
        one = mechanism.release(costs[client], uniform[[client]], weights[[client]])
        assert one[0] == together[client]


def frequencies(mechanism, words):
    """Assert that 200,000 releases of one client have the promised frequencies."""
    alike = PolynomialCosts(np.full((200_000, 1), 12.0), (2,))
    uniform = SeededCoins(7).uniform(np.arange(len(alike)), 0, ENROLMENT)
    counts = np.bincount(mechanism.release(alike, uniform), minlength=len(words))
    for count, expected in zip(counts.tolist(), words.tolist(), strict=True):
        assert_proportion(count, len(alike), expected / WORDS)


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 8.0])
def test_levels_come_as_often_as_promised(epsilon):
    mechanism = Memoized(epsilon, 10.0)
    words = mechanism.words_by_level(PolynomialCosts([[12.0]], (2,)))[0]
    frequencies(mechanism, words)
    with pytest.raises(AssertionError):  # the sabotaged twin: epsilon off by a tenth
        frequencies(Memoized(1.1 * epsilon, 10.0, mechanism.levels), words)


LEVELS = np.array([0.05, 0.2, 0.5, 0.75, 0.99, 1.0])


@pytest.mark.parametrize("weights", [1, np.array([1, 2, 3, 4, 5, 6])])
def test_the_surrogate_wants_its_level_at_the_price(weights):
    costs = surrogate(LEVELS, 8.0, weights)
    expected = 8.0 * np.broadcast_to(weights, 6) * np.where(LEVELS == 1.0, HEADROOM, 1.0)
    np.testing.assert_allclose(costs.slope(LEVELS), expected, rtol=1e-12)
    np.testing.assert_allclose(costs.inverse_slope(8.0 * weights), LEVELS, rtol=1e-9)
    # who released "always" comes always for somewhat less than the price
    assert costs.inverse_slope(HEADROOM * 8.0 * 1.001 * weights)[-1] == 1.0
    assert costs.inverse_slope(HEADROOM * 8.0 * 0.9 * weights)[-1] < 1.0


@given(st.floats(0.02, 1.0), st.floats(1e-3, 1e3), st.integers(1, 1000))
def test_the_surrogate_is_increasing_and_convex(level, price, weight):
    at = np.linspace(0.0, 1.0, 201)
    slopes = surrogate(np.full(201, level), price, weight).slope(at)
    assert slopes[0] == 0.0
    assert (np.diff(slopes) > 0.0).all()


def test_a_client_acts_on_its_level_alone():
    """Two costs that released the same level are one and the same from then on."""
    mechanism = Memoized(4.0, 10.0)
    cheap, dear = PolynomialCosts([[1.0]], (2,)), PolynomialCosts([[900.0]], (4,))
    draws = (np.arange(2000) + 0.5) / 2000
    first = mechanism.enrol(cheap[np.zeros(2000, int)], draws)
    second = mechanism.enrol(dear[np.zeros(2000, int)], draws)
    assert {tuple(row) for row in first.coefficients} == {tuple(row) for row in second.coefficients}
    assert len({tuple(row) for row in first.coefficients}) == len(mechanism.levels)


@pytest.mark.parametrize(
    "levels",
    [
        (0.5,),
        (0.5, 0.5),
        (0.0, 0.5),
        (0.5, 1.1),
        (-0.1, 0.5),
        (0.5, math.nan),
        (math.nan, 0.5),
        tuple(np.arange(1, 66) / 66),
    ],
)
def test_bad_levels(levels):
    with pytest.raises(ValueError, match="levels must be 2 to 64 different averages"):
        Memoized(1.0, 10.0, levels)


@pytest.mark.parametrize(
    ("least", "says"),
    [
        ((0.2, 0.2, 0.2), "2 probabilities above 0"),
        ((0.0, 0.5), "2 probabilities above 0"),
        ((0.4, -0.1), "2 probabilities above 0"),
        ((0.4, math.nan), "2 probabilities above 0"),
        ((math.inf, 0.4), "2 probabilities above 0"),
        ((1.5, 0.4), "2 probabilities above 0"),
        ((0.1, 0.1), "a sum between e"),  # e^epsilon 0.2 < 1: the words would not add up
        ((0.6, 0.6), "a sum between e"),
    ],
)
def test_bad_least(least, says):
    with pytest.raises(ValueError, match=says):
        Memoized(1.0, 10.0, (0.2, 0.8), least)


@pytest.mark.parametrize("price", [0.0, -1.0, math.nan, math.inf])
def test_bad_price(price):
    with pytest.raises(ValueError, match="price must be above 0"):
        Memoized(1.0, price)


def test_levels_given_in_any_order_keep_their_least():
    mechanism = Memoized(3.0, 10.0, (0.9, 0.2, 0.5), (0.09, 0.02, 0.05))
    assert (mechanism.levels, mechanism.least) == ((0.2, 0.5, 0.9), (0.02, 0.05, 0.09))


@pytest.mark.parametrize("mechanism", [Memoized(4.0, 10.0), Memoized(4.0, 3.0, (0.9, 0.2), (0.3, 0.2))], ids=repr)
def test_settings_make_it_again(mechanism):
    assert mechanism_from_settings(Table(mechanism.settings())) == mechanism


def test_the_usual_channel_is_randomized_response_over_levels():
    for epsilon in EPSILONS:
        mechanism = Memoized(epsilon, 10.0)
        assert mechanism.levels == usual_levels(epsilon)
        rows = mechanism.words_by_level(paper_population(0).costs) / WORDS
        best = math.exp(epsilon) / (math.exp(epsilon) + len(mechanism.levels) - 1)
        np.testing.assert_allclose(rows.max(axis=1), best, rtol=1e-9)
        np.testing.assert_allclose(rows.min(axis=1), best * math.exp(-epsilon), rtol=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "number", "lowest", "highest"),
    [
        (1.0, 3, 0.425, 0.6),
        (2.0, 3, 0.35, 0.7),
        (4.0, 3, 0.2, 0.9),
        (5.15, 5, 0.2, 0.9),
        (5.73, 6, 0.15, 1.0),
        (20.0, 64, 0.15, 1.0),
    ],
)
def test_the_usual_levels_spread_as_the_truth_gets_through(epsilon, number, lowest, highest):
    """Around the middle while lies are frequent; from 0.15 to 1 once six or more can be told apart; 64 at the most."""
    levels = usual_levels(epsilon)
    np.testing.assert_allclose(levels, np.linspace(lowest, highest, number))
    assert Memoized(epsilon, 10.0).levels == pytest.approx(levels)


@pytest.mark.parametrize("make", [lambda epsilon: Memoized(epsilon, 10.0), LearnedMemoized])
def test_bad_totals(make):
    for epsilon in (0.0, -1.0, math.nan, 30.5):
        with pytest.raises(ValueError, match="epsilon must be above 0 and at most 30"):
            make(epsilon)
    assert make(30.0).epsilon == 30.0


def test_more_clients_than_are_looked_at_together(monkeypatch):
    """The seams do not show: weights, costs and coins are cut alike."""
    generator = np.random.default_rng(2)
    costs, uniform = PolynomialCosts(generator.uniform(1.0, 60.0, (50, 1)), (2,)), generator.random(50)
    weights = generator.integers(1, 4, 50)
    mechanism = Memoized(3.0, 20.0)
    together = [mechanism.release(costs, uniform, w) for w in (1, weights)]
    monkeypatch.setattr(memoized, "_CHUNK", 7)
    for expected, w in zip(together, (1, weights), strict=True):
        np.testing.assert_array_equal(mechanism.release(costs, uniform, w), expected)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 6.0])
def test_the_words_are_the_whole_numbers_next_to_the_chances(epsilon):
    """least rounded up, e^epsilon times that rounded down, and never more than there are."""
    mechanism = random_channel(epsilon, np.random.default_rng(3))
    least, most = (words.tolist() for words in mechanism.words())
    assert least == [math.ceil(Fraction(chance) * WORDS) for chance in mechanism.least]
    assert most == [min(WORDS, math.floor(bound(epsilon) * words)) for words in least]
    assert Memoized(3.0, 1.0, (0.2, 0.8), (0.9, 0.05)).words()[1][0] == WORDS


def test_chances_may_sum_to_all_or_to_just_enough():
    assert Memoized(1.0, 10.0, (0.2, 0.8), (0.5, 0.5)).least == (0.5, 0.5)  # no choice at all
    factor, half = bound(1.0), 2**52
    enough = next(
        (first, second)
        for first in range(math.ceil(half / factor), WORDS)
        for second in range(math.ceil((WORDS - math.floor(factor * first)) / factor), WORDS)[:2]
        if math.floor(factor * first) + math.floor(factor * second) == WORDS
    )
    mechanism = Memoized(1.0, 10.0, (0.2, 0.8), tuple(words / WORDS for words in enough))
    rows = mechanism.words_by_level(PolynomialCosts([[0.1], [99.0]], (2,)))
    assert rows.tolist() == [mechanism.words()[1].tolist()] * 2  # both levels at their most
    fewer = tuple((words - 1) / WORDS for words in enough)
    with pytest.raises(ValueError, match="a sum between e"):
        Memoized(1.0, 10.0, (0.2, 0.8), fewer)


def test_a_chance_of_one_is_one_but_leaves_nothing_for_others():
    with pytest.raises(ValueError, match="least must be a sum between e"):
        Memoized(1.0, 10.0, (0.2, 0.8), (1.0, 0.4))


def test_a_quarter_of_a_surrogates_slope_at_its_level_is_stiff():
    """From a sixth power, the rest from a square: a little beyond its level it costs much more."""
    costs = surrogate(np.array([0.5]), 8.0)
    assert costs.powers == (2, 6)
    square, sixth = costs.coefficients[0]
    assert (2 * square * 0.5, 6 * sixth * 0.5**5) == (pytest.approx(6.0), pytest.approx(2.0))
    always = surrogate(np.array([1.0]), 8.0)
    assert always.slope(np.ones(1))[0] == pytest.approx(0.85 * 8.0)
