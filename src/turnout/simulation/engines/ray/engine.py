"""The cluster engine: clients in shards, each on a core of a Ray cluster; one number down, one integer up.

The histories live in the shards. The driver's own copy, `clients.state`, is the last snapshot; with the log of what the
shards were told since, it makes a lost shard again, exactly.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import ClientState, SeededCoins
from turnout.problem import DrawnCosts
from turnout.simulation.clients import Newcomers, SimulatedClients
from turnout.simulation.engines.engine import RayOptions, advance_by_passes
from turnout.simulation.engines.ray.cluster import Cluster, Lost, RayCluster, ShardLost, Size
from turnout.simulation.engines.ray.shard import Command, Someone
from turnout.simulation.recording import CHUNK, Keep, Measures, measure, together
from turnout.simulation.schedule import Status
from turnout.simulation.server_log import ServerLog

_BLOCK = 4
"""Clients that share a block of coins, and hence a shard."""

_MEASURED_APART = 8
"""Chunks that a shard must have to be cut between chunks; with fewer, shards would be too unequal."""

_GATHERED_AT_ONCE = 2**28
"""Bytes of histories asked for at a time, unless one shard alone has more."""

_MOST_LOSSES = 5
"""How often in a row a shard is made again before the run is given up."""


@dataclass
class _Place:
    """One shard's clients, `first` to `stop`, and where they are.

    Attributes:
        rounds: what all of them share as the length of their history, in the snapshot (if they do share it).
        since: how much of the log the snapshot holds already.
    """

    first: int
    stop: int
    rounds: float
    handle: Any = None
    since: int = 0

    @property
    def clients(self) -> slice:
        return slice(self.first, self.stop)

    def some(self, clients: Newcomers) -> Someone:
        """Those of some clients (ascending) that are here, counted from 0; None if all are."""
        if isinstance(clients, range):
            return None
        low, high = np.searchsorted(clients, (self.first, self.stop))
        return None if high - low == self.stop - self.first else clients[low:high] - self.first


class RayEngine:
    """Runs any costs and mechanism on a Ray cluster, bit for bit as the other engines, whatever the number of shards.

    Args:
        clients: the clients; sent to the shards once.
        options: how many shards, and how often a snapshot is taken.
        cluster: where the shards are; the Ray cluster that is found, or one started here, unless given.

    Attributes:
        where: the cluster and the number of shards, in words.

    Raises:
        ValueError: the cluster has no room.
        MissingExtra: Ray is not installed.
    """

    name = "ray"

    def __init__(
        self, clients: SimulatedClients, options: RayOptions | None = None, cluster: Cluster | None = None
    ) -> None:
        options = options or RayOptions()
        size = _size(clients)
        self.clients = clients
        self._cluster = cluster or RayCluster(size)
        self._snapshot_every = options.snapshot_every
        self._standing: dict[str, tuple[Any, ...]] = {}  # what a shard must be told whenever it is made again
        self._log: list[Command] = []
        self._drawn = 0  # rounds since the snapshot
        self._moved = False  # whether anything has changed since
        self._places: list[_Place] = []
        try:
            shards = _cut(len(clients), options.shards or self._cluster.cores)
            self._cluster.check_fits(len(shards), size)
            rounds = clients.state.rounds
            shared = 0.0 if isinstance(rounds, np.ndarray) else float(rounds)
            for first, stop in shards:
                place = _Place(first, stop, shared)
                self._places.append(place)
                place.handle = self._start(place)
            self._cluster.await_start([place.handle for place in self._places])
        except BaseException:
            self.close()
            raise
        shards_made = f"{len(self._places)} {'shard' if len(self._places) == 1 else 'shards'}"
        self.where = f"{shards_made} on {self._cluster.where}"

    def set_status(self, status: Status | None) -> None:
        """Tell each shard the status of its clients."""
        self._stand("set_status", status)

    def draw(self, round: int, signals: list[float]) -> list[int]:
        """Decide one or two consecutive rounds in one pass; returns the total of each."""
        totals = self._tell("draw", round, signals)
        self._moved, self._drawn = True, self._drawn + len(signals)
        if self._drawn >= self._snapshot_every:
            self.gather()
        return [sum(parts) for parts in zip(*totals, strict=True)]

    def advance(self, log: ServerLog, stop: int) -> None:
        """Run all rounds up to `stop`, two a pass where the lag allows."""
        advance_by_passes(self, log, stop, most=2)

    def welcome(self, newcomers: Newcomers, here: Newcomers) -> int:
        """Start the history of newcomers; returns what those bring who participate at once."""
        self._moved = True
        return sum(self._tell("welcome", newcomers, here))

    def measure(self, keep: Keep, status: Status | None) -> Measures:
        """Measure the clients: in the shards where they hold whole chunks, else (few clients) here."""
        if any(place.first % CHUNK for place in self._places):
            self.gather()
            return measure(keep, self.clients.costs, self.clients.state, status)
        if self._standing.get("watch") != (keep,):
            self._stand("watch", keep)
        parts = list(self._answers("measure", self._places))
        chosen = keep.chosen(len(self.clients))
        averages = np.empty(len(chosen))
        for place, part in zip(self._places, parts, strict=True):
            averages[_within(chosen, place)] = part.averages
        return together(parts, averages)

    def gather(self) -> None:
        """Take a snapshot: bring all histories into `clients.state`, shard by shard."""
        if not self._moved:
            return
        state = self.clients.state
        own = state.rounds if isinstance(state.rounds, np.ndarray) else None
        each = 16 * max(place.stop - place.first for place in self._places)
        for places in _groups(self._places, max(1, _GATHERED_AT_ONCE // each)):
            for place, (participations, rounds) in zip(places, self._answers("histories", places), strict=True):
                state.participations[place.clients] = participations
                if own is None:
                    place.rounds = rounds
                else:
                    own[place.clients] = rounds
                place.since = len(self._log)
        self._log = list(self._standing.items())
        for place in self._places:
            place.since = 0
        self._moved, self._drawn = False, 0
        shared = self._places[0].rounds if own is None else own
        self.clients.state = ClientState(state.participations, shared, state.memory)

    def close(self) -> None:
        """Stop the shards, and the cluster if it was started here."""
        for place in self._places:
            self._cluster.stop(place.handle)
        self._places = []
        self._cluster.leave()

    def _stand(self, method: str, argument: Any) -> None:
        """Tell all shards something that holds until it is told again."""
        self._standing[method] = (argument,)
        self._tell(method, argument)

    def _tell(self, method: str, *arguments: Any) -> list[Any]:
        """Have all shards do something that changes them; returns what each gave."""
        self._log.append((method, arguments))
        return list(self._answers(method, self._places, *arguments))

    def _answers(self, method: str, places: Sequence[_Place], *arguments: Any) -> Iterator[Any]:
        """Ask some shards, all at a time; what each gave, in order. One that is lost is made again."""
        promises = [self._cluster.ask(place.handle, method, *_share(place, method, arguments)) for place in places]
        for place, promise in zip(places, promises, strict=True):
            try:
                yield self._cluster.answer(promise)
            except Lost as loss:
                yield self._again(place, method, loss)

    def _again(self, place: _Place, method: str, loss: Lost) -> Any:
        """Make a lost shard again from the snapshot and the log; returns what it was asked for when it was lost."""
        told = [(name, _share(place, name, arguments)) for name, arguments in self._log[place.since :]]
        asked: list[Command] = [(method, ())] if method in ("measure", "histories") else []  # the rest is in the log
        for _ in range(_MOST_LOSSES):
            self._cluster.stop(place.handle)
            try:
                place.handle = self._start(place)
                return self._cluster.answer(self._cluster.ask(place.handle, "replay", [*told, *asked]))
            except Lost as again:
                loss = again
        shard = f"the shard of clients {place.first} to {place.stop - 1} was lost {_MOST_LOSSES} times in a row"
        raise ShardLost(f"{shard} ({loss}): see the cluster's own log for the cause") from loss

    def _start(self, place: _Place) -> Any:
        """A new actor with the clients of a place, as they were at the snapshot."""
        clients, mine = self.clients, place.clients
        rounds = clients.state.rounds
        memory = None if clients.state.memory is None else clients.state.memory[mine]
        piece = SimulatedClients(
            clients.costs if isinstance(clients.costs, DrawnCosts) else clients.costs[mine],
            None if clients.weights is None else clients.weights[mine],
            clients.mechanism[mine],
            clients.averaging,
            SeededCoins(clients.coins.seed, clients.coins.first + place.first),
            ClientState(np.empty(0), 1.0, memory),
            clients.start,
        )
        lasted = rounds[mine] if isinstance(rounds, np.ndarray) else place.rounds
        return self._cluster.start(piece, clients.state.participations[mine], lasted)


def _cut(clients: int, shards: int) -> list[tuple[int, int]]:
    """(first, stop) of each shard: between chunks if there are many clients, else between blocks of coins.

    There are fewer shards than asked for where there are fewer blocks.

    Example:
        >>> _cut(clients=22, shards=3)
        [(0, 8), (8, 16), (16, 22)]
    """
    unit = CHUNK if clients >= _MEASURED_APART * shards * CHUNK else _BLOCK
    units = -(-clients // unit)
    edges = [min(clients, unit * (units * number // shards)) for number in range(shards + 1)]
    return [(first, stop) for first, stop in itertools.pairwise(edges) if first < stop]


def _share(place: _Place, method: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a command, cut to the clients of a place."""
    if method == "set_status":
        (status,) = arguments
        return (None if status is None else status[place.clients],)
    if method == "welcome":
        return tuple(place.some(clients) for clients in arguments)
    if method == "watch":
        return (_keep_of(place, *arguments),)
    return arguments


