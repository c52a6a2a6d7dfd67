"""What a client allows about one private cost; no server can change it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnout.client.witness import Witness
from turnout.errors import FileProblem, invalid
from turnout.files import Disk, Head, entries_of
from turnout.privacy import Spending


@dataclass(frozen=True)
class Limit:
    """What the client allows for one private cost, over all runs and servers.

    Args:
        reports: the largest number of reports.
        epsilon_per_report: the largest certified epsilon per report, against an observer of every report. A mechanism
            without a certificate needs its owner's consent each time, which is no limit.
        releases: the largest number of releases (of mechanisms that release once, and then act on that alone).
        epsilon_per_release: the largest epsilon of one release, for the lifetime of the cost; as per report, unless
            given.

    Example:
        >>> Limit(reports=1000, epsilon_per_report=0.5)
        Limit(reports=1000, epsilon_per_report=0.5, releases=1, epsilon_per_release=0.5)
    """

    reports: int
    epsilon_per_report: float
    releases: int = 1
    epsilon_per_release: float | None = None

    def __post_init__(self) -> None:
        for name in ("reports", "releases"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise invalid(f"limit {name}", "a whole number from 0", repr(number), "try 1000 reports, 1 release")
        given = {"epsilon_per_report": self.epsilon_per_report}
        given["epsilon_per_release"] = (
            self.epsilon_per_report if self.epsilon_per_release is None else self.epsilon_per_release
        )
        for name, value in given.items():
            epsilon = as_epsilon(f"limit {name}", value)
            if math.isinf(epsilon):
                remedy = "a mechanism without a certificate is accepted each time, with accept_uncertified=True"
                raise invalid(f"limit {name}", "finite", epsilon, remedy)
            object.__setattr__(self, name, epsilon)

    @property
    def for_release(self) -> float:
        """The largest epsilon of one release."""
        assert self.epsilon_per_release is not None  # set above
        return self.epsilon_per_release

    def beyond(self, other: Limit) -> tuple[str, float, float] | None:
        """(name, the other's, its own) of the first part that allows more than the other does; None if none does."""
        for name, own in vars(self).items():
            if own > getattr(other, name):
                return name.replace("_", " "), getattr(other, name), own
        return None

    def body(self) -> dict[str, Any]:
        """As a ledger's line holds it: the arguments by name."""
        return dict(vars(self))


def as_epsilon(name: str, value: float) -> float:
    """A certified epsilon as a float; infinite where there is no certificate."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value < 0:
        raise invalid(name, "0 or more, or math.inf for no certificate", repr(value), "give the certificate's value")
    return float(value)


def as_round(round: int) -> int:
    """A round's number as an int."""
    if isinstance(round, bool) or not hasattr(round, "__index__") or not 0 <= round < 2**53:
        raise invalid("round", "a whole number from 0 to 2^53 - 1", repr(round), "count rounds from 0")
    return int(round)


def read_ledger(path: Path) -> tuple[Spending, Limit | None, str]:
    """(what a ledger's lines add up to, what it allows, what is wrong with it). No lock is taken.

    There is no limit if there is no ledger; nothing is wrong: an empty text.
    """
    spending, limit, head, place = Spending(), None, Head(), ""
    for entry in entries_of(path):
        spending.take(entry)
        head, place = Head(entry["number"], entry["hash"]), entry.get("place", place)
        if "limit" in entry:
            limit = Limit(**entry["limit"])
    if limit is None:
        return spending, None, ""
    try:
        note = Witness(Path(place), path, Disk()).read()
    except FileProblem as problem:
        return spending, limit, str(problem)
    if note is None:
        return spending, limit, f"no witness at {place}: an older copy could not be detected"
    behind = note.head.number - head.number
    return spending, limit, f"{behind} entries behind its witness {place}: an older copy, or damaged" * (behind > 0)


def limit_with(path: Path, given: Mapping[str, Any], usual: Limit) -> Limit:
    """What a client's owner allows: what is given now, and else as the ledger has it, or else as usual.

    Example:
        >>> limit_with(Path("no such ledger"), {"reports": 20, "epsilon_per_report": None}, Limit(1000, 1.0))
        Limit(reports=20, epsilon_per_report=1.0, releases=1, epsilon_per_release=1.0)
    """
    changes = {name: value for name, value in given.items() if value is not None}
    _, before, _ = read_ledger(path)
    if before is None and "epsilon_per_report" in changes:
        changes = {"epsilon_per_release": None} | changes  # then as per report, unless given
    return replace(before or usual, **changes)
