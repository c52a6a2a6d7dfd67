"""Who sees what: accounts against the sum are never below the exact law of the sums, or else they are refused."""

import html
import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from turnout import Averaging, Classical, ClientState, PolynomialCosts, client_step
from turnout.algorithm import Clamp, LearnedMemoized, Mechanism, Memoized, TrackingClamp, widest_box
from turnout.privacy.accounting import least_epsilon
from turnout.privacy.accounts import account_of, hidden_in_sum
from turnout.privacy.certificates import certificate
from turnout.privacy.observer import (
    OBSERVERS,
    OTHERS_REPORT,
    PUBLIC_HISTORY,
    RELEASED_ONCE,
    SUM,
    TRUSTED_AGGREGATOR,
    Observer,
)
from turnout.privacy.sum_only import total_epsilon_sum_only

BY_PROBABILITY = Averaging(by="probability")
MEMOIZED = Memoized(4.0, 10.0)


def of_sum(honest, weights=None, **circumstances):
    return Observer(SUM, honest, weights, **({"averaging": BY_PROBABILITY} | circumstances))


@dataclass(frozen=True, eq=False)
class Boxes(Mechanism):
    """A fixed public box for each client."""

    low: object
    high: object
    kind = "boxes"

    @staticmethod
    def response(intent, average, parameters):
        return intent

    def parameters(self):
        return np.asarray(self.low), np.asarray(self.high)

    @staticmethod
    def limits(average, parameters):
        return parameters


def hockey_stick_epsilon(p, q, delta, highest):
    """The least epsilon at delta of two laws, of the worse direction."""
    sides = ((p, q), (q, p))
    return max(
        least_epsilon(lambda e, a=a, b=b: float(np.maximum(0.0, a - math.exp(e) * b).sum()), highest, delta)
        for a, b in sides
    )


# Weights


def sums_of(chances, rounds, step):
    """(losses on a grid, masses) of so many equal rounds of two laws; losses are rounded down."""
    p, q = chances
    losses = np.floor(np.log(p / q) / step).astype(int)
    grid = np.zeros(np.ptp(losses) + 1)
    np.add.at(grid, losses - losses.min(), p)
    length = 1 << math.ceil(math.log2(len(grid) * rounds))
    masses = np.fft.irfft(np.fft.rfft(grid, length) ** rounds, length)
    return (np.arange(length) + rounds * losses.min()) * step, np.maximum(0.0, masses)


def test_a_heavy_client_is_hidden_by_heavy_ones_alone():
    """Five clients of weight 200 among 1,195 of weight 1: 1.99 was printed, and at least 49.8 is true.

    The light ones, all at the low end of their box, shift the total by far less than 100 around their mean: so the
    number of heavy ones who participate can be read from it, but for a chance below 1e-10 in each round.
    """
    rounds, delta, clamp = 100, 1e-6, Clamp(1.180995317760719)
    low, high = clamp.parameters()
    assert 2 * binom.sf(1195 * low + 99, 1195, low) < 1e-10
    weights = np.array([200] * 5 + [1] * 1195)

    def heavy(target):
        masses = np.array([1.0])
        for chance in (target, high, high, high, high):
            masses = np.convolve(masses, [1 - chance, chance])
        return masses

    losses, masses = sums_of((heavy(high), heavy(low)), rounds, 1e-4)
    room = delta + 2 * rounds * 1e-10
    truth = least_epsilon(
        lambda epsilon: float(masses @ np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - losses)))), 118.0, room
    )
    assert truth == pytest.approx(49.8, abs=0.05)
    printed = total_epsilon_sum_only(low, high, rounds, delta, 1199).epsilon  # what ignored the weights
    assert printed == pytest.approx(1.99, abs=0.005)
    now = account_of(clamp, rounds, delta, of_sum(1199, weights))
    assert truth < now.epsilon < 118.1
    assert "hidden among clients of the same weight" in now.how
    # One of them may be the observer, who knows its own bit; the worst case is then among three.
    assert account_of(clamp, rounds, delta, of_sum(1198, weights)).epsilon > now.epsilon


