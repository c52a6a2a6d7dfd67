"""The connections of a load test: a request goes out as bytes, and a small parser reads the answer.

`Switchboard` holds those of all devices, and says when each tries again.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import re
import ssl
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

from turnout.errors import invalid
from turnout.service import LARGEST_REPLY, Address, ProtocolProblem, Unreachable, allow_files
from turnout.service.load_test.record import FleetRecord

LARGEST_HEAD = 8 * 1024
"""Bytes before an answer's body."""

SPARE_FILES = 64
"""Open files of a process besides its connections."""

_HEADS_KEPT = 4096  # heads repeat: only the date in them changes


class _Head(NamedTuple):
    """What matters of an answer's first lines.

    Attributes:
        status: such as 200.
        length: of the body, in bytes.
        retry_after: seconds that the coordinator asks to wait; None: it does not.
    """

    status: int
    length: int
    retry_after: float | None


def _read_head(lines: bytes) -> _Head:
    r"""Status line and headers, without the empty line.

    Raises:
        ProtocolProblem: it is not an HTTP/1.1 answer with a length.

    Example:
        >>> _read_head(b"HTTP/1.1 429 \r\nContent-Length: 40\r\nretry-after: 2")
        _Head(status=429, length=40, retry_after=2.0)
    """
    first, *rest = lines.decode("latin-1").split("\r\n")
    version, _, status = first.partition(" ")
    named = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    length = named.get("content-length", "")
    if not version.startswith("HTTP/1.") or not status[:3].isdigit() or not length.isdigit():
        raise ProtocolProblem(f"an answer must be HTTP/1.1 with Content-Length, got {first[:60]!r}: not a coordinator")
    if int(length) > LARGEST_REPLY:
        raise ProtocolProblem(f"an answer must have at most {LARGEST_REPLY} bytes, got {length}: not a coordinator")
    wait = named.get("retry-after", "")
    return _Head(int(status[:3]), int(length), float(wait) if wait.isdigit() else None)


class _Listener(Protocol):
    """What a connection calls."""

    def connected(self, device: int, transport: asyncio.Transport) -> None:
        """A connection stands."""
        ...

    def heard(self, device: int, head: _Head, body: bytes) -> None:
        """An answer is complete."""
        ...

    def garbled(self, device: int, problem: ProtocolProblem) -> None:
        """Received something invalid; the connection is being closed."""
        ...

    def lost(self, device: int, transport: asyncio.Transport | None) -> None:
        """The connection is gone."""
        ...


class _Connection(asyncio.Protocol):
    """Cuts what arrives into answers.

    Args:
        device: whose.
        listener: whose methods are called.
        heads: heads that were read before, shared by all connections.
    """

    __slots__ = ("_device", "_heads", "_listener", "_rest", "_transport")

    def __init__(self, device: int, listener: _Listener, heads: dict[bytes, _Head]) -> None:
        self._device, self._listener, self._heads = device, listener, heads
        self._rest, self._transport = b"", cast(asyncio.Transport | None, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)
        self._listener.connected(self._device, self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        self._listener.lost(self._device, self._transport)

    def data_received(self, data: bytes) -> None:
        """Called by the loop; usually `data` is one whole answer."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        while data:
            end = data.find(b"\r\n\r\n")
            try:
                if end < 0:
                    if len(data) > LARGEST_HEAD:
                        raise ProtocolProblem("an answer must have short headers, got none: not a coordinator")
                    break
                lines = data[:end]
                head = self._heads.get(lines) or self._new_head(lines)
            except ProtocolProblem as problem:
                self._close(problem)
                return
            stop = end + 4 + head.length
            if len(data) < stop:
                break
            self._listener.heard(self._device, head, data[end + 4 : stop])
            data = data[stop:]
        self._rest = data

    def _new_head(self, lines: bytes) -> _Head:
        if len(self._heads) >= _HEADS_KEPT:
            self._heads.clear()
        head = self._heads[lines] = _read_head(lines)
        return head

    def _close(self, problem: ProtocolProblem) -> None:
        self._rest = b""
        self._listener.garbled(self._device, problem)
        if self._transport is not None:
            self._transport.abort()


def request_head(address: Address, method: str, path: str, *, token: str = "") -> bytes:
    """The first lines of a request; its length and body come after."""
    lines = [f"{method} {address.prefix}{path} HTTP/1.1", f"Host: {address.name}"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "Content-Type: application/json", ""]).encode()


def with_body(body: bytes) -> bytes:
    r"""The end of a request: length and body.

    Example:
        >>> with_body(b"{}")
        b'Content-Length: 2\r\n\r\n{}'
    """
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def allow_connections(count: int) -> None:
    """Raise this process's limit of open files, if it must be for so many connections and may be.

    Raises:
        ValueError: the system does not allow so many.
    """
    needed = count + SPARE_FILES
    allowed = allow_files(needed)
    if allowed < needed:
        remedy = f"raise the hard limit of open files to {needed} (ulimit -Hn), or take several machines"
        raise invalid("devices", f"at most {max(0, allowed - SPARE_FILES)} in one process here", count, remedy)


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
    """Keeps one connection per device; a request stays on file until it is answered, and is sent again verbatim.

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
        self._heads: dict[bytes, _Head] = {}
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
            self._was_connected[device] = 0  # it returns on purpose: no reconnect
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

    def heard(self, device: int, head: _Head, body: bytes) -> None:
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
        address, connection = self._address, _Connection(device, self, self._heads)
        more: dict[str, Any] = {"ssl": address.tls, "server_hostname": address.host} if address.tls else {}
        try:
            await self._loop.create_connection(lambda: connection, address.host, address.port, **more)
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
