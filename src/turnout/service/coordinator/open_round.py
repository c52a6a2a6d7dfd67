"""The round that is open: reports as they come in, in memory alone; they count once the round is in the books."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from turnout.service import MISSING, NO, YES, Codes
from turnout.service.coordinator.enrolment import Roll


class Answered(NamedTuple):
    """A closed round in memory, ready to answer from.

    Attributes:
        codes: by slot.
        closed: when, on the coordinator's clock, at the latest a lie by being too early; None: nobody knows.
    """

    codes: bytes
    closed: float | None


class Freshness:
    """Remembers when the store was last looked at with success, and wakes who waits for the next time.

    Args:
        clock: seconds that never go back.

    Attributes:
        known: memory has everything that the store had at this time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._renewed = clock, asyncio.Event()
        self.known = clock()

    def renew(self, looked: float) -> None:
        """Memory is as the store was when the look began."""
        self.known = looked
        self._renewed.set()
        self._renewed = asyncio.Event()

    async def wait(self, seconds: float) -> bool:
        """Wait until memory is newer than this moment; False if it is not after so many seconds."""
        asked = self._clock()
        while self.known < asked and self._clock() < asked + seconds:
            await at_most(self._renewed.wait(), seconds)
        return self.known >= asked


async def at_most(work: Awaitable[Any], seconds: float) -> None:
    """Wait for work, but not longer than so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):  # `wait_for` can lose a cancellation
            await work


class WaitingRoom:
    """One future for each held request. Cancelling one wakes no other.

    Args:
        longest: seconds that a request is kept.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._waiting: deque[tuple[float, int, asyncio.Future[None]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, now: float, slot: int) -> asyncio.Future[None]:
        """A place for a device's request to wait in."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((now, slot, place))
        return place

    def release(self, now: float, *, everyone: bool = False) -> None:
        """Wake those who have waited long enough, or all."""
        while self._waiting and (everyone or self._waiting[0][0] <= now - self._longest):
            _wake(self._waiting.popleft()[2])

    def wake(self, slot: int) -> None:
        """Wake one device's requests: it is no member any more, and is to hear of it now."""
        for _, whose, place in self._waiting:
            if whose == slot:
                _wake(place)


def _wake(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_result(None)


class Entry(Enum):
    """What became of a report, before its round is closed."""

    ACCEPTED = "accepted"
    CONFIRMED = "confirmed"
    CONFLICT = "conflict"
    LATE = "late"


class OpenRound:
    """The reports of one round.

    Args:
        number: of the round.
        roll: the devices.
        opened: when, on the coordinator's clock.

    Attributes:
        heard: how many have reported.
        due: how many it still waits for.
        closing: its books are being written: no report can be added any more.
    """

    def __init__(self, number: int, roll: Roll, opened: float) -> None:
        self.number, self.opened, self.closing = number, opened, False
        self._codes = bytearray(len(roll))
        self._roll = roll
        self.heard, self.due = 0, sum(map(roll.is_awaited, range(len(roll))))

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

    def grow(self) -> None:
        """New devices have enrolled: it waits for them too."""
        new = len(self._roll) - len(self._codes)
        self._codes.extend(bytes(new))
        self.due += new

    def recount(self) -> None:
        """Devices have left: it waits for them no more."""
        self.grow()
        self.due = sum(code == MISSING and self._roll.is_awaited(slot) for slot, code in enumerate(self._codes))

    def codes(self) -> Codes:
        """A copy of the reports by slot."""
        return np.frombuffer(bytes(self._codes), dtype=np.uint8)

    def take(self, codes: Codes) -> None:
        """All reports that are known anywhere, this round's own included."""
        self._codes[: len(codes)] = codes.tobytes()
        self.heard = len(self._codes) - self._codes.count(MISSING)
        self.recount()
