"""The parts of a run: one, or several where it was continued with another mechanism, and what all of them promise."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnout.algorithm.client import Averaging
from turnout.algorithm.mechanisms import MECHANISMS, in_words, mechanism_from_settings
from turnout.privacy.certificate import Certificate, certificate, worst_of
from turnout.privacy.observer import Observer
from turnout.settings import Table

UNKNOWN = "unknown: not one of turnout's mechanisms"

PRIVATE_AVERAGE = "the box follows an average that moved by the probability in an earlier part, and is not public"

Provenance = Mapping[str, Any]


def mechanisms_in_words(provenance: Provenance) -> str:
    """The mechanisms of a run, in the order in which they acted.

    Example:
        >>> before = {"rounds": 1000, "mechanism": {"kind": "classical"}}
        >>> mechanisms_in_words({"mechanism": {"kind": "clamp", "epsilon": 1.0}, "earlier": [before]})
        '1,000 rounds of classical, then clamp, epsilon 1 per report'
    """
    words = [f"{part['rounds']:,} rounds of {in_words(part['mechanism'])}" for part in provenance.get("earlier", [])]
    return ", then ".join([*words, in_words(provenance["mechanism"])])


def privacy_in_words(provenance: Provenance) -> str:
    """What a run promises: the worst of its parts. A mechanism from outside this package promises nothing here.

    Example:
        >>> privacy_in_words({"mechanism": {"kind": "classical"}})
        'no bound per report: the probability is the intent itself'
    """
    parts, observer = [*provenance.get("earlier", []), provenance], observer_of(provenance)
    promises = [_promise(part, parts[:number], observer) for number, part in enumerate(parts)]
    known = [promise for promise in promises if promise is not None]
    if len(parts) == 1:
        return str(known[0]) if known else UNKNOWN
    worst = worst_of(known, mechanisms_in_words(provenance)) if known else None
    if worst is not None and (len(known) == len(promises) or not worst.is_bounded):
        return str(worst)
    return f"{UNKNOWN} ({mechanisms_in_words(provenance)})"


def observer_of(provenance: Provenance) -> Observer:
    """Who looks on, as the run was told: an observer of every report, unless it was told more.

    Example:
        >>> print(observer_of({"observer": {"sees": "sum", "honest": 8}}))
        an observer of the sum alone, with 8 honest others
    """
    found = provenance.get("observer", {})
    return Observer(**found | {"assuming": tuple(found.get("assuming", ()))})


def check_parts(parts: Sequence[Provenance], observer: Observer) -> None:
    """Refuse to go on, for an observer against whom an earlier part has no promise.

    Raises:
        ValueError: the reason, and the remedy.
    """
    for part in parts:
        _promise(part, [], observer)


def _promise(part: Provenance, before: Sequence[Provenance], observer: Observer) -> Certificate | None:
    """Of one part, after those before it."""
    if part["mechanism"]["kind"] not in MECHANISMS:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were shown when the run was made
        mechanism = mechanism_from_settings(Table(part["mechanism"], "mechanism"))
    averaging = Averaging(**part.get("averaging", {}))
    found = certificate(mechanism, replace(observer, averaging=averaging, weights=None))
    if mechanism.needs_public_average and any(_moved_by(one) != "bit" for one in before):
        return replace(found, epsilon=math.inf, why=PRIVATE_AVERAGE)
    return found


def _moved_by(part: Provenance) -> str | None:
    """What averages moved by; None: a file of an earlier version does not say."""
    by: str | None = part.get("averaging", {}).get("by")
    return by
