"""The certified public bound on what the reports give away, against the server, which sees every one of them."""

from __future__ import annotations

import math

import numpy as np

from turnout.algorithm.mechanism import Mechanism, Public
from turnout.privacy.accounting import EVERY_REPORT, Account, check_delta, shown, total_epsilon
from turnout.privacy.certificate import certificate


class PublicAccount:
    """What any client has given away at most, from public data alone: the mechanism and how often it was asked.

    Args:
        mechanism: what the clients use.
        delta: the chance left over in the total.

    Attributes:
        epsilon_per_report: the certificate, against the server; infinite where there is none.
        lifetime: whether it covers all reports together (a release made once).

    Example:
        >>> from turnout.algorithm.mechanisms.clamp import Clamp
        >>> PublicAccount(Clamp(epsilon=0.1), delta=1e-6).total(1000)
        total epsilon 19.35 at delta 1e-06 over 1,000 reports, against one that sees every report (exact binomial)
    """

    def __init__(self, mechanism: Mechanism, delta: float) -> None:
        check_delta(delta)
        found = certificate(mechanism)
        self.epsilon_per_report, self.delta = found.epsilon, delta
        self.lifetime = found.per == "lifetime"
        if mechanism.needs_public_average and math.isfinite(found.epsilon):
            # The box moves with the average, the epsilon does not: k reports of pure epsilon, chosen adaptively,
            # are dominated by k randomized responses with that epsilon (Kairouz, Oh and Viswanath 2015).
            low = math.nextafter(1.0 / (1.0 + math.exp(found.epsilon)), 0.0)
            self._box = (low, 1.0 - low)
        else:
            ends = mechanism.box(Public(average=np.float64(0.5)))
            self._box = (float(np.min(ends[0])), float(np.max(ends[1])))

    def total(self, reports: int) -> Account:
        """The total over so many reports at delta, an upper bound for every client."""
        if self.lifetime:
            return Account(self.epsilon_per_report, 0.0, max(reports, 1), EVERY_REPORT, "one release at joining")
        if reports < 1:
            return Account(0.0, self.delta, 0, EVERY_REPORT, "no report yet")
        return total_epsilon(*self._box, reports, self.delta)

    def sentence(self, reports: int) -> str:
        """The account in one line for the log."""
        if math.isinf(self.epsilon_per_report):
            return "no bound against the server: this mechanism has no certificate"
        if self.lifetime:
            return f"pure epsilon {shown(self.epsilon_per_report)} for a lifetime, against the server"
        total = self.total(reports)
        return (
            f"epsilon {shown(self.epsilon_per_report)} per report, total epsilon {shown(total.epsilon)} at delta "
            f"{self.delta:.3g} over {reports} reports, against the server that sees every report"
        )
