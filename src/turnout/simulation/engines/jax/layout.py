"""Clients in lanes on devices: cut into families and pieces, put there, filled there, drawn there, and taken back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from turnout.problem import POPULATION, DrawnCosts, PolynomialCosts, Term, coefficient
from turnout.simulation.engines.jax.kernel import LANES, Lanes, words
from turnout.simulation.engines.jax.loop import AXIS

_LARGEST = 1 << 32
"""Clients in one piece at most: a lane then has 2^30, and an array may have 2^31."""

_MOST_FAMILIES = 16
"""Beyond this many runs of clients with the same terms, all clients are taken to have all of them."""


class Piece(NamedTuple):
    """Neighbouring clients that are kept and compiled together.

    Attributes:
        first, stop: which clients.
        terms: which of the costs' terms they have.
        drawn: how these are drawn, where they are.
    """

    first: int
    stop: int
    terms: tuple[int, ...]
    drawn: tuple[Term, ...] | None = None

    @property
    def blocks(self) -> int:
        """Blocks of four that hold these clients."""
        return -(-self.stop // LANES) - self.first // LANES


def pieces_of(costs: PolynomialCosts | DrawnCosts, *, one: bool = False) -> list[Piece]:
    """The clients, cut where their terms change (never, if `one`), and into pieces that an index can count.

    Example:
        >>> pieces_of(PolynomialCosts([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]], powers=(2, 4)))
        [Piece(first=0, stop=2, terms=(0,), drawn=None), Piece(first=2, stop=3, terms=(1,), drawn=None)]
    """
    if isinstance(costs, DrawnCosts):
        runs = [
            Piece(f.first, f.stop, tuple(costs.powers.index(t.power) for t in f.terms), f.terms) for f in costs.families
        ]
    else:
        present = np.array([np.any(row != 0.0) for row in costs.terms])
        edges: list[int] = [0, len(costs)]
        if not one:
            changes = np.zeros(len(costs) - 1, dtype=bool)
            for row in costs.terms:
                changes |= (row[1:] != 0.0) != (row[:-1] != 0.0)
            found = np.flatnonzero(changes) + 1
            edges = [0, *found.tolist(), len(costs)] if len(found) < _MOST_FAMILIES else edges
        runs = []
        for first, stop in itertools.pairwise(edges):
            have = present if len(edges) == 2 else costs.terms[:, first] != 0.0
            runs.append(Piece(first, stop, tuple(np.flatnonzero(have).tolist())))
    return [
        piece._replace(first=first, stop=min(first + _LARGEST, piece.stop))
        for piece in runs
        for first in range(piece.first, piece.stop, _LARGEST)
    ]


class Devices:
    """Where lanes are kept: one device, or several that share each of them.

    Args:
        devices: one or more.
        unit: blocks on each device are a multiple of this.
    """

    def __init__(self, devices: Sequence[Any], unit: int = 1) -> None:
        self.devices = list(devices)
        self.unit = unit * len(self.devices)
        self.mesh = Mesh(np.array(self.devices), (AXIS,)) if len(self.devices) > 1 else None
        self.sharding: Any = jax.sharding.SingleDeviceSharding(self.devices[0])
        if self.mesh is not None:
            self.sharding = NamedSharding(self.mesh, PartitionSpec(AXIS))  # type: ignore[no-untyped-call]

    def size(self, piece: Piece) -> int:
        """Blocks that a piece takes, the padding included."""
        return -(-piece.blocks // self.unit) * self.unit

    def put(self, piece: Piece, values: npt.NDArray[Any], kind: Any) -> Lanes:
        """Send these clients' values."""
        padded = np.ones(LANES * self.size(piece), dtype=kind)
        begin = piece.first % LANES
        padded[begin : begin + piece.stop - piece.first] = values
        return tuple(jax.device_put(np.ascontiguousarray(padded[lane::LANES]), self.sharding) for lane in range(LANES))

    def fill(self, piece: Piece, value: float, kind: Any) -> Lanes:
        """The same value for all of them, made on the device."""
        make = _filler(self.size(piece), np.dtype(kind), self.sharding)
        return tuple(make(value) for _ in range(LANES))

    def draw(self, piece: Piece, term: Term, key: tuple[int, int], kind: Any) -> Lanes:
        """One coefficient of drawn costs, made on the device with the bits that it has on the host."""
        make = _drawer(self.size(piece), np.dtype(kind), self.sharding)
        words_of_key = tuple(jnp.uint32(word) for word in key)
        # The divisor is an argument: a compiler would multiply by the reciprocal of a constant.
        return make(jnp.uint64(piece.first // LANES), term.draw, words_of_key, term.scale, term.divisor)  # type: ignore[no-any-return]

    def take(self, piece: Piece, lanes: Lanes, out: npt.NDArray[Any]) -> None:
        """Bring these clients' values back, into their places in `out`."""
        for number, lane in enumerate(lanes):
            begin = (number - piece.first) % LANES  # the lane's first client, counted from the piece's first
            mine = out[piece.first + begin : piece.stop : LANES]
            skip = (piece.first + begin) // LANES - piece.first // LANES
            mine[:] = np.asarray(lane)[skip : skip + len(mine)]

    def bounds(self, piece: Piece) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """(low, high) by lane: the blocks of the piece that hold clients of it; once, if alike in all lanes."""
        start = piece.first // LANES
        alike = piece.first % LANES == 0 and piece.stop % LANES == 0
        ends = [
            tuple(np.uint32(-(-(client - lane) // LANES) - start) for lane in range(1 if alike else LANES))
            for client in (piece.first, piece.stop)
        ]
        return ends[0], ends[1]


@lru_cache(maxsize=64)
def _filler(size: int, kind: Any, sharding: Any) -> Any:
    return jax.jit(lambda value: jnp.full(size, value, kind), out_shardings=sharding)


@lru_cache(maxsize=64)
def _drawer(size: int, kind: Any, sharding: Any) -> Any:
    def make(block: Any, turn: Any, key: Any, scale: Any, divisor: Any) -> Lanes:
        drawn = words(block + jax.lax.iota(jnp.uint64, size), turn, key, POPULATION)
        return tuple(coefficient(word.astype(jnp.float64), scale, divisor).astype(kind) for word in drawn)

    return jax.jit(make, out_shardings=(sharding,) * LANES)
