"""The certified public bound on what the reports give away, against the server, which sees every one of them."""

from __future__ import annotations

import math

from turnout.algorithm.mechanism import Mechanism
from turnout.privacy.account_of import account_of
from turnout.privacy.accounting import EVERY_REPORT, Account, check_delta, shown
from turnout.privacy.certificate import certificate


class PublicAccount:
    """What any client has given away at most, from public data alone: the mechanism and how often it was asked.

    Args:
        mechanism: what the clients use.
        delta: the slack of the total (see `Account`).

    Attributes:
        certified: the epsilon of the certificate, against the server; infinite where there is none.
        per: what it covers: one "report", or a "lifetime" (all reports together, from a release made once).
        delta: as given.

    Example:
        >>> from turnout.algorithm.mechanisms.clamp import Clamp
        >>> PublicAccount(Clamp(epsilon=0.1), delta=1e-6).total(1000)
        total epsilon 19.35 at delta 1e-06 over 1,000 reports, against an observer of every report (exact binomial)
    """

    def __init__(self, mechanism: Mechanism, delta: float) -> None:
        check_delta(delta)
        found = certificate(mechanism)
        self.certified, self.per, self.delta = found.epsilon, found.per, delta
        self._mechanism = mechanism

    def total(self, reports: int) -> Account:
        """The total over so many reports at delta, an upper bound for every client."""
        if reports < 1 and self.per == "report":
            return Account(0.0, self.delta, 0, EVERY_REPORT, "no report yet")
        return account_of(self._mechanism, max(reports, 1), self.delta)

    def sentence(self, reports: int) -> str:
        """The account in one line for the log."""
        if math.isinf(self.certified):
            return "no bound against the server: this mechanism has no certificate"
        if self.per == "lifetime":
            return f"pure epsilon {shown(self.certified)} for a lifetime, against the server"
        total = self.total(reports)
        return (
            f"epsilon {shown(self.certified)} per report, total epsilon {shown(total.epsilon)} at delta "
            f"{self.delta:.3g} over {reports} reports, against the server that sees every report"
        )
