"""The aggregators' side: which reports are bits, and the sum of those; thousands of reports at a time.

Neither aggregator sees a bit. Each computes 32 bytes per report from its share, the two exchange them, and both see
which reports hold a 0 or a 1. A report that does not is not counted; nothing that a device sends stops a batch.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from turnout.errors import invalid
from turnout.prio.arrays import (
    Bytes,
    Flags,
    Words,
    add,
    expand,
    halve,
    is_in_field,
    multiply,
    rows_of,
    subtract,
    total_of,
)
from turnout.prio.draft import (
    BIT_SHARE,
    FOURTH_ROOT,
    HEAVIEST,
    LONGEST_CONTEXT,
    MODULUS,
    NONCE_BYTES,
    PROOF_SHARE,
    PROOF_WORDS,
    QUERY_POINT,
    SEED_BYTES,
    SHARE_BYTES,
    VERIFIER_WORDS,
    WORD_BYTES,
    message_head,
    message_tail,
)

Role = Literal["leader", "helper"]

_BATCH = 2_500
"""Reports that are worked on at a time: their states fit into a processor's cache."""

_ROOT = np.array([FOURTH_ROOT], np.uint64)


@dataclass(frozen=True, eq=False)
class Prepared:
    """What one aggregator has of a batch of reports, before it knows which of them verify.

    Args:
        verifiers: 32 bytes per report, for the other aggregator; empty where the report is malformed.
        out_shares: this aggregator's share of each bit, 0 where the report is malformed. They stay here: both
            aggregators' shares of one report are its bit.
        well_formed: which reports have the right sizes and words of the field.

    Example:
        >>> prepared = prepare("helper", bytes(32), b"context", [bytes(16)] * 2, [bytes(32), b"short"])
        >>> prepared.well_formed.tolist(), [len(verifier) for verifier in prepared.verifiers]
        ([True, False], [32, 0])
    """

    verifiers: list[bytes] = field(repr=False)
    out_shares: Words = field(repr=False)
    well_formed: Flags


def prepare(
    role: Role, verify_key: bytes, contexts: bytes | Sequence[bytes], nonces: Sequence[bytes], shares: Sequence[bytes]
) -> Prepared:
    """One aggregator's first step for a batch of reports.

    **A report that is verified at two query points gives its bit away.** The query point comes from the verify key, the
    context and the nonce. So the two aggregators agree on one verify key for a run and fix it before any report is
    made; a nonce is stored with its share, before anything is computed from them; and a report is prepared in one
    context. The same step may be repeated with the same bytes.

    Args:
        role: "leader" or "helper".
        verify_key: 32 random bytes, the same for both aggregators. A device that knows it can pass off any number as a
            bit.
        contexts: what the reports are for: one for all, or one per report, where weights differ (`report_context`).
        nonces: of the reports, as the devices sent them with their shares. No proof binds a nonce to a share, so it is
            no protection against a report that is sent twice: the caller takes one report per device and round.
        shares: of the reports, as the devices sent them; an empty one where there is none.

    Example:
        >>> from turnout.prio import split
        >>> reports = [split(bit, b"context") for bit in (0, 1, 1)]
        >>> nonces, key = [report.nonce for report in reports], bytes(32)
        >>> leader = prepare("leader", key, b"context", nonces, [report.leader for report in reports])
        >>> helper = prepare("helper", key, b"context", nonces, [report.helper for report in reports])
        >>> counted = verified(leader.verifiers, helper.verifiers)
        >>> opened(weighted_sum(leader.out_shares, counted), weighted_sum(helper.out_shares, counted))
        2
    """
    if role not in SHARE_BYTES:
        raise invalid("role", '"leader" or "helper"', repr(role), "say which of the two aggregators this is")
    if len(verify_key) != SEED_BYTES:
        raise invalid("verify_key", f"{SEED_BYTES} bytes", f"{len(verify_key)} bytes", "use the key of the run")
    number = len(nonces)
    contexts = [contexts] * number if isinstance(contexts, bytes) else contexts
    if not len(contexts) == len(shares) == number:
        told = f"{len(contexts)} contexts, {number} nonces, {len(shares)} shares"
        raise invalid(
            "contexts, nonces and shares", "one of each per report", told, "use empty bytes for what is missing"
        )
    verifiers, out_shares = np.zeros((number, VERIFIER_WORDS), np.uint64), np.zeros(number, np.uint64)
    well_formed = np.zeros(number, np.bool_)
    for rows, context in _batches(contexts):
        nonce, fits = rows_of([nonces[row] for row in rows.tolist()], NONCE_BYTES)
        share, is_whole = rows_of([shares[row] for row in rows.tolist()], SHARE_BYTES[role])
        words = _words_of_leader(share) if role == "leader" else _words_of_helper(context, share)
        point = expand(_messages(QUERY_POINT, context, np.frombuffer(verify_key, np.uint8), nonce), 1)
        fits &= is_whole & is_in_field(words).all(axis=1)
        fits &= ((point != 1) & (point != MODULUS - 1))[:, 0]  # there a line shows what it hides; a chance of 2^-63
        verifiers[rows], out_shares[rows], well_formed[rows] = _queried(words, point[:, 0]), words[:, 0], fits
    out_shares[~well_formed] = 0
    strings: list[bytes] = verifiers.astype("<u8").view(f"V{VERIFIER_WORDS * WORD_BYTES}")[:, 0].tolist()
    for row in np.flatnonzero(~well_formed).tolist():
        strings[row] = b""
    return Prepared(strings, out_shares, well_formed)


