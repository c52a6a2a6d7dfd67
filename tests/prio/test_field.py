"""The field on 64-bit words against Python's whole numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.prio import MODULUS, arrays, draft

EDGES = sorted(
    {
        value % MODULUS
        for base in (
            0,
            2**31,
            2**32,
            2**33,
            2**48,
            2**63,
            2**64 - 2**33,
            MODULUS // 2,
            MODULUS - 2**32,
            draft.FOURTH_ROOT,
        )
        for value in (base - 2, base - 1, base, base + 1, base + 2)
    }
)
WORDS = st.one_of(st.sampled_from(EDGES), st.integers(0, MODULUS - 1))
OPERATIONS = {
    "add": lambda one, two: (one + two) % MODULUS,
    "subtract": lambda one, two: (one - two) % MODULUS,
    "multiply": lambda one, two: one * two % MODULUS,
}


def words(values):
    return np.array(values, np.uint64)


@pytest.mark.parametrize("name", OPERATIONS)
def test_all_pairs_of_edges(name):
    pairs = [(one, two) for one in EDGES for two in EDGES]
    left, right = (words(side) for side in zip(*pairs, strict=True))
    assert getattr(arrays, name)(left, right).tolist() == [OPERATIONS[name](*pair) for pair in pairs]


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=40))
def test_any_words(pairs):
    left, right = (words(side) for side in zip(*pairs, strict=True))
    for name, exact in OPERATIONS.items():
        assert getattr(arrays, name)(left, right).tolist() == [exact(*pair) for pair in pairs]
    half = pow(2, -1, MODULUS)
    assert arrays.halve(left).tolist() == [one * half % MODULUS for one, _ in pairs]
    assert arrays.total_of(left) == sum(one for one, _ in pairs) % MODULUS


def test_many_random_products():
    left, right = np.random.default_rng(7).integers(0, MODULUS, (2, 100_000), np.uint64)
    exact = [one * two % MODULUS for one, two in zip(left.tolist(), right.tolist(), strict=True)]
    assert arrays.multiply(left, right).tolist() == exact


def test_products_whose_lower_half_is_at_an_edge():
    """Of random products, one in 2^32 has a lower half that is p or more, or next to nothing."""
    some = (2 * np.random.default_rng(5).integers(0, MODULUS // 2, 200, np.uint64) + 1).tolist()
    pairs = []
    for low in (0, 1, 5, 2**32 - 2, 2**32 - 1, 2**32, MODULUS - 1, MODULUS, MODULUS + 1, 2**64 - 2, 2**64 - 1):
        pairs += [(one, low * pow(one, -1, 2**64) % 2**64) for one in some]
    pairs = [(one, two) for one, two in pairs if max(one, two) < MODULUS]
    assert len(pairs) > 2_000
    left, right = (words(side) for side in zip(*pairs, strict=True))
    assert arrays.multiply(left, right).tolist() == [one * two % MODULUS for one, two in pairs]


def test_the_total_of_the_largest_words():
    assert arrays.total_of(np.full(100_000, MODULUS - 1, np.uint64)) == (100_000 * (MODULUS - 1)) % MODULUS


def test_the_constants():
    assert all(
        pow(7, (MODULUS - 1) // prime, MODULUS) != 1 for prime in (2, 3, 5, 17, 257, 65537)
    )  # p - 1 has no others
    assert draft.FOURTH_ROOT**2 % MODULUS == MODULUS - 1
    assert arrays.is_in_field(words([0, MODULUS - 1, MODULUS, 2**64 - 1])).tolist() == [True, True, False, False]


def test_words_of_the_stream_that_are_too_large_are_left_out_by_both_sides(monkeypatch):
    """One word in 2^32 is: no seed is known that shows it, so the stream is made up."""
    stream = np.random.default_rng(3).integers(0, MODULUS, (4, 21), np.uint64)
    stream[1, 0] = MODULUS
    stream[2, [0, 2, 3]] = 2**64 - 1
    stream[3, 5:] = MODULUS
    for count in (1, 2, 5):
        plain = []
        for row in stream:
            monkeypatch.setattr(draft, "turboshake128", lambda *_, row=row: row.astype("<u8").tobytes())
            plain.append(draft.expand(draft.BIT_SHARE, b"", bytes(32), count))
        assert arrays.first_of_field(stream, count).tolist() == plain
        assert plain[1][0] == int(stream[1, 1])
