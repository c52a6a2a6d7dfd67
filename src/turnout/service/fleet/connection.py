"""One device's connection as the fleet has it: a request goes out as bytes, a small parser takes the answer apart."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from turnout.errors import FileProblem, TurnoutError, invalid
from turnout.service.protocol import LARGEST_REPLY, ProtocolProblem

LARGEST_HEAD = 8 * 1024
"""Bytes before an answer's body."""

SPARE_FILES = 64
"""What a process has open beside its connections."""

_HEADS_KEPT = 4096  # heads repeat: only the date in them changes


class Unreachable(TurnoutError):
    """The coordinator cannot be reached, or is not who it should be; nothing has been sent.

    Example:
        >>> issubclass(Unreachable, TurnoutError)
        True
    """


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


@dataclass(frozen=True)
class Address:
    """Where a coordinator listens.

    Attributes:
        host: name or number.
        port: from 1.
        prefix: what stands before every path, behind a proxy.
        tls: how it must prove who it is; None: a plain connection.
    """

    host: str
    port: int
    prefix: str = ""
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, url: str, ca: Path | None = None) -> Address:
        """From a URL, such as https://example.org:8443.

        Args:
            url: http or https.
            ca: a PEM file with the certificates to trust instead of the system's.

        Raises:
            ValueError: it is no such URL.
            FileProblem: the PEM file cannot be used.

        Example:
            >>> Address.of("http://127.0.0.1:8000").port
            8000
        """
        parts = urlsplit(url)
        with contextlib.suppress(ValueError):
            if parts.scheme in ("http", "https") and parts.hostname and not parts.query:
                port = parts.port or (443 if parts.scheme == "https" else 80)
                tls = _trusting(ca) if parts.scheme == "https" else None
                return cls(parts.hostname, port, parts.path.rstrip("/"), tls)
        raise invalid("URL", "http(s)://host:port", repr(url)[:200], "give what `turnout serve` shows")

    def request(self, method: str, path: str, *, token: str = "") -> bytes:
        """The first lines of a request; its length and body come after."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", f"Host: {host}:{self.port}"]
        lines += [f"Authorization: Bearer {token}"] if token else []
        return "\r\n".join([*lines, "Content-Type: application/json", ""]).encode()

    async def connect(self, connection: asyncio.Protocol) -> None:
        """Open the connection.

        Raises:
            OSError: it cannot be.
        """
        more: dict[str, Any] = {"ssl": self.tls, "server_hostname": self.host} if self.tls else {}
        await asyncio.get_running_loop().create_connection(lambda: connection, self.host, self.port, **more)


def with_body(body: bytes) -> bytes:
    r"""The end of a request: length and body.

    Example:
        >>> with_body(b"{}")
        b'Content-Length: 2\r\n\r\n{}'
    """
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _trusting(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError) as error:
        raise FileProblem(f"{ca}: cannot be read as certificates ({error}): give a PEM file") from None


def allow_connections(count: int) -> None:
    """Raise this process's limit of open files, if it must be for so many connections and may be.

    Raises:
        ValueError: the system does not allow so many.
    """
    try:
        import resource
    except ImportError:  # not a Unix: there is no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            remedy = f"raise the hard limit of open files to {needed} (ulimit -Hn), or take several machines"
            raise invalid("devices", f"at most {max(0, hard - SPARE_FILES)} in one process here", count, remedy)
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else hard, hard))
