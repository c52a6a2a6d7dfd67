"""Reporters of ours, each with the claims that it must keep and the signals that try it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from turnout.algorithm.client import Prior
from turnout.algorithm.coins import Coins, SeededCoins
from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.mechanisms import in_words
from turnout.algorithm.mechanisms.capped_coin import CappedCoin
from turnout.algorithm.mechanisms.clamp import Clamp
from turnout.algorithm.mechanisms.memoized import Memoized
from turnout.algorithm.mechanisms.randomized_response import RandomizedResponse
from turnout.algorithm.mechanisms.tracking_clamp import TrackingClamp
from turnout.privacy.audit import Audit, Progress, audit
from turnout.privacy.audit_claims import DELTA, Claim, of_mechanism, of_sum
from turnout.privacy.audit_reporters import MechanismReporter, Reporter, SumReporter, usual_signals
from turnout.problem.costs import Array, Costs


@dataclass(frozen=True, eq=False)
class Subject:
    """Something to audit.

    Attributes:
        name: for the report.
        reporter: what answers.
        claims: what it must keep.
        signals, costs: to try it with; the usual ones where None.
        values: an answer is a whole number from 0 to values - 1.
        share: of the trials asked for, what a slow reporter gets.
    """

    name: str
    reporter: Reporter
    claims: tuple[Claim, ...]
    signals: Mapping[str, Array] | None = None
    costs: Mapping[str, Costs] | None = None
    values: int = 2
    share: float = 1.0

    def audit(
        self, trials: int, false_alarm: float, *, seed: int | None = None, progress: Progress | None = None
    ) -> Audit:
        """As `turnout.privacy.audit.audit`."""
        return audit(
            self.reporter,
            self.claims,
            trials=max(1, round(self.share * trials)),
            costs=self.costs,
            signals=self.signals,
            values=self.values,
            false_alarm=false_alarm,
            seed=seed,
            name=self.name,
            progress=progress,
        )


def mechanism_subject(
    mechanism: Mechanism,
    rounds: int,
    *,
    delta: float = DELTA,
    prior: Prior | None = None,
    claims: tuple[Claim, ...] = (),
    coins: Callable[[int], Coins] = SeededCoins,
) -> Subject:
    """A mechanism over some rounds, for an observer of every report; its certificate, unless other claims are given.

    Example:
        >>> mechanism_subject(Clamp(1.0), 2).name
        'clamp, epsilon 1 per report, center 0.5'
    """
    prior = prior or Prior(0.5, 10)
    # An honest signal lies about the reference price of a mechanism that has one.
    signals = usual_signals(rounds, getattr(mechanism, "price", 1.0))
    reporter = MechanismReporter(mechanism, prior, coins=coins)
    from_there = f", from average {prior.average:g}" if mechanism.needs_public_average else ""
    name = f"{in_words(mechanism.settings())}{from_there}"
    return Subject(name, reporter, claims or of_mechanism(mechanism, rounds, delta), signals)


def sum_subject(
    mechanism: Mechanism,
    honest: int,
    rounds: int,
    *,
    delta: float = DELTA,
    claims: tuple[Claim, ...] = (),
    coins: Callable[[int], Coins] = SeededCoins,
) -> Subject:
    """A mechanism for an observer of the sum alone, with so many honest others.

    Example:
        >>> sum_subject(Clamp(1.0), honest=5, rounds=1).name
        'clamp, epsilon 1 per report, center 0.5, only the sum with 5 others'
    """
    reporter = SumReporter(mechanism, honest, coins=coins)
    held = claims or of_sum(mechanism, honest, rounds, delta)
    name = f"{in_words(mechanism.settings())}, only the sum with {honest} others"
    return Subject(name, reporter, held, values=honest + 2)


def our_mechanisms(
    rounds: int = 4, *, delta: float = DELTA, coins: Callable[[int], Coins] = SeededCoins
) -> list[Subject]:
    """Every certified mechanism, and the sum-only view.

    Example:
        >>> len(our_mechanisms()) >= 9
        True
    """
    fixed = (RandomizedResponse(1.0), Clamp(0.5), Clamp(1.0), Clamp(1.0, center=0.1), CappedCoin(1.0, 0.8))
    subjects = [mechanism_subject(mechanism, rounds, delta=delta, coins=coins) for mechanism in fixed]
    for average in (0.05, 0.5, 0.95):
        prior = Prior(average, 20)
        subjects.append(mechanism_subject(TrackingClamp(1.0), rounds, delta=delta, prior=prior, coins=coins))
    subjects.append(mechanism_subject(Memoized(4.0, price=10.0), 3 * rounds, delta=delta, coins=coins))
    for honest, some in ((5, 1), (5, 2), (20, 1)):
        subjects.append(sum_subject(Clamp(1.0), honest, some, delta=delta, coins=coins))
    return subjects
