"""The total of a ledger's lines: every total that an owner sees is computed here.

It needs the base install alone, so it has no loss distributions. Equal reports are counted exactly; different ones by
Rényi divergences, which add up, or each kind with its share of delta: the smaller total counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from turnout.algorithm import Mechanism, Public, on_the_coin
from turnout.privacy.accounting import EVERYTHING, UP, Account, check_delta, report_epsilon, total_epsilon
from turnout.privacy.filter import renyi_epsilon, renyi_to_epsilon
from turnout.privacy.observer import FIXED_NUMBER, NOT_ADAPTIVE, ONE_LEDGER, UNWITNESSED

EXACTLY_COUNTED = 1_000_000
"""Up to this number of equal reports the total is exact (half a second); beyond, by Rényi divergences."""

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
        """The box for the account: it gives away at least as much as the report did."""
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
        """From what `body` wrote; without an epsilon there is no bound."""
        low, high = entry.get("box") or (None, None)
        return cls(float(entry.get("epsilon_per_report", math.inf)), low, high)


def kind_of(mechanism: Mechanism, epsilon: float) -> Kind:
    """What a report of a mechanism counts as, by its certificate's epsilon: its fixed public box where it has one.

    Example:
        >>> from turnout.algorithm import TrackingClamp
        >>> kind_of(TrackingClamp(0.5), 0.5)
        Kind(epsilon=0.5, low=None, high=None)
    """
    if mechanism.needs_public_average or math.isinf(epsilon):
        return Kind(epsilon)
    low, high = mechanism.box(Public())
    return Kind(epsilon, *on_the_coin(float(np.min(low)), float(np.max(high))))


UNKNOWN = Kind(math.inf)
"""A report of which nothing is known."""


@dataclass
class Spending:
    """Reports and releases about one private cost.

    Attributes:
        reports: how many of each kind.
        releases: the epsilon of each release.
        witnessed: whether the ledger's witness was never lost.

    Example:
        >>> spent = Spending(Counter({Kind(1.0): 500}))
        >>> spent.total(1e-6)
        total epsilon 320.9 at delta 1e-06 over 500 reports, against an observer of every report, if the number of
        reports did not depend on their content (exact binomial)
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
        """Add a line of the ledger."""
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
        """From what `body` wrote."""
        reports = Counter({Kind.read(line): int(line["reports"]) for line in body["reports"]})
        return cls(reports, [float(epsilon) for epsilon in body["releases"]])

    def beyond(self, other: Spending) -> Spending:
        """What was added since `other`, an earlier state of it."""
        return Spending(self.reports - other.reports, self.releases[len(other.releases) :])

    def total(self, delta: float, more: Mapping[Kind, int] | None = None, releasing: Iterable[float] = ()) -> Account:
        """The total epsilon at delta, so far; or with all that is still allowed, a number fixed ahead.

        Args:
            delta: the slack (see `Account`).
            more: future reports; None: the total so far. That number may have been chosen by somebody who saw the
                reports, and then delta would not hold: an assumption.
            releasing: future releases.
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
