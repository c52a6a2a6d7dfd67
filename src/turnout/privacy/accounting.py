"""What many reports give away together, to an observer of every report who chooses the signals during the run.

An account does not depend on any cost: it follows from the public box [low, high] of the probability of a "yes".
Every number is an upper bound and is rounded upwards. The theorems are in docs/proofs/accounting.md. For rounds that
differ by plan or a view of the sum alone see `sum_only`; for boxes chosen during the run see `filter`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext

import numpy as np

from turnout.display import card
from turnout.errors import invalid
from turnout.privacy.observer import Observer
from turnout.problem import Array

UNIT = float(np.finfo(np.float64).eps)
"""Twice the largest relative error of one rounded operation."""

UP = 1.0 + 16.0 * UNIT
"""A factor that makes a result of a few rounded operations an upper bound."""

SMALLEST_LOW = 1e-100
"""Below it the walk would overflow; then the account is the sum of the reports' epsilons."""

EVERYTHING = str(Observer())
"""Against an observer of every report."""


@dataclass(frozen=True)
class Account:
    """A total over all reports, against an observer, with its method.

    Attributes:
        epsilon: the total, an upper bound, rounded upwards.
        delta: a slack in probability: P(A) <= e^epsilon P'(A) + delta for every event A that is seen, with P under
            one cost and P' under another. Not the probability that the odds shift further, which may be larger.
        rounds: how many reports it covers.
        against: the observer.
        how: the method.
        assumptions: what must hold for it, and turnout cannot enforce; each a clause.
        over: what it covers, in words, where that is not a number of reports.

    Example:
        >>> Account(591.0, 1e-6, 1000, "an observer of every report", "exact binomial")
        total epsilon 591.0 at delta 1e-06 over 1,000 reports, against an observer of every report (exact binomial)
        >>> Account(4.0, 0.0, 10, "an observer of every report", "one release", ("the cost is released once",))
        total epsilon 4.000 at delta 0 over 10 reports, against an observer of every report, if the cost is released
        once (one release)
    """

    epsilon: float
    delta: float
    rounds: int
    against: str
    how: str
    assumptions: tuple[str, ...] = ()
    over: str = ""

    def __repr__(self) -> str:
        over = self.over or f"{self.rounds:,} report{'' if self.rounds == 1 else 's'}"
        what = f"total epsilon {shown(self.epsilon)} at delta {shown_delta(self.delta)} over {over}"
        return f"{what}, against {self.against}{provided(self.assumptions)} ({self.how})"

    def assuming(self, *more: str) -> Account:
        """The same under further assumptions."""
        return replace(self, assumptions=(*self.assumptions, *(one for one in more if one not in self.assumptions)))

    def _repr_html_(self) -> str:
        over = self.over or f"{self.rounds:,} reports"
        facts = {"total epsilon": shown(self.epsilon), "at delta": shown_delta(self.delta), "over": over}
        held = "; ".join(self.assumptions) or "nothing but the protocol"
        return card("Account", facts | {"against": self.against, "assumed": held, "how": self.how})


def shown_delta(delta: float) -> str:
    """With three digits, or with six, rounded upwards, where three would be too small.

    Example:
        >>> shown_delta(1e-6), shown_delta(0.10449), shown_delta(0.0)
        ('1e-06', '0.10449', '0')
    """
    short = f"{delta:.3g}"
    with localcontext(prec=6, rounding=ROUND_CEILING):
        return short if float(short) >= delta else f"{float(+Decimal(delta)):.6g}"


def provided(assumptions: Sequence[str]) -> str:
    """Assumptions as the end of a sentence; nothing if there are none.

    Example:
        >>> provided(["it rains", "it pours"])
        ', if it rains, and it pours'
    """
    return f", if {', and '.join(assumptions)}" if assumptions else ""


def shown(value: float) -> str:
    """A bound with four significant digits or one decimal, rounded upwards, so that the text is a bound too.

    Example:
        >>> shown(0.12341), shown(19.333), shown(12345.21), shown(591.0), shown(math.inf)
        ('0.1235', '19.34', '12345.3', '591.0', 'inf')
    """
    if not math.isfinite(value) or value <= 0.0:
        return str(value)
    digits = max(1, 3 - math.floor(math.log10(value)))
    scaled = value * 10.0**digits
    whole = round(scaled) if abs(scaled - round(scaled)) <= 4.0 * UNIT * scaled else math.ceil(scaled)
    return f"{whole / 10.0**digits:.{digits}f}"


