"""How a device talks to its coordinator: standard-library HTTP, one connection kept open, everything bounded.

Above it stand the requests of a device, and how each is repeated until it is answered.
"""

from __future__ import annotations

import http.client
import io
import json
import random
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from turnout.errors import TurnoutError, invalid
from turnout.service import (
    ENROL,
    LARGEST_REPLY,
    LEAVE,
    REPORT,
    ROUND,
    RULES,
    Address,
    Answer,
    Offer,
    Proposal,
    ProtocolProblem,
    Report,
    Unreachable,
    Welcome,
    fields,
    read_json,
    what_to_correct,
)

REQUEST_SECONDS = 90.0
"""One request, from sending to the reply's last byte; it must exceed the coordinator's hold."""

CONNECT_SECONDS = 10.0
"""To connect, for each address of the coordinator; and the TLS handshake."""

LONGEST_WAIT = 3600.0
"""The most of a Retry-After that is honoured, in seconds."""


@dataclass(frozen=True)
class Reply:
    """A complete reply.

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
        """One request and its reply; a kept connection that has died meanwhile is made again, once."""
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        kept, begun = self._connection is not None, time.monotonic()
        try:
            return self._exchange(method, self._address.prefix + path, body, headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            held = self._connection is not None and time.monotonic() - begun >= HELD
            self.close()
            broken = isinstance(error, (ConnectionError, http.client.BadStatusLine))
            if not (kept and broken):
                raise self._unreachable(error, held) from error
        try:
            return self.send(method, path, body, token)
        except Unreachable as error:
            error.held = error.held or held
            raise

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

    def _unreachable(self, error: Exception, held: bool) -> Unreachable:
        """With what may be wrong about the address, unless it has proved right."""
        proved = self._answered and self._address.tls is None
        correct = "" if proved else what_to_correct(error, self._address)
        return Unreachable(f"{self._address}: {_said(error)}{correct and ': ' + correct}", held=held)

    def _connect(self) -> _Connection:
        host, port, tls = self._address.host, self._address.port, self._address.tls
        name = host.encode("ascii")  # as bytes, so that Python needs no tables of all alphabets for it
        problem: OSError = OSError("no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM):
            raw = self._raw = socket.socket(family, kind, protocol)  # known to `cut` before it connects
            if self._cut:
                raise ValueError("stopped")
            try:
                raw.settimeout(CONNECT_SECONDS)
                raw.connect(address)
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    raw = self._raw = tls.wrap_socket(raw, server_hostname=name)
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


FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""Seconds: between failures the longest pause grows from the one to the other, and is drawn evenly from 0 up."""

SHARE = 0.25
"""Of the pauses so far, the longest next one: who was away for eight seconds is back after two, at the latest."""

HELD = 1.0
"""Seconds: a request that took this long, on a connection that was made, was held by a coordinator that lived."""

LONGEST_POLL = 5.0
"""Seconds between two questions for the next round, while the coordinator answers well."""

MOST_GARBLED = 4
"""Welcomes that cannot be read, in a row: then it is no coordinator."""

OF_THE_OPERATOR = ("password", "host")
"""Refusals that only the operator's listener makes."""

TOO_SOON = 0.25
"""Seconds: a "pending" that arrives sooner was not held, and is no reason to ask again at once."""


class Revoked(TurnoutError):
    """The coordinator does not know this device (any more)."""


class RefusedByCoordinator(TurnoutError):
    """The coordinator says no, and asking again would not help: a wrong code, another run."""


class Halted(Exception):
    """The agent is being stopped: leave everything as it is."""


Read = TypeVar("Read")


@dataclass(frozen=True)
class Answered:
    """A report that was settled.

    Attributes:
        sent_at: when the answered request was sent, on the agent's clock: the lease counts from there.
        answer: what became of it.
    """

    sent_at: float
    answer: Answer


@dataclass(frozen=True)
class Elsewhere:
    """A report that cannot be taken.

    Attributes:
        why: "conflict" (there is another bit for the round), "ahead" (the round is not open yet) or "rules" (it is
            decided under another version of the rules).
        next: the round that is open.
    """

    why: str
    next: Offer | None


