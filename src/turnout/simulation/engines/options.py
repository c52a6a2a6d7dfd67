"""How an engine is asked for: by its name, or with options where the usual ones do not suit."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.errors import invalid


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
            raise invalid("shards", "1 or more, or None for one a core", self.shards, "leave it out")
        if self.snapshot_every < 1:
            raise invalid("snapshot_every", "1 or more rounds", self.snapshot_every, "try 500")


EngineChoice = str | JaxOptions | RayOptions
"""A name ("auto", "numpy", "numba", "jax", "jax32", "ray"), or options."""
