"""Runs of a sweep that differ in their seed alone, taken together: means and standard errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.algorithm.mechanisms import releases_once
from turnout.privacy.accounting import provided
from turnout.simulation.sweep_table import Results

GAP = "cost_gap_percent"
KIND = "mechanism.kind"
SEED = "seed"


@dataclass(frozen=True)
class Group:
    """Rows that share some settings.

    Attributes:
        point: the settings that they share.
        rows: at least one, all without an error.
    """

    point: dict[str, Any]
    rows: list[dict[str, Any]]

    def mean(self, column: str) -> float:
        """The mean of a column; NaN where no row has a value."""
        values = self._values(column)
        return sum(values) / len(values) if values else math.nan

    def error(self, column: str) -> float:
        """The standard error of the mean; NaN of a single row."""
        values = self._values(column)
        return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan

    def one(self, column: str) -> Any:
        """The value that all rows have in a column; None where they differ."""
        values = {row[column] for row in self.rows}
        return values.pop() if len(values) == 1 else None

    def described(self) -> str:
        """The settings that the rows share, in a few words."""
        return described(self.rows[0], list(self.point))

    def _values(self, column: str) -> list[float]:
        return [row[column] for row in self.rows if row[column] is not None]


def grouped(rows: Iterable[dict[str, Any]], names: Sequence[str]) -> list[Group]:
    """Rows that are equal in these columns together, in the order in which they come.

    Example:
        >>> [len(group.rows) for group in grouped([{"a": 1}, {"a": 2}, {"a": 1}], ["a"])]
        [2, 1]
    """
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return [Group(dict(zip(names, key, strict=True)), members) for key, members in found.items()]


def differing(results: Results) -> list[str]:
    """The varied settings that do differ from run to run, but for the seed."""
    return [name for name in results.varied if name != SEED and len({row[name] for row in results.rows} - {None}) > 1]


def is_number(results: Results, name: str) -> bool:
    """Whether a column holds numbers."""
    return results.columns[name] in (int, float)


def against_whom(rows: Iterable[Mapping[str, Any]]) -> str:
    """Against whom the totals of some rows are, and what those of each mechanism rest on.

    Example:
        >>> row = {"mechanism.kind": "memoized", "total_against": "anyone", "total_assumptions": "the sun shines"}
        >>> against_whom([row, row])
        'against anyone (memoized: if the sun shines)'
    """
    rows = list(rows)
    who = " or ".join(dict.fromkeys(row["total_against"] for row in rows))
    held: dict[str, list[str]] = {}
    for row in rows:
        for one in (row["total_assumptions"] or "").split("; "):
            if one and one not in held.setdefault(row[KIND], []):
                held[row[KIND]].append(one)
    told = "; ".join(f"{kind}: {provided(what).removeprefix(', ')}" for kind, what in held.items() if what)
    return f"against {who}" + (f" ({told})" if told else "")


def described(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """Some settings of a row in a few words; of an epsilon, also for how long it holds.

    Example:
        >>> row = {"mechanism.kind": "clamp", "mechanism.epsilon": 0.5, "mechanism.beta": None, "capacity": 600}
        >>> described(row, list(row))
        'clamp, epsilon 0.5 per report, capacity 600'
    """
    words = []
    for name in names:
        value = row[name]
        if value is None:
            continue
        said = f"{value:,.6g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
        label = name.removeprefix("mechanism.").replace(".", " ")
        if label == "epsilon":
            said += " in total" if releases_once(row[KIND]) else " per report"
        words.append(said if name == KIND else f"{label} {said}")
    return ", ".join(words) or "all runs"
