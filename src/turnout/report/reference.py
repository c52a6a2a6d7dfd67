"""What a run is measured against: the exact optimum, as capacity and members change."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnout.problem.optimum import Optimum, optimum
from turnout.problem.problem import Problem
from turnout.settings import Table
from turnout.simulation.schedule import ABSENT, Schedule, schedule_from_settings
from turnout.simulation.trajectory import Trajectory

MOST_STRETCHES = 24
"""With more changes than this, only the last stretch is solved: an optimum of a million clients takes seconds."""


@dataclass(frozen=True, eq=False)
class Stretch:
    """Rounds in which the same clients are members and the same capacity is needed.

    Attributes:
        first: the first round.
        stop: the round after the last.
        capacity: what is needed in each round.
        members: the clients that belong, shape (clients,).
        best: their optimum; None where the file does not hold the problem, or it has no solution.
    """

    first: int
    stop: int
    capacity: float
    members: npt.NDArray[np.bool_]
    best: Optimum | None


def stretches(trajectory: Trajectory) -> list[Stretch]:
    """The stretches of a run, in order, each with its optimum; never empty."""
    clients = int(trajectory.provenance["clients"])
    schedule = _schedule(trajectory)
    changes = set((np.flatnonzero(np.diff(trajectory.capacity)) + 1).tolist())
    changes |= {when for when in (*schedule.join, *schedule.leave) if 0 < when < trajectory.rounds}
    edges = [0, *sorted(changes), trajectory.rounds]
    found = []
    for first, stop in itertools.pairwise(edges):
        capacity, members = float(trajectory.capacity[first]), schedule.status_at(first, clients) != ABSENT
        is_solved = len(edges) - 1 <= MOST_STRETCHES or stop == trajectory.rounds
        best = _best(trajectory.problem, capacity, members) if is_solved else None
        found.append(Stretch(first, stop, capacity, members, best))
    return found


def _schedule(trajectory: Trajectory) -> Schedule:
    settings = trajectory.provenance.get("schedule")
    return schedule_from_settings(Table(settings, "schedule")) if settings else Schedule()


def _best(problem: Problem | None, capacity: float, members: npt.NDArray[np.bool_]) -> Optimum | None:
    """The optimum of the members alone; None if it is unknown, or they cannot meet the capacity."""
    if problem is None or not members.any():
        return None
    who = np.flatnonzero(members)
    weights = None if problem.weights is None else problem.weights[who]
    try:
        return optimum(Problem(problem.costs[who], capacity, weights))
    except ValueError:
        return None
