"""One file for each mechanism; this one knows them by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.mechanisms.capped_coin import CappedCoin
from turnout.algorithm.mechanisms.clamp import Clamp
from turnout.algorithm.mechanisms.classical import Classical
from turnout.algorithm.mechanisms.learned_memoized import LearnedMemoized
from turnout.algorithm.mechanisms.memoized import Memoized
from turnout.algorithm.mechanisms.paper_coin import PaperCoin
from turnout.algorithm.mechanisms.randomized_response import RandomizedResponse
from turnout.algorithm.mechanisms.tracking_clamp import TrackingClamp
from turnout.errors import invalid
from turnout.settings import Table

__all__ = [
    "MECHANISMS",
    "CappedCoin",
    "Clamp",
    "Classical",
    "LearnedMemoized",
    "Mechanism",
    "Memoized",
    "PaperCoin",
    "RandomizedResponse",
    "TrackingClamp",
    "check_known",
    "in_words",
    "mechanism_from_settings",
    "releases_once",
]

MECHANISMS: dict[str, type[Mechanism]] = {
    mechanism.kind: mechanism
    for mechanism in (
        Classical,
        PaperCoin,
        CappedCoin,
        RandomizedResponse,
        Clamp,
        TrackingClamp,
        Memoized,
        LearnedMemoized,
    )
}


def in_words(settings: Mapping[str, Any]) -> str:
    """The settings of a mechanism (or a controller) for people: its name and its numbers, and what an epsilon is for.

    Example:
        >>> in_words({"kind": "clamp", "epsilon": 1.0, "center": 0.5})
        'clamp, epsilon 1 per report, center 0.5'
    """
    given = dict(settings)
    kind = str(given.pop("kind"))
    once = releases_once(kind)
    for name in ("least", "designed"):  # the numbers behind the levels; and what the promise says in words
        given.pop(name, None)
    return ", ".join([kind, *(_setting(name, value, once) for name, value in given.items() if np.size(value))])


def releases_once(kind: str | None) -> bool:
    """Whether the mechanism of this name releases something at joining alone, so that its epsilon is for a lifetime.

    Example:
        >>> releases_once("memoized"), releases_once("clamp"), releases_once("of my own")
        (True, False, False)
    """
    return MECHANISMS[kind].releases_once if kind in MECHANISMS else False


def _setting(name: str, value: Any, once: bool) -> str:
    """One setting for people; of a list, how long it is."""
    if np.ndim(value):
        return f"{len(value)} {name}" if name.endswith("s") else f"{name} of {len(value)} clients"
    said = value if isinstance(value, str) else f"{value:.4g}"
    if name == "epsilon" and float(said) < value:  # never told smaller than it is
        said = repr(float(value))
    if name == "epsilon":
        return f"total epsilon {said}" if once else f"epsilon {said} per report"
    return f"{name} {said}"


def check_known(mechanism: Mechanism) -> None:
    """Refuse a mechanism that others cannot make again from its settings: they know it by name.

    Raises:
        ValueError: it is none of this package's.

    Example:
        >>> check_known(Clamp(1.0))
    """
    if type(mechanism) is not MECHANISMS.get(mechanism.kind):
        allowed, remedy = f"one that every client knows by name: {', '.join(MECHANISMS)}", "use one of these"
        raise invalid("mechanism", allowed, f"{type(mechanism).__name__} ({mechanism.kind})", remedy)


def mechanism_from_settings(table: Table) -> Mechanism:
    """A mechanism from its table: `kind`, and its parameters by name (a number, or a list where it takes one).

    Example:
        >>> mechanism_from_settings(Table({"kind": "paper-coin", "beta": 3.5}))
        PaperCoin(beta=3.5)
    """
    kind = table.text("kind")
    if kind not in MECHANISMS:
        raise invalid(table.path("kind"), f"one of {', '.join(MECHANISMS)}", f"{kind!r}", "use one of these names")
    values = {}
    for field in fields(MECHANISMS[kind]):  # type: ignore[arg-type]
        usual = {} if field.default is MISSING else {"default": field.default}
        kinds: Any = bool if field.type == "bool" else (int, float, list, tuple, np.ndarray)
        what = "true or false" if kinds is bool else "a number (or a list, where it takes one)"
        value = table.take(field.name, kinds, what, **usual)
        values[field.name] = np.array(value, dtype=np.float64) if isinstance(value, list) else value
    table.finish()
    return MECHANISMS[kind](**values)


def __dir__() -> list[str]:
    return __all__
