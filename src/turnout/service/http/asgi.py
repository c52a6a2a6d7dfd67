"""The two things that the hot route does with a request: read its small body, and answer with JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

NO_STORE: Header = (b"cache-control", b"no-store")
"""For replies that hold a secret."""

CLOSE: Header = (b"connection", b"close")
"""For replies after which the server closes the connection."""

_JSON: Header = (b"content-type", b"application/json")
_LENGTHS: tuple[Header, ...] = tuple((b"content-length", b"%d" % length) for length in range(1024))


class BodyReader:
    """Reads the bodies of requests: each within so many bytes and so many seconds.

    One timer serves all requests: `asyncio.timeout` for each took 7 % of the coordinator's time.

    Args:
        most: bytes; what arrives beyond is not kept.
        seconds: from the end of a request's head to the end of its body. It may take a quarter longer.
    """

    def __init__(self, most: int, seconds: float = 10.0) -> None:
        self._most, self._seconds = most, seconds
        self._due: dict[asyncio.Task[Any], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, receive: Receive) -> bytes | None:
        """The whole body of a request.

        Args:
            receive: of the ASGI call.

        Returns:
            None if it is larger or slower, or if the client has gone before its end: an answer then goes nowhere.
            Whoever answers should close the connection (`CLOSE`), since the client may still be sending.
        """
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._due[task] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look)
        try:
            message = await receive()
            body: bytes = message.get("body", b"")
            if message.get("more_body"):
                return await self._read_on(receive, body)
            return body if message["type"] == "http.request" and len(body) <= self._most else None
        except asyncio.CancelledError:
            if task in self._due:  # the server ends: it was not `_look`
                raise
            task.uncancel()
            return None
        finally:
            self._due.pop(task, None)

    async def _read_on(self, receive: Receive, first: bytes) -> bytes | None:
        parts, length = [first], len(first)
        while length <= self._most:
            message = await receive()
            if message["type"] != "http.request":
                return None
            parts.append(message.get("body", b""))
            length += len(parts[-1])
            if not message.get("more_body"):
                return b"".join(parts) if length <= self._most else None
        return None

    def _look(self) -> None:
        """End the reading whose time is up; the first to arrive is the first to be due."""
        loop = asyncio.get_running_loop()
        for task, due in list(self._due.items()):
            if due > loop.time():
                break
            del self._due[task]
            task.cancel()
        self._timer = loop.call_later(self._seconds / 4.0, self._look) if self._due else None


async def send_json(send: Send, status: int, body: bytes, extra_headers: Iterable[Header] = ()) -> None:
    """Answer with a JSON text.

    Args:
        send: of the ASGI call.
        status: such as 200.
        body: the text, encoded.
        extra_headers: pairs of lower-case name and value.
    """
    size = len(body)
    length = _LENGTHS[size] if size < 1024 else (b"content-length", b"%d" % size)
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *extra_headers]})
    await send({"type": "http.response.body", "body": body})
