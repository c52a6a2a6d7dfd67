"""The device's side: one bit becomes two shares with a proof that it is a bit. Plain Python, some 0.6 ms per report."""

from __future__ import annotations

import secrets
import struct
from dataclasses import dataclass, field

from turnout.errors import check_number, invalid
from turnout.prio.draft import (
    BIT_SHARE,
    BLINDS,
    FOURTH_ROOT,
    HEAVIEST,
    LONGEST_CONTEXT,
    MODULUS,
    NONCE_BYTES,
    PROOF_SHARE,
    PROOF_WORDS,
    SEED_BYTES,
    WORD_BYTES,
    expand,
)

_LABEL = b"turnout"
_HALF = (MODULUS + 1) // 2


@dataclass(frozen=True, slots=True)
class Report:
    """One bit, split for two aggregators. Each share alone says nothing of the bit; both together are the bit.

    Args:
        nonce: 16 random bytes, for both aggregators. A report keeps its nonce for ever: a share that is verified with
            two nonces gives its bit away.
        leader: 48 bytes, for the leader alone.
        helper: 32 bytes, for the helper alone.

    The shares are not printed, so that no log has both.

    Example:
        >>> report = split(1, b"context", nonce=bytes(16), randomness=bytes(64))
        >>> report
        Report(nonce=b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00')
        >>> len(report.leader), len(report.helper)
        (48, 32)
    """

    nonce: bytes
    leader: bytes = field(repr=False)
    helper: bytes = field(repr=False)


def split(bit: int, context: bytes, *, nonce: bytes | None = None, randomness: bytes | None = None) -> Report:
    """Split a bit into a share for each of two aggregators, with a proof that it is 0 or 1.

    Args:
        bit: 0 or 1.
        context: what the report is for, the same bytes that the aggregators use (`report_context`).
        nonce: 16 bytes, and
        randomness: 64 bytes. Both come from the operating system; give them in tests alone. Whoever splits two bits
            with the same randomness gives away whether they are equal.

    Store the whole report before any of it is sent, and send the same bytes again after a crash: two reports of one bit
    for one round are two reports.

    Example:
        >>> report = split(1, b"context")
        >>> len(report.nonce), len(report.leader), len(report.helper)
        (16, 48, 32)
    """
    if isinstance(bit, float) or bit not in (0, 1):
        raise invalid("bit", "0 or 1", repr(bit), "a report has one bit; the weight is public")
    if len(context) > LONGEST_CONTEXT:
        raise invalid("context", f"at most {LONGEST_CONTEXT} bytes", len(context), "use a digest of it")
    nonce = secrets.token_bytes(NONCE_BYTES) if nonce is None else _of_size("nonce", nonce, NONCE_BYTES)
    both = 2 * SEED_BYTES
    randomness = secrets.token_bytes(both) if randomness is None else _of_size("randomness", randomness, both)
    helper, blinding = randomness[:SEED_BYTES], randomness[SEED_BYTES:]
    whole = [int(bit), *_proof(int(bit), *expand(BLINDS, context, blinding, 2))]
    theirs = expand(BIT_SHARE, context, helper, 1) + expand(PROOF_SHARE, context, helper, PROOF_WORDS)
    ours = [(one - two) % MODULUS for one, two in zip(whole, theirs, strict=True)]
    return Report(nonce, b"".join(word.to_bytes(WORD_BYTES, "little") for word in ours), helper)


def _proof(bit: int, first: int, second: int) -> list[int]:
    """The two blinds, and the product of two lines at 1, w and -1, where w is the fourth root of one.

    A line has its blind at 1 and the bit at -1. So the product at -1 is the bit's square.
    """
    at_root = [((blind + bit) + (blind - bit) * FOURTH_ROOT) * _HALF % MODULUS for blind in (first, second)]
    return [first, second, first * second % MODULUS, at_root[0] * at_root[1] % MODULUS, bit * bit]


def _check_whole(name: str, value: int, least: int, most: int) -> None:
    allowed = f"from {least} to {most:,}, without a fraction"
    check_number(name, value, allowed, lambda given: least <= given <= most and given == int(given), "give such a one")


def _of_size(name: str, value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise invalid(name, f"{size} bytes", f"{len(value)} bytes", "leave it out: it is drawn at random")
    return bytes(value)


def report_context(run: str, round: int, rules: bytes, sigma: float, weight: int) -> bytes:
    """What a report is for, in bytes. A report that was split for one context fails in every other.

    Every part has its length before it, so no two different lists of parts have the same bytes. An aggregator makes it
    once for each weight of a round.

    Args:
        run: its name, at most 255 bytes.
        round: its number, from 0.
        rules: the digest of the rules that the device agreed to, from 16 to 64 bytes.
        sigma: of the noise that each aggregator adds in this round.
        weight: the device's own public weight, from 1 to 2^32 - 1.

    Example:
        >>> context = report_context("boilers", 7, bytes(32), 400.0, 3)
        >>> len(context), context[:16]
        (76, b'\\x07turnout\\x07boilers')
        >>> context == report_context("boilers", 7, bytes(32), 400.0, 4)
        False
    """
    name = run.encode()
    if not 1 <= len(name) <= 255:
        raise invalid("run", "a name of 1 to 255 bytes", f"{len(name)} bytes", "give it a shorter name")
    if not 16 <= len(rules) <= 64:
        raise invalid("rules", "a digest of 16 to 64 bytes", f"{len(rules)} bytes", "use SHA-256")
    for what, number, least, most in (("round", round, 0, 2**53), ("weight", weight, 1, HEAVIEST)):
        _check_whole(what, number, least, most)
    check_number("sigma", sigma, "from 0 up", lambda given: given >= 0.0, "0 is for sums without noise")
    parts = (
        _LABEL,
        name,
        int(round).to_bytes(8, "big"),
        bytes(rules),
        struct.pack(">d", float(sigma) + 0.0),
        int(weight).to_bytes(8, "big"),
    )
    return b"".join(bytes([len(part)]) + part for part in parts)
