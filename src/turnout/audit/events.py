"""Events that tell two costs apart: searched in one part of the trials, and tested on another.

A row is all that an observer sees in one trial: whole numbers from 0, round by round, and within a round delivery
by delivery. A statistic makes one number of a row; an event is a set of its values, or one answer given the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from turnout.audit.bounds import guessed_epsilon

Rows = npt.NDArray[Any]
"""Small whole numbers, shape (trials, rounds * deliveries)."""

MOST_PATTERNS = 4096
"""Up to this number of values, rows are compared as a whole; longer ones by their counts and a learned score."""


@dataclass(frozen=True)
class Layout:
    """The form of a row.

    Attributes:
        rounds: how many.
        deliveries: how often each round's answer was asked for.
        values: an answer is a whole number from 0 to values - 1; 2 for bits.
    """

    rounds: int
    deliveries: int = 1
    values: int = 2

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        return self.rounds * self.deliveries

    def patterns(self, columns: int) -> int:
        """How many different beginnings of so many columns there are."""
        return int(self.values**columns)


class Statistic(Protocol):
    """One number of a row."""

    @property
    def name(self) -> str:
        """In words."""
        ...

    def codes(self, rows: Rows) -> Rows:
        """The number, from 0, of each row, shape (trials,)."""
        ...


@dataclass(frozen=True)
class Beginning:
    """The first columns of a row, as one number in base `values`; all columns: the row itself."""

    columns: int
    values: int

    @property
    def name(self) -> str:
        """In words."""
        return "the first answer" if self.columns == 1 else f"the first {self.columns} answers"

    def codes(self, rows: Rows) -> Rows:
        """Base `values`, the first column the most significant, shape (trials,)."""
        powers = self.values ** np.arange(self.columns - 1, -1, -1, dtype=np.int64)
        return np.asarray(rows[:, : self.columns].astype(np.int64) @ powers)

    def answers(self, code: int) -> tuple[int, ...]:
        """The columns that a code stands for."""
        return tuple(int(code) // self.values**place % self.values for place in range(self.columns - 1, -1, -1))


@dataclass(frozen=True)
class Column:
    """One answer."""

    at: int
    label: str

    @property
    def name(self) -> str:
        """In words."""
        return self.label

    def codes(self, rows: Rows) -> Rows:
        """The answer itself, shape (trials,)."""
        return rows[:, self.at]


@dataclass(frozen=True)
class CountAndChanges:
    """The sum of all answers and, if asked for, how often neighbours differ: reused coins show there."""

    columns: int
    counting: bool
    changes: bool

    @property
    def name(self) -> str:
        """In words."""
        both = ["the sum of all answers"] * self.counting + ["changes between neighbours"] * self.changes
        return " and ".join(both)

    def codes(self, rows: Rows) -> Rows:
        """Sum * columns + changes, or one of the two, shape (trials,)."""
        total = rows.sum(axis=1) if self.counting else np.zeros(len(rows), dtype=np.int64)
        if not self.changes:
            return np.asarray(total)
        return np.asarray(total * self.columns + np.count_nonzero(rows[:, 1:] != rows[:, :-1], axis=1))


@dataclass(frozen=True)
class Differences:
    """The answers of even rounds less those of odd ones: noise that is used twice shows there."""

    columns: int
    values: int
    name: str = "the differences of neighbours"

    def codes(self, rows: Rows) -> Rows:
        """Counted from the least that is possible, shape (trials,)."""
        signs = np.where(np.arange(self.columns) % 2 == 0, 1, -1)
        return np.asarray(rows.astype(np.int64) @ signs + (self.values - 1) * (self.columns // 2))


@dataclass(frozen=True, eq=False)
class Score:
    """The log-likelihood ratio of two costs in a model in which an answer depends on the one before; in 64 steps.

    Attributes:
        ratios: shape (columns, values, values): by column, the answer before, the answer.
        edges: of the steps, shape (63,).
    """

    ratios: npt.NDArray[np.float64]
    edges: npt.NDArray[np.float64]
    name: str = "the learned likelihood ratio"

    @classmethod
    def learned(cls, rows: Rows, other: Rows, values: int) -> Score:
        """From some rows of either cost."""
        ratios = np.log(_transitions(rows, values)) - np.log(_transitions(other, values))
        scores = np.concatenate([_sum_of(ratios, rows), _sum_of(ratios, other)])
        return cls(ratios, np.unique(np.quantile(scores, np.linspace(0.0, 1.0, 65)[1:-1])))

    def codes(self, rows: Rows) -> Rows:
        """The step, shape (trials,)."""
        return np.searchsorted(self.edges, _sum_of(self.ratios, rows), side="right").astype(np.int64)


@dataclass(frozen=True, eq=False)
class Weighed:
    """A weighted sum of all answers, in equal steps; of sums with noise the likelihood ratio rises with it.

    Attributes:
        weights: of each round, shape (rounds,); of a round's deliveries each has the same part.
        origin: what counts as 0.
        least, step: what the first step begins with, and how wide a step is.
        steps: how many; answers beyond the ends count as the ends.
    """

    weights: npt.NDArray[np.float64]
    origin: float
    least: float
    step: float
    steps: int
    name: str = "the sums together"

    def codes(self, rows: Rows) -> Rows:
        """The step, shape (trials,)."""
        deliveries = rows.shape[1] // len(self.weights)
        found = rows @ np.repeat(self.weights / deliveries, deliveries)
        step = np.floor((found - self.origin - self.least) / self.step)
        return np.asarray(np.clip(step, 0, self.steps - 1).astype(np.int64))


@dataclass(frozen=True, eq=False)
class Event:
    """Something that may happen in a trial.

    Attributes:
        statistic: what is looked at.
        members: the values of it that count, shape (members,).
        past: look only at the rows that begin so; empty for all rows.
    """

    statistic: Statistic
    members: Rows
    past: tuple[int, ...] = ()

    def count(self, rows: Rows) -> tuple[int, int]:
        """(how often it happened, in how many trials that it was looked for)."""
        if self.past:
            rows = rows[np.all(rows[:, : len(self.past)] == np.array(self.past), axis=1)]
        return int(np.isin(self.statistic.codes(rows), self.members).sum()), len(rows)

    def __str__(self) -> str:
        if isinstance(self.statistic, Weighed):
            upwards = bool(self.members[-1] == self.statistic.steps - 1)
            edge = self.statistic.least + self.statistic.step * (self.members[0] if upwards else self.members[-1] + 1)
            return f"{self.statistic.name} {'at least' if upwards else 'below'} {edge:g}"
        first = self.members[:4].tolist()
        if isinstance(self.statistic, Beginning):
            shown = " or ".join(" ".join(map(str, self.statistic.answers(code))) for code in first)
        else:
            shown = " or ".join(map(str, first))
        more = len(self.members) - len(first)
        given = f" after {' '.join(map(str, self.past))}" if self.past else ""
        return f"{self.statistic.name} = {shown}{f' or {more} more' if more else ''}{given}"


MOST_CODES = 1 << 20
"""Statistics with more possible values are left out: each would occur once."""


def statistics_of(layout: Layout, trials: int) -> list[Statistic]:
    """All that is looked at in rows of this form, but for the learned score; `trials` are there to learn from."""
    columns, values = layout.columns, layout.values
    found: list[Statistic] = [Column(at, f"answer {_place(layout, at)}") for at in range(min(columns, 16))]
    if columns > 1:
        counting = [(True, False), (False, True)]
        counting += [(True, True)] if layout.columns**2 * values <= MOST_CODES else []
        found += [CountAndChanges(columns, *which) for which in counting]
        found += [Differences(columns, values)] if values > 2 else []
        if layout.patterns(columns) <= min(MOST_PATTERNS, max(64, trials // 8)):
            found.append(Beginning(columns, values))
    return found


def histogram(statistic: Statistic, rows: Rows) -> Rows:
    """How often each value occurs, shape (values of the statistic that are needed,)."""
    return np.bincount(statistic.codes(rows)).astype(np.int64)


def best_event(
    statistic: Statistic, learn: tuple[Rows, Rows], choose: tuple[Rows, Rows], delta: float
) -> tuple[float, Event]:
    """The set of values that best tells two costs apart: ordered by one part of the draws, cut by another.

    By the lemma of Neyman and Pearson the best sets are those above a threshold of the likelihood ratio. Where the
    statistic itself rises or falls with that ratio, no order need be learned.

    Args:
        statistic: what the histograms are of.
        learn: histograms under the cost and the other one, for the order.
        choose: the same from other draws, for the threshold.
        delta: as in the claim.

    Returns:
        A cautious guess of the epsilon that it shows, and the event.
    """
    if isinstance(statistic, Weighed):
        return _best_half(statistic, (learn[0], choose[0]), (learn[1], choose[1]), delta)
    size = max(len(counts) for counts in (*learn, *choose))
    a, b, hits, other = (_longer(counts, size) for counts in (*learn, *choose))
    order = np.argsort(-(a + 0.5) / (b + 0.5), kind="stable")  # half a count for what was never seen
    found = guessed_epsilon(np.cumsum(hits[order]), hits.sum(), np.cumsum(other[order]), other.sum(), delta)
    cut = int(np.argmax(found))
    return float(found[cut]), Event(statistic, np.sort(order[: cut + 1]))


def _best_half(
    statistic: Weighed, counts: tuple[Rows, Rows], other: tuple[Rows, Rows], delta: float
) -> tuple[float, Event]:
    """The best event of the kind "at least" or "below", by all draws: there is no order to learn."""
    steps = np.arange(statistic.steps)
    a, b = (np.add(*(_longer(half, statistic.steps) for half in some)) for some in (counts, other))
    upwards = bool(a @ steps * b.sum() >= b @ steps * a.sum())
    order = steps[::-1] if upwards else steps
    found = guessed_epsilon(np.cumsum(a[order]), a.sum(), np.cumsum(b[order]), b.sum(), delta)
    cut = int(np.argmax(found))
    return float(found[cut]), Event(statistic, np.sort(order[: cut + 1]))


def best_answer(layout: Layout, at: int, rows: Rows, other: Rows) -> tuple[float, Event] | None:
    """The past and the answer in one column that best tell two costs apart, given that past.

    Returns:
        A cautious guess of the epsilon that it shows, and the event; None if there are too many pasts.
    """
    patterns = layout.patterns(at + 1)
    if patterns > MOST_PATTERNS:
        return None
    beginning = Beginning(at + 1, layout.values)
    tables = [
        np.bincount(beginning.codes(part), minlength=patterns).reshape(-1, layout.values) for part in (rows, other)
    ]
    trials = [table.sum(axis=1, keepdims=True) for table in tables]
    found = guessed_epsilon(tables[0], trials[0], tables[1], trials[1], 0.0)
    past, answer = np.unravel_index(int(np.argmax(found)), found.shape)
    before = Beginning(at, layout.values).answers(int(past))
    column = Column(at, f"answer {_place(layout, at)}")
    return float(found[past, answer]), Event(column, np.array([answer]), before)


def columns_of(layout: Layout, of: str, reports: int) -> Sequence[int]:
    """The columns that a claim is about: first answers ("report"), those asked again ("retry"), or "after" the last."""
    wanted = []
    for at in range(layout.columns):
        round, delivery = divmod(at, layout.deliveries)
        if (delivery > 0) == (of == "retry") and (of != "after" or round >= reports):
            wanted.append(at)
    return wanted


def _longer(counts: Rows, size: int) -> Rows:
    longer = np.zeros(size, dtype=np.int64)
    longer[: len(counts)] = counts
    return longer


def _place(layout: Layout, at: int) -> str:
    round, delivery = divmod(at, layout.deliveries)
    return f"of round {round}" + (f", asked again ({delivery})" if delivery else "")


def _transitions(rows: Rows, values: int) -> npt.NDArray[np.float64]:
    """P(answer | the one before) by column, with half a count added, shape (columns, values, values)."""
    chances = np.empty((rows.shape[1], values, values))
    before = np.zeros(len(rows), dtype=np.int64)
    for at in range(rows.shape[1]):
        pairs = np.bincount(before * values + rows[:, at], minlength=values * values).reshape(values, values) + 0.5
        chances[at] = pairs / pairs.sum(axis=1, keepdims=True)
        before = rows[:, at].astype(np.int64)
    return chances


def _sum_of(ratios: npt.NDArray[np.float64], rows: Rows) -> npt.NDArray[np.float64]:
    total, before = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    for at in range(rows.shape[1]):
        total += ratios[at, before, rows[:, at]]
        before = rows[:, at]
    return total
