"""Randomness is an argument: seeded coins for simulation, secret ones for real clients.

Both give numbers of the form integer * 2^-bits, which floating point holds exactly. So
`uniform < probability` compares integers: it is true for exactly ceil(probability * 2^bits) of
the 2^bits words.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from turnout.errors import invalid
from turnout.problem import ENROLMENT as ENROLMENT
from turnout.problem import PARTICIPATION, Array, Words, block_words


class Coins(Protocol):
    """Where a client's randomness comes from."""

    def uniform(self, clients: Any, round: int, purpose: int = PARTICIPATION) -> Array:
        """One number in [0, 1) for each client, shape (clients,)."""
        ...


@dataclass(frozen=True)
class SeededCoins:
    """Repeatable coins: a client's draw depends on (seed, client, round) alone.

    So the result is the same whichever engine runs, and however clients are split over threads
    or machines. One block of Philox4x32-10 serves four neighbouring clients in one round:
    counter = (client // 4, round, (client // 4) >> 32, purpose), word = client % 4, key = seed.

    Args:
        seed: from 0 to 2^64 - 1.
        first: the number of the first client, a multiple of 4: where clients are a shard of more, they are
            counted from 0 within it, and have the coins of their numbers among all.

    Example:
        >>> SeededCoins(seed=1).uniform([7], round=3) == SeededCoins(seed=1).uniform(range(9), round=3)[7]
        array([ True])
    """

    seed: int
    first: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.seed, (int, np.integer)) or not 0 <= self.seed < 2**64:
            raise invalid("seed", "a whole number from 0 to 2^64 - 1", self.seed, "choose one in that range")
        if self.first < 0 or self.first % 4:
            raise invalid("first client", "a multiple of 4", self.first, "cut shards between blocks of four clients")

    @property
    def key(self) -> tuple[int, int]:
        """The seed as Philox's key of two words."""
        return int(self.seed) & 0xFFFFFFFF, int(self.seed) >> 32

    def words(self, clients: Any, round: int, purpose: int = PARTICIPATION) -> Words:
        """One 32-bit word for each client, shape (clients,)."""
        clients = np.asarray(clients, dtype=np.uint64) + np.uint64(self.first)
        if clients.size == 0:
            return np.empty(0, dtype=np.uint32)
        first, last = int(clients.min()) // 4, int(clients.max()) // 4
        if last - first < clients.size:  # dense: each block is made once, for four clients
            blocks = np.arange(first, last + 1, dtype=np.uint64)
            quads = np.stack(block_words(blocks, round, purpose, self.key), axis=1).ravel()
            return quads[clients - np.uint64(4 * first)]  # type: ignore[no-any-return]
        quads = np.stack(block_words(clients // np.uint64(4), round, purpose, self.key), axis=1)
        return quads[np.arange(clients.size), clients % np.uint64(4)]  # type: ignore[no-any-return]

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


@dataclass(frozen=True)
class KeyedCoins:
    """Coins from a secret key: nobody without it can tell them from the operating system's, and they can be repeated.

    A client that is restored from a backup tosses the same coin in the same circumstances, so that a restored copy
    reveals nothing new. All that its probability depends on, except for the cost, must be in the circumstances, above
    all the *signal*: one coin compared with two probabilities would reveal which is larger.

    Args:
        key: 16 to 64 secret bytes.
        circumstances: such as run, signal and history.

    Example:
        >>> coins = KeyedCoins(b"sixteen secret b", ("run", 2.5))
        >>> bool(coins.uniform([0], 7) == coins.uniform([0], 7)), bool(coins.uniform([0], 7) == coins.uniform([0], 8))
        (True, False)
    """

    key: bytes = field(repr=False)
    circumstances: tuple[str | float, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not 16 <= len(self.key) <= 64:
            raise invalid("key", "16 to 64 bytes", f"{len(self.key)} bytes", "draw it with secrets.token_bytes(32)")

    def uniform(self, clients: Any, round: int, purpose: int = PARTICIPATION) -> Array:
        """One number in [0, 1) for each client: a 53-bit integer * 2^-53, shape (clients,)."""
        found = [repr((self.circumstances, int(client), int(round), int(purpose))).encode() for client in clients]
        words = [hashlib.blake2b(text, digest_size=8, key=self.key, person=b"turnout coin").digest() for text in found]
        return np.array([int.from_bytes(word) >> 11 for word in words], dtype=np.float64) * 2.0**-53
