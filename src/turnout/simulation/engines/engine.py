"""What an engine is, the options that choose one, and the memory that it may take."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from turnout.errors import invalid
from turnout.simulation.clients import Newcomers, SimulatedClients
from turnout.simulation.recording import Keep, Measures, measure
from turnout.simulation.schedule import Status
from turnout.simulation.server_log import ServerLog


class Engine(Protocol):
    """Moves clients through rounds. Every engine gives identical results."""

    name: str

    def set_status(self, status: Status | None) -> None:
        """Prepare for rounds in which each client has this status; None: all PRESENT."""
        ...

    def draw(self, round: int, signals: list[float]) -> list[int]:
        """Decide rounds `round`, `round + 1`, … by these signals; returns the total of each."""
        ...

    def advance(self, log: ServerLog, stop: int) -> None:
        """Run all rounds up to `stop` with the server in the loop."""
        ...

    def welcome(self, newcomers: Newcomers, here: Newcomers) -> int:
        """Start the history of newcomers; returns what those bring who participate at once."""
        ...

    def measure(self, keep: Keep, status: Status | None) -> Measures:
        """Measure the clients for a checkpoint."""
        ...

    def gather(self) -> None:
        """Bring the clients' histories into `clients.state`, from wherever the engine has them."""
        ...

    def close(self) -> None:
        """Give back what the engine holds: the run is over."""
        ...


class AtHome:
    """The part of an engine that moves `clients.state` itself, where its histories always are."""

    clients: SimulatedClients

    def welcome(self, newcomers: Newcomers, here: Newcomers) -> int:
        """Start the history of newcomers; returns what those bring who participate at once."""
        return self.clients.welcome(newcomers, here)

    def measure(self, keep: Keep, status: Status | None) -> Measures:
        """Measure the clients for a checkpoint."""
        return measure(keep, self.clients.costs, self.clients.state, status)

    def gather(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


def advance_by_passes(engine: Engine, log: ServerLog, stop: int, most: int | None = None) -> None:
    """Run rounds up to `stop`: each pass draws all rounds whose signal is known, lag + 1 of them (or `most`)."""
    while log.round < stop:
        for total in engine.draw(log.round, list(log.server.signals[: stop - log.round][:most])):
            log.close_round(total)


@dataclass(frozen=True)
class JaxOptions:
    """The JAX engine, on a GPU if there is one.

    Args:
        bits: 64 gives the very trajectory of every other engine; 32 is faster and takes half the memory, and is
            equal only statistically.
        devices: how many to share the clients among; None means all.

    Example:
        >>> JaxOptions(bits=32)
        JaxOptions(bits=32, devices=None)
    """

    bits: int = 64
    devices: int | None = None

    def __post_init__(self) -> None:
        if self.bits not in (32, 64):
            raise invalid("bits", "32 or 64", self.bits, "use 64 for the same trajectory as the other engines")
        if self.devices is not None and self.devices < 1:
            raise invalid("devices", "1 or more, or None for all", self.devices, "leave it out")


@dataclass(frozen=True)
class RayOptions:
    """The Ray engine: clients sharded over actors of a cluster.

    Args:
        shards: how many actors; None means one for each core of the cluster. It changes no result.
        snapshot_every: rounds between the snapshots from which a lost shard is made again.

    Example:
        >>> RayOptions(shards=3)
        RayOptions(shards=3, snapshot_every=500)
    """

    shards: int | None = None
    snapshot_every: int = 500

    def __post_init__(self) -> None:
        if self.shards is not None and self.shards < 1:
            raise invalid("shards", "1 or more, or None for one per core", self.shards, "leave it out")
        if self.snapshot_every < 1:
            raise invalid("snapshot_every", "1 or more rounds", self.snapshot_every, "try 500")


EngineChoice = str | JaxOptions | RayOptions
"""A name ("auto", "numpy", "numba", "jax", "jax32", "ray"), or options."""


def free_memory() -> int | None:
    """Bytes that this machine can still give; None where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def check_memory(what: str, needed: int, there: int | None, where: str, remedy: str) -> None:
    """Refuse what needs more bytes than there are.

    Example:
        >>> check_memory("10 clients", 3 * 2**30, 2**30, "on the device", "use fewer")
        Traceback (most recent call last):
        ...
        ValueError: 10 clients must be at most 1.0 GiB (what is free on the device), got 3.0 GiB: use fewer
    """
    if there is not None and needed > there:
        allowed = f"at most {there / 2**30:,.1f} GiB (what is free {where})"
        raise invalid(what, allowed, f"{needed / 2**30:,.1f} GiB", remedy)
