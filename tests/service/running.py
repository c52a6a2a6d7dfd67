"""A coordinator on a real socket of this machine, in a thread of the test's own process."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from turnout import SelfTuningController
from turnout.algorithm import Clamp
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.coordinator.device_app import DeviceApp
from turnout.service.coordinator.enrolment import _new_codes, hashed
from turnout.service.http.listeners import Bound, Listener, serve_listeners
from turnout.service.rounds import first_position
from turnout.service.rules import Rules, Safety, Timing
from turnout.service.store.backup import open_store
from turnout.service.store.store import Run, Store

QUICK = Timing(round=0.0, deadline=5.0, hold=5.0)


def usual_rules(timing: Timing = QUICK, wait_for: int = 1, **changes: Any) -> Rules:
    values = {"mechanism": Clamp(1.0), "controller": SelfTuningController(), "safety": Safety("absent")} | changes
    return Rules(**values, timing=timing, wait_for=wait_for)


def begun(location: str | Path, rules: Rules | None = None, capacity: float = 2.0, name: str = "test") -> Store:
    """A store with a run in it."""
    store, rules = open_store(str(location), create=True), rules or usual_rules()
    store.begin(Run(name, json.loads(json.dumps(rules.settings())), 0.0), first_position(rules), capacity)
    return store


def codes_for(store: Store, count: int, weight: int = 1) -> list[str]:
    """Codes that never expire: some tests turn the clock."""
    codes = _new_codes(count)
    store.add_codes([hashed(code) for code in codes], weight, None, "test")
    return codes


class Running:
    """A coordinator that runs in a thread; `url` is where, `coordinator` what."""

    def __init__(self, store: Store, seed: int = 0) -> None:
        self._store, self._seed = store, seed
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self.error: BaseException | None = None
        self._thread.start()
        assert self._ready.wait(20)
        if self.error is not None:
            raise self.error

    async def _main(self) -> None:
        try:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self.coordinator = Coordinator(self._store, random=np.random.default_rng(self._seed))
            self.coordinator.start()
            devices = Listener(DeviceApp(self.coordinator))
        except BaseException as error:
            self.error = error
            self._ready.set()
            return
        await serve_listeners(
            {"devices": devices}, bound=self._bound, stopping=self.coordinator.stop, stop=self._stop, closing_seconds=5
        )

    def _bound(self, listeners: Mapping[str, Bound]) -> None:
        self.url = listeners["devices"].url
        self._ready.set()

    def call(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Run a coroutine function of the coordinator in its own loop."""
        return asyncio.run_coroutine_threadsafe(work(*arguments, **named), self._loop).result(20)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()


@contextmanager
def running(store: Store, seed: int = 0) -> Iterator[Running]:
    found = Running(store, seed)
    try:
        yield found
    finally:
        found.stop()


def send(
    url: str, method: str, path: str, body: Any = None, token: str | None = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """One request; (status, JSON)."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
    try:
        given = dict(headers or {}) | ({} if token is None else {"Authorization": f"Bearer {token}"})
        text = body if isinstance(body, (bytes, type(None))) else json.dumps(body)
        connection.request(method, path, text, given)
        reply = connection.getresponse()
        content = reply.read()
        return reply.status, json.loads(content) if content else None
    finally:
        connection.close()
