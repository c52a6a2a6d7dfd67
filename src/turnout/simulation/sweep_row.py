"""One run of a sweep as one row: what it reached, what it gives away, and how long it took."""

from __future__ import annotations

import json
import math
import time
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from turnout.algorithm.client import Prior
from turnout.privacy.account_of import account_of
from turnout.privacy.accounting import Account
from turnout.privacy.certificate import Certificate, certificate
from turnout.problem.optimum import Optimum, optimum
from turnout.settings import Table
from turnout.simulation.design import Asks, SweepRun
from turnout.simulation.keep import Keep
from turnout.simulation.run_settings import Run, run_from_settings
from turnout.simulation.trajectory import Trajectory
from turnout.theory.fixed_point import predict

Row = dict[str, Any]

MEASURED: dict[str, type] = {
    "clients": int,
    "cost": float,
    "optimum_cost": float,
    "cost_gap_percent": float,
    "turnout_mean": float,
    "turnout_spread": float,
    "turnout_rounds": int,
    "signal": float,
    "optimal_price": float,
    "certified_epsilon_per_report": float,
    "certified_epsilon_lifetime": float,
    "certified_against": str,
    "certified_assumptions": str,
    "total_epsilon_over_rounds": float,
    "total_delta": float,
    "total_against": str,
    "total_assumptions": str,
    "forecast_cost_gap_percent": float,
    "error": str,
}
"""The columns that a run fills, and their types."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        id: the run's.
        row: by the names of `MEASURED`; of a run that failed, the error alone.
        final: whether the same settings always give it; what the machine was to blame for is tried again.
        seconds: it took so long.
        engine: which one ran, and why.
    """

    id: str
    row: Row
    final: bool
    seconds: float
    engine: str


def measure(task: tuple[SweepRun, Asks]) -> Outcome:
    """Run one run of a sweep, on one thread; a failure is an outcome too.

    Example:
        >>> settings = {"rounds": 50, "capacity": 600, "controller": {"gain": 0.0075, "initial": 0.35}}
        >>> run = SweepRun("one", settings | {"mechanism": {"kind": "paper-coin", "beta": 3.5}, "seed": 0}, {})
        >>> measure((run, Asks())).row["clients"]
        1200
        >>> run = SweepRun("two", run.settings | {"capacity": 10}, {})
        >>> measure((run, Asks())).row["error"][:27]
        'capacity must be above 63.4'
    """
    run, asks = task
    begun = time.perf_counter()
    final, engine = True, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the design was built once with warnings on
            shared = {name: value for name, value in run.settings.items() if name != "seed"}
            prepared = _prepare(json.dumps(shared, default=str), asks)
            trajectory = replace(prepared.run, seed=run.settings["seed"]).go(threads=1)
        row = _row(trajectory, prepared, asks)
        engine = str(trajectory.provenance["engine_reason"])
    except Exception as error:
        final = isinstance(error, ValueError)  # of the settings; all else may go well another time
        said = " ".join(str(error).split())
        row = {"error": said if final else f"{type(error).__name__}: {said}"}
    return Outcome(run.id, row, final, time.perf_counter() - begun, engine)


@dataclass(frozen=True)
class _Prepared:
    """All that runs of the same settings share, whatever their seed."""

    run: Run
    best: Optimum
    promise: Certificate
    total: Account
    forecast: float | None


@lru_cache(maxsize=2)  # seeds are innermost, so that runs with the same settings come one after another
def _prepare(settings: str, asks: Asks) -> _Prepared:
    run = run_from_settings(Table(json.loads(settings)))
    run = replace(run, keep=Keep(every=max(run.rounds, 1), state=False))
    promise, total = (
        certificate(run.mechanism, run.seen_by),
        account_of(run.mechanism, run.rounds, asks.delta, run.seen_by),
    )
    forecast = None
    fades = run.averaging.remember is not None
    if asks.forecast and not fades and not run.schedule.change_rounds() and run.rounds >= 10:
        begun = run.start if isinstance(run.start, Prior) else None
        forecast = (
            100.0
            * predict(run.problem, run.mechanism, run.rounds, run.controller, start=begun, averaging=run.averaging).gap
        )
    best = optimum(run.schedule.problem_at(run.rounds - 1, run.problem))
    return _Prepared(run, best, promise, total, forecast)


def _row(trajectory: Trajectory, prepared: _Prepared, asks: Asks) -> Row:
    assert trajectory.cost is not None  # kept by `_prepare`
    tail = trajectory.last(asks.last)
    cost, promise, best = float(trajectory.cost[-1]), prepared.promise, prepared.best
    total = prepared.total
    return {
        "clients": len(prepared.run.problem),
        "cost": cost,
        "optimum_cost": best.cost,
        "cost_gap_percent": 100.0 * (cost / best.cost - 1.0),
        "turnout_mean": float(tail.mean()),
        "turnout_spread": float(tail.std()),
        "turnout_rounds": len(tail),
        "signal": float(trajectory.signal[-1]),
        "optimal_price": best.price,
        "certified_epsilon_per_report": promise.epsilon if promise.per == "report" else None,
        "certified_epsilon_lifetime": promise.epsilon if promise.per == "lifetime" else None,
        "certified_against": None if math.isinf(promise.epsilon) else promise.against,
        "certified_assumptions": "; ".join(promise.assumptions) or None,
        "total_epsilon_over_rounds": total.epsilon,
        "total_delta": total.delta,
        "total_against": total.against,
        "total_assumptions": "; ".join(total.assumptions) or None,
        "forecast_cost_gap_percent": prepared.forecast,
        "error": None,
    }
