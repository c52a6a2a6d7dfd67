"""What a mechanism promises about one report, or for a lifetime, and against whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import Any

import numpy as np

from turnout.algorithm import MECHANISMS, Mechanism, Public, check_mechanism, keeps, on_the_coin
from turnout.errors import check_kind, invalid
from turnout.privacy.accounting import provided, report_epsilon
from turnout.privacy.observer import (
    NOISY_SUM,
    OWN_BIT,
    OWN_BOX,
    OWN_BOXES,
    OWN_CHANNEL,
    OWN_PROBABILITY,
    Observer,
)


@dataclass(frozen=True)
class Certificate:
    """A bound on what is given away, for any two costs and any signals, given the same public data.

    Attributes:
        epsilon: pure; infinite where there is no bound.
        per: "report", or "lifetime" (all reports together).
        against: the observer. A bound per report holds for each report by itself, also if only sums are seen.
        why: where the bound comes from, or why there is none.
        assumptions: what must hold for it, and turnout cannot enforce; each a clause.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> found = certificate(Clamp(epsilon=0.5))
        >>> found.epsilon, found.per
        (0.5, 'report')
    """

    epsilon: float
    per: str
    against: str
    why: str
    assumptions: tuple[str, ...] = ()

    @property
    def is_bounded(self) -> bool:
        """Whether anything is promised at all."""
        return math.isfinite(self.epsilon)

    def __repr__(self) -> str:
        return f"Certificate({self})"

    def __str__(self) -> str:
        if not self.is_bounded:
            return f"no bound per {self.per}: {self.why}"
        held = provided(self.assumptions)
        return f"pure epsilon {_up(self.epsilon)} per {self.per}, against {self.against}{held} ({self.why})"


def certificate(mechanism: Mechanism, observer: Observer = Observer()) -> Certificate:  # noqa: B008
    """The certified epsilon of a mechanism; infinite where it is infinite, with the reason.

    Args:
        mechanism: any mechanism, also one of your own: its box alone decides.
        observer: who sees what.

    Raises:
        ValueError: the promise does not exist for this combination.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> print(certificate(Clamp(epsilon=1.0)))
        pure epsilon 1 per report, against an observer of every report (the box [0.2689, 0.7311])
    """
    check_mechanism(mechanism)
    remedy = 'write Observer("sum", honest=1198, averaging=Averaging(by="probability")), or leave it out'
    check_kind("observer", observer, Observer, "a turnout.privacy.observer.Observer", remedy)
    observer.check(mechanism)
    if observer.sees == NOISY_SUM:
        return _with_noise(mechanism, observer)
    epsilon, per, why = _bound(mechanism)
    return Certificate(epsilon, per, str(observer), why, (*observer.assumptions(mechanism), *_of_ones_own(mechanism)))


def _with_noise(mechanism: Mechanism, observer: Observer) -> Certificate:
    """What the mechanism promises of every report, since sums are made of reports: the noise has no pure epsilon."""
    try:
        own = certificate(mechanism, observer.of_every_report)
    except ValueError:  # it has no promise of its own
        own = None
    if own is not None and own.is_bounded:
        return replace(own, against=str(observer))
    return Certificate(math.inf, "report", str(observer), _NOISE, observer.assumptions(mechanism))


def _of_ones_own(mechanism: Mechanism) -> tuple[str, ...]:
    """What a mechanism that turnout has no proofs of claims, and turnout cannot check."""
    is_proven = MECHANISMS.has_proofs_of(mechanism)
    found = [] if is_proven else [OWN_BIT]
    if mechanism.releases_once and not is_proven:
        found.append(OWN_CHANNEL)
    if type(mechanism).probability is not Mechanism.probability:
        found.append(OWN_PROBABILITY)
    if type(mechanism).box is not Mechanism.box:
        found.append(OWN_BOX)
    if mechanism.needs_public_average and not is_proven:
        found.append(OWN_BOXES)
    return tuple(found)


def _bound(mechanism: Mechanism) -> tuple[float, str, str]:
    """(epsilon, per report or for a lifetime, why). A report's is what the box keeps, whatever the mechanism states."""
    if mechanism.releases_once:
        epsilon = mechanism.release_epsilon
        return epsilon, "lifetime", _ONE_RELEASE if math.isfinite(epsilon) else _FREE_RELEASE
    low, high = _box(mechanism)
    stated = getattr(mechanism, "epsilon", None)
    if isinstance(stated, (int, float)) and 0.0 < stated <= _LARGEST and keeps(low, high, stated):
        epsilon = float(stated)
    else:
        epsilon = box_epsilon(low, high)
    if math.isinf(epsilon) and mechanism.unbounded:
        return epsilon, "report", mechanism.unbounded
    if mechanism.needs_public_average:
        return epsilon, "report", "its boxes around the public average"
    return epsilon, "report", f"the box [{float(np.min(low)):.4g}, {float(np.max(high)):.4g}]"


