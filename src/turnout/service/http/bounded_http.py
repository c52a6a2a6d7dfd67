"""HTTP for strangers: uvicorn's protocol, with a bound on everything that a client can make large or slow.

Bounded are the request's head and its body in bytes and seconds, the connections in all and from one address, how long
a connection may be idle, and how long it may leave its answer unread. All connections share one timer. What only
a broken or hostile client sends (upgrades, HTTP/0.9 and 2.0, trailers, a request before the last one is answered)
is refused or dropped, since nothing here needs it.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, Self

from turnout.errors import MissingExtra, TurnoutError
from turnout.service.http.gate import Bounds, Gate
from turnout.service.http.joined_writes import JoinedWrites

try:
    import httptools
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
except ImportError as error:
    raise MissingExtra("the coordinator", library=error.name or "uvicorn", extra="server") from error

__all__ = ["BoundedHttp", "Bounds", "Gate", "bounded"]

IDLE, HEAD, BODY, ANSWER, CLOSING = range(5)
"""What a connection is at: nothing; a request's head is coming; its body is; it is all here and unanswered; the end."""

SPARE = 64
"""Connections beyond the most that are told so; further ones are dropped without a word."""

_VERSIONS = frozenset({"1.1", "1.0"})

PATIENCE = 1 << 20
"""Bytes that are thrown away of a client that keeps sending after it was refused."""


def _refusal(status: str, code: str, sentence: str, more: str = "") -> bytes:
    body = f'{{"error": "{code}", "message": "{sentence}"}}'
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}{more}connection: close\r\n\r\n{body}".encode("ascii")


REFUSALS = {
    "malformed": _refusal("400 Bad Request", "malformed", "This is no HTTP/1.1 request."),
    "slow": _refusal("408 Request Timeout", "slow", "The request took too long to arrive."),
    "body": _refusal("413 Content Too Large", "size", "The body is too large."),
    "head": _refusal("431 Request Header Fields Too Large", "size", "Request line and headers are too large."),
    "full": _refusal("503 Service Unavailable", "busy", "Too many connections; try again later.", "retry-after: 5\r\n"),
    "version": _refusal("505 HTTP Version Not Supported", "malformed", "Only HTTP/1.1 and HTTP/1.0 are served."),
}
"""What a client is told, by the kind of its fault."""


