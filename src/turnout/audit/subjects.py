"""The reporters of turnout, each with its claims and the signals of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import (
    SMALLEST_AVERAGE,
    WORDS,
    Averaging,
    CappedCoin,
    Clamp,
    Coins,
    Mechanism,
    Memoized,
    Prior,
    RandomizedResponse,
    SeededCoins,
    TrackingClamp,
    widest_box,
)
from turnout.audit.bounds import epsilon_of_words
from turnout.audit.claims import DELTA, Claim, of_mechanism, of_sum
from turnout.audit.events import Statistic
from turnout.audit.reporters import MechanismReporter, Reporter, SumReporter, usual_costs, usual_signals
from turnout.audit.run import Audit, Finding, Progress, audit
from turnout.privacy import SUM, Observer
from turnout.problem import Array, Costs, PolynomialCosts


@dataclass(frozen=True, eq=False)
class Subject:
    """Something to audit.

    Attributes:
        name: for the report.
        reporter: what answers.
        claims: to be tested.
        signals, costs: of the test; the default ones where None.
        values: an answer is a whole number from 0 to values - 1.
        share: of the trials asked for, what a slow reporter gets.
        statistics: what to look at, besides the usual.
    """

    name: str
    reporter: Reporter
    claims: tuple[Claim, ...]
    signals: Mapping[str, Array] | None = None
    costs: Mapping[str, Costs] | None = None
    values: int = 2
    share: float = 1.0
    statistics: tuple[Statistic, ...] = ()

    def audit(
        self, trials: int, false_alarm: float, *, seed: int | None = None, progress: Progress | None = None
    ) -> Audit:
        """As `turnout.audit.audit`, with the findings that need no trials."""
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
            known=self.exact(),
            statistics=self.statistics,
            progress=progress,
        )

    def exact(self) -> list[Finding]:
        """Exact findings from counting the words of a real coin, one for each claim that this can test."""
        reporter = self.reporter
        if not isinstance(reporter, MechanismReporter):
            return []
        costs = self.costs or usual_costs()
        if reporter.mechanism.releases_once:
            of, events = "total", list(_releases(reporter.mechanism, costs))
        else:
            signals = usual_signals(self.claims[0].rounds) if self.signals is None else self.signals
            of, events = "report", list(_reports(reporter, costs, signals))
        if not events:
            return []
        lower, event, words, other = max((epsilon_of_words(*found[1:]), *found) for found in events)
        held = [claim for claim in self.claims if claim.of == of and claim.delta == 0.0]
        return [Finding(claim, lower, event, words, WORDS, other, WORDS, exact=True) for claim in held]


_Counted = tuple[str, int, int]
"""An event, how many of the coin's words lead to it under one cost, and how many under another."""


def _averages(prior: Prior) -> Array:
    """Public histories at which words are counted: dense at both ends, where few words are left."""
    near = np.geomspace(1e-5, 0.5, 600)
    return np.concatenate([[prior.average, SMALLEST_AVERAGE, 1.0], near, 1.0 - near])


def _reports(
    reporter: MechanismReporter, costs: Mapping[str, Costs], signals: Mapping[str, Array]
) -> Iterator[_Counted]:
    """Of each signal the report, and the public average, that tell two costs apart best."""
    averages = _averages(reporter.prior)
    for signal in {str(value): value for values in signals.values() for value in values.tolist()}.values():
        yes = np.stack([reporter.words(cost, signal, averages) for cost in costs.values()])
        for answer, words in (("yes", yes), ("no", WORDS - yes)):
            at = int(np.argmax(words.max(axis=0) / np.maximum(words.min(axis=0), 0.5)))
            yield _counted(f"a {answer} at average {averages[at]:.6g}, signal {signal:g}", words[:, at], list(costs))


def _releases(mechanism: Mechanism, costs: Mapping[str, Costs]) -> Iterator[_Counted]:
    """Each thing that may be released, where the mechanism can count the words of it."""
    words = [mechanism.released_words(cost) for cost in costs.values()]
    for thing in words[0]:
        yield _counted(f"the release of {thing}", np.concatenate([each[thing] for each in words]), list(costs))


def _counted(event: str, words: npt.NDArray[np.int64], costs: Sequence[str]) -> _Counted:
    most, least = int(np.argmax(words)), int(np.argmin(words))
    where = f"{event}, cost {costs[most]!r} against {costs[least]!r}"
    counts = f"{words[most]:,} of 2^53 words against {words[least]:,}"
    return f"exact: {counts}, {where}", int(words[most]), int(words[least])


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
    name = f"{mechanism.in_words()}{from_there}"
    return Subject(name, reporter, claims or of_mechanism(mechanism, rounds, delta), signals)


