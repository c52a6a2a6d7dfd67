"""`simulate`: the one verb. Clients decide, the server answers, round after round."""

from __future__ import annotations

import contextlib
import platform
import signal as signals
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from turnout.algorithm.client import Averaging, ClientState
from turnout.algorithm.coins import SeededCoins
from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.server import Controller
from turnout.errors import Interrupted, invalid
from turnout.problem.costs import PolynomialCosts
from turnout.problem.problem import Problem, check_capacity
from turnout.simulation.book import Book
from turnout.simulation.crowd import Crowd, Prior, released
from turnout.simulation.engines.choose import choose_engine
from turnout.simulation.engines.engine import Engine
from turnout.simulation.keep import Keep, Recorder
from turnout.simulation.schedule import PRESENT, Schedule, Span
from turnout.simulation.trajectory import Trajectory
from turnout.theory.feasibility import check_feasible
from turnout.version import __version__

Progress = Callable[[int, int], None]


def simulate(
    problem: Problem,
    mechanism: Mechanism,
    controller: Controller,
    rounds: int,
    *,
    seed: int | None = None,
    engine: str = "auto",
    start: Prior | Trajectory | None = None,
    schedule: Schedule | None = None,
    averaging: Averaging | None = None,
    keep: Keep | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Trajectory:
    """Run the algorithm for a number of rounds.

    The same arguments give the same trajectory, whichever engine runs and on how many threads.

    Args:
        problem: the clients and what the server needs.
        mechanism: how intent becomes a probability: `Classical`, `PaperCoin`, …
        controller: how the server sets the signal.
        rounds: how many; with a trajectory to continue, how many more.
        seed: of the coins; 0 unless given, or the continued run's.
        engine: "auto", "numpy" or "numba".
        start: None for the paper's start (everyone takes part in round 0), a public `Prior`, or a
            `Trajectory` to continue exactly as if it had never stopped. (A continued run may be
            given another problem, of as many clients: costs that drift.)
        schedule: who joins, leaves or is away, and a capacity that changes.
        averaging: how histories move; all rounds, by the bit, unless given.
        keep: what to record; the continued run's, unless given.
        threads: at most so many; as many as there are cores, unless given.
        progress: called now and then with (rounds done, rounds in all).

    Raises:
        ValueError: an argument is out of range, or the capacity cannot be met.
        Interrupted: Ctrl-C; carries the trajectory so far.

    Paper: Algorithms 1 to 3.

    Example:
        >>> from turnout import PaperCoin, IntegralController, paper_population
        >>> problem = paper_population(seed=0).problem(capacity=600)
        >>> run = simulate(problem, PaperCoin(beta=3.5), IntegralController(gain=0.0075, initial=0.35), 2000)
        >>> abs(run.last(400).mean() - 600) < 10
        True
    """
    before = start if isinstance(start, Trajectory) else None
    schedule = schedule or Schedule()
    keep = keep or (before.keep if before else Keep())
    averaging = averaging or Averaging()
    if seed is None:
        seed = before.provenance["seed"] if before else 0
    _check(problem, mechanism, rounds, schedule, keep, before)
    coins = SeededCoins(seed)
    if before is None:
        crowd = Crowd.gather(problem, mechanism, averaging, coins, _prior(start), schedule)
        book = Book.open(controller, problem.capacity, rounds)
        recorder = Recorder(keep, problem.costs)
    else:
        crowd, book, recorder = _take_up(before, problem, mechanism, averaging, coins, controller, rounds, schedule, keep)
    chosen, why = choose_engine(engine, crowd, threads)
    total = len(book.participants)
    interrupted = _run(chosen, crowd, book, recorder, schedule, progress)
    done = book.round
    record = recorder.columns()
    provenance = {
        "turnout": __version__,
        "engine": chosen.name,
        "engine_reason": why,
        "seed": int(seed),
        "rounds": done,
        "rounds_asked": total,
        "clients": len(problem),
        "capacity": float(problem.capacity),
        "mechanism": mechanism.settings(),
        "controller": controller.settings(),
        "start": None if crowd.start is None else {"average": crowd.start.average, "rounds": crowd.start.rounds},
        "averaging": {"remember": averaging.remember, "by": averaging.by},
        "schedule": schedule.settings(len(problem)),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    trajectory = Trajectory(
        signal=book.signal[:done],
        participants=book.participants[:done],
        capacity=book.capacities[:done],
        checkpoints=np.array(recorder.rounds, dtype=np.int64),
        **record,  # type: ignore[arg-type]
        state=crowd.state if keep.state else None,
        controller_state=book.state,
        problem=problem if keep.state and isinstance(problem.costs, PolynomialCosts) else None,
        keep=keep,
        provenance=provenance,
    )
    if interrupted:
        raise Interrupted(trajectory)
    return trajectory


def replicate(
    problem: Problem,
    mechanism: Mechanism,
    controller: Controller,
    rounds: int,
    *,
    seeds: Sequence[int],
    threads: int | None = None,
    **options: Any,
) -> list[Trajectory]:
    """The same run for many seeds, several at a time.

    Args:
        problem, mechanism, controller, rounds: as for `simulate`.
        seeds: one run for each.
        threads: how many run at a time; as many as there are cores, unless given.
        options: anything else that `simulate` takes.

    Example:
        >>> from turnout import Classical, IntegralController, paper_population
        >>> runs = replicate(paper_population().problem(600), Classical(), IntegralController(0.0075, 0.35),
        ...                  rounds=50, seeds=range(3))
        >>> [run.provenance["seed"] for run in runs]
        [0, 1, 2]
    """

    def one(seed: int) -> Trajectory:
        return simulate(problem, mechanism, controller, rounds, seed=seed, threads=1, **options)

    first = [one(seed) for seed in seeds[:1]]  # compiles what the others use
    with ThreadPoolExecutor(threads) as pool:
        return first + list(pool.map(one, seeds[1:]))


def _check(
    problem: Problem, mechanism: Mechanism, rounds: int, schedule: Schedule, keep: Keep, before: Trajectory | None
) -> None:
    if not (isinstance(rounds, (int, np.integer)) and rounds >= 1):
        raise invalid("rounds", "a whole number from 1 up", rounds, "the paper's runs take thousands")
    schedule.check(len(problem))
    for capacity in (problem.capacity, *schedule.capacity.values()):
        check_capacity(capacity, problem.most)
        check_feasible(problem, mechanism, capacity)
    past = 0 if before is None else before.rounds
    keep.check(past + rounds, len(problem))


def _prior(start: Any) -> Prior | None:
    if start is None or isinstance(start, Prior):
        return start
    raise invalid("start", "None (the paper's), a Prior, or a Trajectory to continue", repr(start), "use one of these")


def _take_up(
    before: Trajectory,
    problem: Problem,
    mechanism: Mechanism,
    averaging: Averaging,
    coins: SeededCoins,
    controller: Controller,
    rounds: int,
    schedule: Schedule,
    keep: Keep,
) -> tuple[Crowd, Book, Recorder]:
    """Everything as it was when a run stopped, with room for more rounds."""
    state = before.state
    if state is None or before.controller_state is None:
        raise invalid("start", "a run that kept its state", "keep.state=False", "run it again with keep.state=True")
    if len(state.participations) != len(problem):
        got = f"{len(problem)} clients"
        raise invalid("problem", f"of {len(state.participations)} clients, as in the run to continue", got, "keep them")
    if _layout(keep) != _layout(before.keep):
        raise invalid("keep", f"as in the run to continue, {before.keep}", keep, "leave keep out when continuing")
    lasted: Any = state.rounds
    if schedule.has_movement or isinstance(lasted, np.ndarray):
        lasted = np.broadcast_to(np.asarray(lasted, dtype=np.float64), (len(problem),)).copy()
    start = before.provenance["start"]
    crowd = Crowd(
        problem.costs,
        problem.weights,
        mechanism,
        averaging,
        coins,
        ClientState(state.participations.copy(), lasted, released(problem, mechanism, coins)),
        None if start is None else Prior(**start),
    )
    book = Book.open(controller, problem.capacity, before.rounds + rounds)
    held = before.controller_state
    values = held if isinstance(held, dict) else held._asdict()
    book.state = type(book.state)(**values)
    book.round = before.rounds
    book.signal[: book.round] = before.signal
    book.signal[book.round] = book.state.signal
    book.participants[: book.round] = before.participants
    book.capacities[: book.round] = before.capacity
    recorder = Recorder(keep, problem.costs)
    recorder.resume(before.checkpoints, before.columns())
    return crowd, book, recorder


def _layout(keep: Keep) -> tuple[Any, ...]:
    """What must agree for two records to be one."""
    return (keep.every, keep.cost, keep.distance_to is not None, keep.histogram, str(keep.settings().get("averages")))


def _run(
    engine: Engine, crowd: Crowd, book: Book, recorder: Recorder, schedule: Schedule, progress: Progress | None
) -> bool:
    """Run the book to its end; returns whether Ctrl-C stopped it before."""
    total = len(book.participants)
    pace = _Pace()
    span = None
    with _deferred_interrupt() as stop_asked:
        for span in schedule.spans(book.round, total, len(crowd), book.capacity):
            book.capacity = span.capacity
            _begin(engine, crowd, book, span)
            while book.round < span.stop and not stop_asked():
                due = recorder.next_due(book.round)
                pace.advance(engine, book, min(span.stop, due + 1))
                if book.round == due + 1 and book.round < total:
                    recorder.record(due, crowd, span.status)
                if progress:
                    progress(book.round, total)
            if stop_asked():
                break
        if span is not None and book.round:
            recorder.record(book.round - 1, crowd, span.status)
        return stop_asked() and book.round < total


def _begin(engine: Engine, crowd: Crowd, book: Book, span: Span) -> None:
    """Welcome newcomers. With the paper's start their first round is spent here, by taking part."""
    engine.enter(span.status)
    if not len(span.newcomers):
        return
    came = crowd.welcome(span.newcomers)
    if crowd.start is not None:
        return
    others = np.full(len(crowd), PRESENT, np.uint8) if span.status is None else span.status.copy()
    others[span.newcomers] = 0
    if others.any():
        engine.enter(others)
        came += engine.draw(book.round, [book.deciding(book.round)])[0]
        engine.enter(span.status)
    book.enter(came)


class _Pace:
    """Cuts a long run into pieces of about a twentieth of a second, between which it can be stopped."""

    def __init__(self) -> None:
        self.rounds = 2

    def advance(self, engine: Engine, book: Book, stop: int) -> None:
        begun = time.perf_counter()
        engine.advance(book, min(stop, book.round + self.rounds))
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
    usual = signals.signal(signals.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signals.signal(signals.SIGINT, usual)
