"""What the lines of a ledger add up to: every total that an owner is shown comes from here.

Base install only: a device has no loss distributions. Equal reports are counted exactly; different ones by Rényi
divergences, which add up, or each kind with its share of delta, whichever is less.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from turnout.errors import invalid
from turnout.privacy.accounting import EVERYTHING, UP, Account, check_delta, report_epsilon, total_epsilon
from turnout.privacy.filter import renyi_epsilon, renyi_to_epsilon
from turnout.privacy.observer import FIXED_NUMBER, NOT_ADAPTIVE, ONE_LEDGER, UNWITNESSED


@dataclass(frozen=True)
class Limit:
    """What the client allows for one private cost, over all runs and servers.

    Args:
        reports: at most so many, none worse than this:
        epsilon_per_report: the largest certified epsilon per report, against an observer of every report. A mechanism
            without a certificate needs its owner's consent each time, which is no limit.
        releases: at most so many releases (of mechanisms that release once, and then act on that alone).
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
        """As a ledger's line holds it; `read_limit` reads it back."""
        return dict(vars(self))


def read_limit(body: Mapping[str, Any], before: Limit | None) -> Limit:
    """A limit on file. Older turnouts wrote an infinite one where the owner had once accepted a mechanism without a
    certificate: that consent is over, and the last finite limit holds (or none at all, until the owner gives one)."""
    epsilon = float(body["epsilon_per_report"])
    if math.isinf(epsilon):
        epsilon = 0.0 if before is None else before.epsilon_per_report
    once = body.get("epsilon_per_release")
    return Limit(body["reports"], epsilon, body.get("releases", 1), epsilon if once is None else float(once))


def as_epsilon(name: str, value: float) -> float:
    """A certified epsilon as a float; infinite where there is no certificate."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value < 0:
        raise invalid(name, "0 or more, or math.inf for no certificate", repr(value), "give the certificate's value")
    return float(value)


EXACTLY_COUNTED = 1_000_000
"""Up to so many equal reports the total is exact (half a second); beyond, by Rényi divergences."""

ORDERS = tuple((1.0 + np.geomspace(1e-3, 1e5, 150)).tolist())
"""Rényi orders that are tried."""


class Kind(NamedTuple):
    """One kind of report.

    Attributes:
        epsilon: certified, per report; infinite without a certificate.
        low, high: the public box of its probability, if it is fixed; else None, and it counts as the worst report of
            that epsilon, a randomized response.
    """

    epsilon: float
    low: float | None = None
    high: float | None = None

    @property
    def box(self) -> tuple[float, float]:
        """The box to account with; never one that gives away less than the report did."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        wrong = 1.0 / (1.0 + math.exp(self.epsilon)) * (1.0 - 1e-15)
        return wrong, 1.0 - wrong

    def body(self) -> dict[str, Any]:
        """As part of a line of JSON."""
        found: dict[str, Any] = {"epsilon_per_report": plain(self.epsilon)}
        return found if self.low is None else found | {"box": [self.low, self.high]}

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """What `body` wrote; nothing known is no bound."""
        low, high = entry.get("box") or (None, None)
        return cls(float(entry.get("epsilon_per_report", math.inf)), low, high)


UNKNOWN = Kind(math.inf)
"""A report of which nothing is known."""


