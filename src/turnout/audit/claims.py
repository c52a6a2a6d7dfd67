"""What an audit tries to refute: totals over all rounds, and bounds on each report given all before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnout.algorithm import Mechanism, Public
from turnout.errors import invalid
from turnout.privacy import (
    EVERYTHING,
    Account,
    Observer,
    account_of,
    certificate,
    provided,
    shown,
    shown_delta,
    total_epsilon,
)

DELTA = 1e-6

TELLING_DELTAS = (0.01, 0.1)
"""The deltas at which an audit of some million trials has most power. A promise for every delta holds at these, too."""


@dataclass(frozen=True)
class Claim:
    """A bound that an audit may refute.

    Attributes:
        epsilon: the bound.
        delta: the slack (see `Account`); 0 for a pure bound.
        rounds: the number of observed rounds.
        of: "total" (all that is seen), or a kind of answer, given all before it: "report" (each report), "retry" (to
            a round that was answered before) or "after" (in the rounds after the last report).
        reports: how many of the rounds hold something private; the rest follow from public data.
        against: the observer.
        assumptions: what must hold for the claim, and turnout cannot enforce; each a clause.
    """

    epsilon: float
    rounds: int
    delta: float = 0.0
    of: str = "total"
    reports: int = 0
    against: str = EVERYTHING
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.epsilon >= 0.0:
            raise invalid("claimed epsilon", "at least 0", self.epsilon, "give the promise to be audited")
        if self.rounds < 1:
            raise invalid("rounds", "a whole number of at least 1", self.rounds, "give the number of observed rounds")

    @property
    def what(self) -> str:
        """The claim in words, without the observer."""
        if self.of == "report":
            return f"epsilon {shown(self.epsilon)} per report, given all before it"
        if self.of == "retry":
            return f"epsilon {shown(self.epsilon)} per round asked for again"
        if self.of == "after":
            return f"epsilon {shown(self.epsilon)} per round after the last of {self.reports} reports"
        pure = "pure" if self.delta == 0.0 else f"at delta {shown_delta(self.delta)}"
        seen = f"over {self.rounds} round{'' if self.rounds == 1 else 's'}"
        few = f" ({self.reports} reports)" if self.reports and self.reports != self.rounds else ""
        return f"total epsilon {shown(self.epsilon)}, {pure}, {seen}{few}"

    def __str__(self) -> str:
        return f"{self.what}, {self.circumstances}"

    @property
    def circumstances(self) -> str:
        """The observer, and the assumptions."""
        return f"against {self.against}{provided(self.assumptions)}"


def per_report(
    epsilon: float, rounds: int, delta: float = DELTA, box: tuple[float, float] | None = None, retries: bool = False
) -> tuple[Claim, ...]:
    """All that a pure epsilon per report promises over some rounds, for any history and any signals.

    Every reporter with that promise reveals no more than randomized response with the same epsilon. So the totals
    are those of its box, unless the reporter's own box makes them smaller.

    Args:
        epsilon: pure, per report.
        rounds: how many.
        delta: for the total; larger ones, at which an audit has more power, are tested, too.
        box: the public (low, high) of the reporter's probability, the same in every round.
        retries: also claim that asking again reveals nothing new.

    Example:
        >>> for claim in per_report(1.0, rounds=2, delta=0.01): print(claim)
        epsilon 1.000 per report, given all before it, against an observer of every report
        total epsilon 2.000, pure, over 2 rounds, against an observer of every report
        total epsilon 1.982, at delta 0.01, over 2 rounds, against an observer of every report
        total epsilon 1.793, at delta 0.1, over 2 rounds, against an observer of every report
    """
    wrong = 1.0 / (1.0 + math.exp(min(epsilon, 700.0)))
    low, high = box or (wrong, 1.0 - wrong)
    found = [Claim(epsilon, rounds, of="report")]
    if retries:
        found.append(Claim(0.0, rounds, of="retry"))
    found += [Claim(epsilon * rounds, rounds)] if rounds > 1 or retries else []
    found += [_of_account(total_epsilon(low, high, rounds, each), rounds) for each in _deltas(delta)]
    return tuple(found)


def in_total(epsilon: float, rounds: int, delta: float = 0.0) -> tuple[Claim, ...]:
    """One promise for all rounds together: for a lifetime.

    Example:
        >>> str(*in_total(4.0, rounds=16))
        'total epsilon 4.000, pure, over 16 rounds, against an observer of every report'
    """
    return (Claim(epsilon, rounds, delta),)


def of_budget(box: tuple[float, float], reports: int, rounds: int, delta: float = DELTA) -> tuple[Claim, ...]:
    """A number of reports, and only public data in the rounds after them.

    Example:
        >>> for claim in of_budget((0.25, 0.75), reports=2, rounds=5)[:2]: print(claim)
        epsilon 0.0 per round after the last of 2 reports, against an observer of every report
        total epsilon 2.198, pure, over 5 rounds (2 reports), against an observer of every report
    """
    totals = (_of_account(total_epsilon(*box, reports, each), rounds) for each in (0.0, *_deltas(delta)))
    return (Claim(0.0, rounds, of="after", reports=reports), *totals)


def of_sum(mechanism: Mechanism, observer: Observer, rounds: int, delta: float = DELTA) -> tuple[Claim, ...]:
    """The account against an observer of the sum alone.

    Args:
        mechanism: of all clients; boxes may differ by client.
        observer: the honest others, the weights, how histories move.
        rounds: how many sums.
        delta: as in `per_report`.

    Raises:
        ValueError: there is no such account; the message says why.

    Example:
        >>> from turnout.algorithm import Averaging
        >>> from turnout.algorithm import Clamp
        >>> ten = Observer("sum", honest=10, averaging=Averaging(by="probability"))
        >>> of_sum(Clamp(1.0), ten, rounds=1)[0].what
        'total epsilon 1.0000, at delta 1e-06, over 1 round'
    """
    return tuple(_of_account(account_of(mechanism, rounds, each, observer), rounds) for each in _deltas(delta))


def of_mechanism(mechanism: Mechanism, rounds: int, delta: float = DELTA) -> tuple[Claim, ...]:
    """What the certificate of a mechanism promises over some rounds, against an observer of every report.

    Raises:
        ValueError: it promises nothing that could be refuted.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> len(of_mechanism(Clamp(1.0), rounds=2)) > 1
        True
    """
    promise = certificate(mechanism)
    if math.isinf(promise.epsilon):
        remedy = "give a claim to audit it against"
        raise invalid(f"mechanism {mechanism.kind}", "one with a bound", str(promise), remedy)
    if promise.per == "lifetime":
        found = in_total(promise.epsilon, rounds)
    elif mechanism.needs_public_average:
        found = per_report(promise.epsilon, rounds, delta)
    else:
        low, high = mechanism.box(Public())
        found = per_report(promise.epsilon, rounds, delta, box=(float(low), float(high)))
    return tuple(replace(claim, assumptions=promise.assumptions) for claim in found)


def _deltas(delta: float) -> Sequence[float]:
    return sorted({delta, *TELLING_DELTAS} - {0.0})


def _of_account(account: Account, rounds: int) -> Claim:
    held = account.assumptions
    return Claim(
        account.epsilon, rounds, account.delta, reports=account.rounds, against=account.against, assumptions=held
    )
