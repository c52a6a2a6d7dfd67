"""False-alarm rate 1e-6 each; each has a sabotaged twin that must fail."""

from functools import cache

import numpy as np
import pytest

from statistical.binomial import assert_proportion
from turnout import Classical, ClientState, PaperCoin, PolynomialCosts, SeededCoins, SystemCoins, client_step
from turnout.algorithm.coins import KeyedCoins

N = 400_000


@cache
def draws(coins, rounds=1):
    return np.concatenate([coins.uniform(np.arange(N // rounds), k) for k in range(rounds)])


class Keyed:
    """A real client's coins, each for another signal, as a server that tries many would have them tossed."""

    def uniform(self, clients, round):
        key = b"a key of a client, fixed for this"
        return np.array([KeyedCoins(key, ("run", 1.0 + 1e-9 * k, 5.0, 10.0)).uniform([0], round)[0] for k in clients])


COINS = {
    "over clients": (SeededCoins(1), 1),
    "over rounds": (SeededCoins(2), 1000),
    "system": (SystemCoins(), 1),
    "keyed": (Keyed(), 4),
}


@pytest.mark.parametrize("which", COINS)
@pytest.mark.parametrize("probability", [0.001, 0.184, 0.5, 0.97])
def test_uniform(which, probability):
    assert_proportion(np.sum(draws(*COINS[which]) < probability), N, probability)


@pytest.mark.parametrize("which", COINS)
def test_uniform_sabotaged(which):
    with pytest.raises(AssertionError):
        assert_proportion(np.sum(draws(*COINS[which]) * 0.98 < 0.5), N, 0.5)


@pytest.mark.parametrize("shift", ["client", "round", "seed"])
def test_neighbours_are_independent(shift):
    """Both of two neighbours are below 1/2 a quarter of the time."""
    one = SeededCoins(3).uniform(np.arange(N), 5)
    other = {
        "client": lambda: SeededCoins(3).uniform(np.arange(N) + 1, 5),
        "round": lambda: SeededCoins(3).uniform(np.arange(N), 6),
        "seed": lambda: SeededCoins(4).uniform(np.arange(N), 5),
    }[shift]()
    assert_proportion(np.sum((one < 0.5) & (other < 0.5)), N, 0.25)


def test_neighbours_sabotaged():
    one = SeededCoins(3).uniform(np.arange(N), 5)
    with pytest.raises(AssertionError):
        assert_proportion(np.sum((one < 0.5) & (np.roll(one, 1) * 0.5 + one * 0.5 < 0.5)), N, 0.25)


def decisions(mechanism, uniform):
    """Costs x^2 at signal 0.6: an intent of 0.3, whatever the average."""
    costs = PolynomialCosts(np.ones((N, 1)), (2,))
    return client_step(costs, mechanism, ClientState(np.ones(N), 2.0), 0.6, uniform)[1]


def test_one_uniform_serves_both_coins():
    """P(X=1) = sigma + (1 - sigma) p.

    Paper: Algorithm 3, Eqs. (8) to (10).
    """
    coin = 1.5 / 2 * np.exp(-1.5)
    assert_proportion(decisions(PaperCoin(1.5), draws(SeededCoins(5))).sum(), N, 0.3 + 0.7 * coin)
    assert_proportion(decisions(Classical(), draws(SeededCoins(6))).sum(), N, 0.3)


def test_one_uniform_sabotaged():
    with pytest.raises(AssertionError):  # the coin tossed whatever the intent
        assert_proportion(decisions(PaperCoin(1.5), draws(SeededCoins(5))).sum(), N, 0.3 + 1.5 / 2 * np.exp(-1.5))
