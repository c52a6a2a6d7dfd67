"""What a checkpoint measures, in parts that can be made on different machines and put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm.client import ClientState, average_of
from turnout.problem.costs import Array, Costs
from turnout.simulation.keep import Keep
from turnout.simulation.schedule import ABSENT, Status

CHUNK = 1 << 16
"""Clients measured together; fixed, so that sums have the same bits everywhere."""


@dataclass(frozen=True, eq=False)
class Measures:
    """Some clients measured: sums by chunk, because the order of additions changes the last bits.

    Attributes:
        members: how many clients count.
        cost: the members' total cost, by chunk.
        distance: the sum of their distances to the reference, by chunk.
        largest_distance: the largest of them.
        histogram: members by average, shape (bins,).
        averages: of the chosen clients, in the order they were chosen.
    """

    members: int
    cost: list[float]
    distance: list[float]
    largest_distance: float
    histogram: npt.NDArray[np.int64]
    averages: Array

    def row(self) -> dict[str, Any]:
        """The checkpoint's record, by name of the column; chunks are added from the first to the last."""
        return {
            "cost": _added(self.cost),
            "mean_distance": _added(self.distance) / max(self.members, 1),
            "largest_distance": self.largest_distance,
            "histogram": self.histogram,
            "averages": self.averages,
        }


def measure(keep: Keep, costs: Costs, state: ClientState, status: Status | None) -> Measures:
    """Measure clients, chunk by chunk, in little memory.

    Args:
        keep: what is wanted; its reference and its chosen clients are those of these clients.
        costs: the clients' own, whatever they act on.
        state: their histories.
        status: ABSENT, PRESENT or AWAY for each, shape (clients,); None: all PRESENT.
    """
    members, largest = 0, 0.0
    cost: list[float] = []
    distances: list[float] = []
    counts = np.zeros(keep.histogram, np.int64)
    for first in range(0, len(costs), CHUNK):
        part = slice(first, first + CHUNK)
        average = _averages(state, part)
        here = slice(None) if status is None else status[part] != ABSENT
        members += len(average[here])
        if keep.cost:
            cost.append(float(np.sum(costs[part].value(average)[here])))
        if keep.distance_to is not None:
            distance = np.abs(average - keep.distance_to[part])[here]
            distances.append(float(np.sum(distance)))
            largest = max(largest, float(np.max(distance, initial=0.0)))
        if keep.histogram:
            counts += np.histogram(average[here], keep.histogram, (0.0, 1.0))[0]
    return Measures(members, cost, distances, largest, counts, _averages(state, keep.chosen(len(costs))))


def together(parts: Iterable[Measures], averages: Array) -> Measures:
    """The measures of all clients from those of shards, in order, each of whole chunks (but the last).

    Args:
        parts: the shards' measures.
        averages: of the chosen clients of all shards, in the order they were chosen.
    """
    parts = list(parts)
    return Measures(
        members=sum(part.members for part in parts),
        cost=[value for part in parts for value in part.cost],
        distance=[value for part in parts for value in part.distance],
        largest_distance=max(part.largest_distance for part in parts),
        histogram=np.sum([part.histogram for part in parts], axis=0, dtype=np.int64),
        averages=averages,
    )


def _added(values: list[float]) -> float:
    """Their sum, one after the other: `sum` itself adds otherwise from Python 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total


def _averages(state: ClientState, who: Any) -> Array:
    lasted = state.rounds[who] if isinstance(state.rounds, np.ndarray) else state.rounds
    return average_of(state.participations[who], lasted)  # type: ignore[no-any-return]
