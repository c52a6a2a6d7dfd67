"""The audit log in the process's own log: what anyone changes in a run, on the page or by a command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from turnout.service.logs import Log
from turnout.service.stores.store import Store, StoreProblem

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
