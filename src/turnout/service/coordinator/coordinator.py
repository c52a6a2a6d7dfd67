"""The coordinator: it runs the rounds of one run, from a store, for the devices on its roll.

Three parts share the work. `StoreSync` is what this process knows of the store; `RoundLoop` closes rounds;
`DeviceRequests` is what devices ask for.

Reports are held in memory. Closing a round is one transaction; only after it are the devices answered. So after any
crash, a device that has an answer is in the database, and one that has none sends its stored bit again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import numpy as np

from turnout.service import Log, boot_clock
from turnout.service.coordinator.device_requests import DeviceRequests
from turnout.service.coordinator.events import Events
from turnout.service.coordinator.round_loop import RoundLoop
from turnout.service.coordinator.store_sync import StoreSync
from turnout.service.store import Store, StoreProblem

_LOG_EVERY = 0.5  # seconds between two looks at the audit log

_AUDIT_EVENTS = {
    "capacity": "capacity changed",
    "mode": "mode changed",
    "codes": "codes made",
    "rules": "rules changed",
    "trimmed": "rounds trimmed",
    "left": "device left",
    "revoked": "device revoked",
    "renamed": "device renamed",
    "voided": "code voided",
}
"""A change as the process's own log calls it."""

log = Log("coordinator")


class Coordinator:
    """Runs the rounds of a store's run until it is stopped. Make it within a running event loop.

    Args:
        store: with a run in it.
        clock: seconds that never go back, and that count while the machine sleeps: leases end then, too.
        random: draws who is refused beyond a hard limit.

    Attributes:
        events: what happens, counted; and who waits for it.
        sync: the run, as this process knows it.
        devices: what devices ask for.

    Example:
        >>> import tempfile
        >>> from turnout.service.store import open_store
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Coordinator(open_store(f"{folder}/run.db", create=True))
        Traceback (most recent call last):
        ...
        turnout.service.store.store.StoreProblem: the store has no run yet: begin one with `turnout serve --capacity …`
    """

    def __init__(
        self, store: Store, *, clock: Callable[[], float] = boot_clock, random: np.random.Generator | None = None
    ) -> None:
        self.events = Events()
        self.sync = StoreSync(store, self.events, clock)
        self.devices = DeviceRequests(self.sync)
        self._rounds = RoundLoop(self.sync, self.devices.replays, random or np.random.default_rng())
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to run rounds. Nobody else uses the store yet."""
        lines = len(self.sync.store.changes())
        work = self._rounds.run(), self.devices.enrolments.work(), _log_changes(self.sync, lines)
        self._tasks = [asyncio.create_task(one) for one in work]

    async def stop(self) -> None:
        """Answer whoever waits that the round is not closed yet, and let the store go. The open round stays open."""
        self.events.stop()
        await asyncio.gather(*self._tasks[:1], return_exceptions=True)  # a round that is being closed is closed
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.sync.open.held.release(math.inf)
        await self.sync.close()

    async def ended(self) -> None:
        """Wait until the rounds have ended, by `stop` or by an error, which is raised."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()


async def _log_changes(sync: StoreSync, known: int) -> None:
    """Log every new line of the audit log until cancelled, and the last ones then."""
    try:
        while True:
            await asyncio.sleep(_LOG_EVERY)
            known += await _log_from(sync, known)
    finally:
        await _log_from(sync, known)


async def _log_from(sync: StoreSync, first: int) -> int:
    """How many lines there were; none while the store fails, which the round loop logs."""
    try:
        found = await sync.call(sync.store.changes, first)
    except StoreProblem:
        return 0
    for change in found:
        log.info(_AUDIT_EVENTS.get(change.what, change.what), who=change.who, detail=change.detail)
    return len(found)
