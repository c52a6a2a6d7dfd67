"""One file per mechanism; this one finds them by name: turnout's own, and those of other installed packages."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from turnout.algorithm.mechanism import Mechanism
from turnout.errors import invalid, nearest
from turnout.settings import Table

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["MECHANISMS", "check_known", "check_name", "in_words", "mechanism_from_settings"]

_OURS = {
    "classical": "classical:Classical",
    "paper-coin": "paper_coin:PaperCoin",
    "capped-coin": "capped_coin:CappedCoin",
    "clamp": "clamp:Clamp",
    "randomized-response": "randomized_response:RandomizedResponse",
    "memoized": "memoized:Memoized",
    "learned-memoized": "learned_memoized:LearnedMemoized",
    "tracking-clamp": "tracking_clamp:TrackingClamp",
}
"""The file and the class of each name. Plans show them in this order."""

_GROUP = "turnout.mechanisms"


class Mechanisms(Mapping[str, type[Mechanism]]):
    """Every mechanism by its name.

    Another package's is known wherever the package is installed: it has an entry point in the group
    `turnout.mechanisms`, with the mechanism's kind for a name. So every process knows it, also workers, coordinators
    and devices, and no message can make a device load what its owner has not installed. It is imported when it is
    asked for by name. It cannot take the name of one of turnout's own.
    """

    def __getitem__(self, kind: str) -> type[Mechanism]:
        if kind in _OURS:
            module, _, name = _OURS[kind].partition(":")
            ours: type[Mechanism] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
            return ours
        return _load(_installed()[kind])

    def __contains__(self, kind: object) -> bool:
        return kind in _OURS or kind in _installed()

    def __iter__(self) -> Iterator[str]:
        return iter([*_OURS, *_installed()])

    def __len__(self) -> int:
        return len(_OURS) + len(_installed())

    def has_proofs_of(self, mechanism: Mechanism) -> bool:
        """Whether it is one of turnout's own, so that docs/proofs covers what its box alone does not show."""
        return mechanism.kind in _OURS and type(mechanism) is self[mechanism.kind]


MECHANISMS = Mechanisms()


@lru_cache(maxsize=1)
def _installed() -> dict[str, EntryPoint]:
    """The mechanisms of other packages."""
    from importlib.metadata import entry_points  # slow to load: not for a device with one of turnout's own

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=_GROUP):
        if entry.name in _OURS or found.setdefault(entry.name, entry).value != entry.value:
            first = "turnout itself" if entry.name in _OURS else found[entry.name].value
            told = f"mechanism {entry.name!r} of {_package(entry)} is left out: the name is taken by {first}"
            warnings.warn(f"{told}; rename its entry point and its kind", stacklevel=2)
    return found


@lru_cache(maxsize=256)
def _load(entry: EntryPoint) -> type[Mechanism]:
    name = f"mechanism {entry.name!r} of {_package(entry)}"
    try:
        found = entry.load()
    except Exception as error:  # whatever the package raises
        told = f"{type(error).__name__}: {error}"
        raise invalid(name, f"importable as {entry.value}", told, "repair or uninstall the package") from error
    if not (isinstance(found, type) and issubclass(found, Mechanism) and is_dataclass(found)):
        raise invalid(name, "a dataclass that inherits Mechanism", repr(found), "point its entry point at the class")
    if found.kind != entry.name:
        raise invalid(name, "called as its kind is", f"kind {found.kind!r}", "give both one name")
    return found


def _package(entry: EntryPoint) -> str:
    return "turnout" if entry.dist is None else f"package {entry.dist.name!r}"


def in_words(settings: Mapping[str, Any]) -> str:
    """The settings of a mechanism (or a controller) for people: its name and its numbers, and what an epsilon is for.

    Example:
        >>> in_words({"kind": "clamp", "epsilon": 1.0, "center": 0.5})
        'clamp, epsilon 1 per report, center 0.5'
    """
    return MECHANISMS.get(settings["kind"], Mechanism).describe(settings)


def check_name(mechanism: Mechanism) -> None:
    """Refuse a mechanism that has the name of another one: what is printed of it would be the other's promise.

    Raises:
        ValueError: it has.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> check_name(Clamp(1.0))
    """
    if type(mechanism) is not MECHANISMS.get(mechanism.kind, type(mechanism)):
        got = f"{mechanism.kind!r}, which is the name of turnout's {MECHANISMS[mechanism.kind].__name__}"
        raise invalid(f"the kind of {type(mechanism).__name__}", "a name of its own", got, "give it another kind")
    own_settings = type(mechanism).settings is not Mechanism.settings
    if own_settings and (told := mechanism.settings().get("kind")) != mechanism.kind:
        name = f"the kind in the settings of {type(mechanism).__name__}"
        raise invalid(name, f"its own, {mechanism.kind!r}", repr(told), "leave settings() as it is, or correct it")


def check_known(mechanism: Mechanism) -> None:
    """Refuse a mechanism that others cannot make again from its settings, by its name.

    Raises:
        ValueError: it has no name of its own.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> check_known(Clamp(1.0))
    """
    if type(mechanism) is not MECHANISMS.get(mechanism.kind):
        allowed = f"one that every client knows by name: {', '.join(MECHANISMS)}"
        remedy = f"use one of these, or install yours with an entry point in the group {_GROUP!r}"
        raise invalid("mechanism", allowed, f"{type(mechanism).__name__} ({mechanism.kind})", remedy)


def mechanism_from_settings(table: Table) -> Mechanism:
    """A mechanism from its table: `kind`, and its parameters by name (a number, or a list where it takes one).

    Example:
        >>> mechanism_from_settings(Table({"kind": "paper-coin", "beta": 3.5}))
        PaperCoin(beta=3.5)
    """
    kind = table.text("kind")
    if kind not in MECHANISMS:
        remedy = nearest(kind, MECHANISMS, "use one of these names")
        raise invalid(table.path("kind"), f"one of {', '.join(MECHANISMS)}", f"{kind!r}", remedy)
    return MECHANISMS[kind].from_settings(table)


def __dir__() -> list[str]:
    return __all__
