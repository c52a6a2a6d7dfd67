"""Who is there, and what is needed, as the rounds go by."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from turnout.errors import invalid
from turnout.problem import Problem
from turnout.settings import Table

Status = npt.NDArray[np.uint8]

ABSENT, PRESENT, AWAY = 0, 1, 2
"""Not a member (no history moves); a member that decides; a member that cannot participate, and
counts the round as not participating."""


class Span(NamedTuple):
    """Rounds in which nothing changes.

    Attributes:
        first: the first round.
        stop: the round after the last.
        status: ABSENT, PRESENT or AWAY for each client, shape (clients,); None: all PRESENT.
        newcomers: clients whose first round this is (then the span is one round long); a range where it is all.
        capacity: what is needed in each round.
    """

    first: int
    stop: int
    status: Status | None
    newcomers: npt.NDArray[np.int64] | range
    capacity: float


@dataclass(frozen=True)
class Schedule:
    """Clients that join, leave or are away, and a capacity that changes.

    Clients are given as anything that indexes an array: a slice, a list, a mask.

    Args:
        join: round -> clients that start their history then; all others start at round 0.
            A client that left and joins again starts from the beginning.
        leave: round -> clients that are members no longer.
        away: (first, stop, clients): members that cannot participate from round first until before
            stop; they count these rounds as not participating.
        capacity: round -> the capacity from then on.

    Paper: Section III-B, "when a client joins the network at time step k, it receives the public signal".

    Example:
        >>> Schedule(leave={500: slice(0, 600)}, capacity={500: 300}).change_rounds()
        [500]
    """

    join: Mapping[int, Any] = field(default_factory=dict)
    leave: Mapping[int, Any] = field(default_factory=dict)
    away: Sequence[tuple[int, int, Any]] = ()
    capacity: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("join", "leave", "capacity"):
            for when in getattr(self, name):
                if when < 0:
                    raise invalid(f"schedule.{name}", "at round 0 or later", when, "count rounds from 0")
        for first, stop, _ in self.away:
            if not 0 <= first < stop:
                allowed, remedy = (
                    "(first, stop, clients) with 0 <= first < stop",
                    "count rounds from 0, first before stop",
                )
                raise invalid("schedule.away", allowed, (first, stop), remedy)

    def __repr__(self) -> str:
        told = [f"{name} at {when}" for name in ("join", "leave") for when in sorted(getattr(self, name))]
        told += [f"away from {first} to {stop}" for first, stop, _ in self.away]
        told += [f"capacity {self.capacity[when]:g} from {when}" for when in sorted(self.capacity)]
        more = f", {len(told) - 6} more" if len(told) > 6 else ""
        return f"Schedule({', '.join(told[:6]) or 'no change'}{more})"

    def check(self, clients: int) -> None:
        """Refuse clients that do not exist, and changes that concern nobody."""
        groups = [*self.join.values(), *self.leave.values(), *(who for _, _, who in self.away)]
        for who in groups:
            over = isinstance(who, slice) and (who.stop or 0) > clients
            try:
                over = over or np.arange(clients)[who].size == 0
            except IndexError:
                over = True
            over = over or (not isinstance(who, slice) and np.min(who, initial=0) < 0)
            if over:
                raise invalid("schedule clients", f"some of 0 to {clients - 1}", who, "name clients that exist")
        if not self.has_movement:
            return
        status = self._at_first(clients)
        for when, becomes, who in self._moves():
            if becomes == PRESENT and when > 0 and np.any(status[who] == PRESENT):
                raise invalid("schedule.join", "of clients that are not there", f"round {when}", "let them leave first")
            status[who] = becomes

    @property
    def has_movement(self) -> bool:
        """Whether clients ever join late or leave, so that histories have different lengths."""
        return bool(self.join or self.leave)

    def change_rounds(self) -> list[int]:
        """The rounds at which something changes."""
        away = {when for first, stop, _ in self.away for when in (first, stop)}
        return sorted(set(self.join) | set(self.leave) | set(self.capacity) | away)

    def fewest(self, rounds: int, clients: int) -> int:
        """How many are there, and not away, in the round in which the fewest are; a cautious count, from the changes.

        Example:
            >>> Schedule(leave={5: slice(0, 3)}).fewest(rounds=10, clients=8)
            5
        """
        if not (self.has_movement or self.away):
            return clients
        whens = [0, *(when for when in self.change_rounds() if when < rounds)]
        return min(int(np.sum(self.status_at(when, clients) == PRESENT)) for when in whens)

    def capacity_at(self, round: int, otherwise: float) -> float:
        """The capacity in a round; `otherwise` before the first change."""
        changes = [when for when in self.capacity if when <= round]
        return float(self.capacity[max(changes)]) if changes else otherwise

    def status_at(self, round: int, clients: int) -> Status:
        """ABSENT, PRESENT or AWAY for each client in a round, shape (clients,)."""
        status = self._at_first(clients)
        for when, becomes, who in self._moves():
            if when <= round:
                status[who] = becomes
        for first, stop, who in self.away:
            if first <= round < stop:
                away = np.zeros(clients, dtype=bool)
                away[who] = True
                status[away & (status == PRESENT)] = AWAY
        return status

    def _moves(self) -> list[tuple[int, int, Any]]:
        """(round, ABSENT or PRESENT, clients) in order; in one round, leaving comes before joining."""
        moves = [(when, PRESENT, who) for when, who in self.join.items()]
        moves += [(when, ABSENT, who) for when, who in self.leave.items()]
        return sorted(moves, key=lambda move: (move[0], move[1]))

    def _at_first(self, clients: int) -> Status:
        """Everyone is there before round 0, but those whose first move is to join later."""
        status, moved = np.full(clients, PRESENT, dtype=np.uint8), np.zeros(clients, dtype=bool)
        for when, becomes, who in self._moves():
            first = np.zeros(clients, dtype=bool)
            first[who] = True
            first &= ~moved
            moved |= first
            if becomes == PRESENT and when > 0:
                status[first] = ABSENT
        return status

    def problem_at(self, round: int, problem: Problem) -> Problem:
        """The problem as it stands in a round: its members, and the capacity then."""
        members = self.status_at(round, len(problem)) != ABSENT
        capacity = self.capacity_at(round, problem.capacity)
        if members.all():
            return Problem(problem.costs, capacity, problem.weights)
        weights = None if problem.weights is None else problem.weights[members]
        return Problem(problem.costs[members], capacity, weights)

    def newcomers_at(self, round: int, clients: int) -> npt.NDArray[np.int64]:
        """The clients whose history starts in a round."""
        if round == 0:
            return np.flatnonzero(self.status_at(0, clients) != ABSENT)
        new = np.zeros(clients, dtype=bool)
        if round in self.join:
            new[self.join[round]] = True
        return np.flatnonzero(new)

    def spans(self, first: int, stop: int, clients: int, capacity: float) -> list[Span]:
        """Rounds first to stop, cut wherever something changes."""
        nobody = np.empty(0, dtype=np.int64)
        starts = {0, *self.join}
        edges = {first, *self.change_rounds(), *starts, *(when + 1 for when in starts)}
        cuts = [*sorted(edge for edge in edges if first <= edge < stop), stop]
        spans = []
        for begin, end in itertools.pairwise(cuts):
            newcomers: npt.NDArray[np.int64] | range
            if not (self.has_movement or self.away):  # nothing by client, however many there are
                newcomers = range(clients) if begin == 0 else nobody
                spans.append(Span(begin, end, None, newcomers, self.capacity_at(begin, capacity)))
                continue
            status = self.status_at(begin, clients)
            newcomers = self.newcomers_at(begin, clients) if begin in starts else nobody
            everyone = None if np.all(status == PRESENT) else status
            spans.append(Span(begin, end, everyone, newcomers, self.capacity_at(begin, capacity)))
        return spans

    def settings(self, clients: int) -> dict[str, Any]:
        """This schedule as `schedule_from_settings` takes it, clients as ranges."""

        def ranges(who: Any) -> list[list[int]]:
            chosen = np.unique(np.arange(clients)[who])
            breaks = np.flatnonzero(np.diff(chosen) != 1) + 1
            return [[int(run[0]), int(run[-1]) + 1] for run in np.split(chosen, breaks)]

        return {
            "join": [{"round": when, "clients": ranges(who)} for when, who in self.join.items()],
            "leave": [{"round": when, "clients": ranges(who)} for when, who in self.leave.items()],
            "away": [{"rounds": [first, stop], "clients": ranges(who)} for first, stop, who in self.away],
            "capacity": [{"round": when, "capacity": value} for when, value in self.capacity.items()],
        }


def schedule_from_settings(table: Table) -> Schedule:
    """A schedule from its table; clients are ranges, [first, stop] or a list of such::

    [schedule]
    join     = [{ round = 500, clients = [600, 1200] }]
    leave    = [{ round = 900, clients = [[0, 100], [300, 400]] }]
    away     = [{ rounds = [100, 200], clients = [0, 300] }]
    capacity = [{ round = 1000, capacity = 400 }]
    """
    moves: dict[str, dict[int, Any]] = {"join": {}, "leave": {}}
    for name, found in moves.items():
        for entry in table.tables(name, []):
            when = _once(entry, found)
            found[when] = _clients(entry)
            entry.finish()
    away = []
    for entry in table.tables("away", []):
        first, stop = _range(entry.path("rounds"), entry.sequence("rounds"))
        away.append((first, stop, _clients(entry)))
        entry.finish()
    capacity: dict[int, float] = {}
    for entry in table.tables("capacity", []):
        when = _once(entry, capacity)
        capacity[when] = entry.number("capacity")
        entry.finish()
    table.finish()
    return Schedule(moves["join"], moves["leave"], tuple(away), capacity)


def _once(entry: Table, found: Mapping[int, Any]) -> int:
    when = entry.whole("round")
    if when in found:
        raise invalid(entry.path("round"), "named once", when, "put all changes of that round into one entry")
    return when


def _clients(entry: Table) -> npt.NDArray[np.int64]:
    values = entry.sequence("clients")
    ranges = values if values and isinstance(values[0], list) else [values]
    return np.concatenate([np.arange(*_range(entry.path("clients"), one)) for one in ranges])


def _range(name: str, values: list[Any]) -> tuple[int, int]:
    whole = isinstance(values, list) and len(values) == 2 and all(type(value) is int for value in values)
    if not whole or not 0 <= values[0] < values[1] <= 2**40:
        raise invalid(name, "[first, stop] with 0 <= first < stop", values, "stop is not included")
    return values[0], values[1]
