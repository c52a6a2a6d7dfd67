"""What the operator sees and does: a coordinator's state as plain numbers, and the few things that can be changed.

Counts and totals, and who is here: nothing says what a device decided.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter, deque
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from turnout.algorithm import Presence
from turnout.errors import invalid
from turnout.privacy import LOST_ROUNDS, LOST_RULES, PublicAccount, shown
from turnout.service import (
    LEAVING,
    MISSING,
    SPENT,
    ClosedRound,
    Log,
    RulesVersion,
    budget_of,
    reachable,
    unpack_presence,
)
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.coordinator.enrolment import issue_codes, why_left
from turnout.service.coordinator.events import at_most
from turnout.service.coordinator.listing import MOST_SITES, code_list, device_list, one_code, site_list
from turnout.service.operator import SPENT_DAYS, told_sites, troubles
from turnout.service.store import Change, Names
from turnout.version import __version__

log = Log("coordinator")

LOG_EVERY = 5.0
"""Seconds between two looks at what is wrong, for the log; the page and `turnout status` look by themselves."""

REMEMBERED = 1000
"""Closed rounds that the page can draw."""

SITES_TOLD = 5
"""Sites of devices that are gone: those with the most of them."""

EXACT_REPORTS = 1000
"""Up to this number of reports the account is exact; beyond, it is for up to a hundredth more, to save time."""


class Overview:
    """A coordinator as its operator sees it.

    Args:
        coordinator: whose state it is.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._sync, self._events, self._replays = coordinator.sync, coordinator.events, coordinator.devices.replays
        self._began, self._restored = self._sync.clock(), False
        self._account: dict[str, Any] = {}
        self._account_rules()
        self._rounds: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        self._why, self._lines = dict[int, str](), 0
        self._spent = list[float]()  # when devices have left because their reports were spent
        self._troubles, self._gone, self._looks = dict[str, str](), set[int](), 0

    async def load(self) -> None:
        """Read the last rounds from the store, and whether it was ever restored; once, before anyone looks."""
        sync = self._sync
        if any(change.what == "restored" for change in await self.log()):
            self._restored = True
            self._account_rules()
        await self._read_why()
        first = max(0, sync.open.number - REMEMBERED)
        self._rounds.extend(await sync.call(lambda: list(map(_as_numbers, sync.store.history(first)))))

    async def follow(self) -> None:
        """Keep the last rounds up to date, and the account ahead of them, until cancelled."""
        version = -1
        while not self._events.stopping:
            self._note(self._sync.closed.last)
            await self._read_why()
            if self._sync.clock() >= self._began + LOG_EVERY * (1 + self._looks):
                self._looks = int((self._sync.clock() - self._began) / LOG_EVERY)
                self._log_troubles()
            reports = self._reports_at_most()
            if 1.005 * reports > self._account["reports"] >= EXACT_REPORTS:
                accounted = self._accounted
                found = await asyncio.to_thread(self._count_up, _with_room(reports))
                self._account = found if accounted is self._accounted else self._account
            next_look = self._began + LOG_EVERY * (1 + self._looks)  # also where nothing changes: rounds stand still
            await at_most(self._events.changed(version), next_look - self._sync.clock())
            version = self._events.version

    def unready(self) -> str:
        """Why this coordinator should get no requests now; "" if it should."""
        return self._sync.unready()

    def snapshot(self) -> dict[str, Any]:
        """Where the run stands, ready for JSON."""
        sync, rules, open, last = self._sync, self._sync.rules, self._sync.open, self._sync.closed.last
        presence, gone = unpack_presence(open.position.presence, len(sync.roll)), sync.roll.gone()
        return {
            "run": sync.run.name,
            "round": open.number,
            "mode": sync.control.mode,
            "capacity": sync.control.capacity,
            "hard_limit": rules.safety.hard_limit,
            "reachable": self._reachable(presence),
            "most_signal": rules.most_signal(sync.control.capacity),
            "signal": open.position.signal,
            "offered": open.position.offered,
            "members": len(sync.roll.slots),
            "heard": open.heard,
            "late": max(0, open.due),
            "gone": len(gone),
            "gone_at": dict(islice(sync.roll.by_site(gone).items(), SITES_TOLD)),
            "returning": presence.returning,
            "waiting_for": max(0, rules.wait_for - len(sync.roll)) if open.number == 0 else 0,
            "frozen": last is not None and last.frozen,
            "beyond_reach": last is not None and last.beyond_reach,
            "open_seconds": round(sync.clock() - open.opened, 3),
            "round_seconds": rules.timing.round,
            "deadline": rules.timing.deadline,
            "leader": sync.leads,
            "version": __version__,
            "rules": self._rules(),
            "uptime": round(sync.clock() - self._began, 1),
            "account": self._at_most(),
            "budget": budget_of(rules),
            "running_out": len(sync.roll.few_left),
            "least_reports_left": min(sync.roll.few_left.values(), default=None),
            "left_because": dict(Counter(self._why.values())),
            "spent_lately": sum(time.time() - when < 86400.0 * SPENT_DAYS for when in self._spent),
            "faults": dict(self._events.faults),
            "counters": dict(self._events.counters) | {"held": len(open.held)},
        }

    def recent(self, rounds: int) -> list[dict[str, Any]]:
        """The last closed rounds, oldest first."""
        self._note(self._sync.closed.last)
        return list(self._rounds)[-rounds:] if rounds > 0 else []

    async def changed(self, since: int) -> int:
        """Wait until something has changed; at most four times a second."""
        await self._events.changed(since)
        await asyncio.sleep(0.25)
        return self._events.version

    async def change(self, who: str, *, capacity: float | None = None, mode: str | None = None) -> None:
        """Set the capacity or the mode; the store refuses what is out of range."""
        await self._sync.change(who, capacity=capacity, mode=mode)

    async def revoke(self, slot: int, who: str) -> None:
        """Revoke a device's token."""
        if not 0 <= slot < len(self._sync.roll):
            raise invalid("device", f"from 0 to {len(self._sync.roll) - 1}", slot, "see the list of devices")
        await self._sync.withdraw(slot, who, "revoked")

    async def rename(self, slot: int, who: str, **names: str) -> None:
        """Change a device's label, site or note."""
        await self._sync.rename(slot, who, **names)

    async def issue_codes(self, count: int, weight: int, hours: float, who: str, names: Names) -> list[str]:
        """New one-time codes; only their hashes are kept."""
        return await self._sync.call(issue_codes, self._sync.store, count, weight, hours, who, [names] * count)

    async def codes(self, **asked: Any) -> dict[str, Any]:
        """A page of the list of codes; as of `code_list`."""
        codes = await self._sync.call(self._sync.store.codes)
        return await asyncio.to_thread(code_list, codes, time.time(), **asked)

    async def void_code(self, tag: str, who: str) -> None:
        """Void a code that no device has used."""
        store = self._sync.store
        await self._sync.call(lambda: store.void_code(one_code(store.codes(), tag).code, who))

    async def log(self) -> list[Change]:
        """The audit log."""
        return await self._sync.call(self._sync.store.changes)

    async def devices(self, **asked: Any) -> dict[str, Any]:
        """A page of the list of devices, and the open round; as of `device_list`."""
        await self._read_why()
        found = device_list(self._sync.roll, **asked)
        for line in found["devices"]:
            line["why"] = self._why.get(line["number"]) if line["left"] is not None else None
        return {"round": self._sync.open.number} | found

    async def _read_why(self) -> None:
        """Why devices have left, from the new lines of the audit log, if more have left than is known."""
        if len(self._why) < len(self._sync.roll) - len(self._sync.roll.slots):
            lines = await self._sync.call(self._sync.store.changes, self._lines)
            self._lines += len(lines)
            self._why |= why_left(lines)
            self._spent += [line.at for line in lines if LEAVING[SPENT] in why_left([line]).values()]

    def _log_troubles(self) -> None:
        """Log what is wrong when it begins and when it ends: an operator may look at the log alone."""
        found = {re.sub(r"[\d.,e+-]*\d", "…", text.partition(":")[0]): text for text in troubles(self.snapshot())}
        for kind in found.keys() - self._troubles.keys():
            log.warning("trouble", reason=found[kind])
        for kind in self._troubles.keys() - found.keys():
            log.info("trouble is over", reason=self._troubles[kind].partition(":")[0])
        self._troubles = found
        self._log_gone()

    def _log_gone(self) -> None:
        """Log how many devices have become silent, and how many report again, by site."""
        roll, gone = self._sync.roll, self._sync.roll.gone()
        back = {slot for slot in self._gone - gone if roll[slot].left is None}
        for event, slots in (("devices are gone", gone - self._gone), ("devices are back", back)):
            if slots:
                log.info(event, devices=len(slots), sites=told_sites(roll.by_site(slots)), members=len(roll.slots))
        self._gone = gone

    async def sites(self) -> dict[str, Any]:
        """The sites and who is there, and how many sites there are; as of `site_list`."""
        found = site_list(self._sync.roll)
        return {"found": len(found), "sites": found[:MOST_SITES]}

    def _note(self, closed: ClosedRound | None) -> None:
        if closed is not None and (not self._rounds or self._rounds[-1]["round"] < closed.round):
            self._rounds.append(_as_numbers(closed))

    def _reachable(self, presence: Presence) -> list[float]:
        """The least and the most turnout, on average, of those who can be counted on, at any signal."""
        members, last, on = self._sync.roll.members(), self._sync.closed.last, self._sync.open.position.on
        weight = float(members.weight[members.here & presence.expected].sum())
        heard = np.ones(len(members), np.bool_)  # who has joined since the last round reports, as far as we know
        if last is not None:
            heard[: len(last.codes)] = last.codes != MISSING
        return list(reachable(self._sync.rules, members, weight, heard & members.here, on))

    def _rules(self) -> dict[str, Any]:
        """Which version of the rules the open round has, since when, and the newest one if it is not in force yet."""
        now, newest = self._sync.open.version, self._sync.versions[-1]
        coming = newest.number != now.number and newest.since > self._sync.open.number
        following = {"version": newest.number, "since": newest.since} if coming else None
        return {"version": now.number, "since": now.since, "next": following}

    def _account_rules(self) -> None:
        """Begin the account again: of all mechanisms that have been in force, each with its rounds."""
        sync, now = self._sync, self._sync.open.version
        used = sync.versions.in_force(sync.open.number)
        used = [one for one, before in zip(used, [None, *used], strict=False) if not before or _other(one, before)]
        ends = [one.since for one in used[1:]]
        earlier = [(one.rules.mechanism, end - one.since) for one, end in zip(used, ends, strict=False)]
        observer = now.rules.observers[0]
        if self._restored:
            observer = replace(observer, assuming=(*now.rules.assuming, LOST_ROUNDS, LOST_RULES))
        self._accounted = now
        self._public = PublicAccount(now.rules.mechanism, now.rules.delta, observer, earlier)
        self._account = self._count_up(0)

    def _reports_at_most(self) -> int:
        """That any device has made in this run: in every round, the open one and those that a restore has lost."""
        return max(self._sync.open.number, self._replays.most()) + 1

    def _at_most(self) -> dict[str, Any]:
        """An upper bound on what any device has given away."""
        reports = self._reports_at_most()
        if self._accounted is not self._sync.open.version:
            self._account_rules()
        if reports > self._account["reports"]:
            self._account = self._count_up(_with_room(reports))
        return self._account

    def _count_up(self, reports: int) -> dict[str, Any]:
        public, total = self._public, self._public.total(reports)
        finite = math.isfinite(total.epsilon)
        certified = public.certified if math.isfinite(public.certified) else None
        return {
            "text": public.sentence(reports),
            "epsilon_per_report": certified if public.per == "report" else None,
            "epsilon_lifetime": certified if public.per == "lifetime" else None,
            "total_epsilon": float(shown(total.epsilon)) if finite else None,
            "delta": public.delta,
            "reports": reports,
            "against": public.against,
            "assumptions": list(total.assumptions),
        }


def _other(one: RulesVersion, before: RulesVersion) -> bool:
    return one.mechanism != before.mechanism


def _with_room(reports: int) -> int:
    return reports if reports < EXACT_REPORTS else reports + reports // 100


def _as_numbers(closed: ClosedRound) -> dict[str, Any]:
    """A closed round without its devices."""
    names = "round signal participants demand capacity members heard frozen expected beyond_reach"
    numbers = {name: getattr(closed, name) for name in names.split()}
    return numbers | {"seconds": round(closed.seconds, 4), "closed_at": round(closed.closed_at, 3)}
