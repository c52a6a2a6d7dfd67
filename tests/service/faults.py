"""Processes that are killed, and a network that loses, doubles, delays, reorders and cuts messages.

As a program it is `turnout`, sabotaged: `python faults.py NAME serve …`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

PATIENCE = 30.0
"""Seconds after which a test gives up; nothing here needs a tenth of it."""


# Coordinators that are real processes.


def port_of_our_own() -> int:
    """One that no outgoing connection is given, so that it is still free after a kill."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(lowest // 2, lowest)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _die_with_the_tests() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Served:
    """`python -m turnout serve`, a process of its own; `with` kills it at the end.

    Args:
        folder: for its output and its password.
        location: of the store.
        port: for devices; the operator's is any that is free.
        more: options.
        sabotage: the name of one.
    """

    def __init__(self, folder: Path, location: str | Path, *more: str, port: int = 0, sabotage: str = "") -> None:
        self.log = folder / f"serve-{time.monotonic_ns()}.log"
        program = [str(Path(__file__)), sabotage] if sabotage else ["-m", "turnout"]
        options = ["--store", str(location), "--port", str(port), "--operator-port", "0", "--log-format", "json"]
        options += ["--password-file", str(folder / "password"), *more]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program, "serve", *options],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=_die_with_the_tests,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            )

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def output(self) -> str:
        """All that it has said."""
        return self.log.read_text()

    def is_ready(self) -> bool:
        """Whether it serves."""
        assert self.process.poll() is None, self.output
        return "operator's page" in self.output

    @property
    def url(self) -> str:
        """Where devices connect to."""
        found = re.search(r'devices connect to ([^\s"]+)', self.output)
        assert found, self.output
        return found[1]

    def wait(self) -> Served:
        """Until it serves."""
        until(self.is_ready)
        return self

    async def soon(self) -> Served:
        """Until it serves, in a loop that does other things."""
        await sooner(self.is_ready)
        return self

    def snapshot(self) -> dict[str, Any]:
        """What the operator sees."""
        page = re.search(r"""operator.s page ([^\s"]+)""", self.output)
        assert page, self.output
        user = b64encode(b"operator:" + (self.log.parent / "password").read_bytes().strip()).decode()
        request = Request(f"{page[1]}/api/snapshot", headers={"Authorization": f"Basic {user}"})
        with urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def kill(self) -> None:
        """-9."""
        self.signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def signal(self, number: signal.Signals) -> None:
        """To this process alone."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)

    def events(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{") and line.endswith("}")]

    def let_files_grow_to(self, size: int) -> None:
        """A disk that is full at so many bytes of a file; -1: there is room again."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Wait until it holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)


