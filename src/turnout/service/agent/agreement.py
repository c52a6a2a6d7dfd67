"""Which mechanism a device uses, and what it promises: the device makes the certificate itself, and may refuse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnout.algorithm.client import Averaging
from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.mechanisms import mechanism_from_settings
from turnout.errors import TurnoutError
from turnout.privacy.account_of import account_of
from turnout.privacy.accounting import EVERY_REPORT, Account
from turnout.privacy.certificate import Certificate, certificate
from turnout.privacy.ledger import Limit
from turnout.privacy.observer import Observer
from turnout.settings import Table

LONGEST_LIST = 64
"""Numbers in one setting of a mechanism: levels, and their least probabilities."""

EXACTLY_COUNTED = 1_000_000
"""Up to so many reports the total is exact (half a second); beyond, the sum of the reports."""


class Declined(TurnoutError):
    """The device does not take part: what the coordinator proposes is not what its owner allows.

    Example:
        >>> issubclass(Declined, TurnoutError)
        True
    """


@dataclass(frozen=True)
class Agreement:
    """What a device has accepted.

    Attributes:
        mechanism: how intent becomes a probability.
        certificate: of one report, or of a lifetime, made on this device.
        limit: what its ledger allows; no bound per report where the owner accepted a mechanism without a certificate.
    """

    mechanism: Mechanism
    certificate: Certificate
    limit: Limit

    def total(self, reports: int, delta: float) -> Account:
        """The total epsilon at delta over so many reports, against a coordinator that sees every one."""
        if self.certificate.per == "lifetime":  # all was given away at joining
            return account_of(self.mechanism, max(1, reports), delta)
        if reports < 1:
            return Account(0.0, 0.0, 0, EVERY_REPORT, "nothing was reported")
        if reports > EXACTLY_COUNTED:
            return Account(self.certificate.epsilon * reports, delta, reports, EVERY_REPORT, "sum of the reports")
        return account_of(self.mechanism, reports, delta)


def agree(
    proposed: Mapping[str, Any],
    averaging: Averaging,
    *,
    own: Mechanism | None = None,
    limit: Limit,
    consent: bool = False,
) -> Agreement:
    """Accept the coordinator's mechanism, or the owner's own, if it keeps the limit.

    Args:
        proposed: the settings that the coordinator sent; they may be anything.
        averaging: how histories move.
        own: use this one instead.
        limit: the owner's.
        consent: the owner accepts a mechanism without a certificate; one with a certificate keeps the limit even so.

    Raises:
        Declined: no mechanism, no certificate, or too large an epsilon.

    Example:
        >>> agree({"kind": "clamp", "epsilon": 0.5}, Averaging(), limit=Limit(100, 1.0)).certificate.epsilon
        0.5
    """
    try:
        mechanism = mechanism_from_settings(Table(_plain(proposed), "mechanism")) if own is None else own
        promise = certificate(mechanism, Observer(averaging=averaging))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise Declined(f"the coordinator's mechanism cannot be used: {str(error)[:300]}") from None
    if mechanism.needs_population:
        raise Declined(f"{mechanism.kind} is for simulations: the coordinator must propose one for single devices")
    epsilon = promise.epsilon
    if math.isnan(epsilon) or epsilon < 0.0:
        raise Declined(f"{mechanism.kind} has no certificate that makes sense: got epsilon {epsilon}")
    if math.isinf(epsilon) and not consent:
        raise Declined(
            f"{mechanism.kind} has no certificate ({promise.why}): ask the operator for a certified mechanism, or "
            "accept this one explicitly (--accept-uncertified)"
        )
    if limit.epsilon_per_report < epsilon < math.inf:
        once = ", which is all that it ever gives away, since it releases once" if mechanism.releases_once else ""
        raise Declined(
            f"{mechanism.kind} has epsilon {epsilon:.6g} per {promise.per} against {promise.against}{once}, more than "
            f"the {limit.epsilon_per_report:g} that this device allows: ask for a smaller one, or allow it "
            f"(--epsilon-per-report {float(epsilon)!r})"
        )
    return Agreement(mechanism, promise, replace(limit, epsilon_per_report=max(epsilon, limit.epsilon_per_report)))


def _plain(proposed: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, if all are texts, usable numbers or short lists of them."""
    if len(proposed) > 16:
        raise ValueError("too many settings")
    for name, value in proposed.items():
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) > LONGEST_LIST or (isinstance(value, list) and proposed.get("kind") != "memoized"):
            raise ValueError(f"{str(name)[:40]} must be one number: got a list of {len(numbers)}")
        if isinstance(value, str):
            if len(value) > 40:
                raise ValueError(f"{str(name)[:40]} is too long a text")
        elif not all(isinstance(one, (int, float)) and abs(one) < 1e15 for one in numbers):  # NaN is not below
            raise ValueError(f"{str(name)[:40]} must be a number of a usual size")
    return dict(proposed)
