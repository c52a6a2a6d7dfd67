"""Listeners of the coordinator and what protects them.

They use uvicorn by its public interface. What strangers can do without a proxy in front, and with one, is in
docs/decisions/0012-http.md. The names are loaded on first use: a command that only asks needs no uvicorn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout._lazy import lazy

if TYPE_CHECKING:
    from turnout.service.http.asgi import CLOSE, NO_STORE, Application, BodyReader, Message, Receive, Scope, Send
    from turnout.service.http.asgi import send_json as send_json
    from turnout.service.http.limits import Limiter, address_group
    from turnout.service.http.listeners import Bound, Bounds, Listener, check, serve_listeners

__all__ = [
    "CLOSE",
    "NO_STORE",
    "Application",
    "BodyReader",
    "Bound",
    "Bounds",
    "Limiter",
    "Listener",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "address_group",
    "check",
    "send_json",
    "serve_listeners",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "asgi": ("CLOSE", "NO_STORE", "Application", "BodyReader", "Message", "Receive", "Scope", "Send", "send_json"),
        "limits": ("Limiter", "address_group"),
        "listeners": ("Bound", "Bounds", "Listener", "check", "serve_listeners"),
    },
)