class Backoff:
    """Pauses that grow with the outage: each is drawn evenly from 0 to a quarter of all so far, 0.5 to 60 seconds.

    So devices come back one after the other, and within a quarter of the time for which the coordinator was away,
    however often it was restarted before.

    Args:
        pause: waits.
        longest: the most seconds.
    """

    def __init__(self, pause: Callable[[float], None], longest: float = LONGEST_PAUSE) -> None:
        self._pause, self._longest = pause, longest
        self._waited = 0.0

    def wait(self, at_least: float = 0.0) -> None:
        """Pause once more, and no less than the coordinator asked for."""
        most = min(self._longest, max(FIRST_PAUSE, SHARE * self._waited))
        seconds = at_least + random.SystemRandom().uniform(0.0, most)
        self._waited += seconds
        self._pause(seconds)

    def reset(self) -> None:
        """All is well again."""
        self._waited = 0.0


class Dialogue:
    """The requests of the protocol, each repeated until the coordinator has answered it.

    Args:
        wire: carries them.
        clock: of the lease.
        pause: waits so many seconds, or raises `Halted`.
        check: raises `Halted` if the agent is being stopped.
        noted: called with a sentence about each failure.

    Attributes:
        clock, check, noted: as given.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        clock: Callable[[], float],
        pause: Callable[[float], None],
        check: Callable[[], None],
        noted: Callable[[str], None],
    ) -> None:
        self._wire, self.clock, self.check, self.noted = wire, clock, check, noted
        self._failing, self._polling = Backoff(pause), Backoff(pause, LONGEST_POLL)

    def enrol(self, code: str, nonce: str) -> Welcome:
        """Hand in a one-time code; only what may pass by itself is tried again.

        Raises:
            RefusedByCoordinator: the code, or all of this, is not accepted.
            ProtocolProblem: the answer is not of this protocol.
        """
        body, garbled = json.dumps({"code": code, "nonce": nonce}).encode(), 0
        while True:
            reply = self._request("POST", ENROL, body, None)
            if reply is None:
                continue
            if reply.status not in (200, 201):
                raise RefusedByCoordinator(f"the coordinator does not enrol this device: {_message(reply)}")
            try:
                welcome = Welcome.read(read_json(reply.body))
                self._failing.reset()
                return welcome
            except ValueError as error:  # cut off on the way, perhaps: the same nonce is the same device again
                garbled += 1
                if garbled >= MOST_GARBLED:
                    raise ProtocolProblem(f"the coordinator's welcome cannot be used: {error}") from None
                self._fail("a welcome that cannot be read")

    def round(self, token: str, run: str) -> Offer:
        """The round that is open.

        Raises:
            Revoked, RefusedByCoordinator: it has no place for this device.
        """
        return self._read(Offer.read, ROUND, token, run)

    def rules(self, token: str, run: str) -> Proposal:
        """The version of the rules that is in force, and the round that is open.

        Raises:
            Revoked, RefusedByCoordinator: it has no place for this device.
        """
        return self._read(Proposal.read, RULES, token, run)

    def _read(self, read: Callable[[Any], Read], path: str, token: str, run: str) -> Read:
        """Ask until the reply can be read."""
        while True:
            try:
                return read(self._told(path, token, run))
            except (ProtocolProblem, ValueError) as error:
                self._fail(f"a reply that is not of this protocol: {_clean(str(error))}")

    def _told(self, path: str, token: str, run: str) -> Any:
        """What the coordinator says of this run."""
        while True:
            reply = self._request("GET", path, None, token)
            if reply is None or not self._good(reply):
                continue
            value = read_json(reply.body)
            if fields(value, {"run": str}, "round")["run"] != run:
                raise RefusedByCoordinator(
                    f"the coordinator runs {_clean(value['run'])!r} now, this device has joined {run!r}: "
                    "enrol it with a new code"
                )
            return value

    def report(self, token: str, report: Report) -> Answered | Elsewhere:
        """Send a bit, the same again and again, until it is settled.

        Raises:
            Revoked, RefusedByCoordinator: the coordinator has no place for this device.
        """
        while True:
            sent_at = self.clock()
            try:
                reply = self._request("POST", REPORT, report.body(), token)
                if reply is not None and reply.status == 409:
                    return _elsewhere(reply, report)
                if reply is None or not self._good(reply):
                    continue
                answer = Answer.read(read_json(reply.body), report.round)
                if answer.outcome != "pending":
                    return Answered(sent_at, answer)
                if self.clock() - sent_at < TOO_SOON:
                    self._polling.wait()
            except (ProtocolProblem, ValueError) as error:
                self._fail(f"a reply that is not of this protocol: {_clean(str(error))}")

    def leave(self, token: str, reason: str = "", tries: int = 3) -> bool:
        """Leave the run; returns whether the coordinator has confirmed it. The device has left in any case.

        Args:
            token: the device's.
            reason: one of `turnout.service.LEAVING`, for the operator; an older coordinator ignores it.
            tries: before it is given up.
        """
        body = json.dumps({"reason": reason} if reason else {}).encode()
        for _ in range(tries):
            reply = self._request("POST", LEAVE, body, token)
            if reply is not None and reply.status in (200, 401):
                return True
        return False

    def wait_for_news(self) -> None:
        """Pause before the round is asked for again."""
        self._polling.wait()

    def all_is_well(self) -> None:
        """A new round is open."""
        self._polling.reset()

    def _request(self, method: str, path: str, body: bytes | None, token: str | None) -> Reply | None:
        """One try; None after a pause if it should be made again."""
        self.check()
        sent_at = self.clock()
        try:
            reply = self._wire.send(method, path, body, token)
        except Unreachable as error:
            self.check()
            if error.held:
                self._failing.reset()
            self._fail(str(error))
            return None
        self.check()
        if reply.status in (408, 425, 429) or reply.status >= 500:
            if self.clock() - sent_at >= HELD:  # by the coordinator behind the proxy that says so
                self._failing.reset()
            self._fail(_message(reply), reply.retry_after or 0.0)
            return None
        if reply.status in (400, 401) and path != LEAVE and _body_of(reply).get("error") in OF_THE_OPERATOR:
            raise RefusedByCoordinator(
                f"this is the operator's listener, not the devices' ({_message(reply)}): give the address to which "
                "`turnout serve` says that devices connect (port 8440 by default)"
            )
        if reply.status == 401 and token is not None and path != LEAVE:
            raise Revoked(
                f"the coordinator does not know this device any more ({_message(reply)}): it was revoked, has left, or "
                "enrolled elsewhere; ask the operator for a new code"
            )
        return reply

    def _good(self, reply: Reply) -> bool:
        if reply.status == 200:
            self._failing.reset()
            return True
        self._fail(f"an invalid answer: {_message(reply)}")
        return False

    def _fail(self, problem: str, at_least: float = 0.0) -> None:
        self.noted(f"{problem}; trying again")
        self._failing.wait(at_least)


def _elsewhere(reply: Reply, report: Report) -> Elsewhere:
    value = read_json(reply.body)
    why = fields(value, {"error": str}, "refusal")["error"]
    if why == "run":
        raise RefusedByCoordinator(
            f"the coordinator does not run {report.run!r} ({_message(reply)}): enrol this device with a new code"
        )
    if why not in ("conflict", "ahead", "rules"):
        raise ProtocolProblem(f"the error of a refusal must be conflict, ahead, rules or run, got {why[:40]!r}")
    following = value.get("next")
    offer = None if following is None else Offer.read(following)
    if why == "ahead" and (offer is None or offer.round >= report.round):
        raise ProtocolProblem("the answer to a report that is ahead must name an earlier round: not our coordinator")
    return Elsewhere(why, offer)


def _body_of(reply: Reply) -> dict[str, Any]:
    """The fields of a refusal; none if it has none."""
    said: Any = None
    with suppress(ValueError):
        said = read_json(reply.body)
    return said if isinstance(said, dict) else {}


def _message(reply: Reply) -> str:
    """The message of a refusal, as one short line."""
    text = _body_of(reply).get("message")
    return f"{reply.status}{'' if not isinstance(text, str) else ' ' + _clean(text)}"


def _clean(text: str) -> str:
    """Safe for a terminal: without control characters of a hostile message."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])
