"""The two things that the hot route does with a request: read its small body, and answer with JSON."""

from __future__ import annotations

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

_JSON: Header = (b"content-type", b"application/json")
_LENGTHS: tuple[Header, ...] = tuple((b"content-length", b"%d" % length) for length in range(1024))


async def read_body(receive: Receive, most: int) -> bytes | None:
    """The whole body of a request.

    Args:
        receive: of the ASGI call.
        most: bytes; what comes beyond is not kept.

    Returns:
        None if it is larger, or if the client has gone before its end: an answer then goes nowhere.
    """
    message = await receive()
    if message["type"] != "http.request":
        return None
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        return await _read_on(receive, most, body)
    return body if len(body) <= most else None


async def _read_on(receive: Receive, most: int, first: bytes) -> bytes | None:
    parts, length = [first], len(first)
    while length <= most:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if not message.get("more_body"):
            return b"".join(parts) if length <= most else None
    return None


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
