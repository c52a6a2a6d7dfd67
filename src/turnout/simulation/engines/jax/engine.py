"""The JAX engine: the same decisions on a GPU, or on several devices; histories stay there until they are asked for.

Many clients are measured where they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from turnout.algorithm import ClientState, average_of
from turnout.errors import invalid
from turnout.problem import Array, DrawnCosts, PolynomialCosts
from turnout.simulation.clients import AlikeState, Newcomers, SimulatedClients
from turnout.simulation.engines.engine import JaxOptions, advance_by_passes, check_memory, free_memory
from turnout.simulation.engines.jax.kernel import LANES, Family, History, Lanes, Rules, slope_or_value
from turnout.simulation.engines.jax.layout import Devices, Piece, pieces_of
from turnout.simulation.engines.jax.loop import LONGEST, TILES, Server, Way, compiled
from turnout.simulation.engines.jax.number import Number
from turnout.simulation.recording import Keep, Measures, measure
from turnout.simulation.schedule import ABSENT, Status
from turnout.simulation.server_log import ServerLog

FEW = 1 << 20
"""Fewer clients than this are compiled as one family, which takes less time; more are cut where their terms change,
which moves fewer bytes. And the few are measured by NumPy, as by every engine: to the same bits. For the many, sums of
costs and distances are made on the device, and differ in the order of their additions: by some 1e-13 of the sum."""

_P = ParamSpec("_P")

_R = TypeVar("_R")


def in_64_bits(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have JAX know 64-bit numbers while a function runs, whatever the user has set."""

    @wraps(function)
    def wide(*arguments: _P.args, **more: _P.kwargs) -> _R:
        with jax.enable_x64(True):
            return function(*arguments, **more)

    return wide


