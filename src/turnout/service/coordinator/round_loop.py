"""It looks at the store now and then, and closes the open round when all have reported or time is up."""

from __future__ import annotations

import math
import time

import numpy as np

from turnout.service import Log, close
from turnout.service.coordinator.closed_rounds import Replays
from turnout.service.coordinator.store_sync import StoreSync
from turnout.service.store import STOPPED, OtherTables, OutOfStep, StaleRound, StoreProblem

POLL = 0.5
"""Seconds between two looks at the store for what others have changed; a tenth of it where it is shared."""

PAUSE = 1.0
"""Seconds after a failure of the store before it is tried again."""

OVERDUE = 15.0
"""Seconds, or three deadlines if that is more, by which a round is late when the lead is taken from who is silent."""

SILENT = 5.0
"""Seconds for which a process that leads asks the database for nothing only if it is halted."""

log = Log("coordinator")


class RoundLoop:
    """Closes rounds until the process stops.

    Args:
        sync: the run, as this process knows it.
        replays: which reports were decided before a restore.
        random: draws who is refused beyond a hard limit.
    """

    def __init__(self, sync: StoreSync, replays: Replays, random: np.random.Generator) -> None:
        self._sync, self._replays, self._random = sync, replays, random
        self._looked, self._stale, self._waited = sync.clock(), -1, sync.clock()

    async def run(self) -> None:
        """Run rounds until `Events.stop`; a round that is being closed then is closed first.

        The store may fail for a while (a full disk, a database that restarts): then the round stays open.

        Raises:
            StoreProblem: another process has the store.
            OtherTables: a newer turnout has changed them. This one ends, so that it does not keep the lead.
            OutOfStep: only a new start brings this process back to what the store has.
        """
        sync, events = self._sync, self._sync.events
        await sync.take_lead()
        every = POLL / 10 if sync.store.shared else POLL
        while not events.stopping:
            sync.open.take_wait_for(sync.versions[-1])
            to_close = self._seconds_to_close() if sync.leads else every
            await events.woken(min(to_close, self._looked + every - sync.clock()))
            sync.open.held.release(sync.clock() - sync.rules.timing.hold)
            try:
                await self._turn(every)
                sync.failing = False
            except StaleRound as stale:
                if sync.open.number == self._stale:  # a look has not helped
                    await self._pause(stale)
                self._stale, self._looked = sync.open.number, -math.inf  # another has closed it: look at once
            except (OtherTables, OutOfStep) as problem:
                log.error("this coordinator ends", reason=str(problem))
                raise
            except StoreProblem as problem:
                await self._pause(problem)

    async def _pause(self, problem: StoreProblem) -> None:
        self._sync.failing = True
        self._sync.events.count("store failures")
        log.error("the store failed", reason=str(problem))
        await self._sync.events.stopped(PAUSE)

    async def _turn(self, every: float) -> None:
        sync = self._sync
        if sync.clock() >= self._looked + every:
            self._looked = sync.clock()
            await sync.look()
            if not sync.leads:
                await self._take_over_when_overdue()
        if sync.leads and self._seconds_to_close() <= 0.0:
            if sync.store.shared:
                await sync.merge()
            if self._seconds_to_close() <= 0.0:
                await self._close()

    async def _take_over_when_overdue(self) -> None:
        """A process that is halted keeps its connection, and so the lead, but closes nothing."""
        sync, deadline = self._sync, self._sync.rules.timing.deadline
        if sync.waits:
            self._waited = sync.clock()
        elif sync.clock() >= max(self._waited, sync.open.opened + deadline) + max(OVERDUE, 3.0 * deadline):
            self._waited = sync.clock()
            await sync.take_over(SILENT)

    def _seconds_to_close(self) -> float:
        """How long until the open round must be closed, as far as is known."""
        sync, timing, open = self._sync, self._sync.rules.timing, self._sync.open
        if sync.control.mode == STOPPED:
            return 0.0
        if sync.waits:
            open.opened = sync.clock()
            return POLL
        all_in = open.due <= 0 < open.heard
        return (timing.round if all_in else timing.deadline) - (sync.clock() - open.opened)

    async def _close(self) -> None:
        sync, open, now = self._sync, self._sync.open, self._sync.clock()
        closed, position = close(
            sync.rules,
            open.position,
            sync.roll.members(),
            open.codes(),
            sync.control.capacity,
            self._random,
            replayed=self._replays.among(len(sync.roll), open.number),
            acknowledge=sync.control.mode != STOPPED,
            seconds=now - open.opened,
            closed_at=time.time(),
        )
        await sync.close_round(closed, position, now)
