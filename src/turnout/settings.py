"""Read settings strictly: a misspelt key is an error, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnout.errors import FileProblem, nearest

FLEET_KEYS = ("devices", "weight", "safety", "timing", "wait_for")
"""What only `turnout serve` reads in a file that a simulation reads too."""

RUN_KEYS = (
    *("rounds", "seed", "engine", "mechanism", "controller", "start", "schedule", "averaging", "keep"),
    *("observer", "honest", "assuming", "noise"),
    *FLEET_KEYS,
)
"""The settings of a run besides its population and capacity, for readers that need only these two."""

_REQUIRED = object()


class Table:
    """One table of a TOML file, read key by key; `finish` refuses unknown keys.

    Args:
        values: the table.
        name: where it stands, for messages.
        options: the options of a command line that give the same, by dotted name; any other is given with --set.

    Example:
        >>> table = Table({"beta": 3.5, "bta": 1}, "mechanism")
        >>> table.number("beta")
        3.5
        >>> table.finish()
        Traceback (most recent call last):
        ...
        ValueError: mechanism.bta is not a known setting (known: beta): did you mean 'beta'?
    """

    def __init__(self, values: Mapping[str, Any], name: str = "", options: Mapping[str, str] | None = None) -> None:
        self._values = dict(values)
        self._name, self._options = name, options
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def path(self, key: str) -> str:
        """The dotted name of a key, as it appears in messages."""
        return f"{self._name}.{key}" if self._name else key

    def take(self, key: str, kinds: type | tuple[type, ...], described: str, default: Any = _REQUIRED) -> Any:
        """The value of a key, checked for its type; the default if absent."""
        self._asked.add(key)
        if key not in self._values:
            if default is _REQUIRED:
                raise ValueError(f"{self.path(key)} is missing: {self._how_to_give(key, described)}")
            return default
        value = self._values[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise ValueError(f"{self.path(key)} must be {described}, got {value!r}: change its value in the settings")
        return value

    def _how_to_give(self, key: str, described: str) -> str:
        """What to do about a missing key: correct a misspelt one, or give it, as an option where there are any."""
        for other in self._values:
            near = nearest(other, [key], "") if other not in self._asked else ""
            if near:
                return f"{self.path(other)} is not a known setting: {near}"
        if self._options is None:
            return f"give {described}"
        option = self._options.get(self.path(key)) or f"--set {self.path(key)}=…"
        return f"give {option}, {described}"

    def number(self, key: str, default: Any = _REQUIRED) -> float:
        """A number."""
        value = self.take(key, (int, float), "a number", default)
        return value if value is default else float(value)

    def whole(self, key: str, default: Any = _REQUIRED) -> int:
        """A whole number."""
        return self.take(key, int, "a whole number", default)  # type: ignore[no-any-return]

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        """A text."""
        return self.take(key, str, "a text in quotes", default)  # type: ignore[no-any-return]

    def flag(self, key: str, default: Any = _REQUIRED) -> bool:
        """True or false."""
        return self.take(key, bool, "true or false", default)  # type: ignore[no-any-return]

    def sequence(self, key: str, default: Any = _REQUIRED) -> list[Any]:
        """A list."""
        return self.take(key, list, "a list in square brackets", default)  # type: ignore[no-any-return]

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty if it is missing."""
        found = self.sequence(key, [])
        for text in found:
            if not isinstance(text, str):
                raise ValueError(f"{self.path(key)} must be a list of texts, got {text!r} in it: put it in quotes")
        return tuple(found)

    def table(self, key: str, default: Any = _REQUIRED) -> Table:
        """A table within this one."""
        return Table(self.take(key, dict, "a table", default), self.path(key), self._options)

    def tables(self, key: str, default: Any = _REQUIRED) -> list[Table]:
        """A list of tables within this one."""
        entries = self.take(key, list, "a list of tables", default)
        for number, entry in enumerate(entries):
            if not isinstance(entry, dict):
                raise ValueError(
                    f"{self.path(key)}[{number}] must be a table, got {entry!r}: write [[{self.path(key)}]]"
                )
        return [Table(entry, f"{self.path(key)}[{number}]") for number, entry in enumerate(entries)]

    def ignore(self, *keys: str) -> None:
        """Allow these keys: another reader of the same file uses them."""
        self._asked.update(keys)

    def finish(self) -> None:
        """Refuse every key that was not asked for."""
        for key in self._values:
            if key not in self._asked:
                known = ", ".join(sorted(self._asked))
                hint = nearest(key, sorted(self._asked), "remove it")
                raise ValueError(f"{self.path(key)} is not a known setting (known: {known}): {hint}")


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as nested dictionaries.

    Raises:
        FileProblem: the file is missing, unreadable, or not TOML.
    """
    import tomllib  # a device may have no such file

    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileProblem(f"{path}: cannot be read ({error.strerror}): check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileProblem(f"{path}: not a TOML file ({error}): correct that line") from error
