"""What an observer has seen: its shapes, its bits, and the first rounds of it."""

import numpy as np
import pytest

from turnout.attack.evidence import Reports


def test_rounds_and_clients_and_the_first_of_them():
    bits = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0]])
    seen = Reports([1, 2, 3, 4], bits)
    assert (seen.rounds, seen.clients) == (4, 3)
    assert (type(seen.rounds), type(seen.clients)) == (int, int)
    assert (seen.bits.dtype, seen.signals.dtype) == (np.uint8, np.float64)
    np.testing.assert_array_equal(seen.bits, bits)
    first = seen.first(2)
    assert (first.rounds, first.clients, first.signals.tolist()) == (2, 3, [1.0, 2.0])
    np.testing.assert_array_equal(first.bits, bits[:2])
    assert seen.first(0).rounds == 0
    assert repr(seen) == "Reports(4 rounds of 3 clients)"


def test_bits_that_are_right_are_not_copied():
    bits = np.ones((2, 5), np.uint8)
    assert np.shares_memory(Reports(np.zeros(2), bits).bits, bits)


@pytest.mark.parametrize(
    ("signals", "bits"),
    [
        (np.zeros(3), np.zeros((2, 5))),
        (np.zeros(5), np.zeros((2, 5))),
        (np.zeros((2, 5)), np.zeros((2, 5))),
        (np.zeros(2), np.zeros(2)),
        (np.zeros(2), np.zeros((2, 5, 1))),
        (0.0, np.zeros((2, 5))),
    ],
    ids=lambda value: str(np.shape(value)),
)
def test_other_shapes_are_refused(signals, bits):
    with pytest.raises(ValueError, match="signals and bits must be of shapes"):
        Reports(signals, bits)


@pytest.mark.parametrize("bad", [-1, 2, 0.5, np.nan])
def test_what_is_no_bit_is_refused_wherever_it_is(bad):
    bits = np.zeros((2, 3))
    bits[1, 1], bits[0, 2] = bad, 1.0
    with pytest.raises(ValueError, match="bits must be 0 or 1"):
        Reports(np.zeros(2), bits)
    with pytest.raises(ValueError, match="bits must be 0 or 1"):
        Reports(np.zeros(2), np.full((2, 3), bad))
