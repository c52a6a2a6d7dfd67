"""All connections of a fleet: dial, send, send again, and hand on together the answers that arrive together."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import re
import ssl
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from turnout.service.address import Address, Unreachable
from turnout.service.fleet.connection import Connection, Head, connect
from turnout.service.fleet.record import FleetRecord
from turnout.service.protocol import ProtocolProblem

AT_ONCE = 200
"""Connections that are being made at the same time, at the most."""

GATHER = 0.005
"""Seconds that answers are gathered before they are handled together; none, once all have answered."""

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
"""Seconds before a broken connection is tried again: twice as long each time, then the longest; all are jittered."""

NOTHING = 0
"""What a device awaits that awaits no answer."""

_LEASE = re.compile(rb'"lease": ?[-+.0-9eE]+')


class Arrival(NamedTuple):
    """What one or many devices were answered.

    Attributes:
        kind: what they had asked.
        status: such as 200.
        retry_after: seconds, or None.
        body: without the lease, all that differs between the answers to a round; no device here works.
    """

    kind: int
    status: int
    retry_after: float | None
    body: bytes


class Switchboard:
    """Keeps one connection a device; a request stays on file until it is answered, and is sent again verbatim.

    Args:
        address: of the coordinator.
        record: where requests, reconnects and faults are counted.
        handle: is given the devices by what they were answered.
        jitter: makes of a pause one that is drawn.

    Attributes:
        error: what went wrong for good, if anything did.
        heard_from, heard_until: when the first and the last answer of those arrived that are being handled.
    """

    def __init__(
        self,
        address: Address,
        record: FleetRecord,
        handle: Callable[[Mapping[Arrival, list[int]]], None],
        jitter: Callable[[float], float],
    ) -> None:
        self._address, self._record, self._handle, self._jitter = address, record, handle, jitter
        self.error: Exception | None = None
        self.heard_from = self.heard_until = 0.0
        self._loop = asyncio.get_running_loop()
        self._transports: list[asyncio.Transport | None] = [None] * record.devices
        self._requests = [b""] * record.devices
        self._awaits = [NOTHING] * record.devices
        self._sent_at = [0.0] * record.devices
        self._waiting = 0
        self._arrived: defaultdict[Arrival, list[int]] = defaultdict(list)
        self._delivery: asyncio.Handle | None = None
        self._heads: dict[bytes, Head] = {}
        self._to_dial: deque[int] = deque()
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._failures: dict[int, int] = {}
        self._was_connected = bytearray(record.devices)
        self._agenda: list[tuple[float, int, Callable[..., None], Any]] = []
        self._number = itertools.count()
        self._look_again_at = 0.0
        self._closing = False

    def send(self, device: int, kind: int, request: bytes) -> None:
        """Send a request, and keep it until there is an answer; connect first if need be."""
        self._requests[device] = request
        self.send_again(device, kind)

    def send_again(self, device: int, kind: int) -> None:
        """Send the request on file, verbatim."""
        if self._awaits[device] == NOTHING:
            self._waiting += 1
        self._awaits[device] = kind
        self._record.requests += 1
        self._sent_at[device] = self._loop.time()
        transport = self._transports[device]
        if transport is None:
            self._dial(device)
        else:
            transport.write(self._requests[device])

    def hang_up(self, device: int) -> None:
        """Close the connection of a device that awaits nothing."""
        transport, self._transports[device] = self._transports[device], None
        if transport is not None:
            self._was_connected[device] = 0  # it comes back on purpose: no reconnect
            transport.abort()

    def later(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        """Have something done by a later `tick`."""
        heapq.heappush(self._agenda, (self._loop.time() + seconds, next(self._number), action, arguments))

    def tick(self, patience: float) -> None:
        """Do what is due; give up connections on which an answer is overdue by `patience` seconds."""
        now = self._loop.time()
        while self._agenda and self._agenda[0][0] <= now:
            _, _, action, arguments = heapq.heappop(self._agenda)
            action(*arguments)
        if now >= self._look_again_at:
            self._look_again_at = now + 1.0
            self._give_up(now - patience)

    async def close(self) -> None:
        """Close all connections, and wait until they are."""
        self._closing = True
        tasks = list(self._dialling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._delivery is not None:
            self._delivery.cancel()
        for transport in self._transports:
            if transport is not None:
                transport.abort()
        for _ in range(200):
            if not any(self._transports):
                return
            await asyncio.sleep(0.01)

    def connected(self, device: int, transport: asyncio.Transport) -> None:
        """A connection stands: what is on file goes out, for the first time or again."""
        self._transports[device] = transport
        self._record.reconnects += self._was_connected[device]
        self._was_connected[device] = 1
        if self._closing:
            transport.abort()
        elif self._awaits[device] != NOTHING:
            self._sent_at[device] = self._loop.time()
            transport.write(self._requests[device])

    def heard(self, device: int, head: Head, body: bytes) -> None:
        """An answer is put to those that say the same."""
        kind = self._awaits[device]
        if kind == NOTHING:
            self._record.faults["answer to nothing"] += 1
            return
        self._awaits[device] = NOTHING
        self._waiting -= 1
        if self._failures:
            self._failures.pop(device, None)
        self._arrived[Arrival(kind, head.status, head.retry_after, _LEASE.sub(b'"lease":0', body, 1))].append(device)
        self.heard_until = time.monotonic()  # the loop's own clock may be coarse
        if self._delivery is None:
            self.heard_from = self.heard_until
            self._delivery = self._loop.call_later(GATHER, self._deliver)
        if not self._waiting:
            self._delivery.cancel()
            self._delivery = self._loop.call_soon(self._deliver)

    def garbled(self, device: int, problem: ProtocolProblem) -> None:
        """Counted; the connection breaks, and the request goes out again."""
        self._record.faults["no answer of the protocol"] += 1

    def lost(self, device: int, transport: asyncio.Transport | None) -> None:
        """A connection is gone: if an answer is awaited, it is made again after a pause."""
        if transport is not self._transports[device]:
            return
        self._transports[device] = None
        if self._awaits[device] != NOTHING and not self._closing:
            self._pause(device)

    def _deliver(self) -> None:
        self._delivery = None
        arrived, self._arrived = self._arrived, defaultdict(list)
        try:
            self._handle(arrived)
        except Exception as error:  # nobody is above this callback: `Fleet.run` raises it
            self.error = error

    def _give_up(self, since: float) -> None:
        for device, sent_at in enumerate(self._sent_at):
            transport = self._transports[device]
            if sent_at < since and self._awaits[device] != NOTHING and transport is not None:
                self._record.faults["no answer"] += 1
                transport.abort()

    def _pause(self, device: int) -> None:
        failures = self._failures[device] = self._failures.get(device, -1) + 1
        self.later(self._jitter(min(FIRST_PAUSE * 2.0 ** min(failures, 20), LONGEST_PAUSE)), self._dial, device)

    def _dial(self, device: int) -> None:
        self._to_dial.append(device)
        self._dial_more()

    def _dial_more(self) -> None:
        while self._to_dial and len(self._dialling) < AT_ONCE and not self._closing:
            device = self._to_dial.popleft()
            if self._transports[device] is None and device not in self._dialling:
                self._dialling[device] = self._loop.create_task(self._connect(device))

    async def _connect(self, device: int) -> None:
        try:
            await connect(self._address, Connection(device, self, self._heads))
        except OSError as error:
            self._unconnected(device, error)
        finally:
            del self._dialling[device]
            self._dial_more()

    def _unconnected(self, device: int, error: OSError) -> None:
        if not any(self._was_connected) and not self._record.enrolled:
            remedy = "give --ca FILE" if isinstance(error, ssl.SSLError) else "is `turnout serve` running there?"
            self.error = Unreachable(f"{self._address} cannot be reached ({error}): {remedy}")
        self._record.faults["no connection"] += 1
        self._pause(device)
