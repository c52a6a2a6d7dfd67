"""One round of the coordinator: who reported what, who is acknowledged, where the signal goes. No clock, no disk."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Attendance, Heard, Presence, ServerState, in_reach, server_step, widest
from turnout.privacy import LAST
from turnout.service.protocol import Offer
from turnout.service.rules import Rules

Codes = npt.NDArray[np.uint8]

MISSING, NO, YES, REFUSED = 0, 1, 2, 3
"""What a round has of a device: no report; "no"; an acknowledged "yes"; a "yes" that is not counted, beyond the hard
limit or of a device that has just returned."""


@dataclass(frozen=True, eq=False)
class Members:
    """The devices of a run by slot; slots are given once and never again.

    Attributes:
        weight: of each, shape (slots,).
        joined: the round at which its history starts, shape (slots,).
        here: whether it is a member still, shape (slots,).
    """

    weight: npt.NDArray[np.int64]
    joined: npt.NDArray[np.int64]
    here: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.weight)

    def __repr__(self) -> str:
        return f"Members({int(self.here.sum())} of {len(self)} slots)"


@dataclass(frozen=True)
class Position:
    """Where a run stands: all that the next round depends on, besides its members.

    Attributes:
        round: the open one.
        offered: the signal that decides it, which is sent to devices.
        controller: the controller's state, with Theta(round), by name.
        on: packed bits by slot: whether the device's last acknowledged report was "yes".
        presence: packed, who was heard of late; empty: everyone.
    """

    round: int
    offered: float
    controller: Mapping[str, float]
    on: bytes = field(default=b"", repr=False)
    presence: bytes = field(default=b"", repr=False)

    @property
    def signal(self) -> float:
        """Theta(round)."""
        return float(self.controller["signal"])

    @property
    def offer(self) -> Offer:
        """What is sent to devices."""
        return Offer(self.round, float(self.offered))


@dataclass(frozen=True, eq=False)
class ClosedRound:
    """A closed round as it is stored; what it says of a device holds for both sides.

    Attributes:
        round: which.
        signal: Theta(round).
        capacity: what was needed.
        codes: MISSING, NO, YES or REFUSED by slot, shape (slots then,).
        participants: the weight that was acknowledged.
        demand: the weight that moved the signal: every "yes" of who was expected, and missing devices as the operator
            chose.
        members: how many devices there were.
        heard: how many of them reported.
        frozen: whether the signal did not follow: too few decided by it.
        seconds: how long it was open.
        closed_at: the wall clock, seconds since 1970; for people, never for decisions.
        expected: the weight that is counted on: not of who is gone, nor of who has just returned.
        beyond_reach: whether no signal lets that weight bring the capacity; then the signal moves only back into reach.
    """

    round: int
    signal: float
    capacity: float
    codes: Codes = field(repr=False)
    participants: int
    demand: int
    members: int
    heard: int
    frozen: bool
    seconds: float = 0.0
    closed_at: float = 0.0
    expected: int = 0
    beyond_reach: bool = False

    def code(self, slot: int) -> int:
        """What it has of a device."""
        return int(self.codes[slot]) if slot < len(self.codes) else MISSING


def first_position(rules: Rules) -> Position:
    """Where a run begins: nobody is on, and nobody is forced on."""
    state = rules.controller.start()
    return Position(0, float(state.signal), state._asdict())


def close(
    rules: Rules,
    position: Position,
    members: Members,
    reports: Codes,
    capacity: float,
    random: np.random.Generator,
    *,
    replayed: npt.NDArray[np.bool_] | None = None,
    acknowledge: bool = True,
    seconds: float = 0.0,
    closed_at: float = 0.0,
) -> tuple[ClosedRound, Position]:
    """Close the open round: acknowledge up to the hard limit, move the signal, open the next.

    The signal follows what was *wanted*, not what was acknowledged: a hard limit at the capacity would otherwise
    hide every excess, and the signal could only rise.

    Args:
        rules, position, members: of the run; the open round; by slot.
        reports: MISSING, NO or YES by slot, shape (slots,).
        capacity: what is needed.
        random: chooses who is refused beyond the hard limit, so that nobody gains by being early.
        replayed: decided earlier, under another signal, shape (slots,): they count, but the signal must not follow.
        acknowledge: False where the operator stops everyone: no "yes" counts, and the signal stays.
        seconds, closed_at: how long it was open; the wall clock.

    Returns:
        The closed round, and where the run stands after it.
    """
    codes = np.where(members.here, reports, MISSING).astype(np.uint8)
    heard, on = codes != MISSING, unpack(position.on, len(members))
    fresh = heard if replayed is None else heard & ~replayed
    enough = acknowledge and bool(fresh.sum() >= max(1, rules.safety.quorum * members.here.sum()))
    presence, seen = _attended(rules, position, members, heard, capacity, enough)
    codes[(codes == YES) & ~seen.counted] = REFUSED
    held = int(members.weight[_presumed_on(rules, members, heard, position.on)].sum())
    demand = int(members.weight[codes == YES].sum()) + held
    room = np.inf if rules.safety.hard_limit is None else rules.safety.hard_limit - held
    _refuse_beyond(room if acknowledge else 0.0, codes, members, random)
    least, most = reachable(rules, members, seen.weight, heard, position.on)
    reach = None if in_reach(capacity, least, most) else (least, most)
    closed = ClosedRound(
        round=position.round,
        signal=position.signal,
        capacity=capacity,
        codes=codes,
        participants=int(members.weight[codes == YES].sum()),
        demand=demand,
        members=int(members.here.sum()),
        heard=int(heard.sum()),
        frozen=not enough,
        seconds=seconds,
        closed_at=closed_at,
        expected=int(seen.weight),
        beyond_reach=reach is not None,
    )
    known = Heard(enough, reach, seen.share, seen.scale)
    switched = pack(np.where(heard, codes == YES, on) & members.here)
    return closed, _after(rules, position, demand, capacity, known, switched, pack_presence(presence))


def position_after(
    rules: Rules,
    position: Position,
    capacity: float,
    attended: tuple[Members, npt.NDArray[np.bool_]] | None,
    demand: float | None,
) -> Position:
    """Where a run stands after a round of which no report is known, but who reported, and what they add up to.

    Args:
        rules, position, capacity: as for `close`; who is missing counts as absent.
        attended: the members and who of them reported; None: unknown too, and nobody counts as missing.
        demand: of who is expected; None: unknown, and the signal stays.
    """
    if attended is None:
        return _after(rules, position, np.nan, capacity, Heard(enough=False), b"", position.presence)
    (members, heard), enough = attended, demand is not None
    presence, seen = _attended(rules, position, members, heard, capacity, enough)
    least, most = reachable(rules, members, seen.weight, heard, position.on)
    reach = None if in_reach(capacity, least, most) else (least, most)
    known = Heard(enough, reach, seen.share, seen.scale)
    total = np.nan if demand is None else demand
    return _after(rules, position, total, capacity, known, b"", pack_presence(presence))


def _attended(
    rules: Rules,
    position: Position,
    members: Members,
    heard: npt.NDArray[np.bool_],
    capacity: float,
    enough: bool,
) -> tuple[Presence, Attendance]:
    """Who can be counted on. Who counts as it last was is never gone, and never returns."""
    stays = rules.safety.missing == LAST
    presence, seen = unpack_presence(position.presence, len(members)).after(
        members.here if stays else heard,
        members.here,
        members.weight,
        rules.prior.rounds + np.maximum(0, position.round + 1 - members.joined),
        rules.averaging.cap,
        capacity=capacity,
        high=widest(rules.mechanism)[1],
        enough=enough,
    )
    lowered = _lowered(rules, position, members, members.here & ~heard) if stays and not enough else seen.scale
    return presence, seen._replace(scale=lowered)


def reachable(
    rules: Rules, members: Members, expected: float, heard: npt.NDArray[np.bool_], on: bytes
) -> tuple[float, float]:
    """(least, most) turnout on average, at any signal, of those who can be counted on.

    Args:
        rules, members: of the run; by slot.
        expected: the weight of who is expected to report.
        heard: who did in a round, shape (slots,).
        on: who was on before that round, packed. Where who is missing counts as it last was, it is on at any signal.
    """
    held = 0.0
    if rules.safety.missing == LAST:
        expected = float(members.weight[heard].sum())
        held = float(members.weight[_presumed_on(rules, members, heard, on)].sum())
    least, most = (float(chance) * expected + held for chance in widest(rules.mechanism))
    return least, most


def _presumed_on(rules: Rules, members: Members, heard: npt.NDArray[np.bool_], on: bytes) -> npt.NDArray[np.bool_]:
    return unpack(on, len(members)) & members.here & ~heard & (rules.safety.missing == LAST)


def _refuse_beyond(room: float, codes: Codes, members: Members, random: np.random.Generator) -> None:
    """Choose a random order, and refuse the devices beyond the limit."""
    wanted = np.flatnonzero(codes == YES)
    if members.weight[wanted].sum() <= room:
        return
    for slot in random.permutation(wanted):
        if members.weight[slot] <= room:
            room -= members.weight[slot]
        else:
            codes[slot] = REFUSED


def _after(
    rules: Rules, position: Position, demand: float, capacity: float, heard: Heard, on: bytes, presence: bytes
) -> Position:
    controller = rules.controller
    signals = (float(position.offered), position.signal)[-1 - controller.lag :]
    state = ServerState(position.round, signals, type(controller.start())(**position.controller))
    most = rules.most_signal(capacity)
    after = server_step(controller, state, demand, capacity, heard, most_signal=most)
    return Position(after.round, after.deciding, after.controller._asdict(), on, presence)


def _lowered(rules: Rules, position: Position, members: Members, missing: npt.NDArray[np.bool_]) -> float:
    """What the signal is multiplied by in a frozen round, where who is missing counts as it last was.

    It counts at once when it returns, so the signal must have fallen by then. A missed round lowers an average by
    n / (n + 1), and raises the intent for the cost x^4 by the square of the reciprocal.
    """
    if not missing.any():
        return 1.0
    behind = rules.prior.rounds + np.maximum(0, position.round - members.joined[missing])
    behind = np.minimum(behind, rules.averaging.cap - 1.0)
    return float(np.mean(behind / (behind + 1.0))) ** 2


def pack_presence(presence: Presence) -> bytes:
    """For the database; empty where everyone was heard, and small where nearly everyone was."""
    if not (presence.missed.any() or presence.waits.any() or not presence.basis.all()):
        return b""
    rows = np.stack([presence.missed, presence.waits, presence.basis.astype(np.int64)])
    return zlib.compress(np.minimum(rows, 2**31 - 1).astype("<i4").tobytes(), 1)


def unpack_presence(packed: bytes, slots: int) -> Presence:
    """What `pack_presence` packed, with newcomers up to so many slots.

    Example:
        >>> presence, _ = Presence.start(2).after(np.array([True, False]), np.ones(2, bool), 1, 5, capacity=1)
        >>> unpack_presence(pack_presence(presence), 3).missed
        array([0, 1, 0])
    """
    if not packed:
        return Presence.start(slots)
    missed, waits, basis = np.frombuffer(zlib.decompress(packed), "<i4").reshape(3, -1).astype(np.int64)
    return Presence(missed, waits, basis.astype(np.bool_)).grown(slots)


def pack(bits: npt.NDArray[np.bool_]) -> bytes:
    """Eight slots per byte."""
    return np.packbits(bits).tobytes()


def unpack(packed: bytes, slots: int) -> npt.NDArray[np.bool_]:
    """As many bits as there are slots; those that the bytes do not reach are off."""
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=min(slots, 8 * len(packed))).astype(np.bool_)
    return np.concatenate([bits, np.zeros(slots - len(bits), dtype=np.bool_)])


def pack_codes(codes: Codes) -> bytes:
    """Four slots per byte, for the database."""
    return np.packbits(np.stack([codes >> 1, codes & 1], axis=1).reshape(-1)).tobytes()


def unpack_codes(packed: bytes, slots: int) -> Codes:
    """What `pack_codes` packed.

    Example:
        >>> unpack_codes(pack_codes(np.array([3, 0, 2, 1, 1], dtype=np.uint8)), 5)
        array([3, 0, 2, 1, 1], dtype=uint8)
    """
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=2 * slots).reshape(slots, 2)
    return (bits[:, 0] << 1 | bits[:, 1]).astype(np.uint8)