def _keep_of(place: _Place, keep: Keep) -> Keep:
    """What a shard has to measure."""
    reference = None if keep.distance_to is None else np.asarray(keep.distance_to)[place.clients]
    averages = keep.averages
    if averages is not None and not isinstance(averages, str):
        chosen = keep.chosen(int(np.max(averages, initial=0)) + 1)
        averages = chosen[_within(chosen, place)] - place.first
    return dataclasses.replace(keep, distance_to=reference, averages=averages)


def _within(chosen: npt.NDArray[np.int64], place: _Place) -> npt.NDArray[np.bool_]:
    return (chosen >= place.first) & (chosen < place.stop)


def _groups(places: Sequence[_Place], size: int) -> Iterator[Sequence[_Place]]:
    for first in range(0, len(places), size):
        yield places[first : first + size]


def _size(clients: SimulatedClients) -> Size:
    """The bytes that the clients take on a cluster."""
    fixed = (
        clients.weights,
        *_members(clients.costs),
        *_members(clients.state.memory),
        *clients.mechanism.parameters(),
    )
    drawn = 8 * len(clients.costs.powers) * len(clients) if isinstance(clients.costs, DrawnCosts) else 0
    return Size(len(clients), _bytes(fixed), 8 * len(clients) + _bytes([clients.state.rounds]), drawn)


def _members(costs: Any) -> Iterable[Any]:
    return getattr(costs, "__dict__", {}).values()


def _bytes(values: Iterable[Any]) -> int:
    """What the arrays among them take."""
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))
