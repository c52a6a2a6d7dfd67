"""Clients that are slow, large, silent or malformed, many at once; each says how long it lasted, and the answer."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

HEAD = b"HTTP/1.1\r\nHost: localhost\r\n"
LONGEST = 90.0
"""Seconds after which a client gives up: it was not cut off."""


async def trickle(writer: asyncio.StreamWriter, first: bytes, piece: bytes) -> None:
    writer.write(first)
    while True:
        await asyncio.sleep(0.5)
        writer.write(piece)
        await writer.drain()


async def pour(writer: asyncio.StreamWriter, first: bytes, piece: bytes) -> None:
    writer.write(first)
    for _ in range(1000):
        writer.write(piece)
        await writer.drain()


async def say(writer: asyncio.StreamWriter, words: bytes) -> None:
    writer.write(words)
    await writer.drain()


Attack = Callable[[asyncio.StreamWriter], Awaitable[None]]
SLOW: dict[str, Attack] = {
    "silent": lambda writer: say(writer, b""),
    "slow head": lambda writer: trickle(writer, b"GET /v1/round " + HEAD + b"x: ", b"y"),
    "blank lines": lambda writer: trickle(writer, b"\r\n", b"\r\n"),
    "no body": lambda writer: say(writer, b"POST /v1/report " + HEAD + b"Content-Length: 100\r\n\r\nhello"),
    "idle": lambda writer: say(writer, b"GET /healthz " + HEAD + b"\r\n"),
}
LARGE: dict[str, Attack] = {
    "garbage": lambda writer: say(writer, bytes(range(256)) * 64),
    "huge header": lambda writer: pour(writer, b"GET /v1/round " + HEAD + b"x: ", b"y" * 65536),
    "huge path": lambda writer: pour(writer, b"GET /", b"y" * 65536),
    "many headers": lambda writer: pour(writer, b"GET /v1/round " + HEAD, b"x: y\r\n" * 10_000),
    "huge body": lambda writer: pour(
        writer, b"POST /v1/report " + HEAD + b"Content-Length: 100000000\r\n\r\n", b"y" * 65536
    ),
    "endless chunks": lambda writer: pour(
        writer, b"POST /v1/report " + HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"8000\r\n" + b"y" * 32768 + b"\r\n"
    ),
}
UNREAD = b"GET /v1/openapi.json " + HEAD + b"\r\n"


@dataclass(frozen=True)
class End:
    """How it ended for one client: after how many seconds it was cut off, with which answer."""

    kind: str
    seconds: float
    answer: bytes


async def attack(kind: str, port: int, ca: Path | None, source: str = "127.0.0.2") -> End:
    """One client of a kind (of SLOW, LARGE, or "unread"), until it is cut off."""
    tls = None if ca is None or kind == "silent" else ssl.create_default_context(cafile=str(ca))
    name = None if tls is None else "localhost"
    begun, answer = time.monotonic(), b""
    with contextlib.suppress(OSError, EOFError):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=tls, server_hostname=name, local_addr=(source, 0)
        )
        try:
            async with asyncio.timeout(LONGEST):
                if kind == "unread":
                    await pour(writer, b"", UNREAD * 20)
                    while not writer.transport.is_closing():
                        await trickle(writer, b"", UNREAD)
                else:
                    sending = asyncio.ensure_future((SLOW | LARGE)[kind](writer))
                    sending.add_done_callback(lambda done: done.cancelled() or done.exception())
                    try:
                        while part := await reader.read(65536):
                            answer = (answer + part)[:4096]
                    finally:
                        sending.cancel()
        finally:
            writer.transport.abort()
    return End(kind, time.monotonic() - begun, answer)


async def attacks(counts: dict[str, int], port: int, ca: Path | None) -> list[End]:
    """So many clients of each kind, at once."""
    return await asyncio.gather(*(attack(kind, port, ca) for kind, count in counts.items() for _ in range(count)))
