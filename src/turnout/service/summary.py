"""What is kept of closed rounds that are not stored any more: each device's history, and its last report.

Deleting old rounds must not change what anybody is told later. A device's history goes on from the summary. A device
that was away asks about the last round it reported, and no other: it decides nothing before it has that answer.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import ClientState
from turnout.service.rounds import MISSING, REFUSED, YES, ClosedRound, Codes, Members
from turnout.service.rules import Rules

KEPT_ROUNDS = 1000
"""The last closed rounds, which are never summed up: the operator's page shows them."""

NEVER = -1


@dataclass(frozen=True, eq=False)
class Summary:
    """All closed rounds before one.

    Attributes:
        first_kept: the first round that is still stored.
        participations, spans: each device's history before it, shape (slots,), with its rounds; as far as it is public.
        heard: the last of these rounds in which each device was heard, shape (slots,); -1: in none.
        codes: what that round has of it, shape (slots,).
        totals: of the rounds, for people.
    """

    first_kept: int = 0
    participations: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    spans: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    heard: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    codes: Codes = field(default_factory=lambda: np.empty(0, np.uint8), repr=False)
    totals: dict[str, Any] = field(default_factory=dict)

    def of_round(self, round: int) -> Codes:
        """What is known of a round, by slot: that of devices that were heard in it and never since."""
        return np.where(self.heard == round, self.codes, MISSING).astype(np.uint8)

    def was_heard(self, slot: int, since: int) -> bool:
        """Whether a device was heard in one of these rounds, from a round on."""
        return slot < len(self.heard) and int(self.heard[slot]) >= since

    def pack(self) -> bytes:
        """For the database."""
        arrays = {name: getattr(self, name) for name in ("participations", "spans", "heard", "codes")}
        told = json.dumps({"first_kept": self.first_kept, "totals": self.totals}).encode()
        buffer = io.BytesIO()
        np.savez_compressed(buffer, told=np.frombuffer(told, np.uint8), **arrays)
        return buffer.getvalue()

    @classmethod
    def unpack(cls, packed: bytes) -> Summary:
        """What `pack` packed.

        Example:
            >>> made = Summary(7, totals={"rounds": 7})
            >>> Summary.unpack(made.pack())
            Summary(first_kept=7, totals={'rounds': 7})
        """
        with np.load(io.BytesIO(packed), allow_pickle=False) as found:
            told = json.loads(found["told"].tobytes())
            arrays = {name: found[name] for name in ("participations", "spans", "heard", "codes")}
        return cls(told["first_kept"], totals=told["totals"], **arrays)


class Histories:
    """The devices' histories, replayed from closed rounds with the devices' own arithmetic.

    Args:
        rules: of the run; prior and averaging never change.
        members: by slot.
        left: the first round without each, shape (slots,).
        before: what is known of the rounds that are not stored.
    """

    def __init__(self, rules: Rules, members: Members, left: npt.NDArray[np.int64], before: Summary) -> None:
        self._averaging, self._joined, self._left = rules.averaging, members.joined, left
        counts = np.full(len(members), rules.prior.participations), np.full(len(members), float(rules.prior.rounds))
        known = np.flatnonzero(self._joined[: len(before.spans)] < before.first_kept)  # who joined again begins again
        for now, then in zip(counts, (before.participations, before.spans), strict=True):
            now[known] = then[known]
        self._state = ClientState(*counts)

    def add(self, round: int, codes: Codes) -> None:
        """One more closed round; who is not heard in it has not participated."""
        moved = np.zeros(len(self._joined))
        moved[: len(codes)] = codes == YES
        later = self._state.after(moved, self._averaging)
        here = (self._joined <= round) & (round < self._left)
        self._state = ClientState(
            np.where(here, later.participations, self._state.participations),
            np.where(here, later.rounds, self._state.rounds),
        )

    def state(self) -> ClientState:
        """The histories now."""
        return self._state


def summed_up(
    before: Summary, closed: Iterable[ClosedRound], rules: Rules, members: Members, left: npt.NDArray[np.int64]
) -> Summary:
    """The summary of more rounds.

    Args:
        before: of the rounds before them.
        closed: the rounds, in order, from `before.first_kept` on.
        rules, members, left: as for `Histories`.
    """
    history, slots = Histories(rules, members, left, before), len(members)
    heard, codes = np.full(slots, NEVER), np.full(slots, MISSING, np.uint8)
    heard[: len(before.heard)], codes[: len(before.codes)] = before.heard, before.codes
    first, totals = before.first_kept, dict(before.totals)
    for one in closed:
        history.add(one.round, one.codes)
        reported = np.flatnonzero(one.codes != MISSING)
        heard[reported], codes[reported] = one.round, one.codes[reported]
        first = one.round + 1
        for name, more in (
            ("rounds", 1),
            ("participants", one.participants),
            ("reports", one.heard),
            ("refused", int((one.codes == REFUSED).sum())),
            ("frozen", int(one.frozen)),
        ):
            totals[name] = totals.get(name, 0) + more
        totals = {"first_closed_at": one.closed_at} | totals | {"last_closed_at": one.closed_at}
    state = history.state()
    spans = np.broadcast_to(np.asarray(state.rounds, dtype=np.float64), (slots,)).copy()
    return replace(
        before,
        first_kept=first,
        participations=state.participations,
        spans=spans,
        heard=heard,
        codes=codes,
        totals=totals,
    )
