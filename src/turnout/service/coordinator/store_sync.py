"""What this process knows of the store, and its only way there.

There is no lock. The store has one thread, which does one job at a time; each job's result is taken into memory as soon
as it arrives, so in the same order. A job that waits (a database that restarts) delays the jobs behind it, and
nothing else: reports still come in, and the round loop pauses after a failure without keeping anyone from the store.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from turnout.service import ClosedRound, Log, Offer, Position, Rules, RulesVersion, RulesVersions
from turnout.service.coordinator.closed_rounds import ClosedRounds
from turnout.service.coordinator.enrolment import Roll
from turnout.service.coordinator.events import Events, at_most
from turnout.service.coordinator.open_round import OpenRound
from turnout.service.store import PAUSED, TAKEN, Control, Device, Enrolment, OutOfStep, Run, Store, StoreProblem

LONGEST_LOOK = 5.0
"""Seconds for which a request waits for the next look at a shared store."""

log = Log("coordinator")

Result = TypeVar("Result")


class StoreSync:
    """The run as this process knows it; every change goes to the store first.

    Args:
        store: with a run in it.
        events: notified of every change.
        clock: seconds that never go back.

    Attributes:
        run: what the store is about; it never changes.
        versions: of its rules.
        roll: its devices.
        control: what the operator has set.
        open: the open round.
        closed: the rounds before it.
        leads: whether this process closes rounds.
        failing: whether the store failed when it was last needed to run the rounds.

    Raises:
        StoreProblem: the store has no run, or fails.
    """

    def __init__(self, store: Store, events: Events, clock: Callable[[], float]) -> None:
        self._known = clock()  # memory has everything that the store had at this time
        run = store.run()
        if run is None:
            raise StoreProblem("the store has no run yet: begin one with `turnout serve --capacity …`")
        self.store, self.events, self.clock = store, events, clock
        self.run: Run = run
        self.control: Control = store.control()
        self.roll = Roll()
        self.roll.take(store.devices())
        self.roll.revision = self.control.revision
        position = store.position()  # before the rules: a version is stored before a round of it is open
        self.versions = RulesVersions(store.rules())
        self.open = OpenRound(position, self.roll, clock(), self.versions.at(position.round))
        self.closed = ClosedRounds(store, self.open.number)
        self.leads = self.failing = False
        self._looked = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    @property
    def rules(self) -> Rules:
        """Those of the open round; they never change while it is open."""
        return self.open.version.rules

    async def call(self, job: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """Have a job done by the one thread that may use the store."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(job, *arguments, **named))

    async def close(self) -> None:
        """Let the store go."""
        await self.call(self.store.close)
        self._thread.shutdown()

    async def take_lead(self) -> None:
        """Become the process that closes rounds, if nobody is.

        Raises:
            StoreProblem: another process is, and the store is for one alone.
        """
        self._take_lead(await self.call(self.store.lead))
        if not self.leads and not self.store.shared:
            raise StoreProblem(TAKEN)

    async def take_over(self, silent: float) -> None:
        """Take the lead from a process that has not asked for it for so many seconds."""
        if await self.call(self.store.end_lead, silent):
            log.warning("the leader was silent: its database session is ended", round=self.open.number)

    async def look(self) -> None:
        """Take in what others have changed: the operator's commands, other coordinators.

        Raises:
            OutOfStep: it cannot be taken in, as the store is not where it was, or rounds are gone.
        """
        now, known = self.clock(), _Known(self.open.number, self.roll.revision, len(self.versions), self.closed.last)
        seen = await self.call(_look, self.store, known)
        self._take_versions(seen.versions)
        self._take_control(seen.control)
        self._take_devices(seen.devices)
        self.roll.revision = max(self.roll.revision, seen.control.revision)
        for closed in seen.closed:  # in one go: in between, devices would be offered a round that is closed already
            if closed.round == self.open.number:
                self._take_closed(closed, replace(seen.position, round=closed.round + 1), self._known)
        if seen.leads is not None:
            self._take_lead(seen.leads)
        if self.waits:
            self.open.opened = self.clock()  # as the one that leads has it
        self._known = now
        self._looked.set()
        self._looked = asyncio.Event()
        if self.store.shared:
            await self.merge()

    async def up_to_date(self) -> None:
        """Wait until all is known that other coordinators had done when this was called.

        Raises:
            StoreProblem: the store does not say.
        """
        asked = self.clock()
        while self.store.shared and self._known < asked:
            if self.clock() >= asked + LONGEST_LOOK:
                raise StoreProblem("the database does not answer: see that it runs, then ask again")
            await at_most(self._looked.wait(), LONGEST_LOOK)

    @property
    def waits(self) -> bool:
        """Whether no round is to be closed now: it is paused, or too few devices have enrolled for the first."""
        return self.control.mode == PAUSED or (self.open.number == 0 and len(self.roll) < self.rules.wait_for)

    def unready(self) -> str:
        """Why this process should get no requests now; "" if it has its database, and the rounds are being closed.

        Strangers may ask: it names neither the database nor what is wrong with it. The log does.
        """
        now = self.clock()
        if self.events.stopping:
            return "this coordinator is about to stop"
        if now - self._known > LONGEST_LOOK:
            return f"the database has not answered for {now - self._known:.0f} s"
        if self.failing:
            return "the database fails: the log says why"
        if not (self.leads or self.store.shared):
            return "this coordinator does not lead yet"
        late = now - self.open.opened - self.rules.timing.deadline
        if not self.waits and late > LONGEST_LOOK:
            return f"no coordinator leads: round {self.open.number} should have closed {late:.0f} s ago"
        return ""

    async def merge(self) -> None:
        """Give our reports of the open round to the other coordinators, and take theirs."""
        open = self.open
        open.merge(await self.call(self.store.merge, open.number, open.codes()))

    async def close_round(self, closed: ClosedRound, position: Position, when: float) -> None:
        """Close the open round in the store; then the next one is open, and everyone who waits is answered.

        Args:
            closed: the round.
            position: where the run stands after it.
            when: leases count from here.

        Raises:
            StaleRound: another process has closed it.
        """
        open = self.open
        open.closing = True
        try:
            control, versions = await self.call(_close, self.store, closed, position, len(self.versions))
        except BaseException:
            open.closing = False  # more may come in until the next try
            raise
        self._take_versions(versions)
        self._take_control(control)
        self._take_closed(closed, position, when)

    async def change(self, who: str, *, capacity: float | None = None, mode: str | None = None) -> None:
        """Set capacity or mode; it is in force and in the audit log when this returns."""
        self._take_control(await self.call(self.store.change, who, capacity=capacity, mode=mode))

    async def rename(self, slot: int, who: str, **names: str) -> None:
        """Change what a device is called."""
        self._take_devices([await self.call(self.store.rename, slot, who, **names)])

    async def withdraw(self, slot: int, who: str, what: str, why: str = "") -> None:
        """Take a device off the roll: its token is void at once, and the open round does not wait for it."""
        self._take_devices([await self.call(self.store.withdraw, slot, who, what, why)])
        self.open.held.wake(slot)

    async def enrol(self, enrolments: Sequence[Enrolment]) -> tuple[list[Device | None], Offer]:
        """Enrol many at once, None for a code that is not good; and the round at which they join.

        Where another process closes the round meanwhile, whoever has joined at it joins again, at the next.
        """
        found: list[Device | None] = []
        for _ in range(5 if self.store.shared else 1):
            found = await self.call(self.store.enrol, enrolments, time.time())
            if self.store.shared:
                await self.look()
            else:
                self._take_devices(sorted(filter(None, found), key=lambda device: device.slot))
            if all(device is None or device.joined >= self.open.number for device in found):
                break
        self.events.counters["enrolments"] += sum(device is not None for device in found)
        return found, self.open.offered

    def _take_lead(self, leads: bool) -> None:
        if leads and not self.leads:
            log.info("this coordinator leads: it closes the rounds from now on", round=self.open.number)
        elif self.leads and not leads:
            log.warning("this coordinator does not lead any more: another closes the rounds", round=self.open.number)
        self.leads = leads

    def _take_control(self, control: Control) -> None:
        if control == self.control:
            return
        if control.mode != self.control.mode:
            self.open.opened = self.clock()  # devices get the whole of a round's time again
        self.control = control
        self._tell()

    def _take_versions(self, versions: Sequence[RulesVersion]) -> None:
        new = [version for version in versions if version.number > len(self.versions)]
        if new:
            self.versions = RulesVersions([*self.versions, *new])
            self._tell()

    def _take_devices(self, devices: Sequence[Device]) -> None:
        if devices:
            self.roll.take(devices)
            self.open.recount()
            self._tell()

    def _take_closed(self, closed: ClosedRound, position: Position, when: float) -> None:
        """A round is closed in the store: memory follows, and everyone who waits is answered."""
        before, events = self.open, self.events
        _log_reach(self.closed.last, closed)
        self.closed.add(closed, when)
        self.roll.note(closed.codes)
        version = self.versions.at(position.round)
        if version is not before.version:
            log.info("rules in force", version=version.number, round=position.round)
        self.open = OpenRound(position, self.roll, self.clock(), version)
        before.held.release(math.inf)
        events.counters["rounds"] += 1
        if closed.frozen:
            events.count("frozen rounds")
        if closed.beyond_reach:
            events.count("rounds beyond reach")
        limit = before.version.rules.safety.hard_limit
        if limit is not None and closed.demand > limit:
            events.count("rounds at the hard limit")
        fields = {name: getattr(closed, name) for name in ("round", "participants", "heard", "members", "frozen")}
        log.info("round closed", **fields, seconds=round(closed.seconds, 3))
        events.tell()

    def _tell(self) -> None:
        self.events.wake()
        self.events.tell()


