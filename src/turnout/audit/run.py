"""Try to refute a privacy claim: make reports under two costs, and test whether they differ by more than claimed.

First a few trials of all costs and signals are made, and the events that tell them apart best are chosen. Then these
events are tested on new trials, by exact binomial intervals. As no event is tested on the trials that it was chosen
from, the probability that an audit refutes a true claim is at most the false-alarm rate. An audit can refute a claim,
but never prove it: the other result is "not refuted".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Context, Decimal
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from turnout.audit.bounds import epsilon_at_least
from turnout.audit.claims import Claim
from turnout.audit.events import (
    Beginning,
    Event,
    Layout,
    Rows,
    Score,
    Statistic,
    best_answer,
    best_event,
    columns_of,
    histogram,
    statistics_of,
)
from turnout.audit.reporters import Reporter, as_reporter, draw, usual_costs, usual_signals
from turnout.errors import invalid
from turnout.problem import Array, Costs

FINALISTS = 4
"""Events tested for each claim; the false-alarm rate is split over all of them."""

MOST_VALUES_SCORED = 32
"""Answers with more values are not scored by what was learned: too much to learn."""


_Scored = tuple[Score, tuple[Rows, Rows], tuple[Rows, Rows]]


class Cell(NamedTuple):
    """One cost and one sequence of signals, by name."""

    cost: str
    signals: str


@dataclass(frozen=True)
class Finalist:
    """An event to be tested, and where.

    Attributes:
        event: what.
        cell: where it is thought to be frequent.
        other: where rare: another cost, the same signals.
    """

    event: Event
    cell: Cell
    other: Cell

    def __str__(self) -> str:
        return f"{self.event}, cost {self.cell.cost!r} against {self.other.cost!r}, signals {self.cell.signals!r}"


@dataclass(frozen=True)
class Explored:
    """The trials from which events are chosen.

    Attributes:
        layout: the form of a row.
        rows: by cell, shape (trials, columns).
        more: looked at besides the usual statistics.
    """

    layout: Layout
    rows: Mapping[Cell, Rows]
    more: tuple[Statistic, ...] = ()

    @cached_property
    def halves(self) -> dict[Cell, tuple[Rows, Rows]]:
        """By cell: one half to learn from, one to choose by."""
        return {cell: (rows[: len(rows) // 2], rows[len(rows) // 2 :]) for cell, rows in self.rows.items()}

    @cached_property
    def counted(self) -> dict[Cell, list[tuple[Rows, Rows]]]:
        """By cell and statistic: the histograms of both halves."""
        return {
            cell: [(histogram(statistic, learn), histogram(statistic, choose)) for statistic in self.statistics]
            for cell, (learn, choose) in self.halves.items()
        }

    @cached_property
    def statistics(self) -> list[Statistic]:
        """All that is looked at, but for the learned score."""
        return [*statistics_of(self.layout, len(next(iter(self.rows.values())))), *self.more]

    @cached_property
    def _scores(self) -> dict[tuple[Cell, Cell], _Scored]:
        return {}

    def scored(self, cell: Cell, other: Cell) -> _Scored | None:
        """The learned score of two cells and its histograms, where whole rows are too many to be told apart."""
        whole = any(isinstance(statistic, Beginning) for statistic in self.statistics)
        if whole or self.layout.columns == 1 or self.layout.values > MOST_VALUES_SCORED:
            return None
        if (cell, other) not in self._scores:
            (learn, choose), (other_learn, other_choose) = self.halves[cell], self.halves[other]
            score = Score.learned(learn, other_learn, self.layout.values)
            learned = (histogram(score, learn), histogram(score, other_learn))
            self._scores[cell, other] = score, learned, (histogram(score, choose), histogram(score, other_choose))
        return self._scores[cell, other]


def finalists_of(claim: Claim, explored: Explored, costs: list[str], signals: list[str]) -> list[Finalist]:
    """The events that seem closest to refuting a claim, or to exceed it the most; at most FINALISTS.

    Half of the places are kept for statistics that were asked for: guesses of learned events are optimistic.
    """
    search = _of_total if claim.of == "total" else _given_past
    found = [
        (guess, Finalist(event, cell, other))
        for signal in signals
        for cell, other in ((Cell(one, signal), Cell(two, signal)) for one, two in itertools.permutations(costs, 2))
        for guess, event in search(claim, explored, cell, other)
    ]
    found.sort(key=lambda pair: -pair[0])
    sorted_ones = [finalist for _, finalist in found]
    sure = [finalist for finalist in sorted_ones if finalist.event.statistic in explored.more][: FINALISTS // 2]
    return [*sure, *(finalist for finalist in sorted_ones if finalist not in sure)][:FINALISTS]


def _of_total(claim: Claim, explored: Explored, cell: Cell, other: Cell) -> Iterator[tuple[float, Event]]:
    pairs = zip(explored.statistics, explored.counted[cell], explored.counted[other], strict=True)
    for statistic, (learn, choose), (other_learn, other_choose) in pairs:
        yield best_event(statistic, (learn, other_learn), (choose, other_choose), claim.delta)
    scored = explored.scored(cell, other)
    if scored is not None:
        yield best_event(*scored, claim.delta)


def _given_past(claim: Claim, explored: Explored, cell: Cell, other: Cell) -> Iterator[tuple[float, Event]]:
    for at in columns_of(explored.layout, claim.of, claim.reports):
        found = best_answer(explored.layout, at, explored.rows[cell], explored.rows[other])
        if found is not None:
            yield found


CHUNK = 1 << 16
"""Trials drawn together, so that memory stays small; of a reporter in the form for one trial, FEW."""

FEW = 1 << 10

Progress = Callable[[int, int], None]
"""Called with the number of finished trials, and of all."""


@dataclass(frozen=True)
class Finding:
    """What was found about one claim.

    Attributes:
        claim: the claim.
        lower: epsilon is at least this, up to the false-alarm rate; 0 where nothing was found.
        event: what showed it: the event, the two costs and the signals.
        hits, trials: how often it happened under the one cost.
        other_hits, other_trials: the same under the other.
        exact: all words of the real coin were counted, so that the bound has no error.

    Example:
        >>> from turnout.audit import per_report
        >>> claim = per_report(1.0, rounds=1)[0]
        >>> Finding(claim, 1.2, "a yes: cheap, not expensive", 900, 1000, 100, 1000).refuted
        True
    """

    claim: Claim
    lower: float
    event: str
    hits: int = 0
    trials: int = 0
    other_hits: int = 0
    other_trials: int = 0
    exact: bool = False

    @property
    def shown(self) -> str:
        """The lower bound for people, rounded down: with four decimals; with twelve digits where it is exact."""
        if not self.exact or not 0.0 < self.lower < math.inf:
            return f"{math.floor(self.lower * 1e4) / 1e4:.4f}" if math.isfinite(self.lower) else str(self.lower)
        return f"{Context(prec=12, rounding=ROUND_FLOOR).create_decimal(Decimal(self.lower)):f}"

    @property
    def refuted(self) -> bool:
        """Whether the claim cannot be true."""
        return self.lower > self.claim.epsilon

    def __repr__(self) -> str:
        return f"Finding({'REFUTED' if self.refuted else 'not refuted'}: {self.claim}: at least {self.shown})"

    def __str__(self) -> str:
        counts = f"{self.hits:,} of {self.trials:,} against {self.other_hits:,} of {self.other_trials:,}"
        word = "REFUTED" if self.refuted else "not refuted"
        return f"{word}: {self.claim}: at least {self.shown} ({self.event}{'' if self.exact else f': {counts}'})"


@dataclass(frozen=True)
class Audit:
    """The outcome of an audit.

    Attributes:
        name: of what was audited.
        findings: one for each claim, and those that needed no draws.
        trials: of each cost and signals that were tested.
        tests: how many events were tested; the false-alarm rate is split among them.
        false_alarm: the chance that a reporter that keeps all claims is refuted, at most.

    Example:
        >>> Audit("my client", (), trials=1000, tests=1, false_alarm=1e-6).refuted
        False
    """

    name: str
    findings: tuple[Finding, ...]
    trials: int
    tests: int
    false_alarm: float

    @property
    def worst(self) -> Finding:
        """The finding that exceeds its claim the most; if none does, the closest one from trials."""
        drawn = [found for found in self.findings if found.refuted or not found.exact] or self.findings
        return max(drawn, key=lambda found: (found.refuted, found.lower / max(found.claim.epsilon, 1e-9), found.lower))

    @property
    def refuted(self) -> bool:
        """Whether any claim is refuted."""
        return any(found.refuted for found in self.findings)

    @property
    def verdict(self) -> str:
        """ "refuted" or "not refuted"; never "proven"."""
        return "refuted" if self.refuted else "not refuted"

    def with_known(self, known: Sequence[Finding]) -> Audit:
        """With findings that needed no draws."""
        return replace(self, findings=(*self.findings, *known))

    def __repr__(self) -> str:
        return f"Audit({self.name}: {self.verdict}, {len(self.findings)} claims, {self.trials:,} trials per cost)"

    def __str__(self) -> str:
        rate = f"false-alarm rate {self.false_alarm:.1g} over {self.tests} tests of {self.trials:,} trials per cost"
        return "\n".join([f"{self.name}: {self.verdict} ({rate})", *(f"  {found}" for found in self.findings)])


class AuditInterrupted(KeyboardInterrupt):
    """Ctrl-C while the chosen events were tested. The finished trials count: see `audit`.

    Attributes:
        audit: the outcome with the trials made so far.
    """

    def __init__(self, audit: Audit) -> None:
        super().__init__(f"interrupted after {audit.trials:,} trials")
        self.audit = audit


@dataclass(frozen=True)
class _Draws:
    """Where answers come from: a reporter, the costs, the signals, and new seeds for every chunk."""

    reporter: Reporter
    costs: Mapping[str, Costs]
    signals: Mapping[str, Array]
    values: int
    chunk: int
    seeds: Iterator[int]
    told: Callable[[int], None]

    def chunks(self, cell: Cell, trials: int) -> Iterator[Rows]:
        """Rows of one cost and signals, so many in all."""
        for first in range(0, trials, self.chunk):
            size = min(self.chunk, trials - first)
            answers = draw(
                self.reporter, self.costs[cell.cost], self.signals[cell.signals], size, next(self.seeds), self.values
            )
            self.told(size)
            yield answers.reshape(size, -1)


def audit(
    reporter: Reporter,
    claims: Sequence[Claim],
    *,
    trials: int = 100_000,
    explore: int | None = None,
    costs: Mapping[str, Costs] | None = None,
    signals: Mapping[str, Any] | None = None,
    values: int = 2,
    false_alarm: float = 1e-6,
    seed: int | None = None,
    name: str = "reporter",
    known: Sequence[Finding] = (),
    statistics: Sequence[Statistic] = (),
    progress: Progress | None = None,
) -> Audit:
    """Look for evidence against claims about a reporter.

    Args:
        reporter: `(costs, signals) -> answers`, or the form for many trials; see `turnout.audit.reporters`.
        claims: from `per_report`, `in_total`, `of_mechanism`, `of_sum`: all for the same number of rounds.
        trials: of each cost and signals whose events are tested.
        explore: of every cost and signals, to choose the events; a tenth of `trials`, but at least 100 and
            at most 65,536, unless given.
        costs: by name, each a population of one; extreme and middle ones, unless given.
        signals: by name, each of shape (rounds,); fair and hostile ones, unless given.
        values: an answer is a whole number from 0 to values - 1.
        false_alarm: the chance to refute claims that all hold, at most.
        seed: for repeatable trials; None takes it from the operating system.
        name: for the report.
        known: findings that needed no draws, for the report.
        statistics: what to look at in a row, besides the usual.
        progress: called with the number of finished trials, and of all.

    Raises:
        ValueError: an argument is out of range.
        ReporterProblem: the reporter fails or does not answer.
        AuditInterrupted: Ctrl-C during the tests; carries the outcome so far.

    Example:
        >>> from turnout.audit import per_report
        >>> audit(lambda costs, signals: [costs.slope(0.5)[0] < 1], per_report(1.0, 1), trials=500).verdict
        'refuted'
    """
    rounds = _rounds_of(claims)
    costs = usual_costs() if costs is None else costs
    given = usual_signals(rounds) if signals is None else signals
    heard = {key: np.asarray(value, dtype=np.float64) for key, value in given.items()}
    explore = max(100, min(trials // 10, CHUNK)) if explore is None else explore
    _check(costs, heard, rounds, trials, explore, false_alarm)
    told = _Told(progress, len(costs) * len(heard) * (explore + trials))  # at most; known once the events are chosen
    many, at_once = as_reporter(reporter)
    draws = _Draws(many, costs, heard, values, CHUNK if at_once else FEW, _seeds(seed), told.more)
    explored = replace(_explore(draws, rounds, explore), more=tuple(statistics))
    chosen = [finalists_of(claim, explored, list(costs), list(heard)) for claim in claims]
    tested = {cell for one in itertools.chain(*chosen) for cell in (one.cell, one.other)}
    told.total = told.done + len(tested) * trials
    try:
        drawn = _confirm(draws, claims, chosen, trials, false_alarm, name)
    except AuditInterrupted as stop:
        raise AuditInterrupted(stop.audit.with_known(known)) from None
    return drawn.with_known(known)


def _seeds(seed: int | None) -> Iterator[int]:
    """Independent seeds without end."""
    root = np.random.SeedSequence(seed)
    while True:
        (child,) = root.spawn(1)
        (word,) = child.generate_state(1, np.uint64)
        yield int(word)


def _explore(draws: _Draws, rounds: int, trials: int) -> Explored:
    """A little of every cost and signals."""
    cells = [Cell(cost, signal) for cost in draws.costs for signal in draws.signals]
    drawn = {cell: np.concatenate(list(draws.chunks(cell, trials))) for cell in cells}
    columns = {rows.shape[1] for rows in drawn.values()}
    if len(columns) > 1:
        raise invalid("deliveries", "the same number in all trials", sorted(columns), "return answers of one shape")
    return Explored(Layout(rounds, columns.pop() // rounds, draws.values), drawn)


def _confirm(
    draws: _Draws, claims: Sequence[Claim], chosen: list[list[Finalist]], trials: int, false_alarm: float, name: str
) -> Audit:
    """Count the chosen events in fresh draws; cells take turns, so that after Ctrl-C all have an equal share."""
    tallies = [[_Tally(finalist) for finalist in some] for some in chosen]
    flat = list(itertools.chain(*tallies))
    cells = sorted({cell for tally in flat for cell in (tally.finalist.cell, tally.finalist.other)})
    done, stopped = 0, False
    try:
        for first in range(0, trials, draws.chunk):
            for cell in cells:
                for rows in draws.chunks(cell, min(draws.chunk, trials - first)):
                    for tally in flat:
                        tally.count(cell, rows)
            done = min(trials, first + draws.chunk)
    except KeyboardInterrupt:
        stopped = True
    tests = FINALISTS * len(claims)
    findings = tuple(_finding(claim, some, false_alarm / tests) for claim, some in zip(claims, tallies, strict=True))
    outcome = Audit(name, findings, done, tests, false_alarm)
    if stopped:
        raise AuditInterrupted(outcome)
    return outcome


@dataclass
class _Tally:
    """Counts of one event under its two costs."""

    finalist: Finalist
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])

    def count(self, cell: Cell, rows: Rows) -> None:
        for at, mine in ((0, self.finalist.cell), (2, self.finalist.other)):
            if cell == mine:
                hits, trials = self.finalist.event.count(rows)
                self.counts[at] += hits
                self.counts[at + 1] += trials

    def finding(self, claim: Claim, error: float) -> Finding:
        hits, trials, other_hits, other_trials = self.counts
        lower = epsilon_at_least(hits, trials, other_hits, other_trials, error, claim.delta)
        return Finding(claim, lower, str(self.finalist), hits, trials, other_hits, other_trials)


@dataclass
class _Told:
    """Reports the progress."""

    progress: Progress | None
    total: int
    done: int = 0

    def more(self, trials: int) -> None:
        self.done += trials
        if self.progress is not None:
            self.progress(self.done, self.total)


def _finding(claim: Claim, tallies: list[_Tally], error: float) -> Finding:
    found = [tally.finding(claim, error) for tally in tallies]
    return max(found, key=lambda one: one.lower, default=Finding(claim, 0.0, "no event seen"))


def _rounds_of(claims: Sequence[Claim]) -> int:
    rounds = {claim.rounds for claim in claims}
    if len(rounds) != 1:
        allowed, got = "one or more, all for the same number of rounds", f"rounds {sorted(rounds)}"
        raise invalid("claims", allowed, got, "see per_report")
    return rounds.pop()


def _check(
    costs: Mapping[str, Costs],
    signals: Mapping[str, Array],
    rounds: int,
    trials: int,
    explore: int,
    false_alarm: float,
) -> None:
    if len(costs) < 2 or any(len(cost) != 1 for cost in costs.values()):
        raise invalid("costs", "two or more, each of one client", f"{len(costs)} costs", "give costs[i] for each")
    wrong = {name: values.shape for name, values in signals.items() if values.shape != (rounds,)}
    if wrong or not signals:
        raise invalid("signals", f"one or more of shape ({rounds},)", wrong or "none", "give one signal a round")
    if trials < 1 or explore < 10:
        raise invalid("trials", "at least 1, and 10 to explore", (trials, explore), "try 100000")
    if not 0.0 < false_alarm < 1.0:
        raise invalid("false_alarm", "above 0 and below 1", false_alarm, "try 1e-6")
