"""Warnings that anybody may cause by the thousand, without a log that grows by the thousand; none is lost either."""

from __future__ import annotations

import asyncio
import math
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from turnout.service.logs import Log


class SparingLog:
    """Writes the first warning of a kind at once, then at most one a second, which says how many it stands for.

    So `times`, added up over the lines of a kind, is how often it happened. The other fields are those of the
    last one. To be used within a running event loop; what is left when it ends is written as well.

    Args:
        log: where they go.
        seconds: between two lines of a kind.
        clock: seconds that never go back.
    """

    def __init__(self, log: Log, seconds: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._seconds, self._clock = log, seconds, clock
        self._kinds: dict[str, _Kind] = {}
        weakref.finalize(self, _write_all, log, self._kinds)  # at the process's end at the latest

    def warning(self, event: str, **named: Any) -> None:
        """What an operator should look at, however often it comes; `event` is its kind."""
        kind, now = self._kinds.setdefault(event, _Kind()), self._clock()
        kind.times, kind.named = kind.times + 1, named
        if now >= kind.due:
            self._write(event)
        elif kind.times == 1:
            asyncio.get_running_loop().call_later(kind.due - now + 0.001, self._write, event)

    def _write(self, event: str) -> None:
        kind, now = self._kinds[event], self._clock()
        if now >= kind.due:
            kind.due = now + self._seconds
            kind.write(self._log, event)


@dataclass
class _Kind:
    """What has come of a kind since its last line, and when the next one is due."""

    times: int = 0
    named: dict[str, Any] = field(default_factory=dict)
    due: float = -math.inf

    def write(self, log: Log, event: str) -> None:
        if self.times:
            log.warning(event, **self.named, times=self.times)
            self.times = 0


def _write_all(log: Log, kinds: dict[str, _Kind]) -> None:
    for event, kind in kinds.items():
        kind.write(log, event)
