"""The account of a mechanism over a run, against an observer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from turnout.algorithm import MECHANISMS, WORDS, Mechanism, Public, check_mechanism, on_the_coin
from turnout.errors import invalid
from turnout.privacy.accounting import Account, check_delta, shown, total_epsilon
from turnout.privacy.certificates import certificate
from turnout.privacy.observer import (
    EVERY_REPORT,
    FIXED_NUMBER,
    NOISY_SUM,
    ONE_LEDGER,
    OWN_BIT,
    RELEASED_FOR_EACH,
    RELEASED_ONCE,
    Observer,
)
from turnout.privacy.spending import Kind, Spending, kind_of

Box = tuple[float, float]


def account_of(mechanism: Mechanism, rounds: int, delta: float, observer: Observer = Observer()) -> Account:  # noqa: B008
    """The total epsilon of a mechanism over a number of reports; infinite where there is no bound.

    It holds for every client: where boxes or weights differ, the worst counts.

    Args:
        mechanism: any mechanism.
        rounds: how many reports of one client.
        delta: the slack (see `Account`); a release made once needs none.
        observer: who sees what.

    Raises:
        ValueError: the promise does not exist against this observer; the message says why.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> account_of(Clamp(0.1), rounds=1000, delta=1e-6)
        total epsilon 19.35 at delta 1e-06 over 1,000 reports, against an observer of every report (exact binomial)
    """
    if isinstance(observer, Observer) and observer.sees == NOISY_SUM:
        return _of_noisy_sum(mechanism, rounds, delta, observer)
    promise = certificate(mechanism, observer)
    if promise.per == "lifetime":
        found = Account(promise.epsilon, 0.0, rounds, str(observer), "one release at joining, pure")
    elif math.isinf(promise.epsilon):
        found = Account(math.inf, delta, rounds, str(observer), promise.why)
    elif observer.sees == EVERY_REPORT:
        accounts = [total_epsilon(*box, rounds, delta) for box in _boxes(mechanism, promise.epsilon)]
        found = max(accounts, key=lambda account: account.epsilon)
    else:
        found = _of_sum(mechanism, rounds, delta, observer)
    return found.assuming(*promise.assumptions)


def _of_noisy_sum(mechanism: Mechanism, rounds: int, delta: float, observer: Observer) -> Account:
    """The smaller of two totals: by the noise; and the mechanism's own, of every report.

    The second holds too, since opened sums are made of reports. It needs no noise, so it assumes none. The two do not
    add up to less: a box is not a smaller weight. Where clients learn from each other's releases, one of them moves
    many bits, which the noise does not hide: then only the second holds.
    """
    from turnout.privacy.noisy_sum import total_epsilon_noisy_sum  # no device has this observer

    check_mechanism(mechanism)
    assert observer.noise is not None  # an observer of sums with noise
    found = total_epsilon_noisy_sum(observer.noise, rounds, delta, observer.heaviest)
    over = found.over
    if observer.heaviest == 1:
        over, _, _ = over.partition(", for a client of")
    elif observer.weights is not None and np.ptp(np.asarray(observer.weights)) > 0:
        over = over.replace("a client of", "the heaviest client, of")
    unproven = () if MECHANISMS.has_proofs_of(mechanism) else (OWN_BIT,)
    found = replace(found, over=over, assumptions=observer.assumptions(mechanism)).assuming(*unproven)
    try:
        own = account_of(mechanism, rounds, delta, observer.of_every_report)
    except ValueError:  # it has no promise of its own
        if mechanism.needs_population:
            raise
        return found
    if own.epsilon >= found.epsilon and not mechanism.needs_population:
        return found
    return replace(own, against=str(observer), how=f"{own.how}; as if every report were seen")


class _Hidden(NamedTuple):
    """How a client is hidden in the sum.

    Attributes:
        box: its own.
        others: a box that holds those of all others of its weight.
        honest: how many of these certainly follow the protocol, whoever does not.
    """

    box: Box
    others: Box
    honest: int


def hidden_in_sum(mechanism: Mechanism, observer: Observer) -> set[_Hidden]:
    """The ways in which clients are hidden in a sum; where one way is worse than another, only the worse.

    A client is hidden among those of its own weight; the observer is assumed to know the bits of all others. The
    clients that may not follow the protocol may all be of that weight. A client is hidden by the certain part of the
    others' bits, so that their boxes may be widened to one that contains them all.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> weights = [1] * 8 + [200] * 2
        >>> found = hidden_in_sum(Clamp(1.0), Observer("sum", honest=9, weights=weights))
        >>> [hidden.honest for hidden in found]
        [1]
    """
    assert observer.honest is not None  # an observer of the sum
    low, high = (np.ceil(np.asarray(end, dtype=np.float64) * WORDS) / WORDS for end in mechanism.box(Public()))
    low, high = np.broadcast_arrays(low, high)  # as a real coin has them: see `on_the_coin`
    if low.ndim == 0 and observer.weights is None:
        return {_Hidden(box := (float(low), float(high)), box, int(observer.honest))}
    given = 1 if observer.weights is None else np.size(observer.weights)
    clients = max(low.size, given)
    if observer.honest >= clients or not {low.size, given} <= {1, clients}:
        allowed = f"of one number of clients (boxes {low.size:,}, weights {given:,})"
        raise invalid("mechanism, weights and honest", allowed, f"{observer.honest:,} honest", "give all clients'")
    low, high = np.broadcast_to(low.ravel(), (clients,)), np.broadcast_to(high.ravel(), (clients,))
    weights = np.broadcast_to(np.asarray(1 if observer.weights is None else observer.weights), (clients,))
    astray, least = clients - 1 - int(observer.honest), dict[tuple[Box, Box], int]()
    for weight in np.unique(weights):
        for box, others, number in _among(low[weights == weight], high[weights == weight]):
            least[box, others] = min(max(0, number - astray), least.get((box, others), clients))
    return {_Hidden(box, others, honest) for (box, others), honest in least.items()}


def _among(low: np.ndarray, high: np.ndarray) -> Iterator[tuple[Box, Box, int]]:
    """(its box, one that holds all others', how many others) of each kind of client of one weight."""
    ends, kinds = np.unique(np.stack([low, high]), axis=1, return_inverse=True)
    for kind in range(ends.shape[1]):
        alone = np.flatnonzero(kinds.ravel() == kind)[0]
        rest = np.arange(len(low)) != alone
        box = (float(ends[0, kind]), float(ends[1, kind]))
        others = (float(low[rest].min()), float(high[rest].max())) if rest.any() else box
        yield box, others, int(rest.sum())


def _of_sum(mechanism: Mechanism, rounds: int, delta: float, observer: Observer) -> Account:
    from turnout.privacy.sum_only import total_epsilon_sum_only  # no device has this observer

    ways = hidden_in_sum(mechanism, observer)
    accounts = [total_epsilon_sum_only(*way.box, rounds, delta, way.honest, way.others) for way in ways]
    worst = max(accounts, key=lambda account: account.epsilon)
    alike = observer.weights is None or np.ptp(np.asarray(observer.weights)) == 0
    how = worst.how if alike else f"{worst.how}; hidden among clients of the same weight, the worst of them"
    return replace(worst, against=str(observer), how=how)


def _boxes(mechanism: Mechanism, epsilon: float) -> list[Box]:
    """All different boxes; where they move, any report of pure epsilon gives away no more than a symmetric one."""
    if mechanism.needs_public_average:
        return [Kind(epsilon).box]
    low, high = np.broadcast_arrays(*mechanism.box(Public()))
    return [on_the_coin(a, b) for a, b in {*zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)}]


