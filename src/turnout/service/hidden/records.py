"""What both aggregators of a hidden run agree on: its rules, and one record per round, the same bytes on both sides.

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
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Averaging, Presence, SumNoise, noise_from_settings
from turnout.errors import check_number, invalid
from turnout.prio import report_context
from turnout.privacy import LAST
from turnout.service import (
    Members,
    Position,
    ProtocolProblem,
    Rules,
    check_run_name,
    first_position,
    position_after,
    rules_from_settings,
    unpack_presence,
)
from turnout.settings import Table

Mask = npt.NDArray[np.bool_]

FIRST, FEW, LOST, RESTORED = "first", "few", "lost", "restored"
"""Why a record has no sum: it begins the chain; fewer reports than the minimum; the two sides could not agree on one;
or an aggregator was restored from a copy, and must not make its share again."""

SHRINK, GROW, LEAST_THINNING = 0.5, 1.25, 1.0 / 64.0
"""The thinning is halved on no-go and grows by a quarter on go, between 1/64 and 1 (decision 19)."""


def canonical(value: Any) -> bytes:
    """The one form in bytes of what JSON holds.

    Example:
        >>> canonical({"b": 1.0, "a": [True, None]})
        b'{"a":[true,null],"b":1.0}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(value: Any) -> str:
    """SHA-256 of the canonical form, in hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()


@dataclass(frozen=True)
class HiddenRules:
    """What holds in every round of a hidden run; both aggregators and all devices have the same.

    Args:
        run: its name.
        rules: the usual ones. Silence counts as absent, and histories move by the bit.
        capacity: the turnout that is needed, in units of weight.
        noise: that *each* aggregator adds (`aggregators=2`); None: none, for tests.
        bound: no draw of an aggregator's noise is beyond it. A hard limit needs it.
        least: the reports without which nothing is opened; the rules' quorum holds besides.
        keys: what the leader and the helper have committed to, the digests of their parts of the verify key.

    Example:
        >>> from turnout.algorithm import Classical, IntegralController
        >>> from turnout.service import Safety
        >>> usual = Rules(Classical(), IntegralController(0.01, 1.0), Safety("absent", hard_limit=70))
        >>> rules = HiddenRules("boilers", usual, 40, SumNoise(3.0, aggregators=2), bound=10, least=20)
        >>> rules.margin, HiddenRules.from_settings(rules.settings()) == rules
        (20, True)
    """

    run: str
    rules: Rules
    capacity: float
    noise: SumNoise | None = None
    bound: int | None = None
    least: int = 1
    keys: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        check_run_name(self.run)
        if self.rules.safety.missing == LAST:
            remedy = "a hidden run knows nobody's last report"
            raise invalid("safety.missing", "absent", "last", remedy)
        if self.rules.averaging.by != Averaging().by:
            raise invalid("averaging.by", "bit", self.rules.averaging.by, "the noise hides bits: use the bit")
        check_number("capacity", self.capacity, "above 0", lambda given: given > 0.0, "give what is needed")
        if self.noise is not None and (self.noise.aggregators, self.noise.every) != (2, 1):
            told = f"aggregators {self.noise.aggregators}, every {self.noise.every}"
            raise invalid("noise", "of two aggregators, in every round", told, "use SumNoise(…, aggregators=2)")
        if not isinstance(self.least, int) or self.least < 1:
            raise invalid("least", "a whole number from 1 up", repr(self.least), "fewer reports hide less")
        limit = self.rules.safety.hard_limit
        if limit is not None and self.bound is None and self.noise is not None:
            raise invalid("bound", "given", "None", "a hard limit needs noise that is never beyond a bound")
        if limit is not None and self.margin >= limit:
            raise invalid("hard limit", f"above the margin of {self.margin}", limit, "use less noise, or a higher one")

    @property
    def margin(self) -> int:
        """What the true sum can be above the opened one."""
        return 2 * (self.bound or 0) if self.noise is not None else 0

    def sigma(self, round: int) -> float:
        """Of the noise of one aggregator in a round."""
        return 0.0 if self.noise is None else float(self.noise.sigmas(round, round + 1)[0])

    def context(self, round: int, weight: int) -> bytes:
        """What a report of a device with this weight is for."""
        return report_context(self.run, round, bytes.fromhex(self.digest), self.sigma(round), weight)

    def settings(self) -> dict[str, Any]:
        """Everything that makes these rules again, as JSON holds it."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        noise = None if self.noise is None else self.noise.settings()
        return found | {"rules": self.rules.settings(), "noise": noise, "keys": list(self.keys)}

    @classmethod
    def from_settings(cls, values: dict[str, Any]) -> Self:
        """The rules that `settings` were taken of."""
        noise = values["noise"]
        return cls(
            **values
            | {
                "rules": rules_from_settings(Table(values["rules"])),
                "noise": None if noise is None else noise_from_settings(Table(noise)),
                "keys": tuple(values["keys"]),
            }
        )

    @cached_property
    def digest(self) -> str:
        """What devices agree to."""
        return digest_of(self.settings())


