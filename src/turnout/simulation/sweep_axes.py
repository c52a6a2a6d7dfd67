"""The axes of a sweep: what the parts of a `[sweep]` table let vary.

An axis is a list of points; a point sets some settings by their dotted names.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from turnout.errors import invalid
from turnout.settings import Table

Point = dict[str, Any]
"""Settings by their dotted names."""

TABLES = ("mechanism", "population", "controller", "start", "schedule", "averaging")
"""The settings that are tables: a sweep may try several of each, every one with parameters of its own."""

VARIED = (*TABLES, "capacity", "rounds", "engine")
"""The settings that a sweep may vary; seeds have a line of their own."""

MOST_RUNS = 1_000_000
"""The list of more would not fit into a small machine's memory."""

_DRAWS: dict[str, tuple[str, Callable[..., Any]]] = {
    "uniform": ("[low, high]", lambda u, low, high: low + (high - low) * u),
    "loguniform": ("[low, high] above 0", lambda u, low, high: low * math.exp(math.log(high / low) * u)),
    "integers": ("[low, high] or [low, high, step]", lambda u, low, high, step=1: _whole(u, low, high, step)),
    "choice": ("[values…]", lambda u, *values: values[int(u * len(values))]),
}


def sweep_axes(table: Table) -> tuple[list[list[Point]], set[str]]:
    """All axes but the seeds, those of whole tables first; and the tables that they replace."""
    whole: list[list[Point]] = []
    single: list[list[Point]] = []
    replaced: set[str] = set()
    for name, leaf in _leaves(table.take("grid", dict, "a table", {}), "sweep.grid").items():
        if _is_tables(leaf):
            whole.append(_alternatives(name, leaf))
            replaced.add(name)
        else:
            single.append([{name: value} for value in _values(f"sweep.grid.{name}", leaf)])
    groups = table.sequence("together", [])
    single += [_together(f"sweep.together[{number}]", group) for number, group in enumerate(groups)]
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
        if name not in TABLES and _is_tables(leaf):
            raise invalid(f"{where}.{name}", "a list of values", "a list of tables", "if it is one value, write [[…]]")
        found[name] = leaf
    known = Table({name.partition(".")[0]: leaf for name, leaf in found.items()}, where)
    known.ignore(*VARIED)
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


def _alternatives(name: str, tables: list[dict[str, Any]]) -> list[Point]:
    """Every combination within each of several tables that take the place of one."""
    axis: list[Point] = []
    for number, table in enumerate(tables):
        where = f"sweep.grid.{name}[{number}]"
        leaves = {key: _values(f"{where}.{key}", leaf) for key, leaf in _flat(table)}
        axis += [
            {f"{name}.{key}": value for key, value in zip(leaves, values, strict=True)}
            for values in itertools.product(*leaves.values())
        ]
    return axis


def _together(where: str, group: Any) -> list[Point]:
    """Points of lists that move together."""
    if not isinstance(group, dict):
        raise invalid(where, "a table", repr(group), "write [[sweep.together]] and lists below it")
    leaves = {name: _values(f"{where}.{name}", leaf) for name, leaf in _leaves(group, where).items()}
    lengths = {name: len(values) for name, values in leaves.items()}
    if len(set(lengths.values())) != 1:
        said = ", ".join(f"{length} for {name}" for name, length in lengths.items()) or "nothing"
        raise invalid(where, "lists of equal length", said, "give as many values of each")
    return [dict(zip(leaves, values, strict=True)) for values in zip(*leaves.values(), strict=True)]


def _random(values: dict[str, Any]) -> tuple[list[Point], set[str]]:
    """Samples of all distributions; the first ones stay the same when more are asked for."""
    table = Table(values, "sweep.random")
    samples, seed = table.whole("samples"), table.whole("seed", 0)
    if not 1 <= samples <= MOST_RUNS or seed < 0:
        raise invalid("sweep.random", "samples from 1 up and a seed from 0 up", (samples, seed), "try samples = 100")
    drawn = {key: value for key, value in values.items() if key not in ("samples", "seed")}
    axis: list[Point] = [{} for _ in range(samples)]
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


def _fill(axis: list[Point], name: str, where: str, leaf: Any, seed: int, here: Iterable[int]) -> None:
    """Draw one setting for some of the samples."""
    uniforms = _uniforms(seed, where, len(axis))
    for sample in here:
        axis[sample][name] = draw(where, leaf, float(uniforms[sample]))


def _uniforms(seed: int, name: str, samples: int) -> Any:
    """A stream of its own for each name, so that neither more samples nor more names change what was drawn."""
    words = np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype="<u4").tolist()
    return np.random.default_rng([seed, *words]).random(samples)


def draw(where: str, leaf: Any, uniform: float) -> Any:
    """One value of a distribution: `uniform`, `loguniform`, `integers` (both ends may come) or `choice`.

    Args:
        where: the setting's name, for messages.
        leaf: such as {"uniform": [0, 40]}; anything but a table is a value itself.
        uniform: in [0, 1).

    Raises:
        ValueError: not a distribution.

    Example:
        >>> draw("capacity", {"integers": [300, 900, 100]}, 0.5), draw("capacity", 600, 0.5)
        (600, 600)
    """
    if not isinstance(leaf, (dict, list)):
        return leaf
    forms = ", ".join(f"{{ {kind} = {form} }}" for kind, (form, _) in _DRAWS.items())
    if not isinstance(leaf, dict) or len(leaf) != 1 or next(iter(leaf)) not in _DRAWS:
        raise invalid(where, f"a value, or one of {forms}", repr(leaf), "write it in one of these forms")
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
