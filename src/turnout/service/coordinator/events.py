"""What happens in a coordinator's process: it is counted, and those that wait for it are woken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any


class Events:
    """Counts, and three things to wait for: a reason to look at the open round, any change, the end.

    Attributes:
        faults: what has gone wrong, by name.
        counters: what this process has done, by name.
        version: one more with every change that people see.
    """

    def __init__(self) -> None:
        self.faults: dict[str, int] = {}
        self.counters = {"reports": 0, "rounds": 0, "enrolments": 0}
        self.version = 0
        self._woken, self._changed, self._stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Whether the process is about to stop."""
        return self._stopped.is_set()

    def count(self, fault: str) -> None:
        """One more of a kind of fault."""
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def wake(self) -> None:
        """The open round may be ready to close: let the round loop look at once."""
        self._woken.set()

    async def woken(self, seconds: float) -> None:
        """Wait for `wake`, at most so many seconds."""
        if seconds > 0.0:
            await at_most(self._woken.wait(), seconds)
        self._woken.clear()

    def tell(self) -> None:
        """Something has changed that people see."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, since: int) -> int:
        """Wait until something has changed since that version, and return the new one."""
        while self.version == since and not self.stopping:
            await self._changed.wait()
        return self.version

    def stop(self) -> None:
        """The process is about to stop: nobody waits any longer."""
        self._stopped.set()
        self.wake()
        self.tell()

    async def stopped(self, seconds: float) -> None:
        """Wait for `stop`, at most so many seconds."""
        await at_most(self._stopped.wait(), seconds)


async def at_most(work: Awaitable[Any], seconds: float) -> None:
    """Wait for work, but not longer than so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):  # `wait_for` can lose a cancellation
            await work
