"""A real run for other programs: a row for each round or device, or the same `Trajectory` that a simulation gives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.errors import invalid
from turnout.privacy import LOST_ROUNDS, LOST_RULES
from turnout.service import (
    KEPT_ROUNDS,
    MISSING,
    NO,
    REFUSED,
    YES,
    Histories,
    Rules,
    RulesVersions,
    Summary,
    summed_up,
)
from turnout.service.coordinator.enrolment import Roll
from turnout.service.store import Store, StoreProblem
from turnout.simulation import Keep, Trajectory
from turnout.version import __version__

Rows = Iterator[tuple[object, ...]]

OUTCOMES = {MISSING: "missing", NO: "no", YES: "acknowledged", REFUSED: "refused"}
"""What a round has of a device, in words."""

ROUND_COLUMNS = (
    *("round", "closed_at", "signal", "capacity", "participants", "demand"),
    *("members", "heard", "refused", "frozen", "seconds", "expected", "beyond_reach"),
)
DEVICE_COLUMNS = ("round", "device", "outcome")


def round_rows(store: Store) -> Rows:
    """A row of `ROUND_COLUMNS` for each closed round, in order; streamed, also while the run continues.

    While rounds are trimmed, read them in a `Store.snapshot`.

    `participants` and `demand` are weights; `members`, `heard` and `refused` count devices.
    """
    for closed in store.history():
        yield (
            closed.round,
            datetime.fromtimestamp(closed.closed_at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            *(closed.signal, closed.capacity, closed.participants, closed.demand, closed.members, closed.heard),
            int((closed.codes == REFUSED).sum()),
            str(closed.frozen).lower(),
            *(closed.seconds, closed.expected, str(closed.beyond_reach).lower()),
        )


def device_rows(store: Store) -> Rows:
    """A row of `DEVICE_COLUMNS` for each closed round and each device that was a member, or was heard, in it."""
    rounds = store.position().round  # first: the list of devices, which is read next, has all of these rounds
    devices = store.devices()
    joined = np.array([device.joined for device in devices], dtype=np.int64)
    left = np.array([rounds if device.left is None else device.left for device in devices], dtype=np.int64)
    for closed in store.history():
        if closed.round >= rounds:
            return
        slots = len(closed.codes)
        was_there = (joined[:slots] <= closed.round) & (closed.round < left[:slots])
        for slot in np.flatnonzero(was_there | (closed.codes != MISSING)).tolist():
            yield closed.round, slot, OUTCOMES[closed.code(slot)]


def export(store: Store) -> Trajectory:
    """The closed rounds of a store as a trajectory; costs are unknown, so is the total cost.

    The histories are there if they move by the bit, which the coordinator knows as well as the device. Rounds that were
    trimmed are in the histories alone; `provenance["first_round"]` is then the trajectory's first.

    Raises:
        ValueError: no round is closed yet.
        StoreProblem: the store has no run, or fails.

    Example:
        >>> import tempfile
        >>> from turnout.service.store import open_store
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export(open_store(f"{folder}/run.db", create=True))
        Traceback (most recent call last):
        ...
        turnout.service.store.store.StoreProblem: the store has no run yet: there is nothing to export
    """
    return store.snapshot(_trajectory)


def _trajectory(store: Store) -> Trajectory:
    run = store.run()
    if run is None:
        raise StoreProblem("the store has no run yet: there is nothing to export")
    versions, roll = RulesVersions(store.rules()), Roll()
    rules = versions[0].rules  # start, averaging and controller are the same in all versions
    roll.take(store.devices())
    before = store.summary()
    history, rows = Histories(rules, roll.members(), _left(roll), before), []
    for closed in store.history():
        rows.append((closed.signal, closed.participants, closed.capacity))
        history.add(closed.round, closed.codes)
    if not rows:
        raise invalid("run", "of one closed round or more", "none", "wait until the first round has closed")
    signal, participants, capacity = (np.array(column) for column in zip(*rows, strict=True))
    return Trajectory(
        signal=signal.astype(np.float64),
        participants=participants.astype(np.int64),
        capacity=capacity.astype(np.float64),
        checkpoints=np.empty(0, dtype=np.int64),
        cost=None,
        mean_distance=None,
        largest_distance=None,
        histogram=None,
        averages=None,
        state=history.state() if rules.averaging.by == "bit" else None,
        controller_state=type(rules.controller.start())(**store.position().controller),
        problem=None,
        keep=Keep(cost=False),
        provenance=_provenance(run.name, versions, before.first_kept, before.first_kept + len(rows) - 1, len(roll))
        | _after_a_restore(store, rules),
    )


def _after_a_restore(store: Store, rules: Rules) -> dict[str, Any]:
    """What must be assumed of a run that was restored from a copy."""
    if not any(change.what == "restored" for change in store.changes()):
        return {}
    return {"observer": {"assuming": [*rules.assuming, LOST_ROUNDS, LOST_RULES]}}


def _left(roll: Roll) -> npt.NDArray[np.int64]:
    """The first round without each device; beyond all rounds for members."""
    never = np.iinfo(np.int64).max
    return np.array([never if roll[i].left is None else roll[i].left for i in range(len(roll))], dtype=np.int64)


STEP = 10_000
"""Rounds that are summed up in one transaction."""


def trim(store: Store, before: float, who: str) -> Summary:
    """Sum up and delete the closed rounds that closed before a time, all but the last `KEPT_ROUNDS`.

    What stays: every device's history and last report, the audit log, the versions of the rules, and with them every
    account. The open run goes on meanwhile.

    Args:
        store: with a run in it.
        before: the wall clock, seconds since 1970.
        who: for the audit log.

    Returns:
        The summary of all rounds that are not stored any more.
    """
    rules, summary = store.rules()[0].rules, store.summary()
    end = min(store.position().round - KEPT_ROUNDS, _first_younger(store, summary, before))
    while True:
        roll = Roll()
        roll.take(store.devices())  # read after the rounds' end: it has all of their devices
        last = min(end, summary.first_kept + STEP)
        old = takewhile(
            lambda closed: closed.round < last,  # noqa: B023 (used at once)
            store.history(summary.first_kept),
        )
        made = summed_up(summary, old, rules, roll.members(), _left(roll))
        if made.first_kept == summary.first_kept:
            return summary
        store.trim(made, who)
        summary = made


def _first_younger(store: Store, summary: Summary, before: float) -> int:
    """The first round that may have closed at this time or later, although the clock may have been wrong for a while.

    A date says nothing if it is still to come, or earlier than the run or than a date that came before it. Such a round
    is old as soon as one after it is.
    """
    first, now, run = summary.first_kept, time.time(), store.run()
    known = [summary.totals.get("last_closed_at", 0.0), 0.0 if run is None else run.begun_at]
    latest = max((date for date in known if date <= now), default=0.0)
    for closed in store.history(first):
        if latest <= closed.closed_at <= now:
            if closed.closed_at >= before:
                break
            first, latest = closed.round + 1, closed.closed_at
    return first


def why_kept(store: Store, before: float) -> str:
    """Why the first stored round was not trimmed, if it is because the clock was wrong; "" if not."""
    first = store.closed(store.summary().first_kept)
    if first is None or before <= first.closed_at <= time.time() or first.round >= store.position().round - KEPT_ROUNDS:
        return ""
    date = datetime.fromtimestamp(first.closed_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return (
        f"the clock said {date} when round {first.round} closed, which cannot be true: it stays, with those after it, "
        "until a later round is old enough"
    )


def _provenance(name: str, all_versions: RulesVersions, first: int, last: int, devices: int) -> dict[str, Any]:
    """Of the rounds from `first` to `last`; those before are summed up, and not in the trajectory."""
    versions = all_versions.in_force(last)  # also those whose rounds are summed up: histories have moved under them
    rules = versions[-1].rules
    settings = rules.settings()
    averaging = {"remember": rules.averaging.remember, "by": rules.averaging.by}
    told = [{"number": one.number, "since": one.since, **one.settings} for one in versions]
    earlier = [
        {
            "rounds": max(0, after.since - max(one.since, first)),
            "mechanism": one.rules.mechanism.settings(),
            "averaging": averaging,
        }
        for one, after in pairwise(versions)
    ]
    return {
        "turnout": __version__,
        "run": name,
        **({"first_round": first} if first else {}),
        "clients": devices,
        "mechanism": settings["mechanism"],
        "controller": settings["controller"],
        "start": settings["start"],
        "averaging": averaging,
        "safety": settings["safety"],
        **({"rules": told, "earlier": earlier} if earlier else {}),
        "seed": None,
        "engine": "coordinator",
        "engine_reason": "a coordinator and real devices",
    }
