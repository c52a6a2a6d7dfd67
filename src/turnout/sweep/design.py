"""The design of a sweep: which runs there are, from the `[sweep]` table of a settings file.

Every part of the table is an axis: a list of points. The design is the product of all axes, the seeds innermost.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turnout.errors import invalid, nearest
from turnout.settings import Table
from turnout.simulation import run_from_settings
from turnout.version import __version__

_Point = dict[str, Any]
"""Settings by their dotted names."""

_TABLES = ("mechanism", "population", "controller", "start", "schedule", "averaging", "noise")
"""The settings that are tables: a sweep may try several of each, every one with parameters of its own."""

_VARIED = (*_TABLES, "capacity", "rounds", "engine")
"""The settings that a sweep may vary; seeds have a line of their own."""

_MOST_RUNS = 1_000_000
"""The list of more would not fit into a small machine's memory."""

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
    point: _Point


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
    table = Table(base.take("sweep", dict, "a table [sweep] with seeds = 10, and what to vary below it"), "sweep")
    asks = Asks(table.whole("last", 400), table.number("delta", 1e-6), table.flag("forecast", False))
    seeds = _seeds(table, base.whole("seed", 0))
    axes, replaced = _sweep_axes(table)
    table.finish()
    names = [list(dict.fromkeys(name for point in axis for name in point)) for axis in axes]
    _check_names(names)
    count = math.prod(map(len, axes)) * len(seeds)
    if count > _MOST_RUNS:
        raise invalid("sweep", f"of at most {_MOST_RUNS:,} runs", f"{count:,}", "give fewer values, or draw at random")
    # What is recorded on the way does not matter here: one row is made of the end.
    plain = {key: value for key, value in settings.items() if key not in ("sweep", "keep", *replaced)}
    runs = _expand(plain, [*axes, [{"seed": seed} for seed in seeds]], asks)
    _check_buildable(runs)
    varied = tuple(dict.fromkeys([name for axis in names for name in axis] + ["seed"]))
    drawn = tuple(names[-1]) if "random" in table else ()  # the last axis
    return Design(tuple(runs), varied, drawn, asks, dict(settings))


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


def _expand(plain: dict[str, Any], axes: list[list[_Point]], asks: Asks) -> list[SweepRun]:
    """The product of all axes; a run that appears twice is one."""
    files: dict[str, str] = {}
    runs: dict[str, SweepRun] = {}
    for points in itertools.product(*axes):
        point = {name: value for part in points for name, value in part.items()}
        full = _with(plain, point)
        run = SweepRun(_id(full, asks, files), full, point)
        runs.setdefault(run.id, run)
    return list(runs.values())


def _with(plain: dict[str, Any], point: _Point) -> dict[str, Any]:
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


def _sweep_axes(table: Table) -> tuple[list[list[_Point]], set[str]]:
    """All axes but the seeds, those of whole tables first; and the tables that they replace."""
    whole: list[list[_Point]] = []
    single: list[list[_Point]] = []
    replaced: set[str] = set()
    for name, leaf in _leaves(table.take("grid", dict, "a table", {}), "sweep.grid").items():
        if _is_tables(leaf):
            whole.append(_alternatives(name, leaf))
            replaced.add(name)
        else:
            single.append([{name: value} for value in _values(f"sweep.grid.{name}", leaf)])
    groups = table.sequence("together", [])
    single += [_together(f"sweep.together[{number}]", group) for number, group in enumerate(groups)]
    table.ignore("random")  # known, also where there is none
    if "random" in table:
        axis, drawn = _random(table.take("random", dict, "a table"))
        single.append(axis)
        replaced |= drawn
    return whole + single, replaced