def test_equal_weights_and_none_are_the_same_and_scale_nothing():
    clamp = Clamp(1.0)
    alone = account_of(clamp, 20, 1e-6, of_sum(48))
    for weights in (np.ones(50), np.full(50, 7)):
        assert account_of(clamp, 20, 1e-6, of_sum(48, weights)).epsilon < alone.epsilon * (1 + 1e-9)
        assert account_of(clamp, 20, 1e-6, of_sum(49, weights)) == replace(
            account_of(clamp, 20, 1e-6, of_sum(49)), against="an observer of the sum alone, with 49 honest others"
        )


def test_clients_of_a_weight_of_their_own_are_seen():
    clamp = Clamp(0.5)
    seen = account_of(clamp, 30, 1e-6).epsilon
    assert account_of(clamp, 30, 1e-6, of_sum(9, np.arange(1, 11))).epsilon == seen
    assert [way.honest for way in hidden_in_sum(clamp, of_sum(9, np.arange(1, 11)))] == [0]
    many = np.repeat([1, 3], 50)
    assert [way.honest for way in hidden_in_sum(clamp, of_sum(99, many))] == [49]
    assert [way.honest for way in hidden_in_sum(clamp, of_sum(90, many))] == [40]
    assert [way.honest for way in hidden_in_sum(clamp, of_sum(10, many))] == [0]


# Boxes that differ


def test_one_wide_box_among_narrow_ones():
    """0.044 was printed, since the others were taken to have the wide box too; 0.406 is true."""
    others, delta, chance = 1930, 1e-6, 0.00624
    low, high = widest_box(0.5)
    boxes = Boxes(np.array([low] + [chance] * others), np.array([high] + [chance * 1.01] * others))
    number = np.arange(others + 2)
    with_one, without = binom.pmf(number - 1, others, chance), binom.pmf(number, others, chance)
    p, q = (end * with_one + (1 - end) * without for end in (high, low))
    truth = hockey_stick_epsilon(p, q, delta, 0.5)
    assert truth == pytest.approx(0.406, abs=0.0005)
    assert total_epsilon_sum_only(low, high, 1, delta, others).epsilon == pytest.approx(0.044, abs=0.0005)
    assert truth <= account_of(boxes, 1, delta, of_sum(others)).epsilon < 1.01 * truth


# Random weights and boxes, by enumeration


def convolved(chances, weights):
    """The law of a weighted sum of independent bits, shape (sum of weights + 1,)."""
    masses = np.zeros(int(np.sum(weights)) + 1)
    masses[0] = 1.0
    for chance, weight in zip(chances, weights, strict=True):
        masses = (1 - chance) * masses + chance * np.roll(masses, weight)
    return masses


@st.composite
def crowds(draw):
    """(weights, boxes, how many are honest, delta, a source of chance) of two to six clients."""
    clients = draw(st.integers(2, 6))
    weights = draw(st.lists(st.sampled_from([1, 1, 2, 5]), min_size=clients, max_size=clients))
    some = draw(st.lists(st.tuples(st.floats(0.02, 0.9), st.floats(0.01, 0.9)), min_size=1, max_size=clients))
    boxes = [(low, low + (0.99 - low) * wide) for low, wide in (some[i % len(some)] for i in range(clients))]
    honest = draw(st.integers(0, clients - 1))
    return np.array(weights), boxes, honest, draw(st.sampled_from([1e-3, 0.02, 0.2])), draw(st.integers(0, 2**32))


def enumerated_epsilon(weights, boxes, honest, delta, rounds, random):
    """Against one who knows the bits of all that are not honest: one target, costs and signals at random.

    In the second round all chances may depend on the first total, which is public, and on nothing else.
    """
    target = random.integers(len(weights))
    rest = [one for one in range(len(weights)) if one != target]
    hiding = list(random.permutation(rest)[:honest])
    chance = lambda one: boxes[one][random.integers(2)]  # noqa: E731

    def law(ends):
        own = [chance(one) for one in hiding]
        return [convolved([end, *own], [weights[target], *weights[hiding]]) for end in ends]

    low, high = boxes[target]
    sides = lambda: [(high, low), (low, high)][random.integers(2)]  # noqa: E731
    p, q = law(sides())
    if rounds == 2:
        seconds = [law(sides()) for _ in p]
        p = np.array([mass * second[0] for mass, second in zip(p, seconds, strict=True)])
        q = np.array([mass * second[1] for mass, second in zip(q, seconds, strict=True)])
    return hockey_stick_epsilon(p, q, delta, 30.0)


