"""The design of a sweep: which runs there are, from the `[sweep]` table of a settings file.

It is the product of all axes (see `sweep_axes`), the seeds innermost.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from turnout.errors import invalid
from turnout.settings import Table
from turnout.simulation.run_settings import run_from_settings
from turnout.simulation.sweep_axes import MOST_RUNS, Point, sweep_axes
from turnout.version import __version__

_TRIES = 50  # runs of one kind that are built ahead, to tell a wrong name from a wrong value


@dataclass(frozen=True)
class Asks:
    """What is wanted to be known of each run.

    Args:
        last: the rounds at the end over which turnout is summed up.
        delta: at which the total epsilon over all rounds is stated.
        forecast: whether to predict each run's cost gap too.
    """

    last: int = 400
    delta: float = 1e-6
    forecast: bool = False

    def __post_init__(self) -> None:
        if self.last < 1:
            raise invalid("sweep.last", "1 or more rounds", self.last, "try 400")
        if not 0.0 <= self.delta < 1.0:
            raise invalid("sweep.delta", "from 0 to below 1", self.delta, "try 1e-6")


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
        id: the same for the same settings, questions and version; what is done is found by it.
        settings: all of them, as `run_from_settings` takes them.
        point: those that the sweep varies, by their dotted names; the seed among them.
    """

    id: str
    settings: dict[str, Any]
    point: Point


@dataclass(frozen=True)
class Design:
    """All runs of a sweep, in the order of its table.

    Attributes:
        runs: each once.
        varied: the dotted names of all that differs by design; "seed" comes last.
        drawn: those of them that were drawn at random.
        asks: what is wanted to be known of each run.
        settings: the whole file.
    """

    runs: tuple[SweepRun, ...]
    varied: tuple[str, ...]
    drawn: tuple[str, ...]
    asks: Asks
    settings: dict[str, Any]

    def __repr__(self) -> str:
        return f"Design({len(self.runs)} runs, which differ in {', '.join(self.varied)})"


def design_from_settings(settings: Mapping[str, Any]) -> Design:
    """A design from a settings file: a run as `simulate` takes it, and a `[sweep]` table::

        [sweep]
        seeds = 10                              # 0 to 9; or a list
        last = 400                              # optional, as all below: turnout over the last 400 rounds
        delta = 1e-6                            # of the total epsilon over all rounds
        forecast = false                        # predict the cost gap too
        [sweep.grid]
        capacity = [500, 600]                   # every combination of these
        controller.gain = [0.005, 0.0075]
        [[sweep.grid.mechanism]]                # several of a table, each with lists of its own
        kind = "clamp"
        epsilon = [0.5, 1, 2]
        [[sweep.grid.mechanism]]
        kind = "classical"
        [[sweep.together]]                      # lists of equal length that move together
        population.clients = [400, 1200]
        capacity = [200, 600]
        [sweep.random]                          # drawn instead
        samples = 200
        seed = 1
        mechanism.epsilon = { loguniform = [0.1, 10] }

    Raises:
        ValueError: a key or a distribution is not known, a name is varied twice, or no run of some kind can be built.

    Example:
        >>> base = {"rounds": 50, "capacity": 600, "controller": {"gain": 0.0075, "initial": 0.35}}
        >>> kinds = [{"kind": "classical"}, {"kind": "paper-coin", "beta": [2.5, 3.5]}]
        >>> design = design_from_settings(base | {"sweep": {"seeds": 2, "grid": {"mechanism": kinds}}})
        >>> len(design.runs), design.varied, design.runs[-1].point
        (6, ('mechanism.kind', 'mechanism.beta', 'seed'), {'mechanism.kind': 'paper-coin', 'mechanism.beta': 3.5,
          'seed': 1})
    """
    base = Table(settings)
    table = base.table("sweep")
    asks = Asks(table.whole("last", 400), table.number("delta", 1e-6), table.flag("forecast", False))
    seeds = _seeds(table, base.whole("seed", 0))
    axes, replaced = sweep_axes(table)
    table.finish()
    names = [list(dict.fromkeys(name for point in axis for name in point)) for axis in axes]
    _check_names(names)
    count = math.prod(map(len, axes)) * len(seeds)
    if count > MOST_RUNS:
        raise invalid("sweep", f"of at most {MOST_RUNS:,} runs", f"{count:,}", "give fewer values, or draw at random")
    # What is recorded on the way does not matter here: one row is made of the end.
    plain = {key: value for key, value in settings.items() if key not in ("sweep", "keep", *replaced)}
    runs = _expand(plain, [*axes, [{"seed": seed} for seed in seeds]], asks)
    _check_buildable(runs)
    varied = tuple(dict.fromkeys([name for axis in names for name in axis] + ["seed"]))
    drawn = tuple(names[-1]) if "random" in table else ()  # the last axis
    return Design(tuple(runs), varied, drawn, asks, dict(settings))


