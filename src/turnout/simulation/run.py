"""`simulate`: the one verb. Clients decide, the server answers, round after round."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from turnout.algorithm import Averaging, Controller, IntegralController, Mechanism, Prior, SumNoise
from turnout.errors import Interrupted, check_kind
from turnout.privacy import Observer
from turnout.problem import Problem
from turnout.simulation.engines.choose import choose_engine, named_options
from turnout.simulation.engines.engine import EngineChoice, JaxOptions, check_memory, free_memory
from turnout.simulation.loop import Progress, run_rounds
from turnout.simulation.recording import Keep
from turnout.simulation.schedule import Schedule
from turnout.simulation.setup import Setup, set_up
from turnout.simulation.trajectory import Trajectory
from turnout.simulation.workers import available_cores
from turnout.theory import unstable

_TAIL = 200
"""Rounds at the end in which a swinging turnout is looked for."""

_LARGEST = 100_000
"""Clients up to which the bound of the gain takes less than some seconds."""


def simulate(
    problem: Problem,
    mechanism: Mechanism,
    controller: Controller,
    rounds: int,
    *,
    seed: int | None = None,
    engine: EngineChoice = "auto",
    start: Prior | Trajectory | None = None,
    schedule: Schedule | None = None,
    averaging: Averaging | None = None,
    noise: SumNoise | None = None,
    keep: Keep | None = None,
    observer: Observer | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Trajectory:
    """Run the algorithm; the same arguments give the same trajectory, on any engine and any number of threads.

    Args:
        problem: the clients and what the server needs.
        mechanism: how intent becomes a probability: `Classical`, `PaperCoin`, …
        controller: how the server sets the signal.
        rounds: how many; with a trajectory to continue, how many more.
        seed: of the coins; 0 unless given, or the continued run's.
        engine: "auto", "numpy", "numba", "jax" (a GPU, or several), "jax32" (faster, and equal only
            statistically) or "ray" (a cluster); or `JaxOptions` or `RayOptions`.
        start: None for the paper's start (everyone participates in round 0), a public `Prior`, or a `Trajectory` to
            continue exactly as if it had never stopped. (A continued run may be given another problem, of as many
            clients: costs that drift. Or another mechanism: its certificate is then the worst of all parts.)
        schedule: who joins, leaves or is away, and a capacity that changes; the continued run's, unless given.
        averaging: how histories move; all rounds, by the bit (or as in the continued run), unless given.
        noise: what is added to each sum before the server sees it; nothing (or the continued run's), unless given.
        keep: what to record; the continued run's, unless given.
        observer: what would make a promise against it false is refused; of every report, unless given or continued.
        threads: at most so many; as many as there are cores, unless given.
        progress: called now and then with (rounds done, rounds in all).

    Raises:
        ValueError: an argument is out of range, or the capacity cannot be met. (A gain that is too large is warned of.)
        Interrupted: Ctrl-C; carries the trajectory so far.

    Paper: Algorithms 1 to 3.

    Example:
        >>> from turnout import PaperCoin, IntegralController, paper_population
        >>> problem = paper_population(seed=0).problem(capacity=600)
        >>> run = simulate(problem, PaperCoin(beta=3.5), IntegralController(gain=0.0075, initial=0.35), 2000)
        >>> round(float(run.last(400).mean()), -1)
        600.0
    """
    setup = set_up(problem, mechanism, controller, rounds, seed, start, schedule, averaging, keep, observer, noise)
    _check_memory(setup)
    chosen, why = choose_engine(engine, setup.clients, threads, setup.log.rounds)
    interrupted = run_rounds(chosen, setup, progress)
    trajectory = setup.trajectory(chosen.name, why)
    if interrupted:
        raise Interrupted(trajectory)
    _warn_if_unstable(setup)
    return trajectory


def _check_memory(setup: Setup) -> None:
    """Refuse a final state that would not fit."""
    if setup.recorder.keep.state:
        held, remedy = f"the final state of {len(setup.problem):,} clients", "use keep=Keep(state=False)"
        check_memory(held, 10 * len(setup.problem), free_memory(), "here", remedy)


def _warn_if_unstable(setup: Setup) -> None:
    """Warn of a gain that is too large for these clients, where nothing else moves the turnout."""
    controller, problem, turnout = setup.log.controller, setup.problem, setup.log.participants[-_TAIL:]
    if not isinstance(controller, IntegralController) or setup.schedule.change_rounds() or len(turnout) < 20:
        return
    # The bound takes longer than a short run: it is computed only where the turnout spreads twice as far as any coins.
    weights = np.broadcast_to(np.asarray(problem.unit_weights, dtype=np.float64), (len(problem),))
    coins = 0.5 * float(np.sqrt(np.sum(np.square(weights))))
    if len(problem) <= _LARGEST and np.std(turnout) > 2.0 * coins:
        told = unstable(problem, setup.clients.mechanism, controller)
        if told:
            swings = f"the turnout swings by ±{np.std(turnout):,.0f}, where coins alone give at most ±{coins:,.0f}"
            warnings.warn(f"{swings}: {told}", stacklevel=3)


def replicate(
    problem: Problem,
    mechanism: Mechanism,
    controller: Controller,
    rounds: int,
    *,
    seeds: Iterable[int],
    threads: int | None = None,
    engine: EngineChoice = "auto",
    **options: Any,
) -> list[Trajectory]:
    """The same run for many seeds, several at a time.

    With the JAX engine all of them run in one compiled call on the device, where they differ in their coins alone (no
    schedule, no trajectory to continue, no release at joining); each is equal to the run of its own.

    Args:
        problem, mechanism, controller, rounds: as for `simulate`.
        seeds: one run for each.
        threads: how many run at a time; as many as there are cores, unless given.
        engine: as for `simulate`.
        options: anything else that `simulate` takes.

    Example:
        >>> from turnout import Classical, IntegralController, paper_population
        >>> runs = replicate(paper_population().problem(600), Classical(), IntegralController(0.0075, 0.35),
        ...                  rounds=50, seeds=range(3))
        >>> [run.provenance["seed"] for run in runs]
        [0, 1, 2]
    """
    check_kind("seeds", seeds, Iterable, "whole numbers, one per run", "write seeds=range(3) for three runs")
    wanted = list(seeds)
    together = _in_one_call(problem, mechanism, controller, rounds, wanted, engine, options)
    if together is not None:
        return together

    def one(seed: int) -> Trajectory:
        return simulate(problem, mechanism, controller, rounds, seed=seed, threads=1, engine=engine, **options)

    first = [one(seed) for seed in wanted[:1]]  # compiles what the others use
    with ThreadPoolExecutor(threads or available_cores()) as pool:
        return first + list(pool.map(one, wanted[1:]))


def _in_one_call(
    problem: Problem,
    mechanism: Mechanism,
    controller: Controller,
    rounds: int,
    seeds: list[int],
    engine: EngineChoice,
    options: dict[str, Any],
) -> list[Trajectory] | None:
    """All replicas on a device, where the JAX engine is asked for and they can run in step; else None."""
    asked, _ = named_options(engine)
    if not seeds or not isinstance(asked, JaxOptions) or isinstance(options.get("start"), Trajectory):
        return None
    given = [options.get(name) for name in ("start", "schedule", "averaging", "keep", "observer", "noise")]
    setup = set_up(problem, mechanism, controller, rounds, seeds[0], *given)
    choose_engine(asked, setup.clients, rounds=rounds)[0].close()  # refuses what cannot run there
    from turnout.simulation.jax_replicas import can_be_batched, replicate_on_device

    if not can_be_batched(setup):
        return None
    runs: list[Trajectory] = replicate_on_device(setup, seeds, asked, options.get("progress"))
    return runs