async def sooner(condition: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Wait until it holds, in a loop."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        await asyncio.sleep(0.01)


# The network.

FAULTS = ("drop", "swallow", "drop answer", "double", "delay", "late", "cut", "cut answer")
"""A request is lost with its connection, or without a sign; its answer is lost; it comes twice; it comes later; it
comes later on its own, after its connection has broken and others were sent; half of it, or of its answer, comes."""

Message = bytes
Mischief = Callable[[Message], str]


def some_of(faults: tuple[str, ...], share: float, seed: int) -> Mischief:
    """A share of all messages has one of these faults."""
    chance = random.Random(seed)
    return lambda message: chance.choice(faults) if chance.random() < share else ""


class Proxy:
    """A network on this machine: from `url` to one of `targets`, drawn anew for each connection.

    Args:
        targets: URLs; they may change at any time.
        mischief: what happens to a request, one of `FAULTS` or "".
        slowness: seconds that a delayed one takes at the most.

    Attributes:
        bits: by token and round, every bit that was sent, in order.
        answers: status, answer, and the seconds that it took, of all that came back.
        offers: by round, every signal that a device was offered.
        done: how often which fault was done.
    """

    def __init__(self, *targets: str, mischief: Mischief = lambda _: "", slowness: float = 0.5) -> None:
        self.targets, self.mischief, self.slowness = targets, mischief, slowness
        self.bits: defaultdict[tuple[str, int], list[bool]] = defaultdict(list)
        self.answers: list[tuple[int, dict[str, Any], float]] = []
        self.offers: defaultdict[int, set[float]] = defaultdict(set)
        self.done: Counter[str] = Counter()
        self._chance = random.Random(1)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0, backlog=1000)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _aside(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._aside(self._connection(reader, writer))

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = None
        try:
            while True:
                request = await _message(reader)
                self._note(request)
                fault = self.mischief(request)
                self.done[fault] += 1
                if fault in ("drop", "late"):
                    if fault == "late":
                        self._aside(self._alone(request))
                    return
                if fault == "swallow":
                    await reader.read()
                    return
                if fault == "double":
                    self._aside(self._alone(request))
                if fault == "delay":
                    await self._a_while()
                upstream = upstream or await self._dial()
                if fault == "cut":
                    upstream[1].write(request[: self._chance.randrange(len(request))])
                    await upstream[1].drain()
                    return
                answer = await self._ask(upstream, request)
                if fault == "drop answer":
                    return
                writer.write(answer[: self._chance.randrange(len(answer))] if fault == "cut answer" else answer)
                await writer.drain()
                if fault == "cut answer":
                    return
        except (OSError, EOFError):
            pass
        finally:
            for end in (writer, upstream[1] if upstream else None):
                if end is not None:
                    end.transport.abort()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self.targets:
            raise ConnectionRefusedError
        where = urlsplit(self._chance.choice(self.targets))
        return await asyncio.open_connection(where.hostname, where.port)

    async def _ask(self, upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: Message) -> Message:
        begun = time.monotonic()
        upstream[1].write(request)
        answer = await _message(upstream[0])
        body = answer.partition(b"\r\n\r\n")[2]
        said = json.loads(body) if body.startswith(b"{") else {"error": "no JSON"}
        self.answers.append((int(answer[9:12]), said, time.monotonic() - begun))
        for offer in (said.get("next"), said.get("offer"), said if "signal" in said else None):
            if offer:
                self.offers[offer["round"]].add(offer["signal"])
        return answer

    async def _alone(self, request: Message) -> None:
        """Some time later, on a connection of its own; nobody waits for the answer."""
        await self._a_while()
        with contextlib.suppress(OSError, EOFError):
            upstream = await self._dial()
            try:
                await self._ask(upstream, request)
            finally:
                upstream[1].transport.abort()

    async def _a_while(self) -> None:
        await asyncio.sleep(self._chance.uniform(0.0, self.slowness))

    def _note(self, request: Message) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        if head.startswith(b"POST /v1/report "):
            token = re.search(rb"(?i)authorization: bearer (\S+)", head)
            report = json.loads(body)
            self.bits[token[1].decode() if token else "", report["round"]].append(report["participates"])


async def _message(reader: asyncio.StreamReader) -> Message:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    return head + await reader.readexactly(int(length[1]) if length else 0)


@contextlib.contextmanager
def proxy_in_a_thread(proxy: Proxy) -> Iterator[Proxy]:
    """For devices that are threads themselves."""
    import threading

    ready, stop, loops = threading.Event(), asyncio.Event(), []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        async with proxy:
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield proxy
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        assert not thread.is_alive()


# What must be found out.


def answer_first() -> None:
    """The devices are told before the round is closed in the store."""
    from turnout.service.coordinator.store_sync import StoreSync

    async def closing(self: StoreSync, closed: Any, position: Any, when: float) -> None:
        self._take_closed(closed, position, when)
        await asyncio.sleep(0.05)
        await self.call(self.store.close_round, closed, position)

    StoreSync.close_round = closing


def jumping_clock() -> None:
    """The wall clock jumps by up to a year, there and back, whenever someone looks."""
    right, chance = time.time, random.Random(3)
    time.time = lambda: right() + chance.choice((-1.0, 1.0)) * chance.uniform(3600.0, 3e7)


def rounds_by_the_wall() -> None:
    """Rounds and leases count by that clock."""
    from turnout.service.coordinator import coordinator

    jumping_clock()
    by_the_wall = time.time

    class Sabotaged(coordinator.Coordinator):
        def __init__(self, store: Any, **named: Any) -> None:
            super().__init__(store, **named | {"clock": by_the_wall})

    from turnout.service.coordinator import server as serve

    serve.Coordinator = Sabotaged  # type: ignore[attr-defined]


SABOTAGES = {"answer-first": answer_first, "jumping-clock": jumping_clock, "by-the-wall": rounds_by_the_wall}

if __name__ == "__main__":
    from turnout.cli import main

    SABOTAGES[sys.argv.pop(1)]()
    main()