@dataclass(frozen=True)
class Pair:
    """Two distributions that dominate one report, whichever way round the two costs are.

    With probability `blank` a report says nothing; else it is a randomized response, right with probability `right`
    and wrong with probability `wrong` (right + wrong + blank = 1).

    Attributes:
        right: the mass of loss +loss, min(low, 1 - high) + (high - low).
        wrong: the mass of loss -loss, min(low, 1 - high).
        blank: the mass of loss 0, |1 - low - high|; 0 for a symmetric box.
        loss: ln(right / wrong), rounded upwards: the epsilon per report.
    """

    right: float
    wrong: float
    blank: float
    loss: float


def report_epsilon(low: float, high: float) -> float:
    """Pure epsilon per report: max(ln(high / low), ln((1 - low) / (1 - high))), rounded upwards.

    It holds for any two costs and any signal, against an observer of the report.

    Args:
        low: the least probability of a "yes".
        high: the greatest.

    Raises:
        ValueError: not 0 <= low <= high <= 1.

    Example:
        >>> round(report_epsilon(0.1, 0.2), 6), report_epsilon(0.0, 0.5)
        (0.693147, inf)
    """
    check_box(low, high)
    return max(_log_ratio(high - low, low), _log_ratio(high - low, 1.0 - high))


def dominating_pair(low: float, high: float) -> Pair:
    """The pair that dominates both directions of one report from the box [low, high].

    For a box below the middle (low + high <= 1) a "yes" tells more than a "no". The greater of the two
    directions' profiles is the profile of a randomized response with ratio high / low that stays blank with
    probability 1 - low - high. A box above the middle is its mirror image.

    Raises:
        ValueError: not 0 < low <= high < 1.

    Example:
        >>> dominating_pair(0.1, 0.3).blank
        0.6
    """
    check_box(low, high)
    blank = math.fsum((1.0, -low, -high))  # rounded once, so that its sign is exact
    wrong, right = (low, high) if blank >= 0.0 else (1.0 - high, 1.0 - low)
    if wrong <= 0.0:
        raise invalid("box", "inside (0, 1)", (low, high), "a certain report has no finite epsilon: narrow the box")
    return Pair(right, wrong, abs(blank), report_epsilon(low, high))


def total_delta(low: float, high: float, rounds: int, epsilon: float) -> Account:
    """The delta at a total epsilon over equal rounds, against an observer of every report.

    delta = sum over d of P(D = d) [1 - e^(epsilon - d loss)]+ where D is the number of right less the number of
    wrong answers of the dominating pair. In a symmetric box this is the exact binomial formula; elsewhere a bound
    for signals that mix the two directions.

    Args:
        low: the least probability of a "yes", the same in every round.
        high: the greatest.
        rounds: how many reports.
        epsilon: the total to ask about, at least 0.

    Example:
        >>> total_delta(0.25, 0.75, rounds=1, epsilon=0.0)
        total epsilon 0.0 at delta 0.500001 over 1 report, against an observer of every report (exact binomial)
    """
    check_rounds(rounds)
    if not epsilon >= 0.0:
        raise invalid("epsilon", "a total of at least 0", epsilon, "give 0 or more")
    if report_epsilon(low, high) * rounds <= epsilon:  # pure: also where both are infinite
        return Account(epsilon, 0.0, rounds, EVERYTHING, "sum of the reports")
    if min(low, 1.0 - high) < SMALLEST_LOW:
        return Account(epsilon, 1.0, rounds, EVERYTHING, "no bound")
    walk = Walk.of(dominating_pair(low, high), rounds)
    return Account(epsilon, walk.delta(epsilon), rounds, EVERYTHING, _how(low, high))


def total_epsilon(low: float, high: float, rounds: int, delta: float) -> Account:
    """The total epsilon at delta over equal rounds, against an observer of every report who chooses the signals.

    Args:
        low: the least probability of a "yes", the same in every round.
        high: the greatest.
        rounds: how many reports, planned ahead.
        delta: the slack (see `Account`); 0 asks for the pure total.

    Raises:
        ValueError: an invalid box, no round, or a delta outside [0, 1).

    Example:
        >>> account = total_epsilon(0.475, 0.525, rounds=1000, delta=1e-6)
        >>> account
        total epsilon 19.37 at delta 1e-06 over 1,000 reports, against an observer of every report (exact binomial)
        >>> total_epsilon(0.1, 0.2718, rounds=20, delta=1e-6).epsilon > 14.10
        True
    """
    check_rounds(rounds)
    check_delta(delta)
    pure = report_epsilon(low, high) * rounds * UP
    if delta == 0.0 or pure == 0.0 or not math.isfinite(pure) or low < SMALLEST_LOW:
        return Account(pure, delta, rounds, EVERYTHING, "sum of the reports")
    walk = Walk.of(dominating_pair(low, high), rounds)
    return Account(min(pure, least_epsilon(walk.delta, pure, delta)), delta, rounds, EVERYTHING, _how(low, high))


