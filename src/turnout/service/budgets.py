"""How long a budget of reports lasts, in words: the same for the owner of a device and for the operator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnout.service.rules import Rules

USUAL_REPORTS = 10_000
"""The reports that a device allows about its cost, unless its owner says otherwise."""

LITTLE_LEFT = (0.1, 0.01)
"""Shares of a budget at which owner and operator are warned."""

SPENT, DECLINED = "budget", "declined"
LEAVING = {SPENT: "its budget of reports is spent", DECLINED: "its owner does not allow the mechanism"}
"""Why a device leaves, as its last message may say it, and in words. It says nothing else: not the budget, not the
cost."""

_SPANS = ((86400.0 * 365.25, "years"), (86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def span(seconds: float) -> str:
    """A time for people, with three digits.

    Example:
        >>> span(100_000), span(86_400 * 700), span(86_400 * 800), span(45)
        ('27.8 hours', '700 days', '2.19 years', '45 seconds')
    """
    unit, name = next((span for span in _SPANS if seconds >= 2.0 * span[0]), _SPANS[-1])
    return f"{seconds / unit:.3g} {name}"


def lasting(reports: int, round_seconds: float | None, what: str = "report") -> str:
    """How long reports last, one per round.

    Args:
        reports: how many.
        round_seconds: from one round to the next; 0 or None: not known, so that only their number is given.
        what: another word for one of them.

    Example:
        >>> lasting(10_000, 10.0), lasting(10_000, None), lasting(1, 60.0)
        ('10,000 reports: 27.8 hours at 10-second rounds', '10,000 reports', '1 report: 60 seconds at 60-second rounds')
    """
    number = f"{reports:,} {what}{'' if reports == 1 else 's'}"
    if not reports or not round_seconds or not 0.0 < round_seconds < math.inf:
        return number
    return f"{number}: {span(reports * round_seconds)} at {round_seconds:g}-second rounds"


def is_little(left: int, limit: int) -> float | None:
    """The smallest of `LITTLE_LEFT` that what is left of a budget does not exceed; None where there is enough.

    Example:
        >>> is_little(1001, 10_000), is_little(1000, 10_000), is_little(100, 10_000)
        (None, 0.1, 0.01)
    """
    return min((share for share in LITTLE_LEFT if left <= share * limit), default=None)


def budget_of(rules: Rules) -> str:
    """What a run takes of the devices' budgets, and how long the usual one lasts: a sentence for the operator.

    Example:
        >>> from turnout.algorithm import Clamp, Memoized, SelfTuningController
        >>> from turnout.service import Rules, Safety
        >>> budget_of(Rules(Clamp(1.0), SelfTuningController(), Safety("absent")))
        "each report counts against its owner's limit; the usual limit lasts 10,000 reports: 27.8 hours at 10-second \
rounds, then the device leaves (for longer: turnout plan --devices)"
        >>> budget_of(Rules(Memoized(6.0, price=3.0), SelfTuningController(), Safety("absent")))
        'one release per device, for a lifetime: no limit of reports is used up'
    """
    if rules.mechanism.releases_once:
        return "one release per device, for a lifetime: no limit of reports is used up"
    lasts = f"{lasting(USUAL_REPORTS, rules.timing.round)}, then the device leaves (for longer: turnout plan --devices)"
    return f"each report counts against its owner's limit; the usual limit lasts {lasts}"