def _expand(plain: dict[str, Any], axes: list[list[Point]], asks: Asks) -> list[SweepRun]:
    """The product of all axes; a run that comes twice is one."""
    files: dict[str, str] = {}
    runs: dict[str, SweepRun] = {}
    for points in itertools.product(*axes):
        point = {name: value for part in points for name, value in part.items()}
        full = _with(plain, point)
        run = SweepRun(_id(full, asks, files), full, point)
        runs.setdefault(run.id, run)
    return list(runs.values())


def _seeds(table: Table, usual: int) -> list[int]:
    seeds = table.take("seeds", (int, list), "a number of seeds, or a list of them", [usual])
    found = list(range(seeds)) if isinstance(seeds, int) else seeds
    good = [seed for seed in found if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0]
    if not found or len(good) < len(found):
        raise invalid("sweep.seeds", "1 or more, or a list of whole numbers from 0 up", repr(seeds), "try 10")
    return found


def _check_names(names: list[list[str]]) -> None:
    """Refuse a setting that two axes set."""
    for one, other in itertools.combinations(names, 2):
        for name in set(one) & set(other):
            raise invalid(f"sweep: {name}", "varied in one place", "varied in two", "remove one of the two")


def _with(plain: dict[str, Any], point: Point) -> dict[str, Any]:
    """The settings of one run: those of the file, with the point's. (Tables that it does not touch are shared.)"""
    full = dict(plain)
    for name, value in point.items():
        *tables, key = name.split(".")
        place = full
        for table in tables:
            inner = place.get(table, {})
            if not isinstance(inner, dict):
                raise invalid(name, "within a table", f"{table} = {inner!r}", "correct the name or the settings")
            place[table] = place = dict(inner)
        place[key] = value
    return full


def _id(settings: dict[str, Any], asks: Asks, files: dict[str, str]) -> str:
    """A short hash of all that the result of a run depends on; a population's file counts by its content."""
    population = settings.get("population", {})
    path = population.get("file") if isinstance(population, dict) else None
    if isinstance(path, str) and path not in files:
        files[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest() if Path(path).is_file() else "missing"
    whole = [_canonical(settings), asdict(asks), files.get(path or ""), __version__]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _canonical(value: Any) -> Any:
    """Settings in which 1 and 1.0 are the same."""
    if isinstance(value, dict):
        return {key: _canonical(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_canonical(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_buildable(runs: list[SweepRun]) -> None:
    """Refuse a name that is not known: of the runs that name the same settings, one at least can be built.

    A value that is out of range in some of them is no reason: those become rows with an error.
    """
    kinds: dict[Any, list[SweepRun]] = {}
    for run in runs:
        kinds.setdefault(tuple(sorted(_shape(run.settings))), []).append(run)
    for group in kinds.values():
        failure: Exception | None = None
        for run in group[:_TRIES]:
            try:
                run_from_settings(Table(run.settings))
                break
            except ValueError as error:
                failure = failure or error
        else:
            assert failure is not None
            raise failure


def _shape(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """The names of all settings, and of those that are texts what they say: kinds, files, engines."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _shape(value, f"{above}{key}.")
        else:
            yield above + key, value if isinstance(value, str) else ""
