"""A TCP proxy on loopback that notes every byte in both directions, and the means to read what it noted."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import re
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit


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
        self._ready, self._ended = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def __enter__(self) -> Wiretap:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    @property
    def sent(self) -> bytes:
        """All that clients sent, connection after connection."""
        return b"\n".join(bytes(one.sent) for one in self.conversations)

    @property
    def received(self) -> bytes:
        """All that clients received."""
        return b"\n".join(bytes(one.received) for one in self.conversations)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0, backlog=2048)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._ended.wait()
        server.close()
        here = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in here:
            task.cancel()
        await asyncio.gather(*here, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        noted = Conversation()
        self.conversations.append(noted)
        try:
            far_reader, far_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        except OSError:
            writer.transport.abort()
            return
        try:
            up = self._pump(reader, far_writer, noted.sent, "delay_up")
            down = self._pump(far_reader, writer, noted.received, "delay_down")
            await asyncio.gather(up, down)
        except asyncio.CancelledError:
            pass
        finally:
            for one in (writer, far_writer):
                one.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, noted: bytearray, delay: str) -> None:
        try:
            while piece := await source.read(65536):
                noted += piece
                if seconds := getattr(self, delay):
                    await asyncio.sleep(seconds)
                to.write(piece)
                await to.drain()
            to.write_eof()
        except OSError:  # one side has gone: so does the other
            to.transport.abort()


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
    first 12 digits of one, anywhere, whatever stands around them. As bytes: float64 and float32, both
    byte orders; also in base64 and in hexadecimal.

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
            digits_of(value, 12): name for name, value in self.private.items() if len(digits_of(value)) > 8
        }
        self._patterns = {
            pattern: name for name, value in self.private.items() if value % 1.0 for pattern in binary_forms(value)
        }

    def in_bytes(self, text: bytes) -> list[str]:
        """The names of what was found."""
        found = [name for pattern, name in self._patterns.items() if pattern in text]
        plain = text.replace(b".", b"")
        found += [name for digits, name in self._strings.items() if digits.encode() in plain]
        return found + [name for token in set(NUMBER.findall(text)) for name in self._of_token(token)]

    def in_value(self, value: object) -> list[str]:
        """The names of what a value is or holds: of a table's cell, an array's element, a JSON leaf."""
        if isinstance(value, float):
            close = [name for name, one in self.private.items() if math.isclose(one, value, rel_tol=1e-6)]
            return close + self.in_bytes(repr(value).encode())
        return self.in_bytes(value if isinstance(value, bytes) else str(value).encode())

    def _of_token(self, token: bytes) -> list[str]:
        size = len(digits_of_text(token.decode()))
        if size < self._digits or size > 25:
            return []
        size = min(size, 17)
        name = self._rounded.get((size, f"{abs(float(token)):.{size - 1}e}"))
        return [] if name is None else [name]


def binary_forms(value: float) -> set[bytes]:
    """A number as programs store it."""
    forms = {struct.pack(order + "d", value) for order in "<>"}
    if abs(value) < 3e38:
        forms |= {struct.pack(order + "f", value) for order in "<>"}
    return forms | {form.hex().encode() for form in forms} | {base64.b64encode(form)[:-2] for form in forms}


def digits_of(value: float, most: int = 17) -> str:
    """The significant digits of a number, without sign, dot, exponent and zeros around them; cut off at `most`."""
    return digits_of_text(repr(abs(value)))[:most]


def digits_of_text(token: str) -> str:
    mantissa = token.lstrip("-").lower().partition("e")[0]
    return mantissa.replace(".", "").lstrip("0") if "." in mantissa else mantissa.strip("0")


def cut_off(value: float, size: int) -> str:
    """A number with so many digits, the rest cut off instead of rounded."""
    mantissa, _, exponent = f"{value:.20e}".partition("e")
    return f"{mantissa[: size + 1]}e{exponent}"
