"""The account of a mechanism over a run, against a server that sees every report or an observer of the sum."""

from __future__ import annotations

import math

import numpy as np

from turnout.algorithm.client import Averaging
from turnout.algorithm.mechanism import Mechanism, Public
from turnout.algorithm.thresholds import widest_box
from turnout.privacy.accounting import EVERY_REPORT, Account, total_epsilon
from turnout.privacy.certificate import certificate
from turnout.privacy.sum_only import total_epsilon_sum_only


def account_of(mechanism: Mechanism, rounds: int, delta: float, honest: int | None = None) -> Account:
    """The total epsilon of a mechanism over so many reports; infinite where nothing bounds it.

    Args:
        mechanism: any mechanism; where boxes differ by client, the worst counts.
        rounds: how many reports of one client.
        delta: the slack (see `Account`); a release made once needs none.
        honest: None against one that sees every report; else against one that sees only the sum, with so many honest
            others (averages then move by the probability).

    Raises:
        ValueError: the promise does not exist against this observer.

    Example:
        >>> from turnout.algorithm.mechanisms.clamp import Clamp
        >>> account_of(Clamp(0.1), rounds=1000, delta=1e-6)
        total epsilon 19.35 at delta 1e-06 over 1,000 reports, against one that sees every report (exact binomial)
    """
    promise = certificate(mechanism, None if honest is None else Averaging(by="probability"))
    against = EVERY_REPORT if honest is None else f"one that sees only the sum, with {honest:,} honest others"
    if promise.per == "lifetime":
        return Account(promise.epsilon, 0.0, rounds, against, "one release at joining, pure")
    if math.isinf(promise.epsilon):
        return Account(math.inf, delta, rounds, against, promise.why)
    if mechanism.needs_public_average:  # boxes move: any report of pure epsilon gives away no more than a symmetric one
        boxes = [widest_box(promise.epsilon)]
    else:
        low, high = np.broadcast_arrays(*mechanism.box(Public()))
        boxes = [(float(a), float(b)) for a, b in {*zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)}]
    found = [
        total_epsilon(*box, rounds, delta) if honest is None else total_epsilon_sum_only(*box, rounds, delta, honest)
        for box in boxes
    ]
    return max(found, key=lambda account: account.epsilon)
