"""The coordinator's listeners: several ASGI applications in one event loop, bounded, with TLS, and a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turnout.errors import MissingExtra, TurnoutError, invalid
from turnout.service import Log, allow_files
from turnout.service.http.asgi import Application
from turnout.service.http.bounded_http import bounded
from turnout.service.http.certificate import Certificate, tls_context
from turnout.service.http.gate import Bounds, Gate
from turnout.service.http.limits import is_loopback

try:
    import uvicorn
except ImportError as error:
    raise MissingExtra("the coordinator", library="uvicorn", extra="server") from error

BACKLOG = 65_535
"""Connections that wait to be taken; the system allows fewer. A whole fleet comes back at once after an outage."""

UNSENT_BYTES = 256 * 1024
"""Of one connection that the system keeps; a client that reads nothing soon shows, and costs no more than this."""

OTHER_FILES = 256
"""Open files that are no connections: the store, the program, connections that are being turned away."""

_log = Log("listeners")


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
    """

    app: Application
    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise invalid("port", "from 0 to 65535", self.port, "0 takes any that is free")
        if self.key is not None and self.certificate is None:
            raise invalid("certificate", "given where a key is", None, "give both, or neither")


@dataclass(frozen=True)
class Bound:
    """A listener that listens.

    Attributes:
        url: where, such as `https://127.0.0.1:8443`.
        port: the one that it has.
        gate: who is connected, and what was refused.
    """

    url: str
    port: int
    gate: Gate


async def _nothing() -> None:
    return None


async def serve_listeners(
    listeners: Mapping[str, Listener],
    *,
    bound: Callable[[Mapping[str, Bound]], None] = lambda _: None,
    stopping: Callable[[], Awaitable[None]] = _nothing,
    stop: asyncio.Event | None = None,
    stopping_seconds: float = 30.0,
    closing_seconds: float = 5.0,
    certificate_seconds: float = 60.0,
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`; then take nobody new, finish, and close.

    The end has an order: the listeners close; `stopping` is awaited, which answers the requests that are held;
    then connections that are idle are closed, and the others once they are answered. A second signal ends the
    process at once.

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
    servers = {name: _Server(listener, closing_seconds) for name, listener in _affordable(listeners).items()}
    tasks: list[asyncio.Task[Any]] = []
    followers: list[asyncio.Task[None]] = []
    try:
        for server in servers.values():
            await server.listen()
        _warn_of_plain_http(servers)
        with _signals(stop):
            tasks = [asyncio.create_task(server.serve()) for server in servers.values()]
            certificates = [server.certificate for server in servers.values() if server.certificate]
            followers = [asyncio.create_task(_follow(one, certificate_seconds)) for one in certificates]
            bound({name: server.bound() for name, server in servers.items()})
            await _first_of(asyncio.create_task(stop.wait()), *tasks)
            for server in servers.values():
                server.take_nobody()
            await _within(stopping_seconds, stopping())
            for server in servers.values():
                server.should_exit = True
            await asyncio.gather(*tasks)
    finally:
        for task in [*tasks, *followers]:
            task.cancel()
        for server in servers.values():
            server.take_nobody()
            server.drop_all()


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


def _warn_of_plain_http(servers: Mapping[str, _Server]) -> None:
    plain = sorted(name for name, server in servers.items() if server.is_plain_beyond_this_machine())
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


class _Server(uvicorn.Server):
    """Uvicorn's server of one application, which neither binds nor handles signals by itself."""

    def __init__(self, listener: Listener, closing_seconds: float) -> None:
        self.listener = listener
        self.protocol = bounded(listener.bounds)
        self.certificate = None if listener.certificate is None else Certificate(listener.certificate, listener.key)
        self.taken: list[socket.socket] = []
        config = uvicorn.Config(
            listener.app,
            http=self.protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=closing_seconds,  # type: ignore[arg-type]
        )
        config.load()
        super().__init__(config)
        self.servers = []

    async def listen(self) -> None:
        """Take the address, and connections from now on. (Uvicorn's own leaves a TLS handshake a minute's time.)"""
        host, port = self.listener.host, self.listener.port
        loop = asyncio.get_running_loop()
        protocol = functools.partial(self.protocol, config=self.config, server_state=self.server_state, app_state={})
        tls = self.certificate.context if self.certificate else None
        patience = self.listener.bounds.head_seconds if tls else None
        try:
            found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.taken = bind_all(found)
            for taken in self.taken:
                server = await loop.create_server(
                    protocol, sock=taken, ssl=tls, backlog=BACKLOG, ssl_handshake_timeout=patience
                )
                self.servers.append(server)
        except OSError as problem:
            raise _cannot_listen(self.listener, problem) from problem

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """`listen` did it."""
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """`serve_listeners` does."""
        yield

    def bound(self) -> Bound:
        """Where it listens."""
        port = self.taken[0].getsockname()[1]
        host = self.listener.host or "127.0.0.1"
        shown = f"[{host}]" if ":" in host else host
        return Bound(f"http{'s' if self.certificate else ''}://{shown}:{port}", port, self.protocol.gate)

    def is_plain_beyond_this_machine(self) -> bool:
        """Whether others can listen in."""
        return self.certificate is None and not all(is_loopback(taken.getsockname()[0]) for taken in self.taken)

    def take_nobody(self) -> None:
        """Close the listening sockets; who is connected stays."""
        for server in self.servers:
            server.close()
        for taken in self.taken:
            taken.close()

    def drop_all(self) -> None:
        """End what is left of the connections."""
        for connection in list(self.protocol.gate.connections):
            connection.transport.abort()


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
        for taken in bind_all(found):
            taken.close()
    except OSError as problem:
        raise _cannot_listen(listener, problem) from problem


def bind_all(found: Sequence[tuple[Any, ...]]) -> list[socket.socket]:
    """A socket for each address of a name, all on one port, also where any is wanted.

    Raises:
        OSError: one is not to be had.
    """
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            new = socket.socket(family, kind, protocol)
            sockets.append(new)
            new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            new.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT_BYTES)  # connections inherit it
            if family == socket.AF_INET6:
                new.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            port = address[1] or (sockets[0].getsockname()[1] if len(sockets) > 1 else 0)
            new.bind((address[0], port, *address[2:]))
            new.setblocking(False)
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """The first SIGTERM or SIGINT sets `stop`; from then on they end the process, whatever it is at."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, handled = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in handled}

    def first(number: signal.Signals) -> None:
        _log.info("stopping; a second signal ends it at once", signal=number.name)
        for one in handled:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        stop.set()

    for number in handled:
        loop.add_signal_handler(number, first, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
