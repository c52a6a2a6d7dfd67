"""The loop over rounds: spans of the schedule, checkpoints, progress, and Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from turnout.algorithm import EVERYONE, QUORUM, Heard, Presence, in_reach, widest
from turnout.problem import Problem
from turnout.simulation.clients import SimulatedClients
from turnout.simulation.recording import Measures
from turnout.simulation.schedule import ABSENT, AWAY, PRESENT, Schedule, Span
from turnout.simulation.server_log import ServerLog
from turnout.simulation.setup import Setup
from turnout.theory import reachable

if TYPE_CHECKING:
    from turnout.simulation.engines.engine import Engine

Progress = Callable[[int, int], None]
"""Called now and then with (rounds done, rounds in all)."""


def run_rounds(engine: Engine, setup: Setup, progress: Progress | None = None) -> bool:
    """Run the log to its end, recording on the way; returns whether Ctrl-C stopped it before."""
    clients, log, recorder = setup.clients, setup.log, setup.recorder
    total = log.rounds
    pace = _Pace()
    status = None

    def measured() -> Measures:
        return engine.measure(recorder.keep, status)

    with contextlib.closing(engine), _deferred_interrupt() as stop_asked:
        if setup.noise is None:
            pieces = _pieces(setup.schedule, setup.problem, clients, log.round, total)
        else:  # also the round after the last: a change there is known before it
            pieces = _pieces(setup.schedule, setup.problem, clients, log.round, total + 1)
            pieces = _with_known_changes(pieces, setup.problem, total)
        for span, heard in pieces:
            status, log.capacity, log.heard = span.status, span.capacity, heard
            _begin(engine, clients, log, span)
            recorder.note(log.round - 1, measured)
            while log.round < span.stop and not stop_asked():
                pace.advance(engine, log, min(span.stop, recorder.next_due(log.round) + 1))
                recorder.note(log.round - 1, measured)
                if progress:
                    progress(log.round, total)
            if stop_asked():
                break
        recorder.note(log.round - 1, measured, last=True)
        if recorder.keep.state:
            engine.gather()
        return stop_asked() and log.round < total


def _begin(engine: Engine, clients: SimulatedClients, log: ServerLog, span: Span) -> None:
    """Welcome newcomers. With the paper's start their first round is spent here, by participating."""
    engine.set_status(span.status)
    if not len(span.newcomers):
        return
    here = span.newcomers
    if span.status is not None:
        here = np.asarray(here)[span.status[span.newcomers] == PRESENT]
    turnout = engine.welcome(span.newcomers, here)
    if clients.start is not None:
        return
    if len(span.newcomers) == len(clients):  # nobody else is there
        log.close_round(turnout)
        return
    others = np.full(len(clients), PRESENT, np.uint8) if span.status is None else span.status.copy()
    others[span.newcomers] = ABSENT
    if others.any():
        engine.set_status(others)
        turnout += engine.draw(log.round, [log.server.deciding])[0]
        engine.set_status(span.status)
    log.close_round(turnout)


class _Piece(NamedTuple):
    """Rounds of a span in which the server hears the same.

    Attributes:
        span: the rounds; whoever has returned and is not counted yet is AWAY.
        heard: what the server knows. Its scale holds after the last round.
    """

    span: Span
    heard: Heard


def _pieces(schedule: Schedule, problem: Problem, clients: SimulatedClients, first: int, stop: int) -> Iterator[_Piece]:
    """Rounds first to stop of a schedule, as the server hears them: the same that a coordinator makes of who reports.

    The schedule is known before the run, so all of this is.
    """
    if not schedule.away:
        spans = schedule.spans(first, stop, len(problem), problem.capacity)
        yield from (_Piece(span, EVERYONE) for span in spans)
        return
    presence, (low, high) = Presence.start(len(problem)), widest(clients.mechanism)
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
                capacity=whole.capacity,
                high=high,
                enough=enough,
            )
            end = whole.stop if still else round + 1
            presence = presence.skipped(end - round - 1)
            if np.ndim(low) or np.ndim(high):
                least, most = reachable(problem, clients.mechanism, before.expected & members)
            else:  # to the bit what a coordinator computes
                least, most = float(low) * seen.weight, float(high) * seen.weight
            reach = None if in_reach(whole.capacity, least, most) else (least, most)
            heard = Heard(enough, reach, seen.share, seen.scale)
            if end > first:
                begin = max(round, first)
                waiting = np.where(reported & ~seen.counted, np.uint8(AWAY), status)
                newcomers = whole.newcomers if begin == whole.first else np.empty(0, np.int64)
                piece = Span(begin, end, None if np.all(waiting == PRESENT) else waiting, newcomers, whole.capacity)
                yield _Piece(piece, heard)
            round = end


def _with_known_changes(pieces: Iterator[_Piece], problem: Problem, stop: int) -> Iterator[_Piece]:
    """The same up to `stop`, with the signal scaled before members join or leave, or another capacity is needed.

    The roll and the capacity are public. A server that sees exact sums learns of such a change in one round; one that
    sees noise would take hundreds.
    """

    def asked(span: Span) -> float:
        """The capacity in parts of what the members bring."""
        members = slice(None) if span.status is None else span.status != ABSENT
        weight = np.broadcast_to(problem.unit_weights, len(problem))[members].sum()
        return span.capacity / float(weight) if weight else 0.0

    before: _Piece | None = None
    for piece in pieces:
        if before is not None:
            yield from _scaled(before, asked(piece.span) / (asked(before.span) or 1.0) or 1.0)
        before = piece
    if before is not None and before.span.first < stop:
        yield before._replace(span=before.span._replace(stop=stop))


def _scaled(piece: _Piece, scale: float) -> list[_Piece]:
    """A piece with the signal scaled after its last round, which is then a piece of its own."""
    (span, heard), nobody = piece, np.empty(0, np.int64)
    if scale == 1.0:
        return [piece]
    last = heard._replace(scale=heard.scale * scale)
    if span.stop - span.first == 1:
        return [_Piece(span, last)]
    before = _Piece(span._replace(stop=span.stop - 1), heard._replace(scale=1.0))
    return [before, _Piece(span._replace(first=span.stop - 1, newcomers=nobody), last)]


class _Pace:
    """Cuts a long run into pieces of about a twentieth of a second, between which it can be stopped."""

    def __init__(self) -> None:
        self.rounds = 2

    def advance(self, engine: Engine, log: ServerLog, stop: int) -> None:
        begun = time.perf_counter()
        engine.advance(log, min(stop, log.round + self.rounds))
        took = time.perf_counter() - begun
        self.rounds = self.rounds * 2 if took < 0.025 else max(2, self.rounds // 2) if took > 0.1 else self.rounds


@contextlib.contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back until a round is complete; a second one stops at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread only
        yield lambda: False
        return
    usual = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, usual)
