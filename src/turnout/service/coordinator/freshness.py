"""How new a coordinator's memory is, where others write to the same store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any


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
