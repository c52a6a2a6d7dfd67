"""The last rounds of the books, in memory: what the end of an outage is told by."""

from __future__ import annotations

from collections import deque
from itertools import takewhile

from turnout.service.rounds import LOOKS_BACK, ClosedRound
from turnout.service.stores.store import Store


def recent_rounds(store: Store, open: int) -> deque[ClosedRound]:
    """As many as the open round depends on, the newest last; one that is appended pushes out the oldest.

    Args:
        store: with the books.
        open: the open round; another coordinator may have closed it and more since.
    """
    books = store.history(max(0, open - LOOKS_BACK))
    return deque(takewhile(lambda closed: closed.round < open, books), maxlen=LOOKS_BACK)