@settings(max_examples=150, deadline=None)
@given(crowds(), st.integers(1, 2))
def test_no_enumerated_law_is_above_the_account(crowd, rounds):
    weights, boxes, honest, delta, seed = crowd
    random = np.random.default_rng(seed)
    low, high = np.array(boxes).T
    found = account_of(Boxes(low, high), rounds, delta, of_sum(honest, weights)).epsilon
    for _ in range(10):
        assert enumerated_epsilon(weights, boxes, honest, delta, rounds, random) <= found * (1 + 1e-9) + 1e-9


def test_the_enumeration_catches_an_account_that_ignores_weights_or_boxes():
    """The twins: as if all had weight 1, and as if all had the target's box."""
    weights, delta, random = np.array([5, 1, 1, 1, 1, 1]), 0.02, np.random.default_rng(0)
    boxes = [(0.3, 0.7)] * 6
    ignorant = total_epsilon_sum_only(0.3, 0.7, 1, delta, 5).epsilon
    assert max(enumerated_epsilon(weights, boxes, 5, delta, 1, random) for _ in range(50)) > 1.2 * ignorant
    boxes = [(0.3, 0.7), *[(0.02, 0.03)] * 5]
    assert max(enumerated_epsilon(np.ones(6, int), boxes, 5, delta, 1, random) for _ in range(50)) > 1.2 * ignorant


# States that carry hidden bits


def two_rounds(first, second):
    """The law of (bit, next bit) of one client: its chance first, and then after a "no" and after a "yes"."""
    return np.array(
        [[(first if a else 1 - first) * (second[a] if b else 1 - second[a]) for b in (0, 1)] for a in (0, 1)]
    )


def added(grid, law):
    """The law of two sums, with one more client."""
    more = np.zeros((grid.shape[0] + 1, grid.shape[1] + 1))
    for a, b in itertools.product((0, 1), repeat=2):
        more[a : a + grid.shape[0], b : b + grid.shape[1]] += law[a, b] * grid
    return more


def exact_of_two_rounds(others, second):
    """Two sums at epsilon 4 with 200 others: those begin at the low end, and then go on as `second` says."""
    low, high = Clamp(4.0).parameters()
    grid = np.ones((1, 1))
    for _ in range(others):
        grid = added(grid, two_rounds(low, second))
    p, q = added(grid, two_rounds(high, (high, high))), added(grid, two_rounds(low, (low, low)))
    return hockey_stick_epsilon(p, q, 0.01, 8.0)


def test_a_history_that_moves_by_the_bit_carries_hidden_bits_into_later_sums():
    """The others' intent jumps from 1 to 0 as their average passes a threshold: 5.13 is true, 4.24 was printed."""
    clamp = Clamp(4.0)
    low, high = clamp.parameters()
    account = account_of(clamp, 2, 0.01, of_sum(200)).epsilon
    assert account == pytest.approx(4.24, abs=0.005)
    assert exact_of_two_rounds(200, second=(high, low)) == pytest.approx(5.13, abs=0.005)
    with pytest.raises(ValueError, match="a history that moves by the bit carries hidden bits into later sums"):
        account_of(clamp, 2, 0.01, of_sum(200, averaging=Averaging()))
    for moved in ((low, low), (high, high)):  # by the probability: the next chance does not know the bit
        assert exact_of_two_rounds(200, second=moved) <= account


def test_a_history_that_moves_by_the_probability_is_the_same_after_a_yes_and_a_no():
    costs, clamp = PolynomialCosts(np.array([[3.0]]), (2,)), Clamp(4.0)
    for averaging, same in ((BY_PROBABILITY, True), (Averaging(), False)):
        yes, no = (
            client_step(costs, clamp, ClientState(np.array([5.0]), 10.0), 2.0, np.array([coin]), averaging=averaging)
            for coin in (0.0, 0.999999)
        )
        assert (bool(yes[1]), bool(no[1])) == (True, False)
        assert bool(yes[0].participations[0] == no[0].participations[0]) is same


