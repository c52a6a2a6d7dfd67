"""The certified public bound on what the reports give away, against the server, which sees every one of them."""

from __future__ import annotations

import math

from turnout.algorithm.mechanism import Mechanism
from turnout.privacy.account_of import account_of
from turnout.privacy.accounting import Account, check_delta, shown
from turnout.privacy.certificate import certificate
from turnout.privacy.observer import FIXED_NUMBER, Observer


class PublicAccount:
    """What any client has given away at most, from public data alone: the mechanism and how often it was asked.

    Args:
        mechanism: what the clients use.
        delta: the slack of the total (see `Account`).
        observer: of every report, in the run's circumstances.

    Attributes:
        certified: the epsilon of the certificate, against the server; infinite where there is none.
        per: what it covers: one "report", or a "lifetime" (all reports together, from a release made once).
        delta: as given.
        against: whom: an observer of every report.
        assumptions: what nothing enforces: without these the numbers say nothing.

    Example:
        >>> from turnout.algorithm.mechanisms.clamp import Clamp
        >>> PublicAccount(Clamp(epsilon=0.1), delta=1e-6).total(1000)
        total epsilon 19.35 at delta 1e-06 over 1,000 reports, against an observer of every report, if how many reports
        there are did not depend on what they said (exact binomial)
    """

    def __init__(self, mechanism: Mechanism, delta: float, observer: Observer = Observer()) -> None:  # noqa: B008
        check_delta(delta)
        self._mechanism, self._observer = mechanism, observer
        self._promise = found = certificate(mechanism, self._observer)
        self.certified, self.per, self.delta = found.epsilon, found.per, delta
        self.against, self.assumptions = found.against, found.assumptions

    def total(self, reports: int) -> Account:
        """The total over so many reports, those made so far, at delta; an upper bound for every client."""
        if reports < 1 and self.per == "report":
            return Account(0.0, self.delta, 0, self.against, "no report yet", self.assumptions)
        found = account_of(self._mechanism, max(reports, 1), self.delta, self._observer)
        on_the_way = self.per == "report" and found.delta > 0.0 and 0.0 < found.epsilon < math.inf
        return found.assuming(FIXED_NUMBER) if on_the_way else found

    def sentence(self, reports: int) -> str:
        """The account in one line, for the log and the operator's page."""
        if self.per == "lifetime" or not self._promise.is_bounded:
            return str(self._promise)
        return f"epsilon {shown(self.certified)} per report; {self.total(reports)}"
