"""The results of a sweep as one tidy table: a row a run, in the order of the design."""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.errors import MissingExtra, invalid
from turnout.simulation.output import check_writable, whole_file
from turnout.simulation.sweep_row import MEASURED, Row

SUFFIXES = (".csv", ".parquet")

ALWAYS = ("mechanism.kind", "capacity", "rounds", "seed")
"""Settings that are columns, whether or not they are varied."""


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

    rows: list[Row]
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
    def failed(self) -> list[Row]:
        """The rows of runs that gave an error."""
        return [row for row in self.rows if row["error"] is not None]

    @property
    def good(self) -> list[Row]:
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


def typed(columns: Sequence[str], rows: list[Row]) -> dict[str, type]:
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
