"""`sweep`: many runs, each once; what is done stays done."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from turnout.errors import FileProblem
from turnout.files import Journal
from turnout.settings import read_toml
from turnout.simulation import spread
from turnout.sweep.design import Design, SweepRun, design_from_settings
from turnout.sweep.table import ALWAYS, MEASURED, Outcome, Results, measure, typed

_STORE = "runs.jsonl"
"""The file in a sweep's folder that each run is added to as soon as it is done."""

_Done = Callable[[int, int], None]
"""Called with (runs done, runs in all)."""

_Entries = Mapping[str, dict[str, Any]]


def read_design(path: str | Path) -> Design:
    """The design in a TOML file; see `design_from_settings`.

    Raises:
        FileProblem: the file is missing or not TOML.
        ValueError: a setting is unknown or out of range.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        ...     _ = file.write("rounds = 5\\ncapacity = 600\\n[mechanism]\\nkind = 'classical'\\n")
        ...     _ = file.write("[controller]\\ngain = 0.0075\\ninitial = 0.35\\n[sweep]\\nseeds = 3\\n")
        ...     file.flush()
        ...     len(read_design(file.name).runs)
        3
    """
    return design_from_settings(read_toml(path))


def sweep(
    design: Design, folder: str | Path, *, jobs: int | None = None, on: str = "cores", progress: _Done | None = None
) -> Results:
    """Run all runs of a design that are not done yet, and give back the results of all.

    Each run is stored in the folder as soon as it is done: a crash loses at most the runs in flight, and the
    next call resumes there, also with a changed design. However often it was stopped, the results are the same.

    Args:
        design: from `read_design` or `design_from_settings`.
        folder: where the store is; made if it is not there.
        jobs: how many runs at a time, one thread each; as many as there are cores, unless given.
        on: "cores", or "ray".
        progress: called with the number of finished runs, first with those that were finished before.

    Raises:
        FileProblem: the folder cannot be used.
        InUse: another sweep is at work in the folder.
        TurnoutError: a worker died; what is done is kept.

    Example:
        >>> import tempfile
        >>> base = {"rounds": 50, "capacity": 600, "controller": {"gain": 0.0075, "initial": 0.35}}
        >>> coin = {"kind": "paper-coin", "beta": [2.5, 3.5]}
        >>> design = design_from_settings(base | {"sweep": {"seeds": 2, "grid": {"mechanism": [coin]}}})
        >>> found = sweep(design, tempfile.mkdtemp(), jobs=1)
        >>> [(row["mechanism.beta"], row["seed"]) for row in found.rows]
        [(2.5, 0), (2.5, 1), (3.5, 0), (3.5, 1)]
    """
    with _store(folder) as journal:
        entries = _final(journal)
        todo = [run for run in design.runs if run.id not in entries]
        done = len(design.runs) - len(todo)
        if progress:
            progress(done, len(design.runs))
        outcomes = spread(measure, [(run, design.asks) for run in todo], on=on, jobs=jobs)
        with contextlib.closing(outcomes):
            for number, outcome in enumerate(outcomes, start=done + 1):
                entries[outcome.id] = _entry(outcome)
                journal.append(entries[outcome.id])
                if progress:
                    progress(number, len(design.runs))
    return _results(design, entries)


def results_so_far(design: Design, folder: str | Path) -> Results:
    """The results of those runs of a design that are done.

    Raises:
        FileProblem: the folder cannot be used.
        InUse: a sweep is at work in it.
    """
    with _store(folder) as journal:
        return _results(design, _final(journal))


def _store(folder: str | Path) -> Journal:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileProblem(f"{folder}: cannot be written ({error.strerror}): choose another folder") from error
    journal = Journal(Path(folder) / _STORE, "store of a sweep")
    journal.mend()  # a run whose line was torn by a crash was in flight
    return journal


def _final(journal: Journal) -> dict[str, dict[str, Any]]:
    """What was found of each run; not what failed for another reason than its settings."""
    return {entry["id"]: entry for entry in journal.entries if entry.get("final")}


def _entry(outcome: Outcome) -> dict[str, Any]:
    """An outcome as a line of the store; JSON has no infinite numbers."""
    row = {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in outcome.row.items()
    }
    return {
        "id": outcome.id,
        "final": outcome.final,
        "row": row,
        "seconds": round(outcome.seconds, 6),
        "engine": outcome.engine,
    }


def _results(design: Design, entries: _Entries) -> Results:
    settings = [*design.varied, *(name for name in ALWAYS if name not in design.varied)]
    wanted = [name for name in MEASURED if design.asks.forecast or not name.startswith("forecast")]
    rows, seconds = [], 0.0
    for run in design.runs:
        entry = entries.get(run.id)
        if entry is not None:
            seconds += entry["seconds"]
            known = {name: _setting(run, name) for name in settings}
            rows.append({"id": run.id} | known | {name: entry["row"].get(name) for name in wanted})
    columns = typed(["id", *settings, *wanted], rows)
    return Results(rows, columns, design.varied, design.drawn, len(design.runs), seconds, design.settings)


def _setting(run: SweepRun, name: str) -> Any:
    """A setting by its dotted name; None where this run has none."""
    value: Any = run.settings
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
