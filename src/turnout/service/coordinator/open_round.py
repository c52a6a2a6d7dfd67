"""The round that is open: reports in memory, which count once the round is closed in the database, and the requests
that wait for that."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from enum import Enum

import numpy as np

from turnout.service import MISSING, NO, YES, Codes, Position, RulesVersion
from turnout.service.coordinator.enrolment import Roll


class Entry(Enum):
    """What became of a report, before its round is closed."""

    ACCEPTED = "accepted"
    CONFIRMED = "confirmed"
    CONFLICT = "conflict"
    LATE = "late"


class OpenRound:
    """The reports of one round.

    Args:
        position: where the run stands: the round and its signal.
        roll: the devices.
        opened: when, on the coordinator's clock.
        version: of the rules, under which it is decided and closed.

    Attributes:
        number: of the round.
        offered, offer: what is sent to devices; and the same as JSON.
        heard: how many have reported.
        due: how many it still waits for.
        closing: it is being written to the database: no report can be added any more.
        held: the requests that wait for it to close.
    """

    def __init__(self, position: Position, roll: Roll, opened: float, version: RulesVersion) -> None:
        self.position, self.number, self.version = position, position.round, version
        self.offered = replace(position.offer, rules=version.name)
        self.offer = self.offered.body()
        self.opened, self.closing, self.held = opened, False, _HeldRequests()
        self._codes, self._roll = bytearray(len(roll)), roll
        self.heard, self.due = 0, sum(map(roll.is_awaited, range(len(roll))))

    def take_wait_for(self, newest: RulesVersion) -> None:
        """How many devices the first round waits for may change while it is open: nothing is decided by it."""
        wanted = newest.rules.wait_for
        if self.number == 0 and wanted != self.version.rules.wait_for:
            self.version = replace(self.version, settings={**self.version.settings, "wait_for": wanted})

    def put(self, slot: int, participates: bool) -> Entry:
        """A device's bit: the first stands."""
        code, known = (YES if participates else NO), self._codes[slot]
        if known == code:
            return Entry.CONFIRMED
        if known != MISSING:
            return Entry.CONFLICT
        if self.closing:
            return Entry.LATE
        self._codes[slot] = code
        self.heard += 1
        self.due -= self._roll.is_awaited(slot)
        return Entry.ACCEPTED

    def recount(self) -> None:
        """Devices have enrolled or left: it waits for those who are members now."""
        self._codes.extend(bytes(len(self._roll) - len(self._codes)))
        self.due = sum(code == MISSING and self._roll.is_awaited(slot) for slot, code in enumerate(self._codes))

    def codes(self) -> Codes:
        """A copy of the reports by slot."""
        return np.frombuffer(bytes(self._codes), dtype=np.uint8)

    def merge(self, others: Codes) -> None:
        """Take the reports that are known anywhere; a report that only this process has stays."""
        ours = self.codes()
        known = np.zeros(len(ours), dtype=np.uint8)
        known[: len(others)] = others[: len(ours)]
        self._codes[:] = np.where(known != MISSING, known, ours).tobytes()
        self.heard = len(self._codes) - self._codes.count(MISSING)
        self.recount()


class _HeldRequests:
    """One future for each request that waits. Cancelling one wakes no other."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, int, asyncio.Future[None]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, arrived: float, slot: int) -> asyncio.Future[None]:
        """What a device's request waits for."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((arrived, slot, woken))
        return woken

    def release(self, before: float) -> None:
        """Wake those that arrived before; infinity: all."""
        while self._waiting and self._waiting[0][0] <= before:
            _wake(self._waiting.popleft()[2])

    def wake(self, slot: int) -> None:
        """Wake one device's requests: it is no member any more, and must get its answer now."""
        for _, whose, woken in self._waiting:
            if whose == slot:
                _wake(woken)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
