"""Listeners of the coordinator and what protects them.

They use uvicorn, with limits of our own on what a stranger can send.
"""

from turnout.service.http.asgi import CLOSE, NO_STORE, Application, BodyReader, Message, Receive, Scope, Send, send_json
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


def __dir__() -> list[str]:
    return __all__