def _leaves(part: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What one part of the sweep varies, by dotted names; refuses what cannot be varied."""
    found: dict[str, Any] = {}
    for name, leaf in _flat(part):
        if name in found:
            raise invalid(f"{where}.{name}", "given once", "twice", "remove one of the two")
        if name not in _TABLES and _is_tables(leaf):
            raise invalid(f"{where}.{name}", "a list of values", "a list of tables", "if it is one value, write [[…]]")
        found[name] = leaf
    known = Table({name.partition(".")[0]: leaf for name, leaf in found.items()}, where)
    known.ignore(*_VARIED)
    known.finish()
    return found


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and what stands there; a distribution is not a table."""
    for key, value in values.items():
        if isinstance(value, dict) and not (len(value) == 1 and next(iter(value)) in _DRAWS):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield above + key, value


def _is_tables(leaf: Any) -> bool:
    return isinstance(leaf, list) and bool(leaf) and all(isinstance(part, dict) for part in leaf)


def _values(where: str, leaf: Any) -> list[Any]:
    """What to try: the entries of a list, or one value."""
    if isinstance(leaf, dict):
        raise invalid(where, "a list of values", repr(leaf), "put distributions under [sweep.random]")
    if isinstance(leaf, list) and not leaf:
        raise invalid(where, "a list of one value or more", "[]", "remove it, or give values")
    return list(leaf) if isinstance(leaf, list) else [leaf]


def _alternatives(name: str, tables: list[dict[str, Any]]) -> list[_Point]:
    """Every combination within each of several tables that take the place of one."""
    axis: list[_Point] = []
    for number, table in enumerate(tables):
        where = f"sweep.grid.{name}[{number}]"
        leaves = {key: _values(f"{where}.{key}", leaf) for key, leaf in _flat(table)}
        axis += [
            {f"{name}.{key}": value for key, value in zip(leaves, values, strict=True)}
            for values in itertools.product(*leaves.values())
        ]
    return axis


def _together(where: str, group: Any) -> list[_Point]:
    """Points of lists that move together."""
    if not isinstance(group, dict):
        raise invalid(where, "a table", repr(group), "write [[sweep.together]] and lists below it")
    leaves = {name: _values(f"{where}.{name}", leaf) for name, leaf in _leaves(group, where).items()}
    lengths = {name: len(values) for name, values in leaves.items()}
    if len(set(lengths.values())) != 1:
        said = ", ".join(f"{length} for {name}" for name, length in lengths.items()) or "nothing"
        raise invalid(where, "lists of equal length", said, "give as many values of each")
    return [dict(zip(leaves, values, strict=True)) for values in zip(*leaves.values(), strict=True)]


def _random(values: dict[str, Any]) -> tuple[list[_Point], set[str]]:
    """Samples of all distributions; the first ones stay the same when more are asked for."""
    table = Table(values, "sweep.random")
    samples, seed = table.whole("samples"), table.whole("seed", 0)
    if not 1 <= samples <= _MOST_RUNS or seed < 0:
        raise invalid("sweep.random", "samples from 1 up and a seed from 0 up", (samples, seed), "try samples = 100")
    drawn = {key: value for key, value in values.items() if key not in ("samples", "seed")}
    axis: list[_Point] = [{} for _ in range(samples)]
    replaced: set[str] = set()
    for name, leaf in _leaves(drawn, "sweep.random").items():
        where = f"sweep.random.{name}"
        if not _is_tables(leaf):
            _fill(axis, name, where, leaf, seed, range(samples))
            continue
        replaced.add(name)
        chosen = (_uniforms(seed, where, samples) * len(leaf)).astype(int)
        for number, alternative in enumerate(leaf):
            here = np.flatnonzero(chosen == number).tolist()
            for key, inner in _flat(alternative):
                _fill(axis, f"{name}.{key}", f"{where}[{number}].{key}", inner, seed, here)
    return axis, replaced


def _fill(axis: list[_Point], name: str, where: str, leaf: Any, seed: int, here: Iterable[int]) -> None:
    """Draw one setting for some of the samples."""
    uniforms = _uniforms(seed, where, len(axis))
    for sample in here:
        axis[sample][name] = _draw(where, leaf, float(uniforms[sample]))


def _uniforms(seed: int, name: str, samples: int) -> Any:
    """A stream of its own for each name, so that neither more samples nor more names change what was drawn."""
    words = np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype="<u4").tolist()
    return np.random.default_rng([seed, *words]).random(samples)


_DRAWS: dict[str, tuple[str, Callable[..., Any]]] = {
    "uniform": ("[low, high]", lambda u, low, high: low + (high - low) * u),
    "loguniform": ("[low, high] above 0", lambda u, low, high: low * math.exp(math.log(high / low) * u)),
    "integers": ("[low, high] or [low, high, step]", lambda u, low, high, step=1: _whole(u, low, high, step)),
    "choice": ("[values…]", lambda u, *values: values[int(u * len(values))]),
}


def _draw(where: str, leaf: Any, uniform: float) -> Any:
    """One value of a distribution: `uniform`, `loguniform`, `integers` (both ends included) or `choice`.

    Args:
        where: the setting's name, for messages.
        leaf: such as {"uniform": [0, 40]}; anything but a table is a value itself.
        uniform: in [0, 1).

    Raises:
        ValueError: not a distribution.

    Example:
        >>> _draw("capacity", {"integers": [300, 900, 100]}, 0.5), _draw("capacity", 600, 0.5)
        (600, 600)
    """
    if not isinstance(leaf, (dict, list)):
        return leaf
    forms = ", ".join(f"{{ {kind} = {form} }}" for kind, (form, _) in _DRAWS.items())
    if not isinstance(leaf, dict) or len(leaf) != 1 or next(iter(leaf)) not in _DRAWS:
        word = str(next(iter(leaf), "")) if isinstance(leaf, dict) else where.rpartition(".")[2]
        raise invalid(
            where, f"a value, or one of {forms}", repr(leaf), nearest(word, _DRAWS, "write it in one of these forms")
        )
    kind, arguments = next(iter(leaf.items()))
    form, function = _DRAWS[kind]
    try:
        if kind != "choice" and not (arguments[0] <= arguments[1] and all(map(math.isfinite, arguments))):
            raise ValueError("the first must not be above the second")
        return function(uniform, *arguments)
    except (TypeError, ValueError, IndexError, KeyError, ZeroDivisionError) as error:
        raise invalid(f"{where}.{kind}", form, repr(arguments), f"correct it ({error})") from error


def _whole(uniform: float, low: int, high: int, step: int) -> int:
    numbers = range(low, high + 1, step)  # refuses what is not whole
    return numbers[int(uniform * len(numbers))]