def _batches(contexts: Sequence[bytes]) -> Iterator[tuple[npt.NDArray[np.int64], Bytes]]:
    """The rows of some reports at a time, with their contexts, which have the same length."""
    lengths = np.fromiter(map(len, contexts), np.int64, len(contexts))
    if lengths.size and lengths.max() > LONGEST_CONTEXT:
        raise invalid("context", f"at most {LONGEST_CONTEXT} bytes", lengths.max(), "use a digest of it")
    for length in np.unique(lengths).tolist():
        same = np.flatnonzero(lengths == length)
        for start in range(0, len(same), _BATCH):
            rows = same[start : start + _BATCH]
            yield rows, rows_of([contexts[row] for row in rows.tolist()], length)[0]


def _messages(usage: int, contexts: Bytes, seeds: Bytes, nonces: Bytes | None = None) -> Bytes:
    """What is hashed for each report: the parts around the context, a seed, and what follows it."""
    number, length = contexts.shape
    head = np.frombuffer(message_head(usage, bytes(length)), np.uint8)
    tail = np.frombuffer(message_tail(usage), np.uint8)
    at_seed, at_tail = len(head), len(head) + SEED_BYTES
    found = np.empty((number, at_tail + len(tail) + (0 if nonces is None else NONCE_BYTES)), np.uint8)
    found[:, :at_seed] = head
    found[:, at_seed - 1 - length : at_seed - 1] = contexts
    found[:, at_seed:at_tail] = seeds
    found[:, at_tail : at_tail + len(tail)] = tail
    if nonces is not None:
        found[:, at_tail + len(tail) :] = nonces
    return found


def _words_of_leader(shares: Bytes) -> Words:
    """A share of the bit, and of its proof, per row."""
    return shares.view("<u8").astype(np.uint64)


def _words_of_helper(contexts: Bytes, seeds: Bytes) -> Words:
    """The same from the helper's seeds."""
    bits = expand(_messages(BIT_SHARE, contexts, seeds), 1)
    return np.hstack([bits, expand(_messages(PROOF_SHARE, contexts, seeds), PROOF_WORDS)])


def _queried(words: Words, point: Words) -> Words:
    """This aggregator's share of what decides: the bit's square less the bit; both lines and the product at a point.

    A line has its blind at 1 and the bit at -1. The product has degree two, so its values at 1, w and -1 give its three
    coefficients; w is the fourth root of one. All of it is linear in the share.
    """
    bit, first, second, at_one, at_root, at_minus_one = np.ascontiguousarray(words.T)
    lines = [add(halve(add(blind, bit)), multiply(halve(subtract(blind, bit)), point)) for blind in (first, second)]
    slope = halve(subtract(at_one, at_minus_one))
    even = halve(add(at_one, at_minus_one))  # the first coefficient and the last
    last = halve(subtract(even, subtract(at_root, multiply(slope, _ROOT))))
    product = add(subtract(even, last), multiply(point, add(slope, multiply(last, point))))
    return np.stack([subtract(at_minus_one, bit), *lines, product], axis=1)


