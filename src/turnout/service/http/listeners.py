"""The coordinator's listeners: several ASGI applications in one event loop, with TLS, limits, and a graceful end.

Uvicorn does the HTTP, by its public interface alone. What it cannot bound (heads that arrive slowly, connections that
send nothing, connections per address) a proxy in front does: examples/fleet/nginx.conf.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from turnout.errors import MissingExtra, TurnoutError, invalid
from turnout.service import Log, allow_files
from turnout.service.http.asgi import Application
from turnout.service.http.certificate import Certificate, tls_context
from turnout.service.http.limits import is_loopback

try:
    import httptools  # noqa: F401
    import uvicorn
except ImportError as error:
    raise MissingExtra("the coordinator", library=error.name or "uvicorn", extra="server") from error

BACKLOG = 65_535
"""Connections that wait to be taken; the system allows fewer. A whole fleet returns at once after an outage."""

UNSENT_BYTES = 256 * 1024
"""Of one connection that the system keeps; a client that reads nothing soon shows, and costs no more than this."""

OTHER_FILES = 256
"""Open files that are no connections: the store, the program, connections that are being refused."""

_log = Log("listeners")


@dataclass(frozen=True)
class Bounds:
    """What one listener grants its clients.

    Args:
        head_bytes: of request line and headers, where others than this machine can connect.
        idle_seconds: from an answer to the next request.
        stall_seconds: for which a client may take nothing of its answer (on Linux).
        most_connections: of which each has one request at a time. So many open files are asked for; while there are
            more than twice as many connections, all requests are answered 503.

    Example:
        >>> Bounds(idle_seconds=5).head_bytes
        8192
    """

    head_bytes: int = 8192
    idle_seconds: int = 75
    stall_seconds: float = 30.0
    most_connections: int = 12_000

    def __post_init__(self) -> None:
        for bound in fields(self):
            value = getattr(self, bound.name)
            if not 0 < value < math.inf:
                raise invalid(bound.name, "above 0 and finite", value, f"the usual value is {bound.default}")


@dataclass(frozen=True)
class Listener:
    """An application and where it listens.

    Args:
        app: what answers.
        host: a name or an address; "" for all of this machine's.
        port: 0 for any that is free.
        certificate: a PEM file, with the chain; None: no TLS.
        key: its private key, a PEM file; None: it is in the certificate's file.
        bounds: what clients are granted.
        proxies: the addresses or networks whose X-Forwarded-For is believed: the client is the last address in it that
            is none of these. Of all others it is ignored.
    """

    app: Application
    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    bounds: Bounds = field(default_factory=Bounds)
    proxies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise invalid("port", "from 0 to 65535", self.port, "0 takes any that is free")
        if self.key is not None and self.certificate is None:
            raise invalid("certificate", "given where a key is", None, "give both, or neither")
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                remedy = "write --trusted-proxy 127.0.0.1, or 10.0.0.0/8 for each machine of a network"
                raise invalid("trusted proxy", "an IP address or a network", repr(proxy), remedy) from None


@dataclass(frozen=True)
class Bound:
    """A listener that listens.

    Attributes:
        url: where, such as `https://127.0.0.1:8443`.
        port: the one that it has.
        most_connections: fewer than wanted where the system does not allow as many open files.
    """

    url: str
    port: int
    most_connections: int


async def _nothing() -> None:
    return None


async def serve_listeners(
    listeners: Mapping[str, Listener],
    *,
    bound: Callable[[Mapping[str, Bound]], None] = lambda _: None,
    stopping: Callable[[], Awaitable[None]] = _nothing,
    stop: asyncio.Event | None = None,
    stopping_seconds: float = 30.0,
    closing_seconds: int = 5,
    certificate_seconds: float = 60.0,
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`; then finish, and close.

    The end has an order: `stopping` is awaited, which answers the requests that are held; then the listeners close,
    connections that are idle are closed, and the others once they are answered. A second signal ends the process at
    once.

    Args:
        listeners: by name.
        bound: called once with all of them, when they listen.
        stopping: awaited before connections are closed.
        stop: the same as a signal, when set.
        stopping_seconds: the longest that `stopping` may take.
        closing_seconds: the longest that answering and closing may take after that.
        certificate_seconds: how often certificates are looked at; renewed ones are taken.

    Raises:
        TurnoutError: an address cannot be had.
        FileProblem: a certificate cannot be used.
    """
    stop = stop or asyncio.Event()
    opened: dict[str, _Opened] = {}
    tasks: list[asyncio.Task[Any]] = []
    followers: list[asyncio.Task[None]] = []
    with _signals(stop) as take_signals:
        try:
            for name, listener in _affordable(listeners).items():
                opened[name] = await _open(listener, closing_seconds)
            _warn_of_plain_http(opened)
            tasks = [asyncio.create_task(one.server.serve(one.sockets)) for one in opened.values()]
            while not all(one.server.started for one in opened.values()) and not any(task.done() for task in tasks):
                await asyncio.sleep(0.001)
            take_signals()  # uvicorn has taken them for itself, each server from the last
            certificates = [one.certificate for one in opened.values() if one.certificate]
            followers = [asyncio.create_task(_follow(one, certificate_seconds)) for one in certificates]
            bound({name: one.bound() for name, one in opened.items()})
            await _first_of(asyncio.create_task(stop.wait()), *tasks)
            await _within(stopping_seconds, stopping())
            for one in opened.values():
                one.server.should_exit = True
            await asyncio.gather(*tasks)
        finally:
            for task in [*tasks, *followers]:
                task.cancel()
            for one in opened.values():
                for taken in one.sockets:
                    taken.close()