def _log_reach(before: ClosedRound | None, closed: ClosedRound) -> None:
    """Log when those who can be counted on cannot bring the capacity any more, and when they can again."""
    if closed.beyond_reach == (before is not None and before.beyond_reach):
        return
    numbers = {"round": closed.round, "capacity": closed.capacity, "expected": closed.expected}
    if closed.beyond_reach:
        log.warning("capacity out of reach: the signal waits", **numbers)
    else:
        log.info("capacity in reach again", **numbers)


class _Seen(NamedTuple):
    """What a look at the store found: the devices that have changed, and the rounds that have closed."""

    control: Control
    devices: list[Device]
    position: Position
    closed: list[ClosedRound]
    versions: list[RulesVersion]
    leads: bool | None


class _Known(NamedTuple):
    """What is known before a look: the open round, the last change, how many versions, the last closed round."""

    open: int
    revision: int
    versions: int
    last: ClosedRound | None


def _look(store: Store, known: _Known) -> _Seen:
    control = store.control()
    devices = store.devices(known.revision) if control.revision > known.revision else []
    position = store.position()
    _check_not_set_back(store, known, control, position)
    closed = []
    for number in range(known.open, position.round):
        found = store.closed(number)
        if found is None:
            if number < store.summary().first_kept:
                raise OutOfStep(f"round {number} was trimmed while this coordinator slept: start it again")
            raise StoreProblem(f"round {number} is missing in the database: restore a backup")
        closed.append(found)
    changed = position.round > known.open or control.revision > known.revision
    # After the position: a version is stored before its first round.
    new = store.rules(known.versions) if changed else []
    return _Seen(control, devices, position, closed, new, store.lead() if store.shared else None)


def _check_not_set_back(store: Store, known: _Known, control: Control, position: Position) -> None:
    """A database that failed over to a copy may lack what it had told; then memory is wrong, and cannot be mended."""
    lost = ""
    if position.round < known.open:
        lost = f"round {position.round} is open again, and was closed: this coordinator is at round {known.open}"
    elif control.revision < known.revision:
        lost = f"it is at change {control.revision}, and this coordinator at change {known.revision}"
    elif position.round > known.open and known.last is not None:
        stored = store.closed(known.last.round)  # None: it was trimmed
        if stored is not None and stored.closed_at != known.last.closed_at:
            lost = f"round {known.last.round} is another than the one that this coordinator knows"
    if lost:
        raise OutOfStep(
            f"the database was set back ({lost}): see what it has lost, as after a restored copy, and start this "
            "coordinator again"
        )


def _close(store: Store, closed: ClosedRound, position: Position, versions: int) -> tuple[Control, list[RulesVersion]]:
    store.close_round(closed, position)
    return store.control(), store.rules(versions)  # the mode may have changed with it, and the next round's rules