class BoundedHttp(HttpToolsProtocol):
    """One connection. Make the class for a listener with `bounded`; uvicorn makes the objects.

    Attributes:
        phase: IDLE, HEAD, BODY, ANSWER or CLOSING.
        deadline: when `expire` is due, on the loop's clock; infinite while the application has the request.
        address: what it is counted under.
    """

    gate: Gate

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.phase = IDLE
        self.deadline = math.inf
        self.address: str | None = None
        self._arriving = 0
        self._read = 0
        self._unsent = math.inf
        self._fault = "malformed"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected, and TLS, if any, stands."""
        super().connection_made(transport)
        self._answers = JoinedWrites(transport, self.loop)
        gate = self.gate
        admitted = gate.admit(self, None if self.client is None else self.client[0])
        self.deadline = gate.head_deadline
        if not admitted:
            if len(gate.connections) > gate.bounds.most_connections + SPARE:
                gate.refused["full"] += 1
                transport.abort()
            else:
                self._refuse("full")

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self.phase = CLOSING
        self.gate.dismiss(self)
        super().connection_lost(exc)

    # What follows runs for every request, so it calls HttpToolsProtocol by name: super() would cost more than the rest.

    def data_received(self, data: bytes) -> None:
        """Read on; a request is never larger than one bound of its head and one of its body."""
        size = len(data)
        if self.phase == CLOSING:
            self._read += size
            if self._read > PATIENCE:
                self.transport.abort()
            return
        gate = self.gate
        self._arriving = size
        try:
            self.parser.feed_data(data if size <= gate.most_read else data[: gate.most_read])
        except httptools.HttpParserError:
            self._refuse(self._fault)
            return
        if self.phase == HEAD or self.phase == BODY:
            self._read += size
            if self.phase == HEAD and self._read > gate.bounds.head_bytes:
                self._refuse("head")
            elif self._read > gate.most_read:
                self._refuse("body")
        elif size > gate.most_read:
            self._refuse("pipelined")

    def on_message_begin(self) -> None:
        """A request's first byte."""
        if self.phase == ANSWER:
            self._fail("pipelined")
        self.phase = HEAD
        self.deadline = self.gate.head_deadline
        self._read = 0
        HttpToolsProtocol.on_message_begin(self)

    def on_headers_complete(self) -> None:
        """The head is there: the application gets the request."""
        gate, parser, headers = self.gate, self.parser, self.headers
        if len(headers) > gate.bounds.headers:
            self._fail("head")
        if self._read + self._arriving > gate.bounds.head_bytes and self._head_bytes() > gate.bounds.head_bytes:
            self._fail("head")
        if parser.should_upgrade():
            self._fail("malformed")
        if parser.get_http_version() not in _VERSIONS:
            self._fail("version")
        HttpToolsProtocol.on_headers_complete(self)
        self.cycle.transport = self._answers
        self.phase = BODY
        self.deadline = gate.body_deadline
        self.headers = []  # the request has its own; what is added from now on are trailers, which nobody gets

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def on_message_complete(self) -> None:
        """All of the request is there; how long the answer takes is the application's affair."""
        HttpToolsProtocol.on_message_complete(self)
        if self.cycle.response_complete:
            self._rest()
        else:
            self.phase = ANSWER
            self.deadline = math.inf

    def on_response_complete(self) -> None:
        """The answer is on its way. (Uvicorn's own starts a timer for this connection; ours needs none.)"""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self.phase = CLOSING
            self.deadline = self.gate.linger_deadline
            return
        self.flow.resume_reading()
        if self.phase == ANSWER:
            self._rest()

    def _rest(self) -> None:
        self.phase = IDLE
        self.deadline = self.gate.idle_deadline

    def pause_writing(self) -> None:
        """The client does not read its answer."""
        self.deadline = self.gate.stall_deadline
        self._unsent = math.inf
        super().pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        gate = self.gate
        if self.phase != CLOSING:
            self.deadline = (gate.idle_deadline, gate.head_deadline, gate.body_deadline, math.inf)[self.phase]
        super().resume_writing()

    def shutdown(self) -> None:
        """The server stops: what is being answered is, and nothing else."""
        self._answers.flush()
        if self.phase == CLOSING and self._fault != "pipelined":
            self.transport.close()
        else:
            super().shutdown()
        if self.transport.is_closing():
            self.deadline = min(self.deadline, self.gate.linger_deadline)

    def expire(self) -> None:
        """The deadline has passed; a client that is still taking its answer gets another."""
        if self not in self.gate.connections:
            return
        unsent = self.transport.get_write_buffer_size()
        if 0 < unsent < self._unsent:
            self._unsent = unsent
            self.deadline = self.gate.stall_deadline
        elif self.phase == CLOSING or self.transport.is_closing():
            self.transport.abort()
        elif self.flow.write_paused:
            self.gate.refused["stalled"] += 1
            self.transport.abort()
        elif self.phase == IDLE:
            self.gate.refused["idle"] += 1
            self.phase = CLOSING
            self.deadline = self.gate.linger_deadline
            self.transport.close()
        else:
            self._refuse("slow")

    def _fail(self, fault: str) -> None:
        """From within the parser: only an exception stops it."""
        self._fault = fault
        raise TurnoutError(fault)

    def _refuse(self, fault: str) -> None:
        """Say why, and end the connection, but not before the client had time to read it."""
        cycle, phase = self.cycle, self.phase
        self.phase = CLOSING
        self._fault = fault
        self._read = 0
        self.gate.refused[fault] += 1
        answering = cycle is not None and not cycle.response_complete
        if fault == "pipelined" and answering:  # the request before this one is sound: it is answered, then all ends
            cycle.keep_alive = False
            return
        if answering:
            cycle.disconnected = True
            cycle.message_event.set()
        self._answers.flush()
        answered = cycle is not None and cycle.response_started and phase in (BODY, ANSWER)
        if not answered and fault in REFUSALS:
            self.transport.write(REFUSALS[fault])
        self.deadline = self.gate.linger_deadline
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    @classmethod
    def within(cls, gate: Gate) -> type[Self]:
        """The class for one listener."""
        _check_uvicorn()
        return type(cls.__name__, (cls,), {"gate": gate})


def bounded(bounds: Bounds | None = None) -> type[BoundedHttp]:
    """The protocol class of one listener, for `uvicorn.Config(http=...)`; its `gate` knows who is connected.

    Raises:
        TurnoutError: this uvicorn is built otherwise.

    Example:
        >>> bounded(Bounds(most_connections=100)).gate.bounds.most_connections
        100
    """
    return BoundedHttp.within(Gate(bounds or Bounds()))


_METHODS = (
    *("connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing", "shutdown"),
    *("on_message_begin", "on_headers_complete", "on_message_complete", "on_response_complete"),
)
_ATTRIBUTES = ("parser", "cycle", "flow", "headers", "transport", "client", "server_state", "loop")
_CYCLE_ATTRIBUTES = (
    *("disconnected", "keep_alive", "message_event", "response_started", "response_complete", "transport"),
)


def _check_uvicorn() -> None:
    """What we build on is not all promised by uvicorn: say so here, and not in the middle of a request."""
    missing = [name for name in _METHODS if not callable(getattr(HttpToolsProtocol, name, None))]
    for owner, names in ((HttpToolsProtocol, _ATTRIBUTES), (RequestResponseCycle, _CYCLE_ATTRIBUTES)):
        made = owner.__init__.__code__.co_names  # attributes are set there, so that its code names them
        missing += [f"{owner.__name__}.{name}" for name in names if name not in made]
    if missing:
        what = ", ".join(missing)
        raise TurnoutError(f"uvicorn {uvicorn.__version__} has no {what}: install uvicorn 0.34 to 0.49")
