"""Randomness is an argument: seeded coins for simulation, the operating system's for real clients.

Both give numbers of the form integer * 2^-bits, which floating point holds exactly. So
`uniform < probability` compares integers: it is true for exactly ceil(probability * 2^bits) of
the 2^bits words.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from turnout.errors import invalid
from turnout.problem.costs import Array

Words = npt.NDArray[np.uint32]

# Philox4x32: the two multipliers, and the two steps of the key (Salmon et al., SC 2011).
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

PARTICIPATION, ENROLMENT = 0, 1  # what a draw is for; different purposes never share a word


class Coins(Protocol):
    """Where a client's randomness comes from."""

    def uniform(self, clients: Any, round: int, purpose: int = PARTICIPATION) -> Array:
        """One number in [0, 1) for each client, shape (clients,)."""
        ...


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


@dataclass(frozen=True)
class SeededCoins:
    """Repeatable coins: a client's draw depends on (seed, client, round) alone.

    So the result is the same whichever engine runs, and however clients are split over threads
    or machines. One block of Philox4x32-10 serves four neighbouring clients in one round:
    counter = (client // 4, round, (client // 4) >> 32, purpose), word = client % 4, key = seed.

    Args:
        seed: from 0 to 2^64 - 1.

    Example:
        >>> SeededCoins(seed=1).uniform([7], round=3) == SeededCoins(seed=1).uniform(range(9), round=3)[7]
        array([ True])
    """

    seed: int

    def __post_init__(self) -> None:
        if not isinstance(self.seed, (int, np.integer)) or not 0 <= self.seed < 2**64:
            raise invalid("seed", "a whole number from 0 to 2^64 - 1", self.seed, "choose one in that range")

    @property
    def key(self) -> tuple[int, int]:
        """The seed as Philox's key of two words."""
        return int(self.seed) & 0xFFFFFFFF, int(self.seed) >> 32

    def words(self, clients: Any, round: int, purpose: int = PARTICIPATION) -> Words:
        """One 32-bit word for each client, shape (clients,)."""
        clients = np.asarray(clients, dtype=np.uint64)
        if clients.size == 0:
            return np.empty(0, dtype=np.uint32)
        first, last = int(clients.min()) // 4, int(clients.max()) // 4
        if last - first < clients.size:  # dense: each block is made once, for four clients
            blocks = np.arange(first, last + 1, dtype=np.uint64)
            quads = np.stack(self._block(blocks, round, purpose), axis=-1).reshape(-1)
            return quads[clients - np.uint64(4 * first)]  # type: ignore[no-any-return]
        quads = np.stack(self._block(clients // np.uint64(4), round, purpose), axis=-1)
        return quads[np.arange(clients.size), clients % np.uint64(4)]  # type: ignore[no-any-return]

    def _block(self, blocks: Any, round: int, purpose: int) -> tuple[Words, Words, Words, Words]:
        low, high = blocks & np.uint64(0xFFFFFFFF), blocks >> np.uint64(32)
        return philox4x32((low, round, high, purpose), self.key)

    def uniform(self, clients: Any, round: int, purpose: int = PARTICIPATION) -> Array:
        """One number in [0, 1) for each client: its word * 2^-32, shape (clients,)."""
        return self.words(clients, round, purpose).astype(np.float64) * 2.0**-32


@dataclass(frozen=True)
class SystemCoins:
    """Fresh coins from the operating system's entropy, for real clients: 53 bits each.

    Example:
        >>> bool(0 <= SystemCoins().uniform([0], round=0)[0] < 1)
        True
    """

    def uniform(self, clients: Any, round: int, purpose: int = PARTICIPATION) -> Array:
        """One number in [0, 1) for each client: a 53-bit integer * 2^-53, shape (clients,)."""
        words = np.frombuffer(os.urandom(8 * len(clients)), dtype=np.uint64)
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
