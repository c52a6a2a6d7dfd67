"""The audit log in the process's own log: what anyone changes in a run, on the page or by a command."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import takewhile
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from turnout.service import LOOKS_BACK, ClosedRound, Log
from turnout.service.store import Store, StoreProblem


def recent_rounds(store: Store, open: int) -> deque[ClosedRound]:
    """As many as the open round depends on, the newest last; one that is appended pushes out the oldest.

    Args:
        store: with the books.
        open: the open round; another coordinator may have closed it and more since.
    """
    books = store.history(max(0, open - LOOKS_BACK))
    return deque(takewhile(lambda closed: closed.round < open, books), maxlen=LOOKS_BACK)


MOST_LOST = 1_000_000
"""Rounds that a restore may have lost; who says more is not believed."""


class Replays:
    """How far each device said that it was, before it went back to our round. In memory: a restart forgets it.

    Example:
        >>> replays = Replays()
        >>> replays.note(slot=2, round=40, open=7)
        >>> replays.among(3, round=40), replays.among(3, round=41)
        (array([False, False,  True]), array([False, False, False]))
        >>> replays.most()
        40
    """

    def __init__(self) -> None:
        self._ahead: dict[int, int] = {}

    def note(self, slot: int, round: int, open: int) -> None:
        """A device has reported a round after the open one."""
        if open < round <= open + MOST_LOST:
            self._ahead[slot] = max(round, self._ahead.get(slot, 0))

    def among(self, slots: int, round: int) -> npt.NDArray[np.bool_]:
        """Whose report of a round was decided before the restore, under another signal, shape (slots,)."""
        found = np.zeros(slots, np.bool_)
        found[[slot for slot, last in self._ahead.items() if last >= round and slot < slots]] = True
        return found

    def most(self) -> int:
        """The round up to which any device says that it has reported: for an account, which must not be too small."""
        return max(self._ahead.values(), default=0)


EVERY = 0.5
"""Seconds between two looks."""

EVENTS = {
    "capacity": "capacity changed",
    "mode": "mode changed",
    "codes": "codes made",
    "left": "device left",
    "revoked": "device revoked",
}
"""A change as the log calls it."""

log = Log("coordinator")


class HasStore(Protocol):
    """A coordinator, as far as it matters here."""

    store: Store

    async def in_store(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call the store, in the one thread that may."""
        ...


def log_changes(coordinator: HasStore) -> Coroutine[Any, Any, None]:
    """Log every line that the audit log gets after this call, until cancelled; the last ones then.

    To be called while nobody else uses the store.
    """
    return _follow(coordinator, len(coordinator.store.changes()))


async def _follow(coordinator: HasStore, known: int) -> None:
    try:
        while True:
            await asyncio.sleep(EVERY)
            known += await _log_from(coordinator, known)
    finally:
        await _log_from(coordinator, known)


async def _log_from(coordinator: HasStore, first: int) -> int:
    """How many lines there were; none while the store fails, which whoever closes rounds says."""
    try:
        found = await coordinator.in_store(coordinator.store.changes, first)
    except StoreProblem:
        return 0
    for change in found:
        log.info(EVENTS.get(change.what, change.what), who=change.who, detail=change.detail)
    return len(found)