class JaxEngine:
    """Polynomial costs and any mechanism. In 64 bits bit for bit as `NumpyEngine`; in 32 bits statistically equal.

    Args:
        clients: the clients; sent to the devices once.
        options: 64 or 32 bits, and how many devices.
        rounds: how many there will be, so that 32-bit histories take no more bytes than they need.

    Raises:
        ValueError: there are not so many devices, or the clients do not fit on them.
    """

    @in_64_bits
    def __init__(self, clients: SimulatedClients, options: JaxOptions | None = None, rounds: int | None = None) -> None:
        options = options or JaxOptions()
        self.clients, self.name = clients, "jax" if options.bits == 64 else "jax32"
        acting = clients.acting
        assert isinstance(acting, (PolynomialCosts, DrawnCosts))  # `choose_engine` has seen to it
        few = len(clients) < FEW
        acting = acting[:] if few and isinstance(acting, DrawnCosts) else acting
        found = some_devices(options.devices)
        tiles = found[0].platform == "gpu"
        self._devices = Devices(found, TILES[options.bits] if tiles else 1)
        self._rules = rules_of(clients, acting, options.bits)
        self._way = Way(tiles, self._devices.mesh)
        self._kind: Any = np.float64 if options.bits == 64 else np.float32
        self._passed_kind: Any = self._kind
        if self._rules.counts:
            self._passed_kind = np.uint16 if (rounds or 2**20) < 2**16 - 2 else np.uint32
        self._pieces = pieces_of(acting, one=few)
        self._check_memory()
        self._families = [family_on(self._devices, piece, clients, acting, self._kind) for piece in self._pieces]
        self._histories: tuple[History, ...] = ()
        self._known: ClientState | None = None  # what the devices were sent, or have sent
        self._ahead = False  # whether they have moved on since
        self._rounds = math.nan

    @property
    def where(self) -> str:
        """The devices, in words."""
        devices = self._devices.devices
        return f"{len(devices)} x {devices[0].device_kind}, {self._rules.bits} bits"

    @in_64_bits
    def set_status(self, status: Status | None) -> None:
        """Tell the devices each client's status."""
        for number, piece in enumerate(self._pieces):
            lanes = None
            if status is not None:
                lanes = self._devices.put(piece, status[piece.first : piece.stop], np.uint8)
            self._families[number] = self._families[number]._replace(status=lanes)

    def draw(self, round: int, signals: list[float]) -> list[int]:
        """Decide one or two consecutive rounds in one pass; returns the total of each."""
        _, totals = self._run(round, round + len(signals), signals[0], signals[-1], True, 0.0, 0.0)
        return [int(total) for total in totals]

    def advance(self, log: ServerLog, stop: int) -> None:
        """Run all rounds up to `stop`: with the paper's server, in one compiled call."""
        controller = log.compiled_controller if log.noise is None else None
        self._rules = self._rules._replace(most=1 if log.controller.lag == 0 else 2)
        if controller is None:
            advance_by_passes(self, log, stop, most=2)
            return
        while log.round < stop:
            first, end = log.round, min(stop, log.round + LONGEST)
            older, newer, lagged = log.server.signals[0], log.server.signals[-1], controller.lag == 1
            signals, totals = self._run(first, end, older, newer, lagged, *log.compiled_settings)
            log.close_rounds(totals, signals)

    def welcome(self, newcomers: Newcomers, here: Newcomers) -> int:
        """Start the history of newcomers; returns what those bring who participate at once."""
        if len(newcomers) < len(self.clients) or isinstance(self.clients.state.rounds, np.ndarray):
            self.gather()
        self._ahead = False
        return self.clients.welcome(newcomers, here)

    @in_64_bits
    def measure(self, keep: Keep, status: Status | None) -> Measures:
        """Measure the clients: many of them where they are."""
        clients = self.clients
        few = len(clients) < FEW or keep.averages == "all" or clients.state.memory is not None
        if few:
            self.gather()
            return measure(keep, clients.costs, clients.state, status)
        self._send()
        edges = np.linspace(0.0, 1.0, max(keep.histogram, 1) + 1)[1:-1]
        found = []
        for piece, history, family in zip(self._pieces, self._histories, self._families, strict=True):
            reference = None
            if keep.distance_to is not None:
                reference = self._devices.put(piece, keep.distance_to[piece.first : piece.stop], np.float64)
            found.append(_sums(self._rules.powers, history, family, self._rounds, reference, edges, cost=keep.cost))
        members = sum(int(part.members) for part in found)
        reach = np.sum([np.asarray(part.reach) for part in found], axis=0, dtype=np.int64)
        at_least = np.concatenate([[members], reach, [0]])
        histogram = -np.diff(at_least) if keep.histogram else np.zeros(0, np.int64)
        return Measures(
            members,
            [float(part.cost) for part in found],
            [float(part.distance) for part in found],
            max(float(part.largest) for part in found),
            histogram.astype(np.int64),
            self._averages(keep.chosen(len(clients)) if keep.averages is not None else np.empty(0, np.int64)),
        )

    @in_64_bits
    def gather(self) -> None:
        """Bring the histories into `clients.state`."""
        if not self._ahead:
            return
        clients = self.clients
        passed = np.empty(len(clients))
        own = np.empty(len(clients)) if self._histories[0].rounds is not None else None
        for piece, history in zip(self._pieces, self._histories, strict=True):
            self._devices.take(piece, history.passed, passed)
            if own is not None and history.rounds is not None:
                self._devices.take(piece, history.rounds, own)
        self._known = clients.state = ClientState(passed, self._rounds if own is None else own, clients.state.memory)
        self._ahead = False

    def close(self) -> None:
        """Give the devices' memory back."""
        self._histories, self._families, self._known, self._ahead = (), [], None, False

    @in_64_bits
    def _run(
        self, round: int, stop: int, older: float, newer: float, lagged: bool, gain: float, capacity: float
    ) -> tuple[Array, Any]:
        """Rounds `round` to `stop`; the signals after them, and the totals."""
        self._send()
        server = server_at(self.clients, round, stop, older, newer, lagged, gain, capacity, self._rounds)
        run = compiled(self._rules, self._way)
        self._histories, rounds, signals, totals = run(self._histories, tuple(self._families), server)
        self._ahead, self._rounds = True, float(rounds)
        return np.asarray(signals)[: stop - round], np.asarray(totals)[: stop - round]

    def _send(self) -> None:
        """Give the devices the histories, if they have been changed here."""
        state = self.clients.state
        if self._ahead or state is self._known:
            return
        alike = isinstance(state, AlikeState) and "participations" not in vars(state)
        if self._rules.counts and not alike and np.any(state.participations != np.floor(state.participations)):
            self._rules, self._passed_kind = self._rules._replace(counts=False), self._kind  # a run that is continued
        own = state.rounds if isinstance(state.rounds, np.ndarray) else None
        self._rounds = 1.0 if isinstance(state.rounds, np.ndarray) else float(state.rounds)
        devices, histories = self._devices, []
        self._histories = ()
        for piece in self._pieces:
            part = slice(piece.first, piece.stop)
            if alike:
                passed = devices.fill(piece, state.value, self._passed_kind)  # type: ignore[attr-defined]
            else:
                passed = devices.put(piece, state.participations[part], self._passed_kind)
            histories.append(History(passed, None if own is None else devices.put(piece, own[part], self._kind)))
        self._histories, self._known = tuple(histories), state

    def _averages(self, chosen: Any) -> Array:
        """The averages of some clients."""
        passed, lasted = np.empty(len(chosen)), np.full(len(chosen), self._rounds)
        for piece, history in zip(self._pieces, self._histories, strict=True):
            for lane in range(LANES):
                mine = (chosen >= piece.first) & (chosen < piece.stop) & (chosen % LANES == lane)
                blocks = chosen[mine] // LANES - piece.first // LANES
                if len(blocks):
                    passed[mine] = np.asarray(history.passed[lane][blocks])
                    if history.rounds is not None:
                        lasted[mine] = np.asarray(history.rounds[lane][blocks])
        return average_of(passed, lasted)  # type: ignore[no-any-return]

    def _check_memory(self) -> None:
        """Refuse clients that the devices cannot hold."""
        clients, size = self.clients, np.dtype(self._kind).itemsize
        by_client = sum(size for value in clients.mechanism.parameters() if np.ndim(value))
        by_client += 8 if clients.weights is not None else 0
        moving = np.dtype(self._passed_kind).itemsize + (size if isinstance(clients.state.rounds, np.ndarray) else 0)
        by_client += moving if self._way.tiles else 2 * moving  # XLA may keep the old beside the new
        needed = sum(LANES * self._devices.size(p) * (by_client + size * len(p.terms)) for p in self._pieces)
        smaller = "engine='jax32', " if self._rules.bits == 64 else ""
        remedy = f"use {smaller}more devices, or fewer clients"
        there = free_on(self._devices.devices)
        check_memory(f"the memory of {len(clients):,} clients", needed, there, f"on {self.where}", remedy)


