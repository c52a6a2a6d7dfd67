"""The observer of the paper's Section III: it sees every signal and every report, and infers the costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.algorithm import Averaging, Mechanism, Prior
from turnout.attack.beliefs import belief, looked_at, summary
from turnout.attack.cost_family import CostFamily, kinds
from turnout.attack.evidence import ReportEvidence, Reports, evidence_at
from turnout.attack.release import ReleaseAttack
from turnout.errors import invalid
from turnout.problem import Array, PolynomialCosts

_TOGETHER = 20  # clients worked on together: what fits a processor's cache


@dataclass(frozen=True, eq=False)
class Estimates:
    """What the observer believes after some rounds.

    Attributes:
        rounds: how many it saw.
        coefficients: its best guess of each coefficient, shape (clients, terms); 0 where there is none.
        average: the clients' averages, shape (clients,).
        slope: its best guess of f_i' there: what reports show of a cost, whatever the number of terms.
        likely: between which the slope lies with 90 % (in its belief), shape (clients, 2).

    Example:
        >>> guess = Estimates(10, np.array([[3.1]]), np.array([0.5]), np.array([3.1]), np.array([[2.8, 3.5]]))
        >>> guess.likely[0].tolist()
        [2.8, 3.5]
    """

    rounds: int
    coefficients: Array
    average: Array
    slope: Array
    likely: Array

    def __repr__(self) -> str:
        return f"Estimates(of the costs of {len(self.average)} clients, after {self.rounds} rounds)"


def infer(
    reports: Reports,
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
    """Infer every client's cost from what is public: a pure function of signals and reports.

    The exact likelihood of each report, through the very code that clients decide with, times the public prior;
    on a grid that is narrowed until it resolves what the reports say. All clients at once.

    Args:
        reports: all signals and reports.
        family: what is known of the costs beforehand.
        mechanism: with its parameters, which are public.
        weights: what each client brings, shape (clients,) or 1.
        start: as for `simulate`: the paper's, or a public prior.
        averaging: how averages move; all rounds, by the bit, unless given. By "probability" they are not public: the
            running mean of a client's reports stands in for its average.
        stop: the first round in which clients, their budgets spent, act on public data alone: from then on reports say
            nothing.
        checkpoints: after how many rounds to estimate; all of them, unless given. 0 is the prior alone.
        progress: called now and then with (rounds taken in, rounds in all).

    Yields:
        Estimates at each checkpoint, in ascending order.

    Paper: Section III. Differs from paper: there the observer is only described.

    Example:
        >>> from turnout.algorithm import Classical
        >>> family = CostFamily((2,), np.array([[40.0]]))  # one client, a x^2, a between 0 and 40
        >>> coin = np.random.default_rng(0).random((4000, 1)) < 10.0 / (2 * 16.0)  # a = 16 at signal 10: intent 10 / 2a
        >>> (found,) = infer(Reports(np.full(4000, 10.0), coin), family, Classical())
        >>> bool(abs(found.coefficients[0, 0] - 16.0) < 1.0)
        True
    """
    wanted = wanted_rounds(reports, family, checkpoints, stop)
    releases = mechanism.releases_once
    release = ReleaseAttack(mechanism, family, weights) if releases else None
    clients, terms = family.largest.shape
    for rounds, evidence, average in evidence_at(
        reports, wanted, mechanism, weights, start, averaging or Averaging(), stop, progress
    ):
        found = Estimates(rounds, np.zeros((clients, terms)), average, np.empty(clients), np.empty((clients, 2)))
        if release is None:
            _estimate(evidence, family, found)
        else:
            release.estimate(evidence, average, found)
        yield found


def wanted_rounds(
    reports: Reports, family: CostFamily, checkpoints: Sequence[int] | None, stop: int | None
) -> list[int]:
    """The checkpoints of an attack in ascending order, once its arguments are found to fit together."""
    wanted = sorted({reports.rounds} if checkpoints is None else {int(checkpoint) for checkpoint in checkpoints})
    if len(family) != reports.clients:
        raise invalid("family", f"of {reports.clients} clients, as the reports", len(family), "give one row per client")
    if not wanted or wanted[0] < 0 or wanted[-1] > reports.rounds:
        raise invalid("checkpoints", f"from 0 to {reports.rounds} rounds", wanted, "leave out what was not seen")
    if stop is not None and stop < 0:
        raise invalid("stop", "a round from 0 up", stop, "give the first round decided from public data alone")
    return wanted


def _estimate(evidence: ReportEvidence, family: CostFamily, found: Estimates) -> None:
    """Write the estimates of all clients into `found`."""
    for members in kinds(family.unknown):
        has = np.flatnonzero(family.unknown[members[0]])
        for some in np.array_split(members, max(1, len(members) // _TOGETHER)):
            slope, units, weight = belief(some, evidence, family, found.average[some], has)
            found.slope[some], found.likely[some] = summary(slope, weight.sum(axis=1))
            for term in has:
                values = units[:, :, term, None] * slope[:, None, :]
                found.coefficients[some, term], _ = summary(values, weight)


@dataclass(frozen=True)
class AttackErrors:
    """How far the observer's guesses are from the truth: medians of relative errors.

    Attributes:
        rounds: how many it saw.
        cost: of the slope at each client's average, over all clients. Where a cost has one term this is the error of
            its coefficient; where it has several, it is what reports can show of them.
        single_term: the same over clients with one term; None if there are none.
        coefficient: of every coefficient of every client.
    """

    rounds: int
    cost: float
    single_term: float | None
    coefficient: float


def attack_errors(estimates: Estimates, costs: PolynomialCosts) -> AttackErrors:
    """Compare what was inferred with the costs themselves.

    Example:
        >>> costs = PolynomialCosts([[16.0], [20.0]], (2,))
        >>> guess = Estimates(10, np.array([[20.0], [20.0]]), np.full(2, 0.5), np.full(2, 20.0), np.zeros((2, 2)))
        >>> attack_errors(guess, costs)
        AttackErrors(rounds=10, cost=0.125, single_term=0.125, coefficient=0.125)
    """
    cost = np.abs(estimates.slope / costs.slope(looked_at(estimates.average)) - 1.0)
    there = costs.coefficients > 0.0
    each = np.abs(estimates.coefficients[there] / costs.coefficients[there] - 1.0)
    single = cost[there.sum(axis=1) == 1]
    return AttackErrors(
        estimates.rounds,
        float(np.median(cost)),
        float(np.median(single)) if len(single) else None,
        float(np.median(each)),
    )