def _affordable(listeners: Mapping[str, Listener]) -> dict[str, Listener]:
    """With fewer connections each, if not so many files are to be had: the store must always find one."""
    wanted = sum(listener.bounds.most_connections for listener in listeners.values())
    allowed = allow_files(wanted + OTHER_FILES)
    if allowed < wanted + OTHER_FILES:
        _log.warning("fewer open files than connections", allowed=allowed, wanted=wanted, remedy="ulimit -n")
    share = min(1.0, max(0, allowed - OTHER_FILES) / max(1, wanted))
    fewer = {}
    for name, listener in listeners.items():
        most = max(1, int(share * listener.bounds.most_connections))
        fewer[name] = replace(listener, bounds=replace(listener.bounds, most_connections=most))
    return fewer


def _warn_of_plain_http(opened: Mapping[str, _Opened]) -> None:
    plain = sorted(name for name, one in opened.items() if one.certificate is None and not _only_here(one.sockets))
    if plain:
        _log.warning(
            "plain HTTP beyond this machine: tokens and passwords travel in the clear unless a proxy in front does TLS",
            listeners=plain,
            remedy="give each a certificate and its key",
        )


async def _follow(certificate: Certificate, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        certificate.follow()


async def _first_of(waiting: asyncio.Task[Any], *tasks: asyncio.Task[Any]) -> None:
    """A server that ends by itself ends the others too."""
    try:
        await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def _within(seconds: float, hook: Awaitable[None]) -> None:
    """A coordinator that cannot finish must not keep the process from ending."""
    try:
        await asyncio.wait_for(hook, seconds)
    except TimeoutError:
        _log.error("stopping took too long and was cut short", seconds=seconds)
    except Exception as problem:
        _log.error("stopping failed", trace=problem)


@dataclass(frozen=True)
class _Opened:
    """A listener with its sockets, and uvicorn's server for them."""

    listener: Listener
    sockets: list[socket.socket]
    certificate: Certificate | None
    server: uvicorn.Server

    def bound(self) -> Bound:
        port = self.sockets[0].getsockname()[1]
        host = self.listener.host or "127.0.0.1"
        shown = f"[{host}]" if ":" in host else host
        url = f"http{'s' if self.certificate else ''}://{shown}:{port}"
        return Bound(url, port, self.listener.bounds.most_connections)


async def _open(listener: Listener, closing_seconds: int) -> _Opened:
    certificate = None if listener.certificate is None else Certificate(listener.certificate, listener.key)
    loop, where = asyncio.get_running_loop(), (listener.host or None, listener.port)
    try:
        found = await loop.getaddrinfo(*where, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets = _bind_all(found, listener.bounds.stall_seconds)
    except OSError as problem:
        raise _cannot_listen(listener, problem) from problem
    bounds = listener.bounds
    config = uvicorn.Config(
        listener.app,
        # Only h11 bounds a request's head. Where only this machine can connect, as behind a proxy, httptools is faster.
        http="httptools" if _only_here(sockets) else "h11",
        # A request counts until some time after its answer: where all devices ask again at once, each counts twice.
        limit_concurrency=2 * bounds.most_connections + 1,
        h11_max_incomplete_event_size=bounds.head_bytes,
        timeout_keep_alive=bounds.idle_seconds,
        timeout_graceful_shutdown=closing_seconds,
        backlog=BACKLOG,
        ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
        proxy_headers=bool(listener.proxies),
        forwarded_allow_ips=list(listener.proxies),
        server_header=False,
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        log_level="error",  # a warning for each malformed request would let strangers fill the disk
    )
    return _Opened(listener, sockets, certificate, uvicorn.Server(config))


def _only_here(sockets: Sequence[socket.socket]) -> bool:
    """Whether only this machine can connect."""
    return all(is_loopback(one.getsockname()[0]) for one in sockets)


def _cannot_listen(listener: Listener, problem: OSError) -> TurnoutError:
    where = f"{listener.host or 'any address'}, port {listener.port}"
    return TurnoutError(f"cannot listen on {where}: {problem.strerror or problem}: give another host or port")


def check(listener: Listener) -> None:
    """Try what `serve_listeners` will need, before anything is begun for it.

    Raises:
        TurnoutError: the address cannot be had.
        FileProblem: the certificate cannot be used.
    """
    if listener.certificate is not None:
        tls_context(listener.certificate, listener.key)
    try:
        found = socket.getaddrinfo(
            listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for taken in _bind_all(found, listener.bounds.stall_seconds):
            taken.close()
    except OSError as problem:
        raise _cannot_listen(listener, problem) from problem


def _bind_all(found: Sequence[tuple[Any, ...]], stall_seconds: float) -> list[socket.socket]:
    """A listening socket for each address of a name, all on one port, also where any is wanted.

    Args:
        found: as `getaddrinfo` gives them.
        stall_seconds: after which the system drops a connection that takes nothing of its answer.

    Raises:
        OSError: one is not to be had.
    """
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            new = socket.socket(family, kind, protocol)
            sockets.append(new)
            new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            new.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT_BYTES)  # connections inherit options
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                new.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(1000 * stall_seconds))
            if family == socket.AF_INET6:
                new.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            port = address[1] or (sockets[0].getsockname()[1] if len(sockets) > 1 else 0)
            new.bind((address[0], port, *address[2:]))
            new.listen(BACKLOG)
            new.setblocking(False)
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[Callable[[], None]]:
    """Gives what takes SIGTERM and SIGINT: the first sets `stop`; from then on they end the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    loop, handled = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in handled}

    def first(number: signal.Signals) -> None:
        _log.info("stopping; a second signal ends it at once", signal=number.name)
        for one in handled:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        stop.set()

    def take() -> None:
        for number in handled:
            loop.add_signal_handler(number, first, number)

    try:
        yield take
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
