"""Philox4x32-10: random words that are a pure function of a counter and a key (Salmon et al., SC 2011).

Coins and populations that are drawn both use it, so that a client's numbers depend on nothing but its own
number: they are the same wherever and in whatever order they are made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

PARTICIPATION, ENROLMENT, POPULATION, NOISE = 0, 1, 2, 3
"""What a draw is for; different purposes never share a word."""


def philox4x32(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Words, Words, Words, Words]:
    """Philox4x32-10: four words from a counter of four and a key of two, vectorised.

    Example:
        >>> [f"{int(word):08x}" for word in philox4x32((0, 0, 0, 0), (0, 0))]
        ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = (int(word) for word in key)
    for _ in range(10):
        first, second = np.uint64(MULTIPLIERS[0]) * c0, np.uint64(MULTIPLIERS[1]) * c2
        c0, c2 = (second >> half) ^ c1 ^ np.uint64(k0), (first >> half) ^ c3 ^ np.uint64(k1)
        c1, c3 = second & low, first & low
        k0, k1 = (k0 + KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + KEY_STEPS[1]) & 0xFFFFFFFF
    return tuple(word.astype(np.uint32) for word in (c0, c1, c2, c3))  # type: ignore[return-value]


def block_words(blocks: Any, turn: int, purpose: int, key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """The words of clients 4b, 4b + 1, 4b + 2 and 4b + 3 for each block b: one Philox call serves four clients.

    Args:
        blocks: their numbers, as uint64.
        turn: the round, or which of a client's numbers.
        purpose: what for.
        key: two words.
    """
    return philox4x32((blocks & np.uint64(0xFFFFFFFF), turn, blocks >> np.uint64(32), purpose), key)
