"""Requests that are held: each waits until its round has closed, or for as long as a request may be kept waiting."""

from __future__ import annotations

import asyncio
from collections import deque


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
