"""One round of the coordinator: who reported what, who is acknowledged, where the signal goes. No clock, no disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import median_high

import numpy as np
import numpy.typing as npt

from turnout.algorithm import EVERYONE, Heard, ServerState, server_step
from turnout.privacy import LAST
from turnout.service.protocol import Offer
from turnout.service.rules import Rules

Codes = npt.NDArray[np.uint8]

MISSING, NO, YES, REFUSED = 0, 1, 2, 3
"""What a round has of a device: no report; "no"; an acknowledged "yes"; a "yes" beyond the hard limit, not counted."""

GROWTH = 1.05
"""After an outage, devices are returning as long as reports grow by more than this factor: the first ones must not be
taken for all, or the signal would rise for them and be too high for the others."""

MOST_STILL_ROUNDS = 20
"""The most rounds in which reports must not have grown: devices return in waves, and between two waves all seem to be
here."""

LOOKS_BACK = 2 * MOST_STILL_ROUNDS - 1
"""Rounds: where fewer than half of the last so many had as many reports as now, `MOST_STILL_ROUNDS` is not over."""


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
    """

    round: int
    offered: float
    controller: Mapping[str, float]
    on: bytes = field(default=b"", repr=False)

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
        demand: the weight that moved the signal: every "yes", and missing devices as the operator chose.
        members: how many devices there were.
        heard: how many of them reported.
        frozen: whether the signal did not follow: too few decided by it, or devices were still returning.
        seconds: how long it was open.
        closed_at: the wall clock, seconds since 1970; for people, never for decisions.
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
    before: Sequence[ClosedRound] = (),
    replayed: npt.NDArray[np.bool_] | None = None,
    acknowledge: bool = True,
    seconds: float = 0.0,
    closed_at: float = 0.0,
) -> tuple[ClosedRound, Position]:
    """Close the open round: acknowledge up to the hard limit, move the signal, open the next.

    The signal follows what was *wanted*, not what was acknowledged: a hard limit at the capacity would otherwise
    hide every excess, and the signal could only rise.

    Args:
        rules: of the run.
        position: the open round.
        members: by slot.
        reports: MISSING, NO or YES by slot, shape (slots,).
        capacity: what is needed.
        random: chooses who is refused beyond the hard limit, so that nobody gains by being early.
        before: the rounds before, the newest last; more than `LOOKS_BACK` are not needed.
        replayed: decided earlier, under another signal, shape (slots,): they count, but the signal must not follow.
        acknowledge: False where the operator stops everyone: no "yes" counts, and the signal stays.
        seconds: how long it was open.
        closed_at: the wall clock.

    Returns:
        The closed round, and where the run stands after it.
    """
    codes = np.where(members.here, reports, MISSING).astype(np.uint8)
    heard, on = codes != MISSING, unpack(position.on, len(members))
    presumed = on & members.here & ~heard if rules.safety.missing == LAST else np.zeros(len(members), np.bool_)
    held = int(members.weight[presumed].sum())
    demand = int(members.weight[codes == YES].sum()) + held
    room = np.inf if rules.safety.hard_limit is None else rules.safety.hard_limit - held
    _refuse_beyond(room if acknowledge else 0.0, codes, members, random)
    fresh = heard if replayed is None else heard & ~replayed
    enough = fresh.sum() >= max(1, rules.safety.quorum * members.here.sum())
    frozen = not (acknowledge and enough) or _still_returning(int(heard.sum()), int(members.here.sum()), before)
    closed = ClosedRound(
        round=position.round,
        signal=position.signal,
        capacity=capacity,
        codes=codes,
        participants=int(members.weight[codes == YES].sum()),
        demand=demand,
        members=int(members.here.sum()),
        heard=int(heard.sum()),
        frozen=bool(frozen),
        seconds=seconds,
        closed_at=closed_at,
    )
    on = np.where(heard, codes == YES, on) & members.here
    return closed, _after(rules, position, closed, members, pack(on))


def _still_returning(heard: int, members: int, before: Sequence[ClosedRound]) -> bool:
    """Whether an outage is not over yet, though enough report: many are missing, and reports have just grown.

    The number of reports must not grow for as long as the outage lasted, at most for `MOST_STILL_ROUNDS` rounds. So a
    single bad round costs one round more, and a fleet with a bad round now and then is not frozen for ever.

    Example:
        >>> outage = [ClosedRound(k, 1.0, 5.0, np.empty(0, np.uint8), 0, 0, 100, 5, True) for k in range(30)]
        >>> _still_returning(60, 100, outage), _still_returning(96, 100, outage)
        (True, False)
    """
    outage = list(takewhile(lambda closed: closed.frozen, reversed(before)))[:LOOKS_BACK]
    if not outage or GROWTH * heard >= members:
        return False
    return heard > GROWTH * median_high(closed.heard for closed in outage)


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


def _after(rules: Rules, position: Position, closed: ClosedRound, members: Members, on: bytes) -> Position:
    controller = rules.controller
    signals = (float(position.offered), position.signal)[-1 - controller.lag :]
    state = ServerState(position.round, signals, type(controller.start())(**position.controller))
    heard = Heard(enough=False, thinning=thinning(rules, closed, members)) if closed.frozen else EVERYONE
    most = rules.most_signal(closed.capacity)
    after = server_step(controller, state, closed.demand, closed.capacity, heard, most_signal=most)
    return Position(after.round, after.deciding, after.controller._asdict(), on)


def thinning(rules: Rules, closed: ClosedRound, members: Members) -> float:
    """The factor by which one missed round has lowered the missing devices' averages: the mean of n / (n + 1).

    `server_step` lowers the signal of an outage by it.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> from turnout.algorithm import SelfTuningController
        >>> from turnout.service import Safety
        >>> rules = Rules(Clamp(1.0), SelfTuningController(), Safety("absent"))  # a prior worth 10 rounds
        >>> devices = Members(np.ones(2, np.int64), np.zeros(2, np.int64), np.ones(2, np.bool_))
        >>> closed = ClosedRound(9, 1.0, 1.0, np.array([NO, MISSING], np.uint8), 0, 0, 2, 1, True)
        >>> thinning(rules, closed, devices)
        0.95
    """
    missing = members.here & (closed.codes == MISSING)
    if not missing.any():
        return 1.0
    behind = rules.prior.rounds + np.maximum(0, closed.round - members.joined[missing])
    behind = np.minimum(behind, rules.averaging.cap - 1.0)
    return float(np.mean(behind / (behind + 1.0)))


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
