"""Listeners of the coordinator and what protects them.

They use uvicorn, with limits of our own on what a stranger can send.
"""

from turnout.service.http.asgi import NO_STORE, Application, Message, Receive, Scope, Send, read_body, send_json
from turnout.service.http.limits import Limiter, address_group
from turnout.service.http.listeners import Bound, Listener, check, serve_listeners

__all__ = [
    "NO_STORE",
    "Application",
    "Bound",
    "Limiter",
    "Listener",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "address_group",
    "check",
    "read_body",
    "send_json",
    "serve_listeners",
]


def __dir__() -> list[str]:
    return __all__
