"""The books of a run as rows of a table, for bills and disputes: what each round was, or what it has of each device."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np

from turnout.service.rounds import MISSING, NO, REFUSED, YES
from turnout.service.stores.store import Store

Rows = Iterator[tuple[object, ...]]

OUTCOMES = {MISSING: "missing", NO: "no", YES: "acknowledged", REFUSED: "refused"}
"""What a round has of a device, in words."""

ROUND_COLUMNS = (
    *("round", "closed_at", "signal", "capacity", "participants", "demand"),
    *("members", "heard", "refused", "frozen", "seconds"),
)
DEVICE_COLUMNS = ("round", "device", "outcome")


def round_rows(store: Store) -> Rows:
    """A row of `ROUND_COLUMNS` for each closed round, in order; streamed, also while the run goes on.

    `participants` and `demand` are weights; `members`, `heard` and `refused` count devices.
    """
    for closed in store.history():
        yield (
            closed.round,
            datetime.fromtimestamp(closed.closed_at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            *(closed.signal, closed.capacity, closed.participants, closed.demand, closed.members, closed.heard),
            int((closed.codes == REFUSED).sum()),
            str(closed.frozen).lower(),
            closed.seconds,
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