_ONE_RELEASE = "one release at joining; reports hold nothing else"
_FREE_RELEASE = "what it releases at joining has no bound: make it a OneRelease with an epsilon"
_NOISE = "noise on the sum has no pure epsilon, but a total at a delta: see the account"
_LARGEST = 30.0  # that a mechanism can state: see `check_epsilon`


def _box(mechanism: Mechanism) -> tuple[Any, Any]:
    """Its box; where that follows the average, many boxes."""
    if mechanism.needs_public_average:
        return mechanism.box(Public(average=_AVERAGES))
    try:
        low, high = mechanism.box(Public())
    except TypeError as error:  # it computes with an average, and none was given
        name = f"{type(mechanism).__name__}.needs_public_average"
        allowed = "True where the box follows the average"
        raise invalid(name, allowed, mechanism.needs_public_average, "set it to True") from error
    _check_fixed(mechanism, low, high)
    return low, high


_AVERAGES = np.concatenate([[1e-9, 1.0 - 1e-9], np.linspace(0.0, 1.0, 2001)])


def _check_fixed(mechanism: Mechanism, low: Any, high: Any) -> None:
    """Refuse a box that depends on the average or the signal without saying so."""
    for average in (0.0, 0.1, 0.5, 0.9, 1.0):
        for signal in (0.0, 1.0, 1e300):
            moved = mechanism.box(Public(np.float64(average), signal))
            if not all(np.array_equal(one, other) for one, other in zip(moved, (low, high), strict=True)):
                name = f"{type(mechanism).__name__}.box"
                allowed = "the same for every signal and average, or needs_public_average = True"
                raise invalid(name, allowed, f"another one at average {average}, signal {signal}", "make it fixed")


def worst_of(promises: Sequence[Certificate], parts: str) -> Certificate:
    """The certificate of a run whose parts have different certificates.

    A release for a lifetime is counted as part of the first report after it. Then no report gives away more than the
    largest epsilon.

    Args:
        promises: one per part.
        parts: their names, in words.

    Example:
        >>> from turnout.algorithm import Clamp, Classical
        >>> print(worst_of([certificate(Clamp(1.0)), certificate(Classical())], "clamp, then classical"))
        no bound per report: the probability is the intent itself (clamp, then classical)
    """
    worst = max(promises, key=lambda promise: promise.epsilon)
    why = f"the worst of {parts}" if worst.is_bounded else f"{worst.why} ({parts})"
    assumed = tuple(dict.fromkeys(one for promise in promises for one in promise.assumptions))
    return Certificate(worst.epsilon, "report", worst.against, why, assumed)


def box_epsilon(low: object, high: object) -> float:
    """Pure epsilon of a report whose probability lies in a box, rounded upwards; the largest of several boxes.

    Of the box as a real coin has it, in whole words.

    Example:
        >>> round(box_epsilon(0.25, 0.75), 6), box_epsilon(0.0, 0.5)
        (1.098612, inf)
    """
    boxes = np.broadcast_arrays(np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))
    ends = zip(*(end.ravel().tolist() for end in boxes), strict=True)
    return max(report_epsilon(*on_the_coin(one_low, one_high)) for one_low, one_high in ends)


def _up(epsilon: float) -> str:
    """With six digits, rounded upwards: the printed number is a bound, too."""
    with localcontext(prec=6, rounding=ROUND_CEILING):
        return f"{float(+Decimal(epsilon)):.6g}"