@dataclass(frozen=True)
class Record:
    """What both aggregators publish of a round.

    Attributes:
        run: its name.
        round: which; -1 for the record that begins the chain.
        before: the hash of the record before.
        rules: the digest of the rules.
        roll: the digest of the members and their weights; "" where nothing was agreed.
        set: the digest of who reported and who counts; "" where nothing was agreed.
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
            told = all(type(value) is str for value in (found.run, found.before, found.set, found.roll, found.why))
            fits = all(type(value) is float and math.isfinite(value) for value in numbers) and whole and told
            if fits and type(found.go) is bool and type(found.opened) in (int, type(None)) and found.body == body:
                return found
        except (ValueError, TypeError):
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
    return digest_of([len(members), *(column.tolist() for column in columns)])


def pack_set(heard: Mask, counted: Mask) -> bytes:
    """Who reported, then who of them counts: the set of a round, eight slots per byte."""
    return np.packbits(heard).tobytes() + np.packbits(counted).tobytes()


def unpack_set(packed: bytes, slots: int) -> tuple[Mask, Mask]:
    """Who reported, and who of them counts; nobody where it is of another length.

    Example:
        >>> heard = np.array([True, False, True])
        >>> [mask.tolist() for mask in unpack_set(pack_set(heard, heard), 3)]
        [[True, False, True], [True, False, True]]
    """
    width = (slots + 7) // 8
    if len(packed) != 2 * width:
        return np.zeros(slots, np.bool_), np.zeros(slots, np.bool_)
    rows = np.unpackbits(np.frombuffer(packed, np.uint8).reshape(2, width), axis=1, count=slots).astype(np.bool_)
    return rows[0], rows[1]


def set_digest(packed: bytes) -> str:
    """Of a set."""
    return hashlib.sha256(packed).hexdigest()


def next_record(
    rules: HiddenRules,
    before: Record,
    position: Position,
    attended: tuple[Members, Mask] | None,
    opened: int | None,
    why: str = "",
) -> tuple[Record, Position]:
    """The record of the open round, and where the run stands after it, from public data alone.

    Args:
        rules: of the run.
        before: the record before.
        position: where the run stands.
        attended: the members and who of them reported; None: nothing was agreed.
        opened: the sum with all noise; None: nothing was opened, and `why`.
        why: FEW, LOST or RESTORED.
    """
    round, thinning, limit = position.round, before.thinning, rules.rules.safety.hard_limit
    go = opened is not None and (limit is None or opened + rules.margin <= limit)
    roll, chosen, count = "", "", 0
    if attended is not None:
        members, heard = attended
        counted = counted_of(position, members, heard)
        roll, chosen, count = roll_digest(members), set_digest(pack_set(heard, counted)), int(counted.sum())
    demand = None if opened is None else opened / thinning
    after = position_after(rules.rules, position, rules.capacity, attended, demand)
    if opened is not None and limit is not None:
        thinning = next_thinning(thinning, go)
    sigma, signal = rules.sigma(round), float(after.offered)
    facts = (rules.digest, roll, chosen, count, sigma, opened, go, thinning, signal, why)
    return Record(rules.run, round, before.hash, *facts), after


def next_thinning(thinning: float, go: bool) -> float:
    """The chance with which a "yes" is reported in the next round.

    Example:
        >>> next_thinning(0.5, True), next_thinning(0.9, True), next_thinning(0.5, False)
        (0.625, 1.0, 0.25)
    """
    return min(1.0, thinning * GROW) if go else max(LEAST_THINNING, thinning * SHRINK)


def chain_problem(own: Record, records: Iterable[Record]) -> str:
    """What is wrong with records as a continuation of one's own; "": nothing.

    The first must name the own record's hash. Only a record of a restored aggregator may begin elsewhere: then neither
    side has what lay between.

    Example:
        >>> from dataclasses import replace
        >>> own = Record("run", 6, "", "", "", "", 0, 0.0, None, False, 1.0, 2.0, LOST)
        >>> following = replace(own, round=7, before=own.hash)
        >>> chain_problem(own, [following]), chain_problem(own, [replace(following, before="?")])
        ('', 'round 7 does not follow round 6')
    """
    known = own
    for at, record in enumerate(records):
        linked = record.before == known.hash and record.round == known.round + 1
        if (record.run, record.rules) != (own.run, own.rules):
            return f"round {record.round} is of another run, or of other rules"
        if not linked and not (at == 0 and record.why == RESTORED):
            return f"round {record.round} does not follow round {known.round}"
        known = record
    return "" if known.round > own.round else f"round {own.round} is the last one already"
