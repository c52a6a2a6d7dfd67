"""What a listener grants its clients, who is connected to it, and the one timer that looks after all of them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, fields
from typing import Protocol

from turnout.errors import invalid
from turnout.service.http.limits import address_group, is_loopback

LINGER = 2.0
"""Seconds for which a refused client is still listened to: closing at once would tear the answer from its hands."""


@dataclass(frozen=True)
class Bounds:
    """What one listener grants its clients.

    Args:
        head_bytes: of request line and headers together.
        headers: how many.
        body_bytes: of the body as it is sent, chunk sizes and trailers included.
        head_seconds: from the connection's start, or a request's first byte, to the end of its head.
        body_seconds: from there to the end of the body.
        idle_seconds: from an answer to the next request.
        stall_seconds: for which a client may take nothing of its answer.
        most_connections: in all.
        most_per_address: from one address (of IPv6, one /64 network); None: any number.
        count_loopback: whether this machine's own connections count as from an address.

    Example:
        >>> Bounds(head_seconds=5).head_bytes
        8192
    """

    head_bytes: int = 8192
    headers: int = 50
    body_bytes: int = 16_384
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    idle_seconds: float = 75.0
    stall_seconds: float = 30.0
    most_connections: int = 12_000
    most_per_address: int | None = 1000
    count_loopback: bool = False

    def __post_init__(self) -> None:
        for bound in fields(self):
            value = getattr(self, bound.name)
            if bound.name != "count_loopback" and value is not None and not 0 < value < math.inf:
                raise invalid(bound.name, "above 0 and finite", value, f"the usual value is {bound.default}")


class Connection(Protocol):
    """What the gate knows of a connection.

    Attributes:
        loop: the one that it lives in.
        transport: what carries it.
        deadline: when `expire` is due, on the loop's clock.
        address: what it is counted under; None: under none.
    """

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    deadline: float
    address: str | None

    def expire(self) -> None:
        """The deadline has passed."""
        ...


class Gate:
    """Who is connected to a listener, and the one timer that looks after all of them.

    Args:
        bounds: of the listener.

    Attributes:
        connections: the open ones, and those that are being closed.
        refused: how often, by kind: those of `REFUSALS`, "pipelined", "idle", "stalled".
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.connections: set[Connection] = set()
        self.refused: Counter[str] = Counter()
        self.most_read = bounds.head_bytes + bounds.body_bytes
        self._by_address: Counter[str] = Counter()
        shortest = min(bounds.head_seconds, bounds.body_seconds, bounds.idle_seconds, bounds.stall_seconds, LINGER)
        self._tick = min(1.0, shortest / 4.0)
        self._due: float | None = None
        self._set_clock(0.0)

    def admit(self, connection: Connection, host: str | None) -> bool:
        """Count a connection in; False if it is one too many."""
        if self._due is None:
            self._set_clock(connection.loop.time())
            self._wind(connection.loop)
        full = len(self.connections) >= self.bounds.most_connections
        self.connections.add(connection)
        most = self.bounds.most_per_address
        if host is not None and most is not None and (self.bounds.count_loopback or not is_loopback(host)):
            connection.address = address_group(host)
            self._by_address[connection.address] += 1
            full = full or self._by_address[connection.address] > most
        return not full

    def dismiss(self, connection: Connection) -> None:
        """Count a connection out; once is enough."""
        self.connections.discard(connection)
        if connection.address is not None:
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]
            connection.address = None

    def _set_clock(self, now: float) -> None:
        """The deadlines of whatever begins before the next tick: reading one is all that a request costs."""
        soonest = now + self._tick
        self.head_deadline = soonest + self.bounds.head_seconds
        self.body_deadline = soonest + self.bounds.body_seconds
        self.idle_deadline = soonest + self.bounds.idle_seconds
        self.stall_deadline = soonest + self.bounds.stall_seconds
        self.linger_deadline = soonest + LINGER

    def _wind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + self._tick
        loop.call_later(self._tick, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self.connections or self._due is None:
            self._due = None
            return
        now = loop.time()
        if now - self._due > self._tick:  # we slept, not the clients: what they sent has not been read yet
            for connection in self.connections:
                connection.deadline += now - self._due
        self._set_clock(now)
        for connection in [connection for connection in self.connections if connection.deadline <= now]:
            loop.call_soon(connection.expire)
        self._wind(loop)
