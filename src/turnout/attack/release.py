"""Against a mechanism that releases something once, at joining: reports show the release, and no more than that."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from turnout.algorithm import Mechanism
from turnout.attack.beliefs import steepness, summary
from turnout.attack.cost_family import CostFamily
from turnout.attack.evidence import Indices, ReportEvidence
from turnout.errors import invalid
from turnout.problem import Array, PolynomialCosts

_CANDIDATES = 256  # costs looked at, spread evenly over the family
_COINS = 2048  # tosses tried for each: so finely are the probabilities of releases known
_LEAST = 1e-4  # no release is ruled out, for a probability this small may lie between the tosses


class ReleaseAttack:
    """What a release says about a cost, and the reports about the release.

    The belief about a cost is prior * sum over releases of P(reports | release) P(release | cost). However many the
    reports, it cannot know more than the release itself tells, which is bounded by the mechanism's total epsilon.

    Clients of which the same is known beforehand (terms, ranges, weight) are looked at together.

    Args:
        mechanism: one with a release at joining (`Mechanism.enrol`).
        family: what is known of the costs.
        weights: what each client brings, shape (clients,) or 1.
    """

    def __init__(self, mechanism: Mechanism, family: CostFamily, weights: Any = 1) -> None:
        self._family = family
        weight = np.broadcast_to(np.asarray(weights, dtype=np.float64), (len(family),))
        _, group = np.unique(np.column_stack([family.largest, weight]), axis=0, return_inverse=True)
        groups = [np.flatnonzero(group.ravel() == number) for number in range(int(group.max()) + 1)]
        self._groups = [(members, *_channel(mechanism, family, members[0], weight[members[0]])) for members in groups]

    def estimate(self, evidence: ReportEvidence, average: Array, found: Any) -> None:
        """Write the estimates of all clients into `found`, an `Estimates`."""
        for members, candidates, releases, chances in self._groups:
            seen = _seen(evidence, members, releases)
            weight = seen @ chances.T
            weight /= weight.sum(axis=1, keepdims=True)
            slopes = steepness(self._family.powers, average[members]) @ candidates.T
            found.slope[members], found.likely[members] = summary(slopes, weight)
            for term in np.flatnonzero(self._family.unknown[members[0]]):
                values = np.broadcast_to(candidates[:, term], weight.shape)
                found.coefficients[members, term], _ = summary(values, weight)


def _seen(evidence: ReportEvidence, clients: Indices, releases: PolynomialCosts) -> Array:
    """How likely the reports of each client are for each release, up to a factor; shape (clients, releases)."""
    units = releases[np.tile(np.arange(len(releases)), len(clients))]
    log = evidence.log_likelihood(clients, units, np.ones((len(clients), 1)))[:, :, 0]
    return np.asarray(np.exp(log - log.max(axis=1, keepdims=True)))


def _channel(
    mechanism: Mechanism, family: CostFamily, client: int, weight: float
) -> tuple[Array, PolynomialCosts, Array]:
    """Candidate costs of a client, what may be released, and with which probability: by the mechanism's own code.

    Returns:
        Coefficients (candidates, terms), the releases, and chances (candidates, releases).
    """
    largest = family.largest[client]
    has = np.flatnonzero(largest > 0.0)
    side = round(_CANDIDATES ** (1.0 / len(has)))
    lattice = np.array(list(itertools.product((np.arange(side) + 0.5) / side, repeat=len(has))))
    candidates = np.zeros((len(lattice), len(largest)))
    candidates[:, has] = lattice * largest[has]
    coins = (np.arange(_COINS) + 0.5) / _COINS
    costs = PolynomialCosts(np.repeat(candidates, _COINS, axis=0), family.powers)
    told = mechanism.enrol(costs, np.tile(coins, len(candidates)), weight)
    if not isinstance(told, PolynomialCosts):
        raise invalid("mechanism", "one that releases polynomial costs", mechanism.kind, "attack another")
    releases, which = np.unique(told.coefficients, axis=0, return_inverse=True)
    chances = np.zeros((len(candidates), len(releases)))
    np.add.at(chances, (np.repeat(np.arange(len(candidates)), _COINS), which.ravel()), 1.0 / _COINS)
    return candidates, PolynomialCosts(releases, told.powers), np.maximum(chances, _LEAST)
