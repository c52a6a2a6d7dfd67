"""How a device's requests travel: standard-library HTTP, one connection kept open, everything bounded."""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from turnout.errors import invalid
from turnout.service.address import Address, Unreachable, what_to_correct
from turnout.service.protocol import LARGEST_REPLY

REQUEST_SECONDS = 90.0
"""One request, from sending to the reply's last byte; it must exceed the coordinator's hold."""

CONNECT_SECONDS = 10.0
"""To connect, for each address of the coordinator; and the TLS handshake."""

LONGEST_WAIT = 3600.0
"""The most of a Retry-After that is honoured, in seconds."""


@dataclass(frozen=True)
class Reply:
    """What came back, whole.

    Attributes:
        status: of HTTP; a redirection is not followed.
        body: at most `LARGEST_REPLY` bytes.
        retry_after: seconds that the coordinator asks to wait, or None.
    """

    status: int
    body: bytes
    retry_after: float | None = None


class Wire(Protocol):
    """What carries requests; a test's may drop, double, delay or reorder them."""

    def send(self, method: str, path: str, body: bytes | None, token: str | None) -> Reply:
        """One request and its reply.

        Raises:
            Unreachable: there is none; whether the request arrived is not known.
        """
        ...

    def cut(self) -> None:
        """No more requests: end one that is under way, from any thread or a signal's handler."""
        ...

    def close(self) -> None:
        """Let the connection go; a later `send` makes another."""
        ...


class HttpWire:
    """HTTP/1.1 over one connection that is kept open, with TLS for https.

    Args:
        url: of the coordinator, such as "https://coordinator.example:8443"; a path before the protocol's is allowed.
        ca: a PEM file with the authority that signed the coordinator's certificate; then no other is trusted.
        seconds: for a whole request.

    Raises:
        ValueError: not such a URL.
        FileProblem: the file of the authority cannot be read.

    Example:
        >>> HttpWire("https://coordinator.example")
        HttpWire(https://coordinator.example:443)
    """

    def __init__(self, url: str, *, ca: str | Path | None = None, seconds: float = REQUEST_SECONDS) -> None:
        self._address = Address.of(url, ca)
        if not 0.0 < seconds <= 2 * LONGEST_WAIT:
            raise invalid("seconds", f"above 0 and at most {2 * LONGEST_WAIT:g}", seconds, "try 90")
        self._seconds = seconds
        self._cut = self._answered = False
        self._connection: _Connection | None = None
        self._raw: socket.socket | None = None

    def __repr__(self) -> str:
        return f"HttpWire({self._address})"

    def send(self, method: str, path: str, body: bytes | None, token: str | None) -> Reply:
        """One request and its reply; a kept connection that has died meanwhile is made anew, once."""
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        kept = self._connection is not None
        try:
            return self._exchange(method, self._address.prefix + path, body, headers)
        except (ConnectionError, http.client.BadStatusLine) as error:
            self.close()
            if not kept:
                raise self._unreachable(error) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise self._unreachable(error) from error
        return self.send(method, path, body, token)

    def cut(self) -> None:
        """Shut the socket down for good: whoever waits for it wakes at once."""
        self._cut = True  # before the look at the socket: `_exchange` looks in the other order
        raw = self._raw
        if raw is not None:
            with suppress(OSError):
                socket.socket.shutdown(raw, socket.SHUT_RDWR)  # the plain one's: TLS has no say in this

    def close(self) -> None:
        """Let the connection go."""
        if self._connection is not None:
            self._connection.close()
        if self._raw is not None:
            self._raw.close()
        self._connection = self._raw = None

    def _exchange(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        connection = self._connection or self._connect()
        self._connection = connection
        if self._cut:
            raise ValueError("stopped")
        connection.timed.until = time.monotonic() + self._seconds
        connection.request(method, path, body, dict(headers))
        reply = connection.getresponse()
        length = reply.getheader("Content-Length", "")
        if length.isdigit() and int(length[:20]) > LARGEST_REPLY:
            raise ValueError(f"a reply of {length[:20]} bytes, more than {LARGEST_REPLY:,}")
        content = reply.read(LARGEST_REPLY + 1)
        if len(content) > LARGEST_REPLY:
            raise ValueError(f"a reply of more than {LARGEST_REPLY:,} bytes")
        if length.isdigit() and method != "HEAD" and len(content) < int(length) and reply.status not in (204, 304):
            raise ValueError(f"a reply of {length} bytes that ended after {len(content)}")
        if not reply.isclosed() or reply.will_close:
            self.close()
        self._answered = True
        return Reply(reply.status, content, _retry_after(reply.getheader("Retry-After")))

    def _unreachable(self, error: Exception) -> Unreachable:
        """With what may be wrong about the address, unless it has proved right."""
        proved = self._answered and self._address.tls is None
        correct = "" if proved else what_to_correct(error, self._address)
        return Unreachable(f"{self._address}: {_said(error)}{correct and ': ' + correct}")

    def _connect(self) -> _Connection:
        host, port, tls = self._address.host, self._address.port, self._address.tls
        problem: OSError = OSError("no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            raw = self._raw = socket.socket(family, kind, protocol)  # known to `cut` before it connects
            if self._cut:
                raise ValueError("stopped")
            try:
                raw.settimeout(CONNECT_SECONDS)
                raw.connect(address)
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    raw = self._raw = tls.wrap_socket(raw, server_hostname=host)
            except OSError as error:
                raw.close()
                problem = error
                continue
            return _Connection(host, port, 443 if tls else 80, _TimedSocket(raw))
        raise problem


class _TimedSocket(io.RawIOBase):
    """A socket with one deadline for a whole request: `http.client` alone would let each byte take its time."""

    def __init__(self, raw: socket.socket) -> None:
        self._socket, self.until = raw, time.monotonic()

    def sendall(self, data: Any) -> None:
        """Send all, in time."""
        self._socket.settimeout(self._left())
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """To read the reply from."""
        return io.BufferedReader(_Incoming(self))

    def receive_into(self, buffer: Any) -> int:
        """Some bytes, in time."""
        self._socket.settimeout(self._left())
        return self._socket.recv_into(buffer)

    def close(self) -> None:
        """Nothing yet: `http.client` closes before it has read a reply that ends the connection."""

    def _left(self) -> float:
        left = self.until - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("no whole reply in time")
        return left


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket that is connected already."""

    def __init__(self, host: str, port: int, usual_port: int, timed: _TimedSocket) -> None:
        super().__init__(host, port)
        self.default_port = usual_port  # for the Host header  # type: ignore[misc]
        self.auto_open = 0
        self.sock = self.timed = timed  # all that http.client asks of a socket


class _Incoming(io.RawIOBase):
    """One reply of a socket; closing it leaves the socket open for the next."""

    def __init__(self, source: _TimedSocket) -> None:
        self._source = source

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Some bytes, in time."""
        return self._source.receive_into(buffer)


def _retry_after(text: str | None) -> float | None:
    """Whole seconds; the form with a date is not for clocks that may be wrong."""
    return min(float(text[:9]), LONGEST_WAIT) if text is not None and text.isascii() and text.isdigit() else None


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
