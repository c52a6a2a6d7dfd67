"""What a run records: what is asked for (`Keep`), measured at a checkpoint (`measure`), and collected (`Recorder`).

Sums are made by chunk in a fixed order, so that every engine records the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import ClientState, average_of
from turnout.errors import invalid
from turnout.problem import Array, Costs
from turnout.settings import Table
from turnout.simulation.schedule import ABSENT, Status


@dataclass(frozen=True, eq=False)
class Keep:
    """What to record. Signal and turnout are kept for every round, whatever is said here.

    Args:
        every: rounds between checkpoints, at which the rest is recorded (and at the last round).
        cost: the total cost of the clients' averages.
        distance_to: reference averages, shape (clients,): keeps the mean and the largest distance to them.
        histogram: number of equal bins over [0, 1] in which the clients' averages are counted; 0: none.
        averages: "all", or the clients whose averages are kept; None: nobody's.
        state: the final state (and the problem), so that the run can be continued.
        limit: the most bytes that the record may take.

    Example:
        >>> Keep(every=1000, averages="all").size(rounds=10_000, clients=10**9)
        96000240192
    """

    every: int = 100
    cost: bool = True
    distance_to: Array | None = None
    histogram: int = 0
    averages: Any = None
    state: bool = True
    limit: int = 2 * 2**30

    def __post_init__(self) -> None:
        if self.every < 1:
            raise invalid("keep.every", "1 or more rounds", self.every, "use 1 to record every round")
        if self.histogram < 0:
            raise invalid("keep.histogram", "0 (none) or a number of bins", self.histogram, "try 20")
        if isinstance(self.averages, slice):
            if self.averages.stop is None:
                raise invalid("keep.averages", "a slice with an end", self.averages, "use 'all', or name the end")
            object.__setattr__(self, "averages", list(range(*self.averages.indices(self.averages.stop))))
        if isinstance(self.averages, str) and self.averages != "all":
            raise invalid("keep.averages", "'all' or a list of clients", f"{self.averages!r}", "use 'all'")

    def __repr__(self) -> str:
        kept = [name for name in ("cost", "state") if getattr(self, name)]
        kept += ["distance"] if self.distance_to is not None else []
        kept += [f"{self.histogram} bins"] if self.histogram else []
        if self.averages is not None:
            kept.append("averages of all" if isinstance(self.averages, str) else f"{len(self.averages)} averages")
        return f"Keep(every={self.every}: {', '.join(kept) or 'signal and turnout alone'})"

    def chosen(self, clients: int) -> npt.NDArray[np.int64]:
        """The clients whose averages are kept."""
        if self.averages is None:
            return np.empty(0, np.int64)
        if isinstance(self.averages, str):
            return np.arange(clients)
        chosen = np.asarray(self.averages)
        good = chosen.ndim == 1 and chosen.dtype.kind in "iu" and np.all((chosen >= 0) & (chosen < clients))
        if not good:
            raise invalid("keep.averages", f"clients from 0 to {clients - 1}", self.averages, "name such clients")
        return chosen.astype(np.int64)

    def size(self, rounds: int, clients: int) -> int:
        """The bytes that the record takes, about; the clients' own state comes on top."""
        checkpoints = rounds // self.every + 2
        numbers = 1 + self.cost + 2 * (self.distance_to is not None) + self.histogram
        return 24 * rounds + 8 * checkpoints * (numbers + _len_of(self.averages, clients))

    def check(self, rounds: int, clients: int) -> None:
        """Refuse a record that would not fit, before anything runs."""
        self.chosen(clients)
        if self.distance_to is not None and np.shape(self.distance_to) != (clients,):
            raise invalid(
                "keep.distance_to", f"of shape ({clients},)", np.shape(self.distance_to), "give one per client"
            )
        size = self.size(rounds, clients)
        if size > self.limit:
            raise invalid(
                "keep",
                f"at most {self.limit / 2**20:,.0f} MiB",
                f"{size / 2**20:,.0f} MiB for {rounds} rounds of {clients} clients",
                "keep fewer averages, raise keep.every, or raise keep.limit",
            )

    def settings(self) -> dict[str, Any]:
        """Everything but arrays, as `keep_from_settings` takes it."""
        averages = self.averages
        if averages is not None and not isinstance(averages, str):
            averages = np.asarray(averages).tolist()
        found: dict[str, Any] = {
            "every": self.every,
            "cost": self.cost,
            "histogram": self.histogram,
            "state": self.state,
        }
        return found | {"limit": self.limit} | ({} if averages is None else {"averages": averages})


def _len_of(averages: Any, clients: int) -> int:
    """How many averages are kept at a checkpoint."""
    if averages is None:
        return 0
    return clients if isinstance(averages, str) else int(np.size(averages))


def keep_from_settings(table: Table, distance_to: Array | None = None) -> Keep:
    """What to keep, from its table."""
    usual = Keep()
    averages = table.take("averages", (str, list), "'all' or a list of clients", None)
    keep = Keep(
        every=table.whole("every", usual.every),
        cost=table.flag("cost", usual.cost),
        distance_to=distance_to,
        histogram=table.whole("histogram", usual.histogram),
        averages=averages,
        state=table.flag("state", usual.state),
        limit=table.whole("limit", usual.limit),
    )
    table.finish()
    return keep


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


def _averages(state: ClientState, who: Any) -> Array:
    lasted = state.rounds[who] if isinstance(state.rounds, np.ndarray) else state.rounds
    return average_of(state.participations[who], lasted)  # type: ignore[no-any-return]


def _added(values: list[float]) -> float:
    """Their sum, one after the other: `sum` itself adds otherwise from Python 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total


@dataclass
class Recorder:
    """Collects checkpoints during a run."""

    keep: Keep
    rounds: list[int] = field(default_factory=list)
    rows: dict[str, list[Any]] = field(default_factory=dict)

    def is_due(self, round: int) -> bool:
        """Whether the state after this round is recorded."""
        return round % self.keep.every == 0

    def next_due(self, round: int) -> int:
        """The first round from this one on that is recorded."""
        return -(-round // self.keep.every) * self.keep.every

    def note(self, round: int, measured: Callable[[], Measures], *, last: bool = False) -> None:
        """Record the state after a round, if it is due or the last, and not recorded yet.

        Args:
            round: the round.
            measured: measures the clients as they are; called only if the round is recorded.
            last: whether the run ends here.
        """
        if round >= 0 and (last or self.is_due(round)) and (not self.rounds or self.rounds[-1] < round):
            row = measured().row()
            self.rounds.append(round)
            for name, value in row.items():
                self.rows.setdefault(name, []).append(value)

    def columns(self) -> dict[str, npt.NDArray[Any] | None]:
        """The record as arrays, None for what was not asked for."""
        keep = self.keep
        asked = {
            "cost": keep.cost,
            "mean_distance": keep.distance_to is not None,
            "largest_distance": keep.distance_to is not None,
            "histogram": keep.histogram > 0,
            "averages": keep.averages is not None,
        }
        return {name: np.array(self.rows.get(name, [])) if wanted else None for name, wanted in asked.items()}

    def resume(self, rounds: npt.NDArray[np.int64], columns: dict[str, npt.NDArray[Any] | None]) -> None:
        """Take over an earlier record; a last checkpoint that an unbroken run would not have is dropped."""
        usual = [self.is_due(int(round)) for round in rounds]
        self.rounds = [int(round) for round in rounds[usual]]
        for name, values in columns.items():
            self.rows[name] = [None] * len(self.rounds) if values is None else list(values[usual])
