"""What a simulation records, and how often: a billion clients must not need ten trillion numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.errors import invalid
from turnout.problem.costs import Array
from turnout.settings import Table


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
        return 24 * rounds + 8 * checkpoints * (numbers + len_of(self.averages, clients))

    def check(self, rounds: int, clients: int) -> None:
        """Refuse a record that would not fit, before anything runs."""
        self.chosen(clients)
        if self.distance_to is not None and np.shape(self.distance_to) != (clients,):
            raise invalid("keep.distance_to", f"of shape ({clients},)", np.shape(self.distance_to), "one a client")
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


def len_of(averages: Any, clients: int) -> int:
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