class PublicAccount:
    """The most that any client has given away, from public data: the mechanism and the number of reports.

    Args:
        mechanism: what the clients use.
        delta: the slack of the total (see `Account`).
        observer: of every report, with the run's averaging.
        earlier: the mechanisms before it, in order, each with the number of its reports.

    Attributes:
        certified: the epsilon of the certificate, against the server; infinite where there is none.
        per: what it covers: one "report", or a "lifetime" (all reports together, from a release made once).
        delta: as given.
        against: an observer of every report.
        assumptions: what must hold, and turnout cannot enforce.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> PublicAccount(Clamp(epsilon=0.1), delta=1e-6).total(1000)
        total epsilon 19.35 at delta 1e-06 over 1,000 reports, against an observer of every report, if the number of
        reports did not depend on their content (exact binomial)
    """

    def __init__(
        self,
        mechanism: Mechanism,
        delta: float,
        observer: Observer = Observer(),  # noqa: B008
        earlier: Sequence[tuple[Mechanism, int]] = (),
    ) -> None:
        check_delta(delta)
        self._mechanism, self._observer, self._earlier = mechanism, observer, tuple(earlier)
        self._promise = found = certificate(mechanism, self._observer)
        self.certified, self.per, self.delta = found.epsilon, found.per, delta
        self.against, self.assumptions = found.against, found.assumptions

    def total(self, reports: int) -> Account:
        """The total of the reports so far, under all mechanisms, at delta; an upper bound for every client."""
        if self._earlier:
            return self._composed(reports)
        if reports < 1 and self.per == "report":
            return Account(0.0, self.delta, 0, self.against, "no report yet", self.assumptions)
        found = account_of(self._mechanism, max(reports, 1), self.delta, self._observer)
        on_the_way = self.per == "report" and found.delta > 0.0 and 0.0 < found.epsilon < math.inf
        return found.assuming(FIXED_NUMBER) if on_the_way else found

    def _composed(self, reports: int) -> Account:
        """Of reports under several mechanisms: as a ledger adds them up."""
        now = max(0, reports - sum(number for _, number in self._earlier))
        spent, released, assumed = Spending(Counter()), None, list[str]()
        for mechanism, number in (*self._earlier, (self._mechanism, now)):
            promise = certificate(mechanism, self._observer)
            assumed += promise.assumptions
            if promise.per == "report":
                spent.reports[kind_of(mechanism, promise.epsilon)] += number
            elif mechanism.settings() != released:  # the same as the last one releases nothing again
                spent.releases.append(promise.epsilon)
                released = mechanism.settings()
        found, once = spent.total(self.delta), RELEASED_FOR_EACH if len(spent.releases) > 1 else RELEASED_ONCE
        assumed = [once if words == RELEASED_ONCE else words for words in assumed]
        others = [words for words in found.assumptions if words != ONE_LEDGER]  # that is for an owner to say
        return replace(found, assumptions=tuple(dict.fromkeys([*assumed, *others])))

    def sentence(self, reports: int) -> str:
        """The account in one line, for the log and the operator's page."""
        if self._earlier:
            now = (
                f"epsilon {shown(self.certified)} per {self.per} now"
                if self._promise.is_bounded
                else f"{self._promise}"
            )
            return f"{now}; with all that was reported under earlier rules, {self.total(reports)}"
        if self.per == "lifetime" or not self._promise.is_bounded:
            return str(self._promise)
        return f"epsilon {shown(self.certified)} per report; {self.total(reports)}"
