"""What the draft fixes: its number, its algorithm, its sizes, and the random words that both sides derive from seeds.

Everything of draft-irtf-cfrg-vdaf that may change with its next version stands here, and nowhere else. Plain Python: a
device needs no NumPy for it.
"""

from __future__ import annotations

from functools import cache

DRAFT = "draft-irtf-cfrg-vdaf-20"
"""The text that this package follows. It is not an RFC yet: another draft may give other bytes."""

VERSION = 18
"""Of the bytes: the draft's constant VERSION, which is part of every derivation."""

ALGORITHM = 1
"""Prio3Count in the draft's list of algorithms."""

PROOFS = 1
"""In every report."""

MODULUS = 2**64 - 2**32 + 1
"""Of the field Field64, a prime number: shares are whole numbers below it."""

FOURTH_ROOT = pow(7, (MODULUS - 1) // 4, MODULUS)
"""The fourth root of one at whose powers the proof's polynomial is given; 7 generates the field's whole group."""

SEED_BYTES, NONCE_BYTES, WORD_BYTES = 32, 16, 8
PROOF_WORDS = 5
"""Two blinds, and three values of the product of two lines."""

SHARE_BYTES = {"leader": (1 + PROOF_WORDS) * WORD_BYTES, "helper": SEED_BYTES}
VERIFIER_WORDS = 4
HELPER = 1
"""The helper's place among the aggregators; the leader's is 0."""

BIT_SHARE, PROOF_SHARE, BLINDS, QUERY_POINT = 1, 2, 4, 5
"""What derived words are used for; the draft's usages 3, 6 and 7 belong to other algorithms."""

LONGEST_CONTEXT = 2**16 - 1 - 8

HEAVIEST = 2**32 - 1
"""The largest weight of a device: its product with a share is worked out in halves of so many bits."""

RATE = 168
"""Bytes that TurboSHAKE128 takes in or gives out per permutation: 21 words of 64 bits."""

RATE_WORDS = RATE // WORD_BYTES

ROUND_CONSTANTS = (
    0x000000008000808B,
    0x800000000000008B,
    0x8000000000008089,
    0x8000000000008003,
    0x8000000000008002,
    0x8000000000000080,
    0x000000000000800A,
    0x800000008000000A,
    0x8000000080008081,
    0x8000000000008080,
    0x0000000080000001,
    0x8000000080008008,
)
"""Of the last 12 of Keccak's 24 rounds (FIPS 202); TurboSHAKE (RFC 9861) has no others."""


def message_head(usage: int, context: bytes) -> bytes:
    """The beginning of what is hashed, up to the seed: the lengths, the domain and the context."""
    domain = bytes([VERSION, 0]) + ALGORITHM.to_bytes(4, "big") + usage.to_bytes(2, "big")
    return (len(domain) + len(context)).to_bytes(2, "little") + domain + context + bytes([SEED_BYTES])


def message_tail(usage: int) -> bytes:
    """What follows the seed; for the query point, the nonce follows too."""
    return {
        BIT_SHARE: bytes([HELPER]),
        PROOF_SHARE: bytes([PROOFS, HELPER]),
        BLINDS: bytes([PROOFS]),
        QUERY_POINT: bytes([PROOFS]),
    }[usage]


def expand(usage: int, context: bytes, seed: bytes, count: int) -> list[int]:
    """Some words of the field from a seed, all equally likely to whoever does not have the seed."""
    stream = turboshake128(message_head(usage, context) + seed + message_tail(usage), 1, RATE)
    words = [int.from_bytes(stream[at : at + WORD_BYTES], "little") for at in range(0, RATE, WORD_BYTES)]
    return [word for word in words if word < MODULUS][:count]  # 2^-32 is the chance of a word that is not


def turboshake128(message: bytes, domain: int, length: int) -> bytes:
    """TurboSHAKE128 of RFC 9861 in plain Python: any number of bytes from a message and a domain from 1 to 127.

    Python's `hashlib` has SHAKE128, which makes twice as many rounds and gives other bytes.

    Example:
        >>> turboshake128(b"", 0x1F, 8).hex()
        '1e415f1c5983aff2'
    """
    padded = bytearray(message) + bytes([domain])
    padded += bytes(-len(padded) % RATE)
    padded[-1] ^= 0x80
    state = [0] * 25
    for start in range(0, len(padded), RATE):
        for lane in range(RATE_WORDS):
            at = start + WORD_BYTES * lane
            state[lane] ^= int.from_bytes(padded[at : at + WORD_BYTES], "little")
        state = _permuted(state)
    found = b"".join(word.to_bytes(WORD_BYTES, "little") for word in state[:RATE_WORDS])
    while len(found) < length:
        state = _permuted(state)
        found += b"".join(word.to_bytes(WORD_BYTES, "little") for word in state[:RATE_WORDS])
    return found[:length]


@cache
def lane_moves() -> list[tuple[int, int]]:
    """Keccak's steps rho and pi: for each of the 25 lanes, the lane that it comes from, and by how much it turns."""
    turns, (x, y) = {(0, 0): 0}, (1, 0)
    for step in range(24):
        turns[x, y] = (step + 1) * (step + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    moves = {y + 5 * ((2 * x + 3 * y) % 5): (x + 5 * y, turn) for (x, y), turn in turns.items()}
    return [moves[lane] for lane in range(25)]


_FULL = 2**64 - 1
_TURNS = [(lane, lane % 5, turn, 64 - turn) for lane, turn in lane_moves()]
_ROWS = [(5 * y + x, 5 * y + (x + 1) % 5, 5 * y + (x + 2) % 5) for y in range(5) for x in range(5)]


def _permuted(state: list[int]) -> list[int]:
    """The state after the 12 rounds."""
    for constant in ROUND_CONSTANTS:
        parity = [state[x] ^ state[x + 5] ^ state[x + 10] ^ state[x + 15] ^ state[x + 20] for x in range(5)]
        turned = [(word << 1 & _FULL) | word >> 63 for word in parity]
        mixed = [parity[x - 1] ^ turned[x - 4] for x in range(5)]  # the columns left and right; -4 is +1 of five
        moved = [
            ((word := state[lane] ^ mixed[column]) << turn | word >> rest) & _FULL
            for lane, column, turn, rest in _TURNS
        ]
        state = [moved[one] ^ (~moved[two] & moved[three]) for one, two, three in _ROWS]
        state[0] ^= constant
    return state
