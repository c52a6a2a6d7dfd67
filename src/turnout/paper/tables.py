"""The tables of numbers that figures, claims and the page share: made on all cores, and kept on disk.

An interrupted reproduction makes only the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import turnout
from turnout.files import whole_file
from turnout.paper.runs import Numbers, forecast, full_run, seeded_run
from turnout.paper.settings import SETTINGS, mechanisms
from turnout.simulation import spread


class Store:
    """Named tables of numbers in a folder; each is made once for the same code and settings.

    Example:
        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> store.numbers("answer", lambda: {"value": np.array(42)})["value"]
        array(42)
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._key = fingerprint()

    def has(self, name: str) -> bool:
        """Whether a table is there, made by this code with these settings."""
        path = self._path(name)
        if not path.exists():
            return False
        try:
            with path.open("rb") as handle, np.load(handle) as file:
                return str(file["fingerprint"]) == self._key
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return False  # another file, or incomplete: made again

    def numbers(self, name: str, make: Callable[[], Numbers]) -> Numbers:
        """The table of that name: read if it is there, else made and kept."""
        if self.has(name):
            return self.read(name)
        found = make()
        self.keep(name, found)
        return found

    def read(self, name: str) -> Numbers:
        """The table of that name, which is there."""
        with np.load(self._path(name)) as file:
            return {key: file[key] for key in file.files if key != "fingerprint"}

    def keep(self, name: str, numbers: Numbers) -> None:
        """Write a table."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            np.savez(file, fingerprint=np.array(self._key), **numbers)  # type: ignore[arg-type]

    def _path(self, name: str) -> Path:
        return self.folder / "data" / f"{name}.npz"


def fingerprint() -> str:
    """Changes with any setting of the reproduction, and any source file that its numbers or figures come from."""
    digest = hashlib.sha256(json.dumps({name: str(setting.value) for name, setting in SETTINGS.items()}).encode())
    root = Path(turnout.__file__).parent
    for layer in ("problem", "algorithm", "theory", "privacy", "simulation", "paper"):
        for path in sorted((root / layer).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


Say = Callable[[str, int, int], None]
"""Called with a stage, how many of its parts are done, and how many there are to do."""


class _Table(NamedTuple):
    """A table that is to be made: of which stage, and what makes each of its parts."""

    stage: str
    parts: list[Callable[[], Numbers]]
    stacked: bool = False


def _tables() -> dict[str, _Table]:
    """All of them by name, in the order in which they are made."""
    five = mechanisms().items()
    runs = {f"run-{name}": _Table("one run in full", [partial(full_run, made)]) for name, made in five}
    expected = {f"forecast-{name}": _Table("forecast", [partial(forecast, made)]) for name, made in five}
    seeded = {
        f"{kind}-{name}": _Table(kind, [partial(seeded_run, made, seed, kind) for seed in _chosen()], stacked=True)
        for kind in ("seeds", "populations")
        for name, made in five
    }
    # A mechanism's first run compiles it. Two cores compile the two of them at once; the next runs come after the
    # forecasts, and find both compiled.
    first = dict(list(runs.items())[:2])
    return first | expected | runs | seeded


def make_tables(store: Store, say: Say) -> None:
    """Make the missing tables, and store each as soon as it is complete."""
    wanted = {name: table for name, table in _tables().items() if not store.has(name)}
    todo = {(name, part): make for name, table in wanted.items() for part, make in enumerate(table.parts)}
    totals = Counter(wanted[name].stage for name, _ in todo)
    done: Counter[str] = Counter()
    found: dict[str, dict[int, Numbers]] = {}
    for stage in totals:
        say(stage, 0, totals[stage])
    with contextlib.closing(on_all_cores(todo)) as results:
        for (name, part), numbers in results:
            table, parts = wanted[name], found.setdefault(name, {})
            parts[part] = numbers
            if len(parts) == len(table.parts):
                store.keep(name, _stacked(found.pop(name)) if table.stacked else numbers)
            done[table.stage] += 1
            say(table.stage, done[table.stage], totals[table.stage])


def on_all_cores(todo: Mapping[Any, Callable[[], Any]]) -> Generator[tuple[Any, Any], None, None]:
    """(key, result) of each call as soon as it is there; the calls are made in other processes."""
    return spread(_called, [(key, call, dict(SETTINGS)) for key, call in todo.items()])


def full_runs(store: Store) -> dict[str, Numbers]:
    """One run of each of the five settings, in full."""
    return {name: store.read(f"run-{name}") for name in mechanisms()}


def seeds(store: Store, *, populations: bool = False) -> dict[str, Numbers]:
    """The five settings over a hundred seeds: of the coins, or of coins and population."""
    return {name: store.read(f"{'populations' if populations else 'seeds'}-{name}") for name in mechanisms()}


def forecasts(store: Store) -> dict[str, Numbers]:
    """The forecast of each of the five settings."""
    return {name: store.read(f"forecast-{name}") for name in mechanisms()}


def _called(task: tuple[Hashable, Callable[[], Any], dict[str, Any]]) -> tuple[Hashable, Any]:
    key, call, settings = task
    SETTINGS.update(settings)  # those of the process that asks, which may have changed them
    return key, call()


def _chosen() -> range:
    return range(SETTINGS["seeds"].value)


def _stacked(parts: dict[int, Numbers]) -> Numbers:
    """One table of many runs, shape (seeds, …), in the order of the seeds."""
    return {name: np.array([parts[part][name] for part in sorted(parts)]) for name in parts[0]}
