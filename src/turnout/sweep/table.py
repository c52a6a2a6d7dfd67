"""The results of a sweep: each run measured into one row, and the rows as one table, in the order of the design."""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from turnout.algorithm import Prior
from turnout.errors import MissingExtra, invalid
from turnout.files import check_writable, whole_file
from turnout.privacy import FIXED_ROUNDS, UNKNOWN_SEED, Account, Certificate, account_of, certificate
from turnout.problem import Optimum, optimum
from turnout.settings import Table
from turnout.simulation import Keep, Run, Trajectory, run_from_settings
from turnout.sweep.design import Asks, SweepRun
from turnout.theory import predict

_Row = dict[str, Any]

MEASURED: dict[str, type] = {
    "clients": int,
    "cost": float,
    "optimum_cost": float,
    "cost_gap_percent": float,
    "brought": float,
    "own_turnout_gap_percent": float,
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

ALWAYS = ("mechanism.kind", "capacity", "rounds", "seed")
"""Settings that are columns, whether or not they are varied."""

SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True)
class Outcome:
    """The results of a run.

    Attributes:
        id: the run's.
        row: by the names of `MEASURED`; of a run that failed, the error alone.
        final: whether the same settings always give it; what the machine was to blame for is tried again.
        seconds: it took so long.
        engine: which one ran, and why.
    """

    id: str
    row: _Row
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
    run = replace(run, keep=Keep(every=max(run.rounds, 1)))
    promise, total = (
        certificate(run.mechanism, run.seen_by),
        account_of(run.mechanism, run.rounds, asks.delta, run.seen_by),
    )
    if run.noise is not None:  # as a run by itself says
        total = total.assuming(UNKNOWN_SEED, FIXED_ROUNDS)
    forecast = None
    fades = run.averaging.remember is not None
    if asks.forecast and not fades and not run.schedule.change_rounds() and run.rounds >= 10:
        begun = run.start if isinstance(run.start, Prior) else None
        forecast = (
            100.0
            * predict(
                run.problem,
                run.mechanism,
                run.rounds,
                run.controller,
                start=begun,
                averaging=run.averaging,
                noise=run.noise,
            ).gap
        )
    best = optimum(run.schedule.problem_at(run.rounds - 1, run.problem))
    return _Prepared(run, best, promise, total, forecast)


def _row(trajectory: Trajectory, prepared: _Prepared, asks: Asks) -> _Row:
    assert trajectory.cost is not None  # kept by `_prepare`
    tail = trajectory.last(asks.last)
    cost, promise, best = float(trajectory.cost[-1]), prepared.promise, prepared.best
    total, own = prepared.total, trajectory.gap_at_own_turnout if prepared.run.noise is not None else None
    return {
        "clients": len(prepared.run.problem),
        "cost": cost,
        "optimum_cost": best.cost,
        "cost_gap_percent": 100.0 * (cost / best.cost - 1.0),
        "brought": trajectory.brought,
        "own_turnout_gap_percent": None if own is None else 100.0 * own,
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


@dataclass(frozen=True)
class Results:
    """What a sweep has found so far.

    Attributes:
        rows: one for each run that is done: `id`, the settings by their dotted names, and `MEASURED`; None where
            there is nothing.
        columns: their names, in order, and types.
        varied: the columns that differ by design.
        drawn: those of them that were drawn at random.
        runs: how many runs the design has.
        seconds: what the rows took to compute, together.
        settings: the file that the sweep was made from.
    """

    rows: list[_Row]
    columns: dict[str, type]
    varied: tuple[str, ...]
    drawn: tuple[str, ...]
    runs: int
    seconds: float
    settings: dict[str, Any]

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"Results({len(self.rows)} of {self.runs} runs{failed}, which differ in {', '.join(self.varied)})"

    @property
    def failed(self) -> list[_Row]:
        """The rows of runs that gave an error."""
        return [row for row in self.rows if row["error"] is not None]

    @property
    def good(self) -> list[_Row]:
        """The rows of runs that gave numbers."""
        return [row for row in self.rows if row["error"] is None]

    def save(self, path: str | Path) -> Path:
        """Write the table, whole or not at all; the same results give the same bytes.

        Args:
            path: ends in .csv, or in .parquet (needs pyarrow).

        Raises:
            ValueError: another ending.
            FileProblem: it cannot be written.
            MissingExtra: pyarrow is not installed.
        """
        path = check_writable(check_suffix(path))
        content = _parquet(self) if path.suffix == ".parquet" else _csv(self)
        with whole_file(path) as file:
            file.write(content)
        return path

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise MissingExtra("to_pandas()", library="pandas", extra="lab") from None
        return pandas.DataFrame({name: [row[name] for row in self.rows] for name in self.columns})


def check_suffix(path: str | Path) -> Path:
    """Refuse a table that could not be written, before any run.

    Raises:
        ValueError: the path ends neither in .csv nor in .parquet.
        MissingExtra: it ends in .parquet, and pyarrow is not installed.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise invalid("table", f"a file that ends in {' or '.join(SUFFIXES)}", f"{str(path)!r}", "rename it")
    if path.suffix == ".parquet":
        _pyarrow()
    return path


def typed(columns: Sequence[str], rows: list[_Row]) -> dict[str, type]:
    """The type of each column, and the rows' values made to be of it, in place; lists and tables become JSON.

    Example:
        >>> rows = [{"a": 1, "b": [1, 2]}, {"a": 0.5, "b": None}]
        >>> typed(["a", "b"], rows), rows
        ({'a': <class 'float'>, 'b': <class 'str'>}, [{'a': 1.0, 'b': '[1, 2]'}, {'a': 0.5, 'b': None}])
    """
    kinds: dict[str, type] = {}
    for name in columns:
        found = {type(row[name]) for row in rows if row[name] is not None}
        kind = MEASURED.get(name) or (
            next(iter(found)) if len(found) == 1 and found <= {int, float, bool, str} else None
        )
        kinds[name] = kind or (float if found and found <= {int, float} else str)
        for row in rows:
            if row[name] is not None:
                row[name] = _made(row[name], kinds[name])
    return kinds


def _made(value: Any, kind: type) -> Any:
    if kind is str and not isinstance(value, str):
        return json.dumps(value, default=str)
    return kind(value)  # a float may come as the text "inf", which JSON has no number for


def _csv(results: Results) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(results.columns)
    # repr of a float gives the very same float back
    writer.writerows([[_text(row[name]) for name in results.columns] for row in results.rows])
    return text.getvalue().encode()


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else repr(value)


def _parquet(results: Results) -> bytes:
    arrow, parquet = _pyarrow()
    kinds = {int: arrow.int64(), float: arrow.float64(), str: arrow.string(), bool: arrow.bool_()}
    arrays = [
        arrow.array([row[name] for row in results.rows], type=kinds[kind]) for name, kind in results.columns.items()
    ]
    target = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(arrays, names=list(results.columns)), target)
    return bytes(target.getvalue().to_pybytes())


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtra("a table in Parquet", library="pyarrow", extra="lab") from None
