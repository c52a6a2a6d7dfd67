"""The runs behind the figures: one in full, a hundred seeds, a hundred populations, and the forecast."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Mechanism, PaperCoin, coin_probability, intent
from turnout.paper.settings import SETTINGS, server
from turnout.privacy import network_epsilon
from turnout.problem import Array, Optimum, Problem, optimum, paper_population
from turnout.simulation import Keep, Trajectory, simulate
from turnout.theory import predict

Numbers = dict[str, npt.NDArray[Any]]


@lru_cache(maxsize=1)
def _optimum(problem: Problem) -> Optimum:
    """Solved once for all the runs of a population."""
    return optimum(problem)


def paper_problem(seed: int | None = None) -> Problem:
    """A population like the paper's, 600 of 1200.

    Paper: Problem (2), Eq. (11).
    """
    seed = SETTINGS["population seed"].value if seed is None else seed
    return _problem(seed, SETTINGS["clients"].value, SETTINGS["capacity"].value)


@lru_cache(maxsize=4)
def _problem(seed: int, clients: int, capacity: float) -> Problem:
    return paper_population(seed, clients).problem(capacity)


def full_run(mechanism: Mechanism) -> Numbers:
    """One run with every client's average at every checkpoint."""
    problem = paper_problem()
    run = _run(problem, mechanism, SETTINGS["coin seed"].value)
    assert run.averages is not None  # kept
    return _curves(problem, mechanism, run) | {
        "averages": run.averages,
        "participants": run.participants,
        "signals": run.signal,
    }


def seeded_run(mechanism: Mechanism, seed: int, kind: str) -> Numbers:
    """The curves of a run with other coins ("seeds"), or with other coins and other clients ("populations")."""
    populations = kind == "populations"
    problem = paper_problem(seed) if populations else paper_problem()
    # Of other populations only the end is used.
    return _curves(problem, mechanism, _run(problem, mechanism, seed, ends_only=populations))


def _curves(problem: Problem, mechanism: Mechanism, run: Trajectory) -> Numbers:
    """What the figures show of a run, at its checkpoints."""
    best = _optimum(problem)
    assert run.averages is not None  # kept by `_run`
    assert run.cost is not None
    at = run.checkpoints
    lemma = [network_epsilon(*_intent_and_coin(problem, mechanism, run, number)) for number in range(len(at))]
    tail = run.last(SETTINGS["last rounds"].value)
    distance = np.abs(run.averages - best.average)
    return {
        "rounds": at,
        "cost": run.cost,
        "optimum_cost": np.array(best.cost),
        "random_cost": np.array(problem.random_cost()),
        "mean_distance": distance.mean(axis=1),
        "last_distances": distance[-1],
        "signal": run.signal[at],
        "aggregate": (np.cumsum(run.participants) / np.arange(1, run.rounds + 1))[at],
        "lemma_epsilon": np.array([value for value, _ in lemma]),
        "saturated": np.array([count for _, count in lemma]),
        "turnout_mean": np.array(tail.mean()),
        "turnout_spread": np.array(tail.std()),
        "late_signal": np.array(run.signal[run.rounds // 2 :].mean()),
    }


def forecast(mechanism: Mechanism) -> Numbers:
    """The prediction for the same number of rounds, and the limit; nothing is simulated."""
    problem = paper_problem()
    found = predict(problem, mechanism, SETTINGS["rounds"].value, server())
    limit = predict(problem, mechanism)
    assert found.path is not None  # a finite forecast has one
    wanted: Array = intent(limit.signal, 1, limit.average, problem.costs.slope(limit.average))
    epsilon, _ = network_epsilon(wanted, _coin(mechanism))
    return {
        "rounds": found.path.rounds,
        "signal": found.path.signal,
        "cost": found.path.cost,
        "mean_distance": found.path.mean_distance,
        "last_signal": np.array(found.signal),
        "gap": np.array(found.gap),
        "limit_gap": np.array(limit.gap),
        "spread": np.array(found.spread),
        "limit_lemma_epsilon": np.array(epsilon),
    }


def _run(problem: Problem, mechanism: Mechanism, seed: int, *, ends_only: bool = False) -> Trajectory:
    rounds = SETTINGS["rounds"].value
    keep = Keep(every=rounds if ends_only else SETTINGS["checkpoint"].value, averages="all")
    return simulate(problem, mechanism, server(), rounds, seed=seed, keep=keep, threads=1)


def _intent_and_coin(problem: Problem, mechanism: Mechanism, run: Trajectory, number: int) -> tuple[Array, float]:
    """sigma_i(k) and p at a checkpoint; without a coin every value of the Lemma would be infinite."""
    assert run.averages is not None
    average = run.averages[number]
    wanted: Array = intent(run.signal[run.checkpoints[number]], 1, average, problem.costs.slope(average))
    return wanted, _coin(mechanism)


def _coin(mechanism: Mechanism) -> float:
    return float(coin_probability(mechanism.beta)) if isinstance(mechanism, PaperCoin) else 0.0
