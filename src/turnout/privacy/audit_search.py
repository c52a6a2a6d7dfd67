"""The first part of an audit: look at everything a little, and choose the few events that are worth testing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from turnout.privacy.audit_claims import Claim
from turnout.privacy.audit_events import (
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
    """What was drawn to look around.

    Attributes:
        layout: the form of a row.
        rows: by cell, shape (trials, columns).
    """

    layout: Layout
    rows: Mapping[Cell, Rows]

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
        return statistics_of(self.layout, len(next(iter(self.rows.values()))))

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
    """The events that seem to come nearest to refuting a claim, or to exceed it the most; at most FINALISTS."""
    search = _of_total if claim.of == "total" else _given_past
    found = [
        (guess, Finalist(event, cell, other))
        for signal in signals
        for cell, other in ((Cell(one, signal), Cell(two, signal)) for one, two in itertools.permutations(costs, 2))
        for guess, event in search(claim, explored, cell, other)
    ]
    found.sort(key=lambda pair: -pair[0])
    return [finalist for _, finalist in found[:FINALISTS]]


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