def some_devices(wanted: int | None) -> list[Any]:
    """The devices of JAX's usual kind, all or so many."""
    found = jax.devices()
    if wanted is not None and wanted > len(found):
        allowed = f"at most {len(found)} ({found[0].device_kind})"
        raise invalid("devices", allowed, wanted, "leave it out to use all that there are")
    return found[:wanted]


def free_on(devices: list[Any]) -> int | None:
    """Bytes free on all of these together; None where they do not say."""
    stats = [device.memory_stats() if device.platform != "cpu" else None for device in devices]
    if any(not one for one in stats):
        return free_memory() if devices[0].platform == "cpu" else None
    return sum(int(one["bytes_limit"]) - int(one["bytes_in_use"]) for one in stats if one)


def rules_of(clients: SimulatedClients, acting: PolynomialCosts | DrawnCosts, bits: int) -> Rules:
    """What the kernels are compiled for."""
    by_bit = clients.averaging.by == "bit"
    counts = bits == 32 and by_bit and clients.start is None and math.isinf(clients.averaging.cap)
    mechanism = type(clients.mechanism)
    return Rules(acting.powers, mechanism.response, mechanism.limits, by_bit, bits, 2, counts)


def family_on(
    devices: Devices, piece: Piece, clients: SimulatedClients, acting: PolynomialCosts | DrawnCosts, kind: Any
) -> Family:
    """What does not move of a piece's clients, on the devices."""
    part = slice(piece.first, piece.stop)
    terms: list[Any] = [None] * len(acting.powers)
    for number, term in enumerate(piece.terms):
        if isinstance(acting, DrawnCosts):
            assert piece.drawn is not None
            terms[term] = devices.draw(piece, piece.drawn[number], acting.key, kind)
        else:
            terms[term] = devices.put(piece, acting.terms[term, part], kind)
    parameters = tuple(
        devices.put(piece, np.asarray(value)[part], kind) if np.ndim(value) else np.float64(value)
        for value in clients.mechanism.parameters()
    )
    weights = None if clients.weights is None else devices.put(piece, clients.weights[part], np.int64)
    begin = clients.coins.first // LANES + piece.first // LANES
    block = np.uint32(begin) if begin + devices.size(piece) < 2**32 else np.uint64(begin)
    return Family(tuple(terms), weights, parameters, None, block, *devices.bounds(piece))


