"""From the likelihood of reports to a belief about each client's cost, on grids that are narrowed to where it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from turnout.attack.cost_family import CostFamily, mixtures
from turnout.attack.evidence import Indices, ReportEvidence
from turnout.problem import Array, PolynomialCosts

_POINTS = 33  # of a client's grid of slopes
_SPAN = 1e-4  # the lowest slope looked at, as a part of the highest
_DROP = 9.0  # candidates this much below the best (in logs) are left out when narrowing
_NARROWER = 22  # steps: a grid of which no more than these are left is made again
_FINER = 8  # steps between two points of the last grid


def belief(
    clients: Indices, evidence: ReportEvidence, family: CostFamily, average: Array, has: Indices
) -> tuple[Array, Array, Array]:
    """The belief about clients with the same terms.

    A candidate is a mixture of the terms (shares of the slope at the client's average), times that slope.

    Returns:
        257 slopes (clients, points); the coefficients of each mixture at slope 1, (clients, mixtures, terms); the
        weight of each candidate, (clients, mixtures, points), adding up to 1.
    """
    shares = mixtures(len(has))
    units = np.zeros((len(clients), len(shares), len(family.powers)))
    units[:, :, has] = shares / steepness(family.powers, average)[:, None, has]
    most = (family.largest[clients][:, None, has] / units[:, :, has]).min(axis=2)  # there a mixture leaves the family

    def prior(place: Array, who: Any) -> Array:
        """The log density of uniform coefficients, in the coordinates (mixture, slope)."""
        inside = place[:, None, :] <= most[who][:, :, None] * (1.0 + 1e-9)
        return np.where(inside, (len(has) - 1.0) * np.log(place)[:, None, :], -np.inf)

    def likelihood(place: Array, who: Indices) -> Array:
        costs = PolynomialCosts(np.concatenate(units[who]), family.powers)
        return evidence.log_likelihood(clients[who], costs, place)

    place, found = _narrow(likelihood, prior, most.max(axis=1))
    place, found = _finer(place), _finer(found)
    found += prior(place, slice(None))
    weight = np.exp(found - found.max(axis=(1, 2), keepdims=True))
    weight[:, :, [0, -1]] *= 0.5  # the trapezoid rule
    return place, units, weight / weight.sum(axis=(1, 2), keepdims=True)


def looked_at(average: Array) -> Array:
    """Where slopes are compared: at the clients' averages, but never quite at 0, where they may all vanish.

    Example:
        >>> looked_at(np.array([0.0, 0.25])).tolist()
        [0.001, 0.25]
    """
    return np.maximum(average, 1e-3)


def steepness(powers: tuple[int, ...], average: Array) -> Array:
    """The slope that a coefficient of 1 has at each client's average, shape (clients, terms).

    Example:
        >>> steepness((2, 4), np.array([0.5])).tolist()
        [[1.0, 0.5]]
    """
    each = np.array(powers, dtype=np.float64)
    return np.asarray(each * looked_at(average)[:, None] ** (each - 1.0))


def _narrow(likelihood: Callable[..., Array], prior: Callable[..., Array], top: Array) -> tuple[Array, Array]:
    """The log likelihood on grids of slopes that hold all but a negligible part of the belief, and little else.

    Returns:
        The grid of each client, (clients, points), and the log likelihood on it, (clients, mixtures, points).
    """
    low, high = _SPAN * top, top.copy()
    steps, who = np.linspace(0.0, 1.0, _POINTS), np.arange(len(top))
    place, found = np.empty((len(top), _POINTS)), np.empty(0)
    while len(who):
        grid = low[who, None] + (high - low)[who, None] * steps
        there = likelihood(grid, who)
        if not len(found):
            found = np.empty((len(top), *there.shape[1:]))
        place[who], found[who] = grid, there
        belief = np.max(there + prior(grid, who), axis=1)
        alive = belief > belief.max(axis=1, keepdims=True) - _DROP
        left = np.maximum(np.argmax(alive, axis=1) - 1, 0)
        right = np.minimum(_POINTS - np.argmax(alive[:, ::-1], axis=1), _POINTS - 1)
        rows = np.arange(len(who))
        low[who], high[who] = grid[rows, left], grid[rows, right]
        who = who[right - left <= _NARROWER]
    return place, found


def _finer(values: Array) -> Array:
    """Straight lines between the points of a grid, along the last axis: log likelihoods are smooth."""
    places = np.linspace(0.0, _POINTS - 1.0, (_POINTS - 1) * _FINER + 1)
    left = np.minimum(places.astype(np.int64), _POINTS - 2)
    return np.asarray(values[..., left] + (values[..., left + 1] - values[..., left]) * (places - left))


def summary(values: Array, weight: Array) -> tuple[Array, Array]:
    """The guess whose relative error is smallest in the median of a belief, and where 90 % of it lie.

    Half of the belief lies within a relative error r of t if it lies in [t / (1 + r), t / (1 - r)]: so the best t is
    the harmonic mean of the ends of the half with the smallest ratio of its ends.

    Args:
        values, weight: shape (clients, candidates), where candidates may have several axes.

    Returns:
        Shapes (clients,) and (clients, 2).
    """
    share = np.linspace(0.0, 1.0, 201)
    quantile = np.empty((len(values), len(share)))
    for client, (value, mass) in enumerate(zip(values, weight, strict=True)):
        order = np.argsort(value, axis=None)
        part = mass.ravel()[order]
        below = np.cumsum(part) - 0.5 * part
        quantile[client] = np.exp(np.interp(share, below, np.log(value.ravel()[order])))
    lower, upper = quantile[:, :101], quantile[:, 100:]
    best = np.argmin(upper / lower, axis=1)
    rows = np.arange(len(values))
    left, right = lower[rows, best], upper[rows, best]
    return 2.0 * left * right / (left + right), quantile[:, [10, 190]]
