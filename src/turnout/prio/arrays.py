"""The field and TurboSHAKE128 on arrays: a row for each report, and no loop over reports."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from turnout.prio.draft import MODULUS, RATE, RATE_WORDS, ROUND_CONSTANTS, lane_moves

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

_P = np.uint64(MODULUS)
_LOW = np.uint64(2**32 - 1)  # also 2^64 modulo p
_32 = np.uint64(32)
_1 = np.uint64(1)
_HALF = np.uint64((MODULUS + 1) // 2)


def add(left: Words, right: Words) -> Words:
    """The sum modulo p of words below p."""
    total = left + right  # modulo 2^64
    total += (total < left) * _LOW
    return np.where(total >= _P, total - _P, total)


def subtract(left: Words, right: Words) -> Words:
    """The difference modulo p of words below p."""
    found: Words = (left - right) - (left < right) * _LOW
    return found


def multiply(left: Words, right: Words) -> Words:
    """The product modulo p: all 128 bits of it, then 2^64 = 2^32 - 1 and 2^96 = -1."""
    left_low, left_high, right_low, right_high = left & _LOW, left >> _32, right & _LOW, right >> _32
    lowest, one, two = left_low * right_low, left_low * right_high, left_high * right_low
    middle = (lowest >> _32) + (one & _LOW) + (two & _LOW)
    low = middle << _32 | lowest & _LOW
    high = left_high * right_high + (one >> _32) + (two >> _32) + (middle >> _32)
    # Neither of these needs words below p here: the second word of each is small enough.
    return add(subtract(low, high >> _32), (high & _LOW) * _LOW)


def halve(words: Words) -> Words:
    """Divided by two modulo p."""
    return (words >> _1) + (words & _1) * _HALF


def is_in_field(words: Words) -> Flags:
    """Which words are below p."""
    return words < _P


def total_of(words: Words) -> int:
    """The sum modulo p, for up to 2^32 words."""
    high, low = int(np.sum(words >> _32, dtype=np.uint64)), int(np.sum(words & _LOW, dtype=np.uint64))
    return ((high << 32) + low) % MODULUS


def first_of_field(stream: Words, count: int) -> Words:
    """The first words of each row that are below p: of a random stream, a word in 2^32 is not."""
    fits = is_in_field(stream)
    if fits[:, :count].all():
        return stream[:, :count]
    order = np.argsort(~fits, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(stream, order, axis=1)


def expand(messages: Bytes, count: int) -> Words:
    """The first words of the field that TurboSHAKE128 gives for each row, with the draft's domain 1."""
    return first_of_field(first_block(messages), count)


def first_block(messages: Bytes) -> Words:
    """The first 168 bytes of TurboSHAKE128 for each row, as 21 words; all rows have the same length."""
    number, length = messages.shape
    blocks = length // RATE + 1
    padded = np.zeros((number, blocks * RATE), np.uint8)
    padded[:, :length] = messages
    padded[:, length] = 1
    padded[:, -1] ^= 0x80
    lanes = padded.view("<u8").reshape(number, blocks, RATE_WORDS)
    state = np.zeros((25, number), np.uint64)
    for block in range(blocks):
        state[:RATE_WORDS] ^= lanes[:, block].T
        _permute(state)
    return np.ascontiguousarray(state[:RATE_WORDS].T)


_FROM = np.array([lane for lane, _ in lane_moves()])
_TURN = np.array([[turn] for _, turn in lane_moves()], np.uint64)
_REST = (np.uint64(64) - _TURN) % np.uint64(64)  # a lane that does not turn is joined with itself
_LEFT, _RIGHT = np.array([4, 0, 1, 2, 3]), np.array([1, 2, 3, 4, 0])
_63 = np.uint64(63)


def _permute(state: Words) -> None:
    """The 12 rounds, in place, on the 25 lanes of many states."""
    moved, turned = np.empty_like(state), np.empty_like(state)
    spare = np.empty((5, state.shape[1]), np.uint64)
    sheets, rows = state.reshape(5, 5, -1), moved.reshape(5, 5, -1)
    for constant in ROUND_CONSTANTS:
        parity = np.bitwise_xor.reduce(sheets, axis=0)
        mixed = (parity << _1 | parity >> _63)[_RIGHT]
        mixed ^= parity[_LEFT]
        sheets ^= mixed
        np.take(state, _FROM, axis=0, out=turned, mode="clip")
        np.left_shift(turned, _TURN, out=moved)
        turned >>= _REST
        moved |= turned
        for x in range(5):
            np.invert(rows[:, (x + 1) % 5], out=spare)
            spare &= rows[:, (x + 2) % 5]
            np.bitwise_xor(rows[:, x], spare, out=sheets[:, x])
        state[0] ^= np.uint64(constant)


def rows_of(items: Sequence[bytes], size: int) -> tuple[Bytes, Flags]:
    """Strings of bytes as the rows of an array, and which of them have the right size; the others are zeros."""
    fits = np.fromiter(map(len, items), np.int64, len(items)) == size
    if not fits.all():
        items = [item if len(item) == size else bytes(size) for item in items]
    return np.frombuffer(b"".join(items), np.uint8).reshape(len(items), size), fits