def server_at(
    clients: SimulatedClients,
    round: int,
    stop: int,
    older: Any,
    newer: Any,
    lagged: bool,
    gain: float,
    capacity: float,
    rounds: float,
) -> Server:
    """The arguments of a compiled run, as arrays: nothing of them is compiled in."""
    low, high = clients.coins.key
    return Server(
        np.asarray(older, dtype=np.float64),
        np.asarray(newer, dtype=np.float64),
        np.int32(lagged),
        np.float64(gain),
        np.float64(capacity),
        np.int64(round),
        np.int64(stop),
        np.float64(rounds),
        np.float64(clients.averaging.cap),
        (np.uint32(low), np.uint32(high)),
        np.float64(-0.0),
    )


class _Sums(NamedTuple):
    """Of one piece's members: how many, their cost, their distances' sum and largest, and how many reach each edge."""

    members: Any
    cost: Any
    distance: Any
    largest: Any
    reach: Any


def _sums(
    powers: tuple[int, ...],
    history: History,
    family: Family,
    rounds: float,
    reference: Lanes | None,
    edges: Any,
    *,
    cost: bool,
) -> _Sums:
    """Measure one piece, in 64 bits; `edges` are the inner edges of the histogram's bins, shape (bins - 1,)."""
    numbers = (np.float64(rounds), np.float64(-0.0), np.asarray(edges, dtype=np.float64))
    return _compiled(powers, cost)(history, family, reference, *numbers)  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def _compiled(powers: tuple[int, ...], cost: bool) -> Any:
    def measured(history: History, family: Family, reference: Any, rounds: Any, zero: Any, edges: Any) -> _Sums:
        total = _Sums(jnp.int64(0), jnp.float64(0.0), jnp.float64(0.0), jnp.float64(0.0), jnp.zeros(len(edges), int))
        index = jax.lax.iota(jnp.uint32, history.passed[0].shape[0])
        for lane in range(LANES):
            low, high = (ends[lane % len(ends)] for ends in (family.low, family.high))
            counts = (index >= low) & (index < high)
            if family.status is not None:
                counts &= family.status[lane] != ABSENT
            lasted = rounds if history.rounds is None else history.rounds[lane].astype(jnp.float64)
            average = average_of(Number(history.passed[lane].astype(jnp.float64), zero), Number(lasted, zero))
            terms = tuple(None if term is None else term[lane].astype(jnp.float64) for term in family.terms)
            worth = slope_or_value(powers, terms, average, slope=False).value if cost else 0.0
            away = 0.0 if reference is None else jnp.where(counts, jnp.abs(average.value - reference[lane]), 0.0)
            total = _Sums(
                total.members + jnp.sum(counts, dtype=jnp.int64),
                total.cost + jnp.sum(jnp.where(counts, worth, 0.0)),
                total.distance + jnp.sum(away),
                jnp.maximum(total.largest, jnp.max(away)),
                total.reach + jax.vmap(lambda edge, x=average.value, who=counts: jnp.sum(who & (x >= edge)))(edges),
            )
        return total

    return jax.jit(measured)
