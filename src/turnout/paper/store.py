"""Numbers on disk, so that an interrupted reproduction finishes the rest only."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import turnout
from turnout.files import whole_file
from turnout.paper.runs import Numbers
from turnout.paper.settings import SETTINGS


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
            return False  # not ours, or cut short: made again

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
