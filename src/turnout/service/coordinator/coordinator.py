"""The coordinator: it runs the rounds of one run, from a store, for the devices on its roll.

Reports are held in memory. Closing a round is one transaction; only after it are the devices answered. So whatever
dies, a device that has an answer is in the books, and one that has none sends its stored bit again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from turnout.service import (
    MISSING,
    REFUSED,
    ClosedRound,
    Log,
    Offer,
    Position,
    Rules,
    Welcome,
    close,
    rules_from_settings,
)
from turnout.service.coordinator.closed_rounds import Replays, log_changes, recent_rounds
from turnout.service.coordinator.enrolment import EnrolmentDesk, Roll, hashed
from turnout.service.coordinator.open_round import Answered, Entry, Freshness, OpenRound, WaitingRoom, at_most
from turnout.service.store import (
    PAUSED,
    RUNNING,
    STOPPED,
    TAKEN,
    Control,
    Device,
    Enrolment,
    Run,
    StaleRound,
    Store,
    StoreProblem,
)
from turnout.settings import Table

POLL = 0.5
"""Seconds between two looks at the store for what others have changed; a tenth of it where it is shared."""

LONGEST_LOOK = 5.0
"""Seconds for which a request waits for the next look at a shared store."""

KEPT = 16
"""Closed rounds that are answered from memory."""

log = Log("coordinator")

Result = TypeVar("Result")


class Coordinator:
    """Runs the rounds of a store's run until it is stopped. Make it within a running event loop.

    Args:
        store: with a run in it.
        clock: seconds that never go back.
        random: draws who is refused beyond a hard limit.

    Attributes:
        run: what the store is about.
        rules: of the run.
        roll: its devices.
        position: where it stands.
        control: what the operator has set.
        open: the open round.
        faults: what has gone wrong, by name.
        counters: what this process has done, by name.
        leads: whether this process closes rounds.
        version: one more with every change that people see.
        stopping: whether it is on its way out.

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
        self, store: Store, *, clock: Callable[[], float] = time.monotonic, random: np.random.Generator | None = None
    ) -> None:
        run = store.run()
        if run is None:
            raise StoreProblem("the store has no run yet: begin one with `turnout serve --capacity …`")
        self.run: Run = run
        self.rules: Rules = rules_from_settings(Table(dict(run.settings)))
        self.roll, self.replays, self.clock = Roll(), Replays(), clock
        self._fresh, self._looked = Freshness(clock), clock()
        self.control: Control = store.control()
        self.roll.take(store.devices())
        self.roll.revision = self.control.revision
        self.position: Position = store.position()
        self.open = OpenRound(self.position.round, self.roll, self.clock())
        self._recent = recent_rounds(store, self.position.round)
        self.faults: dict[str, int] = {}
        self.counters = {"reports": 0, "rounds": 0, "enrolments": 0}
        self.leads, self.version, self.stopping = False, 0, False
        self.waiting = WaitingRoom(self.rules.timing.hold)
        self.store = store
        self._random = random or np.random.default_rng()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._books = asyncio.Lock()  # one change of the books at a time, and memory follows before the next
        self._news, self._changed = asyncio.Event(), asyncio.Condition()
        self._answered: dict[int, Answered] = {}
        self._desk = EnrolmentDesk(self._enrol)
        self._tasks: list[asyncio.Task[None]] = []
        self.offer = self.position.offer.body()

    @property
    def last(self) -> ClosedRound | None:
        """The last closed round, if there is one."""
        return self._recent[-1] if self._recent else None

    def start(self) -> None:
        """Begin to run rounds."""
        self._tasks = [asyncio.create_task(work) for work in (self._run_rounds(), self._desk.work(), log_changes(self))]

    async def stop(self) -> None:
        """Answer whoever waits that the round is not closed yet, and let the store go. The open round stays open."""
        self.stopping = True
        self._news.set()
        async with self._books:  # a round that is being closed is closed
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.waiting.release(self.clock(), everyone=True)
        await self._tell()
        await self.in_store(self.store.close)
        self._thread.shutdown()

    async def ended(self) -> None:
        """Wait until the rounds have ended, by `stop` or by an error, which is raised."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()

    async def in_store(self, call: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """Call the store, in the one thread that may."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(call, *arguments, **named))

    # What devices want.

    async def slot_of(self, token: str) -> int | None:
        """The member with this token."""
        digest = hashed(token)
        slot = self.roll.slots.get(digest)
        if slot is None:
            await self.up_to_date()  # it may have enrolled elsewhere a moment ago
            slot = self.roll.slots.get(digest)
        return slot

    async def up_to_date(self) -> None:
        """Wait until all is known that other coordinators had done when this was called.

        Raises:
            StoreProblem: the store does not say.
        """
        if self.store.shared and not await self._fresh.wait(LONGEST_LOOK):
            raise StoreProblem("the database does not answer: see that it runs, then ask again")

    async def enrol(self, code: str, nonce: str) -> Welcome | None:
        """A new device, if its code is good: its token, and all that is public."""
        found = await self._desk.enrol(code, nonce)
        if found is None:
            return None
        (token, device, offer), rules = found, self.rules
        return Welcome(
            run=self.run.name,
            token=token,
            weight=device.weight,
            prior_average=rules.prior.average,
            prior_rounds=rules.prior.rounds,
            remember=rules.averaging.remember,
            by=rules.averaging.by,
            mechanism=rules.mechanism.settings(),
            offer=offer,
        )

    def report(self, slot: int, participates: bool) -> Entry:
        """Enter a bit for the open round."""
        entry = self.open.put(slot, participates)
        if entry is Entry.ACCEPTED:
            self.counters["reports"] += 1
            if self.open.due <= 0:
                self._news.set()
        return entry

    async def answered(self, round: int) -> Answered | None:
        """A closed round to answer from; None if it is not in the books."""
        found = self._answered.get(round)
        if found is None and 0 <= round < self.position.round:
            books = await self.in_store(self.store.closed, round)
            found = None if books is None else Answered(books.codes.tobytes(), None)
        return found

    # What the operator wants.

    async def change(self, who: str, *, capacity: float | None = None, mode: str | None = None) -> None:
        """Set capacity or mode; it is in force and in the audit log when this returns."""
        async with self._books:
            self._take_control(await self.in_store(self.store.change, who, capacity=capacity, mode=mode))
        await self._tell()

    async def withdraw(self, slot: int, who: str, what: str) -> None:
        """Take a device off the roll: its token is void at once, and the open round does not wait for it."""
        async with self._books:
            self.roll.take([await self.in_store(self.store.withdraw, slot, who, what)])
            self.open.recount()
        self.waiting.wake(slot)
        self._news.set()
        await self._tell()

    async def watch(self, since: int) -> int:
        """Wait until something has changed since that version."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.version != since or self.stopping)
        return self.version

    def count(self, fault: str) -> None:
        """One more of a kind of fault."""
        self.faults[fault] = self.faults.get(fault, 0) + 1

    # Rounds.

    async def _run_rounds(self) -> None:
        self.leads = await self.in_store(self.store.lead)
        if not self.leads and not self.store.shared:
            raise StoreProblem(TAKEN)
        patience = POLL / 10 if self.store.shared else POLL
        while not self.stopping:
            wait = min(self._seconds_to_close() if self.leads else patience, self._looked + patience - self.clock())
            if wait > 0.0:
                await at_most(self._news.wait(), wait)
            self._news.clear()
            self.waiting.release(self.clock())
            async with self._books:
                await self._guarded(self._turn, patience)

    async def _turn(self, patience: float) -> None:
        if self.clock() >= self._looked + patience:
            await self._look()
        if self.leads and self._seconds_to_close() <= 0.0:
            if self.store.shared:
                await self._merge()
            if self._seconds_to_close() <= 0.0:
                await self._close()

    async def _guarded(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """The store may fail for a while (a full disk, a database that restarts): then the round stays open."""
        try:
            await work(*arguments)
        except StaleRound:
            self._looked = 0.0  # another has closed it: look at once
        except StoreProblem as problem:
            self.count("store failures")
            log.error("the store failed", reason=str(problem))
            await asyncio.sleep(1.0)

    def _seconds_to_close(self) -> float:
        """How long until the open round is to be closed, as far as can be told."""
        mode, timing, open = self.control.mode, self.rules.timing, self.open
        if mode == STOPPED:
            return 0.0
        if mode == PAUSED or (open.number == 0 and len(self.roll) < self.rules.wait_for):
            open.opened = self.clock()
            return POLL
        all_in = open.due <= 0 < open.heard
        return (timing.round if all_in else timing.deadline) - (self.clock() - open.opened)

    async def _close(self) -> None:
        open, now = self.open, self.clock()
        open.closing = True
        try:
            state = self.rules, self.position, self.roll.members(), open.codes(), self.control.capacity, self._random
            closed, position = close(
                *state,
                before=self._recent,
                replayed=self.replays.among(len(self.roll), self.position.round),
                acknowledge=self.control.mode != STOPPED,
                seconds=now - open.opened,
                closed_at=time.time(),
            )
            await self.in_store(self.store.close_round, closed, position)
        except BaseException:
            open.closing = False  # more may come in until the next try
            raise
        if self.control.mode != RUNNING:
            self._take_control(await self.in_store(self.store.control))
        self._closed(closed, position, now)
        await self._tell()

    def _closed(self, closed: ClosedRound, position: Position, when: float) -> None:
        """A round is in the books: memory follows, and everyone who waits is answered."""
        self.position, self.offer = position, position.offer.body()
        self._recent.append(closed)
        self.roll.note(closed.codes)
        self._answered[closed.round] = Answered(closed.codes.tobytes(), when)
        self._answered.pop(closed.round - KEPT, None)
        self.open = OpenRound(position.round, self.roll, self.clock())
        self.counters["rounds"] += 1
        if closed.frozen:
            self.count("frozen rounds")
        if (closed.codes == REFUSED).any():
            self.count("rounds at the hard limit")
        self.waiting.release(self.clock(), everyone=True)
        fields = {name: getattr(closed, name) for name in ("round", "participants", "heard", "members", "frozen")}
        log.info("round closed", **fields, seconds=round(closed.seconds, 3))

    # What others do to the store: the operator's commands, other coordinators.

    async def _look(self) -> None:
        self._looked = now = self.clock()
        control = await self.in_store(self.store.control)
        if control != self.control:
            self._take_control(control)
            await self._tell()
        if control.revision > self.roll.revision:
            self.roll.take(await self.in_store(self.store.devices, self.roll.revision))
            self.roll.revision = control.revision
            self.open.recount()
        await self._catch_up()
        self._fresh.renew(now)
        if self.store.shared:
            await self._merge()
            self.leads = await self.in_store(self.store.lead)

    async def _catch_up(self) -> None:
        """Rounds that another has closed since we last knew; their leases are counted from then.

        They are all taken in one go: in between, devices would be offered a round that is closed already.
        """
        position = await self.in_store(self.store.position)
        rounds = []
        for number in range(self.position.round, position.round):
            closed = await self.in_store(self.store.closed, number)
            if closed is None:
                raise StoreProblem(f"round {number} is missing in the books: restore a backup")
            rounds.append(closed)
        for closed in rounds:
            self._closed(closed, replace(position, round=closed.round + 1), self._fresh.known)
        if rounds:
            await self._tell()

    async def _merge(self) -> None:
        """Put our reports on the table, and take everyone's."""
        number, mine = self.open.number, self.open.codes()
        merged = await self.in_store(self.store.merge, number, mine)
        ours = self.open.codes()  # some may have come in meanwhile
        known = np.zeros(len(ours), dtype=np.uint8)
        known[: len(merged)] = merged[: len(ours)]
        self.open.take(np.where(known != MISSING, known, ours))

    def _take_control(self, control: Control) -> None:
        if control.mode != self.control.mode:
            self.open.opened = self.clock()  # devices get the whole of a round's time again
        self.control = control
        self._news.set()

    async def _enrol(self, wishes: Sequence[Enrolment]) -> tuple[list[Device | None], Offer]:
        async with self._books:
            found = await self._entered(wishes)
            offer = self.position.offer
        self.counters["enrolments"] += sum(device is not None for device in found)
        self._news.set()
        await self._tell()
        return found, offer

    async def _entered(self, wishes: Sequence[Enrolment]) -> list[Device | None]:
        """Devices of the open round. Another may close it meanwhile: who comes again joins at the next."""
        found: list[Device | None] = []
        for _ in range(5 if self.store.shared else 1):
            found = await self.in_store(self.store.enrol, wishes, time.time())
            if self.store.shared:
                await self._look()
            else:
                self.roll.take(sorted((device for device in found if device), key=lambda device: device.slot))
                self.open.recount()
            if all(device is None or device.joined >= self.position.round for device in found):
                break
        return found

    async def _tell(self) -> None:
        self.version += 1
        async with self._changed:
            self._changed.notify_all()
