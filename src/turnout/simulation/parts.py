"""The parts of a run: one, or several where it was continued with another mechanism, and what all of them promise."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from turnout.algorithm.mechanisms import MECHANISMS, in_words, mechanism_from_settings
from turnout.privacy.certificate import Certificate, certificate, worst_of
from turnout.settings import Table

UNKNOWN = "unknown: not one of turnout's mechanisms"

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
    parts = [part["mechanism"] for part in provenance.get("earlier", [])]
    promises = [_promise(settings) for settings in [*parts, provenance["mechanism"]]]
    known = [promise for promise in promises if promise is not None]
    if not parts:
        return str(known[0]) if known else UNKNOWN
    worst = worst_of(known, mechanisms_in_words(provenance)) if known else None
    if worst is not None and (len(known) == len(promises) or not worst.is_bounded):
        return str(worst)
    return f"{UNKNOWN} ({mechanisms_in_words(provenance)})"


def _promise(settings: Mapping[str, Any]) -> Certificate | None:
    if settings["kind"] not in MECHANISMS:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were shown when the run was made
        return certificate(mechanism_from_settings(Table(settings, "mechanism")))
