"""The choice of events: one half of the draws teaches, the other chooses, and the most telling ones are tested."""

import itertools

import numpy as np
import pytest

from turnout.audit.claims import Claim, in_total, of_budget, per_report
from turnout.audit.events import Beginning, Column, Event, Layout, best_answer, best_event, histogram
from turnout.audit.run import Cell, Explored, Finalist, finalists_of

CHANCES = {"cheap": 0.8, "expensive": 0.2, "middle": 0.5}


def explored(columns, trials=400, values=2):
    """Answers to one sequence of signals, which say 0 or the largest value."""
    generator = np.random.default_rng(2)
    return Explored(
        Layout(columns, 1, values),
        {Cell(name, "on"): (generator.random((trials, columns)) < p) * (values - 1) for name, p in CHANCES.items()},
    )


def test_one_half_teaches_and_the_other_chooses():
    found = explored(2, trials=401)
    learn, choose = found.halves[Cell("cheap", "on")]
    assert (len(learn), len(choose)) == (200, 201)
    np.testing.assert_array_equal(np.vstack([learn, choose]), found.rows[Cell("cheap", "on")])
    assert found.scored(Cell("cheap", "on"), Cell("expensive", "on")) is None  # whole rows are told apart
    many = explored(13)
    cells = Cell("cheap", "on"), Cell("expensive", "on")
    score, learned, chosen = many.scored(*cells)
    assert many.scored(*cells)[0] is score
    assert [counts.sum() for counts in (*learned, *chosen)] == [200] * 4


def test_where_a_score_is_learned():
    """Where whole rows are too many to be told apart, but not what there is to learn."""
    cells = Cell("cheap", "on"), Cell("expensive", "on")
    scored = {
        (columns, values): explored(columns, values=values).scored(*cells) is not None
        for columns, values in ((1, 2), (1, 32), (2, 2), (2, 9), (2, 32), (2, 33), (6, 2), (7, 2))
    }
    assert [form for form, learned in scored.items() if learned] == [(2, 9), (2, 32), (7, 2)]


def guess(claim, found, statistic, cell, other):
    """What the best event of one statistic seems to show of two costs."""
    if claim.of == "report":
        return best_answer(found.layout, statistic.at, found.rows[cell], found.rows[other])[0]
    learn, choose = (tuple(histogram(statistic, found.halves[each][half]) for each in (cell, other)) for half in (0, 1))
    return best_event(statistic, learn, choose, claim.delta)[0]


@pytest.mark.parametrize("claim", [per_report(1.0, 3)[0], Claim(1.0, 3), Claim(1.0, 3, 0.2)], ids=lambda one: one.what)
def test_the_four_most_telling_events_are_tested_the_best_first(claim):
    found = explored(3)
    chosen = finalists_of(claim, found, list(CHANCES), ["on"])
    looked_at = found.statistics[:3] if claim.of == "report" else found.statistics
    pairs = itertools.permutations(found.rows, 2)
    shown = [guess(claim, found, statistic, *pair) for pair in pairs for statistic in looked_at]
    best = [guess(claim, found, one.event.statistic, one.cell, one.other) for one in chosen]
    assert best == sorted(shown, reverse=True)[:4]


@pytest.mark.parametrize("columns", [2, 13])
@pytest.mark.parametrize("claims", [per_report, in_total], ids=lambda claims: claims.__name__)
def test_finalists_tell_the_extremes_apart(columns, claims):
    found = finalists_of(claims(1.0, columns)[0], explored(columns), list(CHANCES), ["on"])
    assert {found[0].cell.cost, found[0].other.cost} == {"cheap", "expensive"}
    text = str(Finalist(Event(Column(0, "a"), np.array([1])), Cell("cheap", "on"), Cell("expensive", "on")))
    assert text == "a = 1, cost 'cheap' against 'expensive', signals 'on'"


def test_long_rows_are_told_apart_by_their_score():
    found = finalists_of(Claim(1.0, 13), explored(13, trials=4000), list(CHANCES), ["on"])
    assert not any(isinstance(one.event.statistic, Beginning) for one in found)
    assert any(one.event.statistic.name == "the learned likelihood ratio" for one in found)


def test_pasts_that_are_too_many_and_rounds_that_are_not_there_give_no_events():
    late = finalists_of(Claim(0.0, 13, of="after", reports=12), explored(13), list(CHANCES), ["on"])
    assert late == []  # thirteen answers have 8192 beginnings
    after = of_budget((0.25, 0.75), reports=2, rounds=2)[0]
    assert finalists_of(after, explored(2), list(CHANCES), ["on"]) == []