def verified(leader: Sequence[bytes], helper: Sequence[bytes]) -> Flags:
    """Which reports are proven to be a bit, from the verifiers of both aggregators, in the same order.

    A report that is no bit passes with a chance of less than 2^-62. Where either aggregator has no report, or a
    malformed one, its verifier is empty, and the report does not verify.

    Example:
        >>> verified([bytes(32), bytes(32)], [bytes(32), b""]).tolist()
        [True, False]
    """
    if len(leader) != len(helper):
        told = f"{len(leader)} and {len(helper)}"
        raise invalid(
            "leader and helper", "verifiers of the same reports", told, "use empty bytes where one is missing"
        )
    (ours, fits), (theirs, is_whole) = (rows_of(one, VERIFIER_WORDS * WORD_BYTES) for one in (leader, helper))
    left, right = (rows.view("<u8").astype(np.uint64) for rows in (ours, theirs))
    fits = fits & is_whole & is_in_field(left).all(axis=1) & is_in_field(right).all(axis=1)
    found: Flags = fits & _is_decided(add(left, right))
    return found


def _is_decided(verifiers: Words) -> Flags:
    """Whether the square is the bit, and the two lines have the product that the proof gave."""
    difference, first, second, product = np.ascontiguousarray(verifiers.T)
    found: Flags = (difference == 0) & (multiply(first, second) == product)
    return found


def weighted_sum(out_shares: Words, counted: Flags, weights: Sequence[int] | npt.NDArray[np.int64] | int = 1) -> int:
    """One aggregator's share of the sum: of the reports that are counted, each times its public weight.

    Args:
        out_shares: of `prepare`.
        counted: which reports verify, the same for both aggregators. Two sums of one round over different sets give
            away the difference.
        weights: from 0 to 2^32 - 1, one for all or one per report.

    Example:
        >>> import numpy as np
        >>> weighted_sum(np.array([1, 0, 1], np.uint64), np.array([True, True, False]), [7, 5, 9])
        7
    """
    many = np.asarray(weights)
    allowed = f"whole numbers from 0 to {HEAVIEST:,}"
    if many.size and not np.issubdtype(many.dtype, np.integer):
        raise invalid("weights", allowed, f"an array of {many.dtype}", "use a finer unit for parts")
    for row in np.flatnonzero((many < 0) | (many > HEAVIEST))[:1]:
        raise invalid(f"weights[{row}]", allowed, many.flat[row], "use a coarser unit")
    if many.shape not in ((), out_shares.shape) or counted.shape != out_shares.shape:
        told = f"{out_shares.size} shares, {counted.size} flags, {many.size} weights"
        raise invalid("counted and weights", "one per report", told, "use the shares, flags and roll of one batch")
    spread = np.broadcast_to(many.astype(np.uint64), out_shares.shape)
    return total_of(multiply(out_shares[counted], spread[counted]))


def added(*shares: int) -> int:
    """The sum modulo p of shares of a sum: of several batches, or of one batch and an aggregator's own noise.

    Noise is a whole number and may be negative.

    Example:
        >>> added(5, -7) == MODULUS - 2
        True
    """
    return sum(operator.index(share) for share in shares) % MODULUS


def opened(leader: int, helper: int) -> int:
    """The sum, from both aggregators' shares of it: a whole number, negative where noise made it so.

    It is right while it lies between -2^62 and 2^62.

    Example:
        >>> opened(added(10, 3), added(MODULUS - 4, -20))
        -11
    """
    for name, share in (("leader", leader), ("helper", helper)):
        if isinstance(share, bool) or not isinstance(share, int) or not 0 <= share < MODULUS:
            raise invalid(name, f"a whole number from 0 to {MODULUS - 1}", repr(share), "use the share as it was sent")
    total = (leader + helper) % MODULUS
    return total if total <= MODULUS // 2 else total - MODULUS
