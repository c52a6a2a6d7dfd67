"""A TCP proxy on loopback that notes every byte in both directions, and the means to read what it noted."""

from __future__ import annotations

import base64
import json
import math
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import numpy as np


@dataclass
class Conversation:
    """One connection: what its client sent and what it was sent."""

    sent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)


class Wiretap:
    """Carries connections to a server on this machine; use `with`.

    Args:
        target: the server's URL.

    Attributes:
        url: the proxy's own.
        conversations: all connections so far.
        delay_up, delay_down: seconds by which each piece is late, in the one direction and the other.
    """

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self.conversations: list[Conversation] = []
        self.delay_up = self.delay_down = 0.0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closing = False

    def __enter__(self) -> Wiretap:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()
        for one in self._open:
            one.close()

    @property
    def sent(self) -> bytes:
        """All that clients sent, connection after connection."""
        return b"\n".join(bytes(one.sent) for one in self.conversations)

    @property
    def received(self) -> bytes:
        """All that clients received."""
        return b"\n".join(bytes(one.received) for one in self.conversations)

    def cut(self) -> None:
        """End every connection that there is."""
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while not self._closing:
            with suppress(OSError):
                near, _ = self._listening.accept()
                self._open.add(near)
                self.conversations.append(Conversation())
                self._start(self._connect, near, self.conversations[-1])

    def _connect(self, near: socket.socket, noted: Conversation) -> None:
        try:
            far = socket.create_connection((self._target.hostname, self._target.port), timeout=20)
        except OSError:
            near.shutdown(socket.SHUT_RDWR)
            return
        far.settimeout(None)
        self._open.add(far)
        self._start(self._pump, far, near, noted.received, "delay_down")
        self._pump(near, far, noted.sent, "delay_up")

    def _pump(self, source: socket.socket, to: socket.socket, noted: bytearray, delay: str) -> None:
        with suppress(OSError):  # one side has gone: so does the other
            while not self._closing and (piece := source.recv(65536)):
                noted += piece
                if seconds := getattr(self, delay):
                    time.sleep(seconds)
                to.sendall(piece)
        with suppress(OSError):
            to.shutdown(socket.SHUT_WR)


@dataclass(frozen=True)
class Message:
    """One HTTP request or answer as it crossed."""

    first: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def json(self) -> object:
        """Its body, if it has one."""
        return json.loads(self.body) if self.body else None


def messages(stream: bytes) -> Iterator[Message]:
    """Cuts one direction of a conversation into messages; the whole stream must be accounted for.

    A last one that was cut off in the middle is given as far as it came.
    """
    while stream:
        head, _, rest = stream.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = tuple((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines))
        length = int(dict(headers).get("content-length", 0))
        assert "transfer-encoding" not in dict(headers), "every message of devices has a length"
        yield Message(first, headers, rest[:length])
        stream = rest[length:]


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value of a JSON text with its place, such as ("next.signal", 0.5)."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    else:
        yield path, value


NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
"""A number that stands by itself: not the inside of a word, an address, or a longer number."""


class Finder:
    """Looks for numbers in whatever form they may have been written.

    As text: any number of `digits` significant digits or more that is one of them, rounded or cut off there; and the
    first 14 digits of one, anywhere, whatever stands around them. As bytes: float64 and float32, both
    byte orders; also in hexadecimal and, from their beginning, in base64.

    Args:
        private: by name.
        public: numbers that are no find, such as the bounds of a public box.
        digits: shorter numbers are not looked at.
    """

    def __init__(self, private: dict[str, float], public: Iterable[float] = (), digits: int = 9) -> None:
        known = {0.0, 1.0, *map(float, public)}
        self.private = {
            name: float(value) for name, value in private.items() if math.isfinite(value) and float(value) not in known
        }
        self._digits = digits
        self._rounded = {
            (size, spelt): name
            for name, value in self.private.items()
            for size in range(digits, 18)
            for spelt in {f"{abs(value):.{size - 1}e}", cut_off(abs(value), size)}
        }
        self._strings = {
            digits_of(value, 14).encode(): name for name, value in self.private.items() if len(digits_of(value)) >= 12
        }
        self._patterns = {
            pattern: name for name, value in self.private.items() if value % 1.0 for pattern in binary_forms(value)
        }

    def in_bytes(self, text: bytes) -> list[str]:
        """The names of what was found."""
        found = _present(self._patterns, text) + _present(self._strings, text.replace(b".", b""))
        return found + [name for token in set(NUMBER.findall(text)) for name in self._of_token(token)]

    def in_value(self, value: object) -> list[str]:
        """The names of what a value is or holds: of a table's cell, an array's element, a JSON leaf."""
        if isinstance(value, (int, float)):
            return [name for name, one in self.private.items() if math.isclose(one, value, rel_tol=1e-9)]
        return self.in_bytes(value if isinstance(value, bytes) else str(value).encode())

    def _of_token(self, token: bytes) -> list[str]:
        size = len(digits_of_text(token.decode()))
        if size < self._digits or size > 25:
            return []
        size = min(size, 17)
        name = self._rounded.get((size, f"{abs(float(token)):.{size - 1}e}"))
        return [] if name is None else [name]


def _present(patterns: dict[bytes, str], text: bytes) -> list[str]:
    """The names of the patterns that a text holds; most are ruled out by their first four bytes."""
    views = [np.frombuffer(text, "<u4", (len(text) - offset) // 4, offset) for offset in range(min(4, len(text)))]
    begins = set(np.unique(np.concatenate(views)).tolist()) if views else set()
    likely = (pattern for pattern in patterns if int.from_bytes(pattern[:4], "little") in begins)
    return [patterns[pattern] for pattern in likely if pattern in text]


def binary_forms(value: float) -> set[bytes]:
    """A number as programs store it."""
    forms = {struct.pack(order + "d", value) for order in "<>"}
    if abs(value) < 3e38:
        forms |= {struct.pack(order + "f", value) for order in "<>"}
    return forms | {form.hex().encode() for form in forms} | {base64.b64encode(form)[:-2] for form in forms}


def digits_of(value: float, most: int = 17) -> str:
    """The significant digits of a number, without sign, dot and exponent; cut off at `most`."""
    return digits_of_text(repr(abs(value) if value % 1.0 else int(abs(value))))[:most]


def digits_of_text(token: str) -> str:
    """The same of a number as it was written."""
    return token.lstrip("-").lower().partition("e")[0].replace(".", "").lstrip("0")


def cut_off(value: float, size: int) -> str:
    """A number with so many digits, the rest cut off instead of rounded."""
    mantissa, _, exponent = f"{value:.20e}".partition("e")
    return f"{mantissa[: size + 1]}e{exponent}"
