"""A Ray cluster as the engine sees it: joined or started, its room, and actors that may be lost."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from typing import Any, NamedTuple, Protocol

from turnout.errors import MissingExtra, TurnoutError, invalid
from turnout.problem import Array
from turnout.simulation.clients import SimulatedClients
from turnout.simulation.engines.ray.shard import Shard
from turnout.simulation.workers import RAY_REMEDY, silent_cluster

_ANSWER_SECONDS = 60.0
"""Seconds without any shard finding its place after which a start is given up, for few clients."""

_SLOWEST = 1e5
"""Clients a second that a shard takes up at the least; gives large shards more time."""

_GRACE = 3.0
"""Seconds in which a cluster notices that an actor is gone and its core free."""

_PASSING = 17
"""Bytes per client that a shard needs for a moment, above the histories: who is there, and who is new."""

_SLACK = 2**28
"""Bytes of the object store of a cluster started here beyond what the clients need."""


class Lost(Exception):
    """An actor, or the node that it was on, is gone."""


class ShardLost(TurnoutError):
    """A part of the clients was lost, and could not be made again.

    Example:
        >>> issubclass(ShardLost, TurnoutError)
        True
    """


class _ClusterTrouble(TurnoutError):
    """A cluster cannot be reached, or does not give what it has.

    Example:
        >>> issubclass(_ClusterTrouble, TurnoutError)
        True
    """


class Size(NamedTuple):
    """What clients take, in bytes.

    Attributes:
        clients: their number.
        population: what never changes (costs, weights, parameters): in the cluster's object store.
        histories: what moves: in the actors' own memory, and once more on the driver, as the snapshot.
        drawn: costs that are never stored elsewhere, and made by each actor for its own clients.
    """

    clients: int
    population: int
    histories: int
    drawn: int = 0

    @property
    def working(self) -> int:
        """What the actors need of their own: histories, a copy of them for a snapshot, and what passes."""
        return 2 * self.histories + 2 * self.drawn + _PASSING * self.clients


class Cluster(Protocol):
    """Where shards are started and asked; any of them may be lost at any time."""

    cores: int
    where: str

    def check_fits(self, shards: int, size: Size) -> None:
        """Refuse what does not fit, before anything is sent."""
        ...

    def start(self, clients: SimulatedClients, participations: Array, rounds: Array | float) -> Any:
        """A handle of a new `Shard`; does not wait for it."""
        ...

    def await_start(self, handles: list[Any]) -> None:
        """Wait until shards are there; one that is lost is none of its business."""
        ...

    def ask(self, handle: Any, method: str, *arguments: Any) -> Any:
        """Call a method of a shard; returns a promise at once."""
        ...

    def answer(self, promise: Any) -> Any:
        """What the method gave; raises `Lost` if the shard is gone."""
        ...

    def stop(self, handle: Any) -> None:
        """End a shard, if it is there."""
        ...

    def leave(self) -> None:
        """The run is over."""
        ...


class RayCluster:
    """The Ray cluster that this process is connected to, or the one that is found, or a new local one.

    Found by Ray's own rules: the environment variable RAY_ADDRESS, else a cluster that `ray start` started on this
    machine. One that was started here is stopped by `leave`.

    Args:
        size: of the clients that it is for; a local cluster's object store is made to fit.

    Attributes:
        cores: that are free.
        where: which cluster it is, in words.
    """

    def __init__(self, size: Size) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtra("engine='ray'", library="ray", extra="cluster") from None
        self._ray: Any = ray
        self._shard = self._ray.remote(Shard)
        causes = self._ray.exceptions
        self._lost = (causes.RayActorError, causes.ObjectLostError, causes.NodeDiedError, causes.OutOfMemoryError)
        how = _enter(size)
        self._left = False
        self._memory, self._patience = 0, _ANSWER_SECONDS
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        self._nodes = f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}"
        self.cores = max(1, int(self._free("CPU")))
        self.where = f"a Ray cluster of {self._nodes}, {how}"

    def check_fits(self, shards: int, size: Size) -> None:
        """Refuse what does not fit, before anything is sent.

        Raises:
            ValueError: names what is needed, and what is there.
        """
        cores = self._free("CPU", shards)
        if shards > cores:
            got = f"{shards} shards and {cores:g} free cores on {self._nodes}"
            raise invalid("cluster", "of one free core a shard", got, "ask for fewer shards, or add nodes")
        for resource, need, what in (
            ("object_store_memory", size.population, "object store, for costs and weights"),
            ("memory", size.working, "memory, for histories"),
        ):
            there = self._free(resource, need)
            if need > there:
                raise invalid(
                    "cluster",
                    f"of {need / 2**30:,.1f} GiB of {what} of {size.clients:,} clients",
                    f"{there / 2**30:,.1f} GiB free on {self._nodes}",
                    "add nodes, simulate fewer clients, or start the cluster with more of it",
                )
        self._memory = -(-size.working // shards)
        self._patience = _ANSWER_SECONDS + size.clients / shards / _SLOWEST

    def start(self, clients: SimulatedClients, participations: Array, rounds: Array | float) -> Any:
        """A new actor, on a core of its own while there is one; where a lost node leaves none, cores are shared."""
        core = 1 if self._free("CPU", 1) >= 1 else 0
        placed = self._shard.options(
            num_cpus=core, memory=self._memory if core else 0, max_restarts=0, scheduling_strategy="SPREAD"
        )
        # Put apart: the population stays in the shared store, where the actor reads it; the histories are copied.
        return placed.remote(self._ray.put(clients), self._ray.put(participations), rounds)

    def await_start(self, handles: list[Any]) -> None:
        """Wait until all actors have their clients.

        Raises:
            TurnoutError: some find no place.
        """
        waiting = [handle.engine.remote() for handle in handles]
        while waiting:
            done, waiting = self._ray.wait(waiting, timeout=self._patience)
            if not done:
                raise _ClusterTrouble(
                    f"{len(waiting)} of {len(handles)} shards found no place within {self._patience:.0f} s: "
                    "ask for fewer shards, or see `ray status` for who holds the cluster's cores and memory"
                )

    def ask(self, handle: Any, method: str, *arguments: Any) -> Any:
        """Call a method of a shard; returns a promise at once."""
        return getattr(handle, method).remote(*arguments)

    def answer(self, promise: Any) -> Any:
        """What the method gave; raises `Lost` if the shard is gone."""
        try:
            return self._ray.get(promise)
        except self._lost as error:
            raise Lost(str(error)) from error

    def stop(self, handle: Any) -> None:
        """End an actor, if it is there."""
        if handle is not None and self._ray.is_initialized():
            with contextlib.suppress(Exception):  # it may be gone already
                self._ray.kill(handle)

    def leave(self) -> None:
        """Stop the cluster if it was started here; else see that the next run finds its cores free."""
        if not self._left and not _leave() and self._ray.is_initialized():
            self._free("CPU", self.cores)
        self._left = True

    def _free(self, resource: str, wanted: float = 0.0) -> float:
        """What is free; if too little, then some moments later: a cluster notices late what was given back."""
        until = time.monotonic() + _GRACE
        while True:
            there = float(self._ray.available_resources().get(resource, 0.0))
            whole = float(self._ray.cluster_resources().get(resource, 0.0))
            if there >= min(wanted, whole) or time.monotonic() > until:
                return there
            time.sleep(0.05)


_door = threading.Lock()
_inside = {"runs": 0, "started here": 0}  # runs of this process on its cluster; whether that was started by one


def _enter(size: Size) -> str:
    """Be connected to a cluster, for one more run; returns how, in words."""
    with _door:
        how = _connect(size)
        _inside["runs"] += 1
        _inside["started here"] |= how == "started here"
        return how


def _leave() -> bool:
    """One run less; the last stops the cluster if it was started here, and is told so."""
    import ray

    with _door:
        _inside["runs"] -= 1
        if _inside["runs"] or not _inside["started here"]:
            return False
        _inside["started here"] = 0
        ray.shutdown()
        return True


def _connect(size: Size) -> str:
    """Be connected to a cluster; returns how, in words."""
    import ray

    if ray.is_initialized():
        return "already connected"
    address = os.environ.get("RAY_ADDRESS", "")
    silent = "" if address == "local" else silent_cluster()
    if silent and address:
        raise _ClusterTrouble(f"no Ray cluster answers at {silent}: {RAY_REMEDY}")
    if address != "local" and not silent:
        try:
            ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
            return "found running"
        except (ConnectionError, RuntimeError) as error:
            if address:
                raise _ClusterTrouble(
                    f"the cluster at RAY_ADDRESS={address} cannot be reached ({error}): {RAY_REMEDY}"
                ) from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=int(1.1 * size.population) + 2 * size.histories + _SLACK,
    )
    return "started here"
