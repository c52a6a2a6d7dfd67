"""What the server of a simulation makes of clients that are away, and return: the same as a coordinator's.

A schedule is known before the run, so all of it is: the rounds are cut into pieces in which nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from turnout.algorithm import EVERYONE, QUORUM, Heard, Presence
from turnout.problem import Problem
from turnout.simulation.clients import SimulatedClients
from turnout.simulation.schedule import ABSENT, AWAY, PRESENT, Schedule, Span
from turnout.theory import reachable


class Piece(NamedTuple):
    """Rounds of a span in which the server hears the same.

    Attributes:
        span: the rounds; whoever has returned and is not counted yet is AWAY.
        heard: what the server knows. Its scale holds after the last round.
    """

    span: Span
    heard: Heard


def pieces(schedule: Schedule, problem: Problem, clients: SimulatedClients, first: int, stop: int) -> Iterator[Piece]:
    """Rounds first to stop of a schedule, as the server hears them."""
    if not schedule.away:
        spans = schedule.spans(first, stop, len(problem), problem.capacity)
        yield from (Piece(span, EVERYONE) for span in spans)
        return
    presence = Presence.start(len(problem))
    joined = np.zeros(len(problem), np.int64)
    lead = 0 if clients.start is None else clients.start.rounds
    for whole in schedule.spans(0, stop, len(problem), problem.capacity):
        status = np.full(len(problem), PRESENT, np.uint8) if whole.status is None else whole.status
        joined[np.asarray(whole.newcomers, np.int64)] = whole.first
        members, reported = status != ABSENT, status == PRESENT
        enough = bool(reported.sum() >= max(1.0, QUORUM * members.sum()))
        round = whole.first
        while round < whole.stop:
            before, still = presence, round > whole.first and presence.is_still
            presence, seen = before.after(
                reported,
                members,
                problem.unit_weights,
                lead + np.maximum(0, round + 1 - joined),
                clients.averaging.cap,
                enough=enough,
            )
            end = whole.stop if still else round + 1
            presence = presence.skipped(end - round - 1)
            least, most = reachable(problem, clients.mechanism, before.expected & members)
            heard = Heard(enough, least <= whole.capacity <= most, seen.share, seen.scale)
            if end > first:
                begin = max(round, first)
                waiting = np.where(reported & ~seen.counted, np.uint8(AWAY), status)
                newcomers = whole.newcomers if begin == whole.first else np.empty(0, np.int64)
                piece = Span(begin, end, None if np.all(waiting == PRESENT) else waiting, newcomers, whole.capacity)
                yield Piece(piece, heard)
            round = end
