"""`turnout serve` in one piece: the run in its store, the coordinator, and its two listeners."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnout.errors import invalid
from turnout.service import check_run_name, differences, first_position, in_words, rules_from_settings, settings_over
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.coordinator.device_app import DeviceApp
from turnout.service.coordinator.overview import Overview
from turnout.service.coordinator.sizing import for_a_new_run
from turnout.service.http import Bound, Bounds, Listener, serve_listeners
from turnout.service.operator import LOOPBACK, operator_app
from turnout.service.store import Run, Store, check_capacity
from turnout.settings import Table


@dataclass(frozen=True)
class Place:
    """Where one of the two listeners is.

    Args:
        host: a name or an address of this machine.
        port: 0 for any that is free.
        certificate, key: PEM files; none: plain HTTP, for this machine or behind a proxy.
        names: by which browsers may call it; the host, unless given.
        most_connections: at a time.
        proxies: the addresses of proxies that are believed about the addresses of clients; none, unless given.
    """

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = field(default=())
    most_connections: int = 12_000
    proxies: tuple[str, ...] = ()

    def listener(self, app: Any) -> Listener:
        """The listener of an application at this place."""
        bounds = Bounds(most_connections=self.most_connections)
        return Listener(app, self.host, self.port, self.certificate, self.key, bounds, self.proxies)


def begin_or_continue(store: Store, name: str | None, given: Mapping[str, Any]) -> Run:
    """The store's run; begun, if there is none. Rules that are given must be those of its newest version.

    Args:
        store: open.
        name: of a new run; made from the time unless given.
        given: settings as `rules_from_settings` takes them, and `capacity`. A new run also needs
            `safety.hard_limit` (a number or "none"), and may have `devices`, the fleet's planned size.

    Raises:
        ValueError: something is missing for a new run, or differs from what the run has.
    """
    run, capacity = store.run(), Table(given).number("capacity", None)
    if run is None:
        return _begin(store, name, given, capacity)
    if name is not None and name != run.name:
        raise invalid("run", f"{run.name!r}, as the store has it", repr(name), "begin another run in another store")
    has = _settings(store.rules()[-1].settings)
    wanted = settings_over(has, given)
    try:
        wanted = _settings(wanted)
    except ValueError:  # such as a round that is longer than the deadline that the run has by now: name the round
        _refuse_other({"timing": has["timing"]}, {"timing": wanted["timing"]})
        raise
    _refuse_other(has, wanted)
    if capacity is not None and capacity != store.control().capacity:
        remedy = "change it with `turnout operate capacity`, or on the operator's page"
        raise invalid("capacity", f"{store.control().capacity:g}, as the store has it", capacity, remedy)
    return run


def _begin(store: Store, name: str | None, given: Mapping[str, Any], capacity: float | None) -> Run:
    if capacity is None:
        raise invalid("--capacity", "given for a new run", "nothing", "give the turnout that is needed in each round")
    name = check_run_name(name or time.strftime("run-%Y%m%d-%H%M%S", time.gmtime()))
    given = for_a_new_run(given, capacity)
    rules, run = rules_from_settings(Table(given)), Run(name, _settings(given), time.time())
    check_capacity(capacity, rules.safety.hard_limit)
    store.begin(run, first_position(rules), capacity)
    return run


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings that these give, as JSON holds them."""
    found: dict[str, Any] = json.loads(json.dumps(rules_from_settings(Table(given)).settings()))
    return found


def _refuse_other(has: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse other rules than the newest version has, and name all that differs."""
    found = list(differences(has, given))
    if found:
        names = ", ".join(name for name, _, _ in found)
        have = ", ".join(in_words(one) for _, one, _ in found)
        remedy = "leave it out; `turnout operate rules` changes what may change in a run, and says what may not"
        raise invalid(names, f"{have}, as the store's run has it", ", ".join(in_words(it) for *_, it in found), remedy)


async def serve(
    store: Store,
    devices: Place,
    operator: Place,
    password_hash: str,
    *,
    bound: Callable[[Mapping[str, Bound]], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run the rounds and both listeners until a signal, `stop`, or an error of the coordinator.

    Raises:
        StoreProblem: another coordinator has the store.
    """
    _calm_collector()
    coordinator, stop = Coordinator(store), stop or asyncio.Event()
    overview = Overview(coordinator)
    page = operator_app(overview, password_hash=password_hash, allowed_hosts=_names(operator))
    page.count = coordinator.events.count
    listeners = {"devices": devices.listener(DeviceApp(coordinator)), "operator": operator.listener(page)}
    await overview.load()
    coordinator.start()
    following = asyncio.create_task(overview.follow())
    watching = asyncio.create_task(_stop_when_ended(coordinator, stop))

    async def stopping() -> None:
        page.end_streams()
        following.cancel()
        watching.cancel()
        await coordinator.stop()

    await serve_listeners(listeners, bound=bound, stopping=stopping, stop=stop)
    with contextlib.suppress(asyncio.CancelledError):
        await watching


def _calm_collector() -> None:
    """Thousands of held requests are not garbage: checking them again and again took half of a round's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


async def _stop_when_ended(coordinator: Coordinator, stop: asyncio.Event) -> None:
    try:
        await coordinator.ended()
    finally:
        stop.set()


def _names(place: Place) -> tuple[str, ...]:
    if place.names:
        return (*place.names, *LOOPBACK)
    host = f"[{place.host}]" if ":" in place.host else place.host
    return (host, *LOOPBACK) if re.fullmatch(r"[\w.:\[\]-]+", host) else LOOPBACK
