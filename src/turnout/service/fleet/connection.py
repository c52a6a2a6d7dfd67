"""One device's connection as the fleet has it: a request goes out as bytes, a small parser takes the answer apart."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, Protocol, cast

from turnout.errors import invalid
from turnout.service.address import Address
from turnout.service.many_connections import allow_files
from turnout.service.protocol import LARGEST_REPLY, ProtocolProblem

LARGEST_HEAD = 8 * 1024
"""Bytes before an answer's body."""

SPARE_FILES = 64
"""What a process has open beside its connections."""

_HEADS_KEPT = 4096  # heads repeat: only the date in them changes


class Head(NamedTuple):
    """What matters of an answer's first lines.

    Attributes:
        status: such as 200.
        length: of the body, in bytes.
        retry_after: seconds that the coordinator asks to wait; None: it does not.
    """

    status: int
    length: int
    retry_after: float | None


def read_head(lines: bytes) -> Head:
    r"""Status line and headers, without the empty line.

    Raises:
        ProtocolProblem: it is not an HTTP/1.1 answer with a length.

    Example:
        >>> read_head(b"HTTP/1.1 429 \r\nContent-Length: 40\r\nretry-after: 2")
        Head(status=429, length=40, retry_after=2.0)
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
    return Head(int(status[:3]), int(length), float(wait) if wait.isdigit() else None)


class Listener(Protocol):
    """Who is told what a connection hears."""

    def connected(self, device: int, transport: asyncio.Transport) -> None:
        """A connection stands."""
        ...

    def heard(self, device: int, head: Head, body: bytes) -> None:
        """An answer is complete."""
        ...

    def garbled(self, device: int, problem: ProtocolProblem) -> None:
        """Something came that is no answer; the connection is being closed."""
        ...

    def lost(self, device: int, transport: asyncio.Transport | None) -> None:
        """The connection is gone."""
        ...


class Connection(asyncio.Protocol):
    """Cuts what arrives into answers.

    Args:
        device: whose.
        listener: who is told.
        heads: heads that were read before, shared by all connections.
    """

    __slots__ = ("_device", "_heads", "_listener", "_rest", "_transport")

    def __init__(self, device: int, listener: Listener, heads: dict[bytes, Head]) -> None:
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

    def _new_head(self, lines: bytes) -> Head:
        if len(self._heads) >= _HEADS_KEPT:
            self._heads.clear()
        head = self._heads[lines] = read_head(lines)
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


async def connect(address: Address, connection: asyncio.Protocol) -> None:
    """Open the connection.

    Raises:
        OSError: it cannot be.
    """
    more: dict[str, Any] = {"ssl": address.tls, "server_hostname": address.host} if address.tls else {}
    await asyncio.get_running_loop().create_connection(lambda: connection, address.host, address.port, **more)


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
