"""What both aggregators of a hidden run publish: one record per round, the same bytes on both sides.

A record follows from the record before, from who reported, and from the opened sum. Nothing else enters it, so that two
honest aggregators write the same one, and whoever has the public data can check it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Presence
from turnout.service import Members, Position, ProtocolProblem, first_position, position_after, unpack_presence
from turnout.service.hidden.messages import Opening
from turnout.service.hidden.rules import HiddenRules, canonical, digest_of

Mask = npt.NDArray[np.bool_]

FIRST, FEW, LOST, RESTORED = "first", "few", "lost", "restored"
"""Why a record has no sum: it begins the chain; fewer reports than the minimum; the two sides could not agree on one;
or an aggregator was restored from a copy, and must not make its share again."""

DIGEST = 32
"""The bytes of the digest at the end of a set."""

LEAST_THINNING = 1.0 / 64.0
"""However much is wanted beyond the hard limit."""

SPARE = 2.0
"""Deviations of the opened noise that a thinned round stays below the limit: measured for 0 to 3 (decision 19)."""


@dataclass(frozen=True)
class Record:
    """What both aggregators publish of a round.

    Attributes:
        run: its name.
        round: which; -1 for the record that begins the chain.
        before: the hash of the record before.
        rules: the digest of the rules.
        roll: the digest of the members and their weights; "" where nothing was agreed.
        set: the digest of who reported, who counts, and by which reports; "" where nothing was agreed.
        count: how many reports count.
        sigma: of the noise of either aggregator.
        opened: the sum with all noise; None where nothing was opened.
        go: whether those whose report was "yes" act.
        thinning: of the next round: a device's "yes" is reported with this chance.
        signal: that decides the next round.
        why: no sum was opened: FIRST, FEW, LOST or RESTORED; "" where one was.
    """

    run: str
    round: int
    before: str
    rules: str
    roll: str
    set: str
    count: int
    sigma: float
    opened: int | None
    go: bool
    thinning: float
    signal: float
    why: str

    @cached_property
    def body(self) -> bytes:
        """As both aggregators publish it, to the byte."""
        return canonical({field.name: getattr(self, field.name) for field in fields(self)})

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the body."""
        return hashlib.sha256(self.body).hexdigest()

    @classmethod
    def read(cls, body: bytes) -> Self:
        """From its bytes.

        Raises:
            ProtocolProblem: they are no record, or not in the one form.
        """
        try:
            found = cls(**json.loads(body))
            numbers = (found.sigma, found.thinning, found.signal)
            whole = all(type(value) is int for value in (found.round, found.count))
            texts = (found.run, found.before, found.rules, found.set, found.roll, found.why)
            told = all(type(value) is str for value in texts)
            fits = all(type(value) is float and math.isfinite(value) for value in numbers) and whole and told
            if fits and type(found.go) is bool and type(found.opened) in (int, type(None)) and found.body == body:
                return found
        except (ValueError, TypeError, RecursionError):
            pass
        raise ProtocolProblem(f"a record must be in its canonical form, got {len(body)} bytes that are not")


def first_record(rules: HiddenRules) -> tuple[Record, Position]:
    """The record that begins a chain, and where the run stands: round 0 is open, and nobody is thinned out."""
    position = first_position(rules.rules)
    signal = float(position.offered)
    return Record(rules.run, -1, "", rules.digest, "", "", 0, 0.0, None, False, 1.0, signal, FIRST), position


def counted_of(position: Position, members: Members, heard: Mask) -> Mask:
    """Whose reports are added up: who is expected. Who has just returned is heard, and counts later."""
    presence: Presence = unpack_presence(position.presence, len(members))
    found: Mask = heard & members.here & presence.expected
    return found


def is_few(rules: HiddenRules, members: Members, heard: Mask, counted: Mask) -> bool:
    """Whether too few reported for anything to be opened."""
    quorum = rules.rules.safety.quorum * members.here.sum()
    return bool(counted.sum() < rules.least or (heard & members.here).sum() < quorum)


def roll_digest(members: Members) -> str:
    """Of the members: slot, weight, and the round at which each joined."""
    here = np.flatnonzero(members.here)
    columns = (here, members.weight[here], members.joined[here])
    return digest_of([column.tolist() for column in columns])


def set_bits(members: Members, heard: Mask, counted: Mask) -> bytes:
    """Who reported, then who of them counts: eight slots per byte, up to the last member."""
    slots = _slots(members)
    return np.packbits(heard[:slots]).tobytes() + np.packbits(counted[:slots]).tobytes()


def pack_set(members: Members, heard: Mask, counted: Mask, nonces: Iterable[bytes]) -> bytes:
    """The set of a round: who reported, who of them counts, and a digest of the members and of the counted reports.

    Args:
        members: of the round.
        heard, counted: by slot.
        nonces: of the counted reports, by slot.
    """
    reports = digest_of([roll_digest(members), *(nonce.hex() for nonce in nonces)])
    return set_bits(members, heard, counted) + bytes.fromhex(reports)


