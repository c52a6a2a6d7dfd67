"""The least error of the turnout: what privacy costs a server that must not learn what each client answers.

A server that cannot tell how many clients always participate cannot make up for them. How well it can tell is limited
by the privacy of each client, since a group of clients is hidden too, only less. The theorem is in
docs/proofs/turnout-error.md. Every number is a lower bound and is rounded downwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from turnout.errors import check_number
from turnout.privacy.noisy_sum import gaussian_mu
from turnout.problem import Problem

_DOWN = 1.0 - 1e-9
"""Covers every rounding of `_least`."""

_STEPS = 200
"""Sizes of a group that are tried, at most: the bound holds for each."""


def least_turnout_error(problem: Problem, epsilon: float, delta: float, gaussian: bool = False) -> float:
    """The root mean square error of the turnout that no mechanism can be below, over all clients' inputs.

    It holds for each round, for the mean of any rounds, and for any number of rounds, whatever the server and the
    mechanism are, if each client is private against an observer who knows everything about all others, and can always
    participate and never participate. With costs it can where signals stay between public bounds above 0: a server that
    sends 0 and infinity overrules costs. "Over all clients' inputs": at fixed odds of how many always participate.

    Args:
        problem: how many clients there are, their weights, and the capacity; the costs make no difference.
        epsilon: total, of each client.
        delta: the slack of this total (see `Account`).
        gaussian: only what hides a client at least as well as normal noise of this epsilon and delta does, at every
            epsilon: the bound is larger. Sums with whole-number noise hide as well only where many are opened, or with
            a large sigma: one sum at sigma 1 hides 8 % less.

    Raises:
        ValueError: epsilon or delta is out of range.

    Example:
        >>> from turnout import paper_population
        >>> problem = paper_population().problem(600)
        >>> round(least_turnout_error(problem, 1.0, 1e-6), 2)
        1.07
        >>> round(least_turnout_error(problem, 1.0, 1e-6, gaussian=True), 2)
        4.22
    """
    check_number("epsilon", epsilon, "a total above 0", lambda given: given > 0.0, "values from 0.1 to 12 are usual")
    check_number("delta", delta, "from 0 to below 1", lambda given: 0.0 <= given < 1.0, "try 1e-6")
    alike = _alike_of_normal(gaussian_mu(epsilon, delta)) if gaussian else _alike(epsilon, delta)
    weights = np.broadcast_to(np.asarray(problem.unit_weights, np.float64), (len(problem),))
    room = min(problem.capacity, problem.most - problem.capacity)  # so that the others can always meet the capacity
    found = 0.0
    for weight, count in zip(*np.unique(weights, return_counts=True), strict=True):
        number = min(int(count), math.floor(room / float(weight) * (1.0 - 1e-12)))
        sizes = np.unique(np.geomspace(1, max(1, number), _STEPS).astype(int)).tolist() if number else []
        found = max([found, *(float(weight) * _least(size, number, alike) for size in sizes)])
    return found


def _least(size: int, clients: int, alike: Callable[[int], float]) -> float:
    """The bound from groups of one size, in clients.

    Of so many clients, 0, 1, 2, … groups of this size always participate, at the odds sin^2(angle (j + 1)).

    Args:
        size: of each group.
        clients: of all groups, at most.
        alike: for two inputs that differ in so many clients, the least that the sum of the root of the product of the
            laws of what is seen can be (Bhattacharyya's coefficient): 1 where they are equal.
    """
    groups = clients // size
    angle = math.pi / (groups + 2)
    next_to = math.cos(angle) * alike(size)
    apart = (math.cos(2.0 * angle) + 2.0 * math.sin(angle) ** 2 / (groups + 2)) * alike(2 * size)
    return size * max(0.0, next_to) / math.sqrt(2.0 * (1.0 - max(0.0, apart)) + 1e-14) * _DOWN


def _alike(epsilon: float, delta: float) -> Callable[[int], float]:
    """Of a group, if each client has this total epsilon at delta: (1 - delta of the group) / cosh(its epsilon / 2)."""

    def of(size: int) -> float:
        total = size * epsilon
        if total > 700.0:
            return 0.0
        slack = delta * math.expm1(total) / math.expm1(epsilon)
        return max(0.0, 1.0 - slack) / math.cosh(0.5 * total)

    return of


def _alike_of_normal(mu: float) -> Callable[[int], float]:
    """Of a group, if each client moves a normal number by mu standard deviations."""
    return lambda size: math.exp(-0.125 * (size * mu) ** 2)