# What is refused, and what is assumed


@pytest.mark.parametrize(
    ("mechanism", "circumstances", "told"),
    [
        (Clamp(1.0), {"averaging": Averaging()}, "must be by 'probability', got 'bit'"),
        (Clamp(1.0), {"missing": "last"}, "must be 'absent', got 'last': a silent client's last bit is repeated"),
        (TrackingClamp(1.0), {}, "its box follows the average"),
        (TrackingClamp(1.0), {"averaging": Averaging()}, "its box follows the average"),
    ],
)
def test_an_account_that_would_be_false_is_refused(mechanism, circumstances, told):
    for refused in (account_of, lambda mechanism, rounds, delta, observer: certificate(mechanism, observer)):
        with pytest.raises(ValueError, match=told):
            refused(mechanism, 10, 1e-6, of_sum(100, **circumstances))


def test_an_average_that_moved_by_the_probability_is_public_to_nobody():
    with pytest.raises(ValueError, match="averaging by 'probability'"):
        account_of(TrackingClamp(1.0), 10, 1e-6, Observer(averaging=BY_PROBABILITY))


def test_a_release_is_all_that_anyone_sees():
    for circumstances in ({"averaging": Averaging()}, {"missing": "last"}):
        assert account_of(MEMOIZED, 10, 1e-6, of_sum(3, **circumstances)).epsilon == 4.0


@pytest.mark.parametrize(
    ("mechanism", "observer", "assumed"),
    [
        (Clamp(1.0), Observer(), ()),
        (Clamp(1.0), of_sum(100), (TRUSTED_AGGREGATOR, OTHERS_REPORT)),
        (TrackingClamp(1.0), Observer(), (PUBLIC_HISTORY,)),
        (MEMOIZED, Observer(), (RELEASED_ONCE,)),
        (MEMOIZED, of_sum(100), (RELEASED_ONCE,)),
        (LearnedMemoized(4.0), Observer(), (RELEASED_ONCE,)),
        (Classical(), of_sum(100), (TRUSTED_AGGREGATOR, OTHERS_REPORT)),
    ],
    ids=str,
)
def test_assumptions_are_data_and_are_said(mechanism, observer, assumed):
    account, promise = account_of(mechanism, 10, 1e-6, observer), certificate(mechanism, observer)
    assert account.assumptions == promise.assumptions == assumed
    assert account.against == promise.against == str(observer)
    for one in assumed:
        assert one in repr(account)
        assert html.escape(one) in account._repr_html_()
        assert one in str(promise) or not promise.is_bounded
    assert (", if " in repr(account)) == bool(assumed)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"sees": "nobody"}, "observer must be 'every-report' or 'sum'"),
        ({"missing": "perhaps"}, "missing must be 'absent' or 'last'"),
        ({"honest": 3}, "honest must be given for an observer of the sum alone"),
        ({"sees": SUM}, "honest must be a whole number of at least 0"),
        ({"sees": SUM, "honest": -1}, "honest must be a whole number"),
        ({"sees": SUM, "honest": 1.5}, "honest must be a whole number"),
        ({"sees": SUM, "honest": 3, "weights": [1, 1, 2]}, "honest must be below 3, the number of clients"),
    ],
)
def test_observers_that_make_no_sense(given, told):
    with pytest.raises(ValueError, match=told):
        Observer(**given)


def test_boxes_weights_and_honest_others_of_different_numbers():
    boxes = Boxes(np.full(4, 0.3), np.full(4, 0.7))
    for observer in (of_sum(4), of_sum(2, np.ones(3)), of_sum(4, np.ones(9))):
        with pytest.raises(ValueError, match="of one number of clients"):
            account_of(boxes, 5, 1e-6, observer)


def test_there_are_two_observers():
    assert OBSERVERS == ("every-report", "sum")