def unpack_set(packed: bytes, members: Members) -> tuple[Mask, Mask]:
    """Who reported, and who of them counts; nobody where it is of another length.

    Example:
        >>> members = Members(np.array([1, 2, 1]), np.array([0, 0, 0]), np.array([True, True, False]))
        >>> heard = np.array([True, False, False])
        >>> [mask.tolist() for mask in unpack_set(pack_set(members, heard, heard, [b"nonce"]), members)]
        [[True, False, False], [True, False, False]]
    """
    slots, masks = _slots(members), np.zeros((2, len(members)), np.bool_)
    width = (slots + 7) // 8
    if len(packed) == 2 * width + DIGEST:
        rows = np.frombuffer(packed[: 2 * width], np.uint8).reshape(2, width)
        masks[:, :slots] = np.unpackbits(rows, axis=1, count=slots)
    return masks[0], masks[1]


def _slots(members: Members) -> int:
    """Up to the last member: both sides have the same, whoever left."""
    return int(np.flatnonzero(members.here).max(initial=-1)) + 1


def set_digest(packed: bytes) -> str:
    """Of a set."""
    return hashlib.sha256(packed).hexdigest()


def commitment_of(run: str, round: int, role: str, chosen: bytes, opening: Opening) -> str:
    """To an aggregator's share of one set in one round."""
    return digest_of([run, round, role, set_digest(chosen), opening.share, opening.salt])


def next_record(
    rules: HiddenRules,
    before: Record,
    position: Position,
    attended: tuple[Members, bytes] | None,
    opened: int | None,
    why: str = "",
) -> tuple[Record, Position]:
    """The record of the open round, and where the run stands after it, from public data alone.

    Args:
        rules: of the run.
        before: the record before.
        position: where the run stands.
        attended: the members and the set, which is by the rules; None: nothing was agreed.
        opened: the sum with all noise; None: nothing was opened, and `why`.
        why: FEW, LOST or RESTORED.
    """
    round, thinning, limit = position.round, before.thinning, rules.rules.safety.hard_limit
    roll, chosen, count, demand, known = "", "", 0, None, None
    if attended is not None:
        members, packed = attended
        heard, counted = unpack_set(packed, members)
        known = (members, heard)
        roll, chosen, count = roll_digest(members), set_digest(packed), int(counted.sum())
        if opened is not None:
            demand = opened / thinning
            if limit is not None:
                room, heaviest = limit - rules.margin, int(members.weight[members.here].max())
                thinning = next_thinning(room, rules.sigma(round + 1), heaviest, demand)
    go = opened is not None and (limit is None or opened + rules.margin <= limit)
    after = position_after(rules.rules, position, rules.capacity, known, demand)
    facts = (rules.digest, roll, chosen, count, rules.sigma(round), opened, go, thinning, float(after.offered), why)
    return Record(rules.run, round, before.hash, *facts), after


def next_thinning(room: float, sigma: float, heaviest: int, demand: float) -> float:
    """The chance with which a "yes" is reported in the next round: so that what was wanted now would fit.

    Below the room are left two deviations of the noise, and one of what the coins of "yes" add up to.

    Args:
        room: the hard limit, less the margin.
        sigma: of either aggregator's noise in the next round.
        heaviest: the largest weight.
        demand: the opened sum, over the thinning that it was reported with.

    Example:
        >>> next_thinning(400.0, 0.0, 1, 300.0), next_thinning(400.0, 0.0, 1, 760.0), next_thinning(9.0, 5.0, 1, 90.0)
        (1.0, 0.5, 0.015625)
    """
    goal = room - SPARE * math.sqrt(2.0) * sigma - math.sqrt(room * heaviest)
    return min(1.0, max(LEAST_THINNING, goal / demand)) if demand > 0.0 else 1.0


def chain_problem(own: Record, records: Iterable[Record]) -> str:
    """What is wrong with records as a continuation of one's own; "": nothing.

    The first must name the own record's hash. Only a round that was void without a set may begin elsewhere: both sides
    may have been restored, and then neither has what lay between.

    Example:
        >>> from dataclasses import replace
        >>> own = Record("run", 6, "", "", "", "", 0, 0.0, None, False, 1.0, 2.0, LOST)
        >>> following = replace(own, round=7, before=own.hash, why=FEW)
        >>> chain_problem(own, [following]), chain_problem(own, [replace(following, before="?")])
        ('', 'round 7 does not follow round 6')
    """
    known = own
    for at, record in enumerate(records):
        linked = record.before == known.hash and record.round == known.round + 1
        if (record.run, record.rules) != (own.run, own.rules):
            return f"round {record.round} is of another run, or of other rules"
        if not linked and not (at == 0 and record.why in (LOST, RESTORED)):
            return f"round {record.round} does not follow round {known.round}"
        known = record
    return "" if known.round > own.round else f"round {own.round} is the last one already"
