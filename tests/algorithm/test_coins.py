import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout import SeededCoins, SystemCoins
from turnout.algorithm.coins import ENROLMENT
from turnout.problem import philox4x32

# Known answers for philox4x32-10, published with Random123 (kat_vectors).
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_published_known_answers(counter, key, answer):
    assert tuple(int(word) for word in philox4x32(counter, key)) == answer


def test_numpys_own_philox_agrees_on_the_construction():
    """Another width of the same construction is no test of ours; the layout of the counter is."""
    seed, client, round = (7 << 32) | 5, 4 * 123 + 2, 99
    block = philox4x32((123, round, 0, 0), (5, 7))
    assert SeededCoins(seed).words([client], round)[0] == block[2]
    far = 4 * (2**32 + 9) + 3
    assert SeededCoins(seed).words([far], round)[0] == philox4x32((9, round, 1, 0), (5, 7))[3]
    assert SeededCoins(seed).words([far], round, ENROLMENT)[0] == philox4x32((9, round, 1, 1), (5, 7))[3]


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.lists(st.integers(0, 10**7), min_size=1, max_size=30))
def test_a_draw_depends_on_seed_client_and_round_alone(seed, round, clients):
    coins = SeededCoins(seed)
    together = coins.words(clients, round)
    alone = [int(coins.words([client], round)[0]) for client in clients]
    assert together.tolist() == alone
    first = min(clients)
    assert coins.words(np.arange(first, first + 50), round)[0] == coins.words([first], round)[0]


def test_uniform_holds_the_integer_exactly():
    coins = SeededCoins(1)
    words = coins.words(np.arange(1000), 5)
    assert np.array_equal(coins.uniform(np.arange(1000), 5) * 2**32, words.astype(float))
    assert len(coins.words([], 0)) == 0
    drawn = SystemCoins().uniform(range(1000), 0) * 2**53
    assert np.array_equal(drawn, np.floor(drawn))
    assert drawn.max() < 2**53
    assert len(np.unique(drawn)) == 1000


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "a"])
def test_bad_seeds(seed):
    with pytest.raises(ValueError, match="seed must be"):
        SeededCoins(seed)


@pytest.mark.parametrize("first", [-4, -1, 2, 5])
def test_shards_are_cut_between_blocks_of_four(first):
    with pytest.raises(ValueError, match="first client must be a multiple of 4"):
        SeededCoins(1, first)


@pytest.mark.parametrize("clients", [[0], [3, 1], range(9), [0, 4_000_000]])
def test_a_shards_clients_toss_as_what_they_are_among_all(clients):
    shard = SeededCoins(5, first=8).words(clients, 2)
    assert shard.tolist() == SeededCoins(5).words(np.array(clients) + 8, 2).tolist()


def test_the_largest_seed_and_the_halves_of_the_key():
    assert SeededCoins(2**64 - 1).key == (2**32 - 1, 2**32 - 1)
    assert SeededCoins(np.int64(0)).key == (0, 0)
    assert SeededCoins(5 * 2**32 + 3).key == (3, 5)


def test_system_coins_use_all_53_bits():
    """Each of these fails by chance with a probability below 10^-30."""
    drawn = SystemCoins().uniform(range(2000), 0)
    words = (drawn * 2**53).astype(np.int64)
    for bit in (0, 1, 51, 52):
        assert set(((words >> bit) & 1).tolist()) == {0, 1}
    assert drawn.min() >= 0.0