@dataclass(frozen=True)
class Walk:
    """Right less wrong answers over equal rounds: the loss is `loss` times a lazy random walk.

    Attributes:
        mass: P(D = d) for d = 0 … rounds, shape (rounds + 1,); correct to `slack`.
        loss: the step, rounded upwards.
        slack: a bound on the relative error of each mass, and of the sums made of them.
    """

    mass: Array
    loss: float
    slack: float

    @classmethod
    def of(cls, pair: Pair, rounds: int) -> Walk:
        """Exactly, by a recurrence whose terms are all positive.

        The coefficients c_n of (wrong + blank x + right x^2)^K satisfy, because p y' = K p' y,
        wrong (n+1) c_(n+1) = blank (K-n) c_n + right (2K-n+1) c_(n-1). For n < K nothing cancels, so every
        c_n is right up to some 8 n roundings. The other half is its mirror: P(D = d) = e^(d loss) P(D = -d).
        """
        right, wrong, blank = pair.right, pair.wrong, pair.blank
        before, now, exponent = 0.0, 1.0, 0
        logarithm = np.full(rounds + 1, -np.inf)
        logarithm[0] = 0.0
        for n in range(rounds):
            after = (blank * (rounds - n) * now + right * (2 * rounds - n + 1) * before) / (wrong * (n + 1))
            before, now = now, after
            if now > 1e130:
                before, now, exponent = before * 2.0**-400, now * 2.0**-400, exponent + 400
            if now > 0.0:
                logarithm[n + 1] = math.log(now) + exponent * math.log(2.0)
        steps = np.arange(rounds + 1)
        ratio = math.log1p((right - wrong) / wrong)
        mass = np.exp(logarithm[::-1] + (rounds * math.log(wrong) + steps * ratio))
        return cls(mass, pair.loss, 16.0 * UNIT * (rounds * (1.0 - math.log(wrong) + ratio) + 4.0))

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at a total epsilon, rounded upwards."""
        losses = np.arange(len(self.mass)) * (self.loss * UP)
        gain = -np.expm1(np.minimum(0.0, epsilon - losses))
        return min(1.0, float(np.sum(self.mass * gain)) * (1.0 + self.slack) + 1e-290)  # masses that underflow


def least_epsilon(delta_of: Callable[[float], float], highest: float, delta: float) -> float:
    """The least epsilon with delta_of(epsilon) <= delta, from above, by bisection; it holds at `highest`.

    Example:
        >>> round(least_epsilon(lambda epsilon: math.exp(-epsilon), 50.0, 1e-6), 6)
        13.815511
    """
    if delta_of(0.0) <= delta:
        return 0.0
    below, above = 0.0, highest
    while above - below > 4.0 * UNIT * above + 1e-300:
        middle = 0.5 * (below + above)
        below, above = (below, middle) if delta_of(middle) <= delta else (middle, above)
    return above


def is_symmetric(low: float, high: float) -> bool:
    """Whether a box lies in the middle of [0, 1], up to the rounding of its ends.

    Example:
        >>> is_symmetric(0.1, 1.0 - 0.1), is_symmetric(0.1, 0.8)
        (True, False)
    """
    return math.isclose(low + high, 1.0, rel_tol=1e-15) and math.isclose(low, 1.0 - high, rel_tol=1e-9)


def check_box(low: float, high: float) -> None:
    """Refuses an invalid box.

    Example:
        >>> check_box(0.2, 0.1)
        Traceback (most recent call last):
        ValueError: low and high must be 0 <= low <= high <= 1, got (0.2, 0.1): give the box of the mechanism
    """
    if not 0.0 <= low <= high <= 1.0:
        raise invalid("low and high", "0 <= low <= high <= 1", (low, high), "give the box of the mechanism")


def check_rounds(rounds: int) -> None:
    """Refuses a count of reports below 1."""
    if rounds < 1 or rounds != int(rounds):
        raise invalid("rounds", "a whole number of at least 1", rounds, "give the number of reports planned")


def check_delta(delta: float) -> None:
    """Refuses a delta outside [0, 1)."""
    if not 0.0 <= delta < 1.0:
        raise invalid("delta", "at least 0 and below 1", delta, "give a small probability, such as 1e-6")


def _how(low: float, high: float) -> str:
    return "exact binomial" if is_symmetric(low, high) else "dominating pair, exact trinomial"


def _log_ratio(difference: float, below: float) -> float:
    """ln((below + difference) / below), rounded upwards; accurate also where the two are close."""
    if difference <= 0.0:
        return 0.0
    return math.log1p(difference / below) * UP if below > 0.0 else math.inf
