"""What an observer of the sums with noise recovers, who knows all reports of all other clients.

So of each client it knows, round by round, its bit times its weight plus the noise. The server follows the protocol:
it sends the signals of the run. (`turnout.audit` has the one that chooses signals, for two costs of one client.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from turnout.algorithm import Averaging, ClientState, Mechanism, Prior, SumNoise, client_step
from turnout.attack.attack import Estimates, wanted_rounds
from turnout.attack.beliefs import looked_at, summary
from turnout.attack.cost_family import CostFamily
from turnout.attack.evidence import Reports
from turnout.errors import invalid
from turnout.problem import Array, PolynomialCosts

_CANDIDATES = 36
"""Costs of each client that are told apart, spread evenly over its family: no error below some 3 % is resolved."""


class SumEvidence:
    """How likely what is left of the sums is, for candidate costs of each client.

    A client's history is hidden, as its bits are. For each candidate it moves by the chance of a "yes", given what is
    left of the sum: so without noise by the bits themselves.

    Args:
        mechanism, averaging: as for `client_step`.
        costs: the candidates of all clients, client by client.
        weights: of the candidates' clients, shape (candidates in all,).
        start: as for `simulate`.

    Example:
        >>> from turnout.algorithm import Classical
        >>> found = SumEvidence(Classical(), PolynomialCosts([[1.0], [9.0]], (2,)), np.ones(2), Prior(0.5))
        >>> for left in (1.2, 0.7, 1.1): found.add(1.0, np.full(2, left), sigma=0.5)
        >>> bool(found.log[0] > found.log[1])
        True
    """

    def __init__(
        self,
        mechanism: Mechanism,
        costs: PolynomialCosts,
        weights: Array,
        start: Prior | None,
        averaging: Averaging = Averaging(),  # noqa: B008 (frozen)
    ) -> None:
        self.mechanism, self.costs, self.weights, self.averaging = mechanism, costs, weights, averaging
        begin, rounds = (1.0, 1.0) if start is None else (start.participations, start.rounds)
        self.state = ClientState(np.full(len(costs), begin), float(rounds))
        self.log = np.zeros(len(costs))

    def add(self, signal: float, left: Array, sigma: float) -> None:
        """Take in a round: the signal that decided it, and what is left of the sum, of each candidate's client.

        Args:
            signal: as the clients heard it.
            left: the opened sum less what the others brought, shape (candidates in all,).
            sigma: of the noise; infinite where no sum was opened.
        """
        step = client_step(self.costs, self.mechanism, self.state, signal, np.ones(len(left)), weights=self.weights)
        yes, moved = step.probability, step.probability
        if np.isfinite(sigma):
            ratio = np.exp(np.clip(self.weights * (left - 0.5 * self.weights) / sigma**2, -500.0, 500.0))
            seen = 1.0 + yes * (ratio - 1.0)
            self.log += np.log(np.maximum(seen, 1e-300))
            moved = yes * ratio / np.maximum(seen, 1e-300)
        self.state = self.state.after(moved if self.averaging.by == "bit" else yes, self.averaging)


def infer_from_sums(
    reports: Reports,
    seen: Array,
    noise: SumNoise,
    family: CostFamily,
    mechanism: Mechanism,
    *,
    weights: Any = 1,
    start: Prior | None = None,
    averaging: Averaging | None = None,
    stop: int | None = None,
    checkpoints: Sequence[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Estimates]:
    """Infer every client's cost from the opened sums and the reports of all others.

    Args:
        reports: all signals and reports; of each client's own, only what is left of the sums is used.
        seen: the opened sums, shape (rounds,).
        noise: of the sums.
        family, mechanism, weights, start, averaging, stop, checkpoints, progress: as for `infer`.

    Yields:
        Estimates at each checkpoint, in ascending order. The averages in them, at which slopes are compared, are the
        clients' own, and were not used to infer the costs.

    Raises:
        ValueError: the mechanism releases something at joining; or as of `infer`.

    Example:
        >>> from turnout.algorithm import Classical
        >>> bits = (np.random.default_rng(0).random((4000, 1)) < 10.0 / 32.0).astype(np.uint8)  # a = 16 at signal 10
        >>> noise, family = SumNoise(1.0), CostFamily((2,), np.array([[40.0]]))  # a x^2, a between 0 and 40
        >>> reports, seen = Reports(np.full(4000, 10.0), bits), bits[:, 0] + noise.seeded(1, 0, 4000)
        >>> (found,) = infer_from_sums(reports, seen, noise, family, Classical(), start=Prior(0.5))
        >>> bool(abs(found.coefficients[0, 0] - 16.0) < 4.0)
        True
    """
    _check_sums(reports, seen, mechanism)
    wanted = wanted_rounds(reports, family, checkpoints, stop)
    averaging, costs, each = averaging or Averaging(), _candidates(family), _CANDIDATES
    weight = np.broadcast_to(np.asarray(weights, dtype=np.float64), (reports.clients,))
    evidence = SumEvidence(mechanism, costs, np.repeat(weight, each), start, averaging)
    truth = SumEvidence(mechanism, costs[::each], weight, start, averaging).state
    sigmas, done = noise.sigmas(0, reports.rounds) * noise.factor, 0
    for checkpoint in wanted:
        for round in range(done, checkpoint):
            if round == 0 and start is None:
                continue  # everyone participates
            bits = reports.bits[round].astype(np.float64)
            if stop is None or round < stop:
                drawn = seen[round] - weight @ bits
                evidence.add(float(reports.signals[round]), np.repeat(weight * bits + drawn, each), sigmas[round])
                truth = truth.after(bits, averaging)
            if progress is not None:
                progress(round + 1, wanted[-1])
        done = checkpoint
        yield _estimates(checkpoint, evidence, family, truth.average)


def _check_sums(reports: Reports, seen: Array, mechanism: Mechanism) -> None:
    """Refuse what sums say nothing about."""
    if mechanism.releases_once:
        remedy = "attack it as an observer of every report: such a one learns no more than the release"
        raise invalid("mechanism", "one that releases nothing, for an observer of sums", mechanism.kind, remedy)
    if len(seen) != reports.rounds:
        raise invalid("seen", f"{reports.rounds} sums, as there are rounds", len(seen), "give one sum for each round")


def _candidates(family: CostFamily) -> PolynomialCosts:
    """The same number of costs for each client, spread evenly over its family."""
    found = np.zeros((len(family), _CANDIDATES, len(family.powers)))
    for client, largest in enumerate(family.largest):
        has = np.flatnonzero(largest > 0.0)
        side = round(_CANDIDATES ** (1.0 / len(has)))
        lattice = np.array(list(itertools.product((np.arange(side) + 0.5) / side, repeat=len(has))))
        again = np.arange(_CANDIDATES) % len(lattice)
        found[client][:, has] = lattice[again] * largest[has]
    return PolynomialCosts(found.reshape(-1, len(family.powers)), family.powers)


def _estimates(rounds: int, evidence: SumEvidence, family: CostFamily, average: Array) -> Estimates:
    """The best guesses by what was taken in."""
    clients, terms = family.largest.shape
    log = evidence.log.reshape(clients, -1)
    weight = np.exp(log - log.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    slopes = evidence.costs.slope(np.repeat(looked_at(average), log.shape[1])).reshape(log.shape)
    slope, likely = summary(slopes, weight)
    coefficients = np.zeros((clients, terms))
    values = evidence.costs.coefficients.reshape(clients, -1, terms)
    for term in range(terms):
        has = np.flatnonzero(family.unknown[:, term])
        if len(has):
            coefficients[has, term], _ = summary(values[has, :, term], weight[has])
    return Estimates(rounds, coefficients, average, slope, likely)