@dataclass
class Spending:
    """Reports and releases about one private cost.

    Attributes:
        reports: how many of each kind.
        releases: the epsilon of each release.
        witnessed: whether the ledger's witness was there all the time.

    Example:
        >>> spent = Spending(Counter({Kind(1.0): 500}))
        >>> spent.total(1e-6)
        total epsilon 320.9 at delta 1e-06 over 500 reports, against an observer of every report, if how many reports
        there are did not depend on what they said (exact binomial)
        >>> spent.total(1e-6, more={Kind(0.1): 500}).epsilon > 323.9
        True
    """

    reports: Counter[Kind] = field(default_factory=Counter)
    releases: list[float] = field(default_factory=list)
    witnessed: bool = True

    @property
    def spent(self) -> int:
        """How many reports."""
        return self.reports.total()

    def take(self, entry: Mapping[str, Any]) -> None:
        """Add what a line of the ledger says."""
        if entry["entry"] == "reserved":
            self.reports[Kind.read(entry)] += 1
        elif entry["entry"] == "released" and not entry.get("counted"):
            self.releases.append(float(entry["epsilon"]))
        elif entry["entry"] == "unwitnessed":
            self.witnessed = False
        elif entry["entry"] == "missing":
            lost = Spending.read(entry["spent"]) if "spent" in entry else Spending(Counter({UNKNOWN: entry["reports"]}))
            self.reports += lost.reports
            self.releases += lost.releases

    def body(self) -> dict[str, Any]:
        """As JSON holds it, for the witness."""
        reports = [kind.body() | {"reports": number} for kind, number in self.reports.items()]
        return {"reports": reports, "releases": [plain(epsilon) for epsilon in self.releases]}

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """What `body` wrote."""
        reports = Counter({Kind.read(line): int(line["reports"]) for line in body["reports"]})
        return cls(reports, [float(epsilon) for epsilon in body["releases"]])

    def beyond(self, other: Spending) -> Spending:
        """What this has and the other has not; `other` is an earlier state of it."""
        return Spending(self.reports - other.reports, self.releases[len(other.releases) :])

    def total(self, delta: float, more: Mapping[Kind, int] | None = None, releasing: Iterable[float] = ()) -> Account:
        """The total epsilon at delta of all of it; or of it and all that is still allowed, a number fixed ahead.

        Args:
            delta: the slack (see `Account`).
            more: reports to come; None: of what there is now. That number may have been chosen by somebody who saw the
                reports, and then delta would not hold: an assumption.
            releasing: releases to come.
        """
        check_delta(delta)
        reports = self.reports + Counter(dict(more or {}))
        releases, number = [*self.releases, *releasing], reports.total()
        found = total_of(reports, delta)
        if more is None and math.isfinite(found.epsilon) and found.epsilon > 0.0 and delta > 0.0:
            found = found.assuming(FIXED_NUMBER)
        if not self.witnessed:
            found = found.assuming(UNWITNESSED)
        if not releases:
            return found
        made = "1 release" if len(releases) == 1 else f"{len(releases)} releases"
        total = math.fsum([*releases, found.epsilon]) * (UP if len(releases) + bool(number) > 1 else 1.0)
        over = f"all reports from {made}{f' and {number:,} others' if number else ''}"
        how = f"pure, and {found.how}" if number else "pure"
        whole = Account(total, delta if number else 0.0, number, EVERYTHING, how, found.assumptions, over)
        return whole.assuming(ONE_LEDGER)


def total_of(reports: Mapping[Kind, int], delta: float) -> Account:
    """The total epsilon at delta of reports of several kinds, against an observer of every report.

    Example:
        >>> total_of({Kind(0.5): 100, Kind(1.0): 100}, 1e-6).epsilon < 100 * 0.5 + 100 * 1.0
        True
    """
    kinds = {kind: number for kind, number in reports.items() if number > 0 and kind.epsilon > 0.0}
    number = sum(reports.values())
    if not kinds:
        return Account(0.0, delta, number, EVERYTHING, "nothing was reported" if not number else "nothing private")
    if any(math.isinf(kind.epsilon) for kind in kinds):
        return Account(math.inf, delta, number, EVERYTHING, "reports without a certificate")
    assumed = () if len(kinds) == 1 else (NOT_ADAPTIVE,)
    pure = math.fsum(kind.epsilon * count for kind, count in kinds.items()) * UP
    tried = [(pure, "sum of the reports")]
    if delta > 0.0:
        exactly = max(kinds.values()) <= EXACTLY_COUNTED
        if len(kinds) > 1 or not exactly:  # for one kind: the same total as everywhere else
            tried.append((_by_renyi(kinds, delta), "Rényi divergences"))
        if exactly and len(kinds) <= 16:
            parts = [total_epsilon(*kind.box, count, delta / len(kinds)) for kind, count in kinds.items()]
            how = parts[0].how if len(parts) == 1 else "each kind with its share of delta"
            tried.append((math.fsum(part.epsilon for part in parts) * (1.0 if len(parts) == 1 else UP), how))
    epsilon, how = min(tried)
    return Account(epsilon, delta, number, EVERYTHING, how, assumed)


def plain(number: float) -> float | str:
    """As JSON holds it; `float` reads both back."""
    return number if math.isfinite(number) else str(number)


def _by_renyi(kinds: Mapping[Kind, int], delta: float) -> float:
    best = math.inf
    for order in ORDERS:
        if any(order * report_epsilon(*kind.box) > 600.0 for kind in kinds):
            break
        divergence = math.fsum(count * renyi_epsilon(*kind.box, order) for kind, count in kinds.items()) * UP
        best = min(best, renyi_to_epsilon(divergence, order, delta))
    return best