def sum_subject(
    mechanism: Mechanism,
    observer: Observer,
    rounds: int,
    *,
    name: str | None = None,
    delta: float = DELTA,
    claims: tuple[Claim, ...] = (),
    coins: Callable[[int], Coins] = SeededCoins,
) -> Subject:
    """A mechanism for an observer of the sum alone; the first client's promise, among all the others.

    Example:
        >>> sum_subject(Clamp(1.0), sum_of(6), rounds=1).name
        'clamp, epsilon 1 per report, center 0.5, only the sum with 5 others'
    """
    reporter = SumReporter(mechanism, observer, coins=coins)
    held = claims or of_sum(mechanism, observer, rounds, delta)
    words = f"{name or mechanism.in_words()}, only the sum with {observer.honest} others"
    if len(set(reporter.weights.tolist())) > 1:
        words += f", weight {reporter.weights[0]} among {', '.join(map(str, reporter.weights[1:].tolist()))}"
    return Subject(words, reporter, held, values=reporter.values)


def sum_of(clients: int, weights: npt.ArrayLike | None = None) -> Observer:
    """An observer of the sum alone of so many clients, all of them honest, whose histories hold no hidden bits.

    Example:
        >>> print(sum_of(6))
        an observer of the sum alone, with 5 honest others
    """
    return Observer(SUM, clients - 1, weights, Averaging(by="probability"))


@dataclass(frozen=True, eq=False)
class ClampByClient(Mechanism):
    """The intent, clipped to a box of each client's own.

    Attributes:
        low, high: the boxes, shape (clients,).
    """

    low: Array
    high: Array
    kind = "clamp by client"

    @classmethod
    def around(cls, epsilon: float, centers: Sequence[float]) -> ClampByClient:
        """The widest legal boxes around centres that differ by client.

        Example:
            >>> ClampByClient.around(1.0, [0.5, 0.1]).low.round(3)
            array([0.269, 0.06 ])
        """
        return cls(*np.array([widest_box(epsilon, center) for center in centers]).T)

    def parameters(self) -> tuple[Any, ...]:
        """The boxes."""
        return self.low, self.high

    response, limits = staticmethod(Clamp.response), staticmethod(Clamp.limits)


def our_mechanisms(
    rounds: int = 4, *, delta: float = DELTA, coins: Callable[[int], Coins] = SeededCoins
) -> list[Subject]:
    """Every certified mechanism, and the sum-only view: of equal clients, of weights, and of boxes that differ.

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
    for clients, some in ((6, 1), (6, 2), (21, 1)):
        subjects.append(sum_subject(Clamp(1.0), sum_of(clients), some, delta=delta, coins=coins))
    subjects.append(sum_subject(Clamp(1.0), sum_of(6, [3, 3, 3, 1, 1, 1]), 1, delta=delta, coins=coins))
    mixed, name = ClampByClient.around(1.0, [0.5, *[0.05] * 5]), "clamp, epsilon 1 per report, centers 0.5 and 0.05"
    subjects.append(sum_subject(mixed, sum_of(6), 1, name=name, delta=delta, coins=coins))
    subjects.append(hidden_bits_subject(sum_of(31), delta=delta, coins=coins))
    return subjects


def hidden_bits_subject(
    observer: Observer,
    *,
    refuses: bool = True,
    delta: float = DELTA,
    coins: Callable[[int], Coins] = SeededCoins,
) -> Subject:
    """Two sums of a crowd whose second bits would tell the first ones, if histories held these.

    The others' intent changes fast as their average passes what it is after a round, so that a history that has moved
    by a hidden bit shows: by the bit itself, or, where a server `refuses` every "yes", by a "yes" that was taken back.
    The signals and the two costs are those that show it best. Claimed is what `of_sum` says of averages by probability.

    Example:
        >>> hidden_bits_subject(sum_of(31)).name
        'clamp, epsilon 3 per report, center 0.5, only the sum with 30 steep others, every yes refused'
    """
    mechanism, prior = Clamp(3.0), Prior(0.5, 1)
    after_no = 0.25 + 0.5 * mechanism.parameters()[0]  # half a round of prior at 0.5, and the least probability
    others = _steep(64, 0.5 * (0.25 + after_no), 0.2) if refuses else _steep(64, 0.35, 0.5)
    held = of_sum(mechanism, sum_of(int(observer.honest or 0) + 1), 2, delta)
    reporter = SumReporter(mechanism, observer, others, prior, coins, refuses)
    what = f"only the sum with {observer.honest} steep others{', every yes refused' if refuses else ''}"
    costs: dict[str, Costs] = {name: usual_costs()[name] for name in ("cheap", "expensive")}
    signals = {"usual": np.ones(2)}
    if refuses:
        costs = {"by the signal": PolynomialCosts([[50.0]], (2,)), "by the history": _steep(20, 0.28, 1.0)}
        signals = {"falling": np.array([100.0, 1.0])}
    return Subject(f"{mechanism.in_words()}, {what}", reporter, held, signals, costs, reporter.values)


def _steep(power: int, average: float, wanted: float) -> PolynomialCosts:
    """A cost c x^power, whose intent at signal 1 is `wanted` at this average and falls with its power - 2."""
    return PolynomialCosts([[average ** (2 - power) / (power * wanted)]], (power,))
