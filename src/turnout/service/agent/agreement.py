"""Which mechanism a device uses, and what it promises: the device makes the certificate itself, and may refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnout.algorithm import MECHANISMS, Averaging, Mechanism, mechanism_from_settings
from turnout.client import Limit, settings_of
from turnout.errors import TurnoutError
from turnout.privacy import Certificate, Observer, certificate
from turnout.settings import Table

LONGEST_LIST = 64
"""Numbers in one setting of a mechanism: levels, and their least probabilities."""


class Declined(TurnoutError):
    """The device does not participate: its owner does not allow what the coordinator proposes."""


@dataclass(frozen=True)
class Agreement:
    """What a device has accepted.

    Attributes:
        mechanism: how intent becomes a probability.
        certificate: of one report, or of a lifetime, made on this device.
    """

    mechanism: Mechanism
    certificate: Certificate


def agree(
    proposed: Mapping[str, Any],
    averaging: Averaging,
    *,
    limit: Limit,
    own: Mechanism | None = None,
    accept_uncertified: bool = False,
    release_is_due: Callable[[Mapping[str, Any]], bool] = lambda settings: True,
    released: float = 0.0,
) -> Agreement:
    """Accept the coordinator's mechanism, or the owner's own, if it keeps the limit.

    Args:
        proposed: the settings that the coordinator sent; they may be anything.
        averaging: how histories move.
        limit: the owner's.
        own: use this one instead.
        accept_uncertified: the owner accepts a mechanism without a certificate, this time; one with a certificate
            keeps the limit even so.
        release_is_due: whether a mechanism with these settings would release anything (`Ledger.release_is_due`). One
            that would not gives nothing away: the device acts on what was released before.
        released: the largest epsilon of what was released before.

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
        raise Declined(f"{mechanism.kind} has no valid certificate: got epsilon {epsilon}")
    if mechanism.releases_once and not release_is_due(settings_of(mechanism)):
        return Agreement(mechanism, replace(promise, epsilon=max(epsilon, released)))  # its reports hold that release
    if math.isinf(epsilon) and not accept_uncertified:
        raise Declined(
            f"{mechanism.kind} has no certificate ({promise.why}): ask the operator for a certified mechanism, or "
            "accept this one explicitly (--accept-uncertified)"
        )
    allowed = limit.for_release if mechanism.releases_once else limit.epsilon_per_report
    if allowed < epsilon < math.inf:
        once, option = "", "--epsilon-per-report"
        if mechanism.releases_once:
            once, option = ", which is all that it ever gives away, since it releases once", "--epsilon-per-release"
        raise Declined(
            f"{mechanism.kind} has epsilon {epsilon:.6g} per {promise.per} against {promise.against}{once}, more than "
            f"the {allowed:g} that this device allows: ask for a smaller one, or allow it ({option} "
            f"{float(epsilon)!r}, with --raise-limit if the device has a ledger)"
        )
    return Agreement(mechanism, promise)


def _plain(proposed: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, if all are texts, usable numbers or short lists of them."""
    if len(proposed) > 16:
        raise ValueError("too many settings")
    has_lists = MECHANISMS.get(str(proposed.get("kind")), Mechanism).releases_once  # of levels, the same for all
    for name, value in proposed.items():
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) > LONGEST_LIST or (isinstance(value, list) and not has_lists):
            raise ValueError(f"{str(name)[:40]} must be one number: got a list of {len(numbers)}")
        if isinstance(value, str):
            if len(value) > 40:
                raise ValueError(f"{str(name)[:40]} is too long a text")
        elif not all(isinstance(one, (int, float)) and abs(one) < 1e15 for one in numbers):  # NaN is not below
            raise ValueError(f"{str(name)[:40]} must be a number of a usual size")
    return dict(proposed)
