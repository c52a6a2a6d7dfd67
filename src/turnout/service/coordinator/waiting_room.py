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
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, now: float) -> asyncio.Future[None]:
        """A place to wait in."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((now, place))
        return place

    def release(self, now: float, *, everyone: bool = False) -> None:
        """Wake those who have waited long enough, or all."""
        while self._waiting and (everyone or self._waiting[0][0] <= now - self._longest):
            place = self._waiting.popleft()[1]
            if not place.done():
                place.set_result(None)
