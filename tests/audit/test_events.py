"""Which events tell two costs apart: what is looked at in a row of answers, and which event is the best."""

import itertools

import numpy as np
import pytest

from turnout.audit.bounds import guessed_epsilon
from turnout.audit.events import (
    Beginning,
    Column,
    CountAndChanges,
    Differences,
    Event,
    Layout,
    Score,
    _transitions,
    best_answer,
    best_event,
    columns_of,
    histogram,
    statistics_of,
)

ROWS = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 1], [0, 0, 0]])


def test_statistics_of_a_row():
    assert Beginning(2, 2).codes(ROWS).tolist() == [1, 2, 3, 0]
    assert Beginning(3, 3).codes(np.array([[2, 0, 1]])).tolist() == [2 * 9 + 1]
    assert [Beginning(3, 3).answers(code) for code in (0, 19, 26)] == [(0, 0, 0), (2, 0, 1), (2, 2, 2)]
    assert (Beginning(1, 2).name, Beginning(2, 2).name) == ("the first answer", "the first 2 answers")
    assert Column(1, "x").codes(ROWS).tolist() == [1, 0, 1, 0]
    assert CountAndChanges(3, True, False).codes(ROWS).tolist() == [2, 2, 3, 0]
    assert CountAndChanges(3, False, True).codes(ROWS).tolist() == [1, 2, 0, 0]
    assert CountAndChanges(3, True, True).codes(ROWS).tolist() == [7, 8, 9, 0]
    assert CountAndChanges(3, True, True).name == "the sum of all answers and changes between neighbours"
    assert CountAndChanges(3, False, True).name == "changes between neighbours"
    assert histogram(Column(2, "x"), ROWS).tolist() == [1, 3]


def test_an_event_is_counted_among_the_rows_with_its_past():
    assert Event(Column(2, "x"), np.array([1])).count(ROWS) == (3, 4)
    assert Event(Column(2, "x"), np.array([1]), past=(1,)).count(ROWS) == (2, 2)
    assert Event(Column(2, "x"), np.array([1]), past=(0, 0)).count(ROWS) == (0, 1)
    assert str(Event(Column(2, "answer"), np.array([1]), past=(1, 0))) == "answer = 1 after 1 0"
    assert str(Event(Beginning(2, 2), np.arange(4))) == "the first 2 answers = 0 0 or 0 1 or 1 0 or 1 1"
    assert str(Event(Column(0, "sum"), np.arange(6))) == "sum = 0 or 1 or 2 or 3 or 2 more"


def test_what_is_looked_at():
    """Single answers up to sixteen, counts and changes; whole rows where there are draws enough to tell them apart."""
    assert [type(one) for one in statistics_of(Layout(1), 1000)] == [Column]
    names = [one.name for one in statistics_of(Layout(2, 2), 1000)]
    assert names == [
        "answer of round 0",
        "answer of round 0, asked again (1)",
        "answer of round 1",
        "answer of round 1, asked again (1)",
        "the sum of all answers",
        "changes between neighbours",
        "the sum of all answers and changes between neighbours",
        "the first 4 answers",
    ]
    assert len(statistics_of(Layout(30), 10**6)) == 16 + 3

    def whole(rounds, trials):
        return isinstance(statistics_of(Layout(rounds), trials)[-1], Beginning)

    assert [whole(6, 10), whole(7, 10), whole(7, 1023), whole(7, 1024)] == [True, False, False, True]
    assert [whole(12, 10**6), whole(13, 10**6)] == [True, False]
    assert Layout(3, 2).columns == 6
    assert Layout(3, 2, 5).patterns(2) == 25


def test_which_columns_a_claim_is_about():
    layout = Layout(3, 2)
    assert list(columns_of(layout, "report", 3)) == [0, 2, 4]
    assert list(columns_of(layout, "retry", 3)) == [1, 3, 5]
    assert list(columns_of(layout, "after", 2)) == [4]


def test_the_best_event_is_cut_where_it_tells_most():
    """Values 2 and 0 are frequent under the one cost; 1 says nothing, 3 speaks for the other."""
    one, other = np.array([300, 500, 900, 10]), np.array([100, 500, 100, 900])
    guess, event = best_event(Column(0, "x"), (one, other), (one, other), 0.0)
    assert event.members.tolist() in ([2], [0, 2])
    assert 1.5 < guess < np.log(9.0)
    longer, event = best_event(Column(0, "x"), (one[:3], other), (one, other[:3]), 0.0)
    assert longer > 0.0
    nothing, _ = best_event(Column(0, "x"), (one, one), (one, one), 0.0)
    assert nothing <= 0.0
    less, _ = best_event(Column(0, "x"), (one, other), (one, other), 0.3)
    assert less < guess


def test_the_best_answer_given_a_past():
    """Only after a 1 does the second answer tell the costs apart."""
    generator = np.random.default_rng(0)
    first = generator.integers(0, 2, (4000, 1))
    rows = np.hstack(
        [first, np.where(first == 1, generator.random((4000, 1)) < 0.9, generator.random((4000, 1)) < 0.5)]
    )
    other = np.hstack([first, generator.random((4000, 1)) < 0.1])
    guess, event = best_answer(Layout(2), 1, rows.astype(int), other.astype(int))
    assert (event.past, event.members.tolist()) in (((1,), [0]), ((1,), [1]))
    assert 1.8 < guess < np.log(9.0) + 0.2
    early, event = best_answer(Layout(2), 0, rows.astype(int), other.astype(int))
    assert event.past == ()
    assert early < 0.2
    assert best_answer(Layout(13), 12, np.zeros((4, 13), int), np.zeros((4, 13), int)) is None
    assert best_answer(Layout(13), 11, np.zeros((4, 13), int), np.zeros((4, 13), int)) is not None


def test_a_learned_score_orders_rows_by_likelihood():
    generator = np.random.default_rng(1)
    often, seldom = (generator.random((3000, 20)) < chance for chance in (0.7, 0.3))
    score = Score.learned(often.astype(int), seldom.astype(int), 2)
    assert len(score.edges) <= 63
    sums = np.arange(21)
    codes = [int(score.codes(np.array([[1] * n + [0] * (20 - n)]))[0]) for n in sums]
    assert codes[0] == 0
    assert codes[20] == len(score.edges)
    assert np.mean(score.codes(often.astype(int))) > np.mean(score.codes(seldom.astype(int))) + 20
    assert score.ratios[3, 0, 1] == pytest.approx(np.log(0.7 / 0.3), abs=0.15)
    assert score.ratios[3, 1, 0] == pytest.approx(-np.log(0.7 / 0.3), abs=0.15)


def test_chances_of_an_answer_after_another():
    """By column, with half a count for what was never seen."""
    found = _transitions(np.array([[0, 1], [0, 1], [0, 0], [1, 1]], dtype=np.uint8), 2)
    first, second = [[3.5 / 5, 1.5 / 5], [0.5, 0.5]], [[1.5 / 4, 2.5 / 4], [0.25, 0.75]]
    np.testing.assert_allclose(found, [first, second])
    three = _transitions(np.array([[2, 0], [2, 2]]), 3)
    np.testing.assert_allclose(three.sum(axis=2), 1.0)
    np.testing.assert_allclose(three[1, 2], [1.5 / 3.5, 0.5 / 3.5, 1.5 / 3.5])


def test_a_row_holds_one_bit_a_round_unless_said_otherwise():
    assert Layout(3) == Layout(3, 1, 2)
    assert [one.name for one in statistics_of(Layout(2), 10)] == [
        "answer of round 0",
        "answer of round 1",
        "the sum of all answers",
        "changes between neighbours",
        "the sum of all answers and changes between neighbours",
        "the first 2 answers",
    ]


@pytest.mark.parametrize(("seen", "first"), [
    (([1, 24], [0, 6]), 1),  # 3 against 3.8
    (([2, 24], [0, 5]), 0),  # 5 against 4.5
    (([0, 3], [6, 90]), 0),  # 1 in 13 against 1 in 26
])  # fmt: skip
def test_half_a_count_stands_for_what_was_hardly_seen(seen, first):
    """Values are ordered by (a + 1/2) / (b + 1/2), so that what was seen once or never does not lead."""
    leads = np.arange(2) == first
    chosen = np.where(leads, 400, 0), np.where(leads, 10, 200)  # the leader tells more than both together
    _, event = best_event(Column(0, "x"), tuple(map(np.array, seen)), chosen, 0.0)
    assert event.members.tolist() == [first]


def test_the_guess_of_an_event_is_that_of_its_counts():
    """Of all values above a threshold, in the order of the learned part, that which the chosen part likes best."""
    learned = np.array([90, 20, 60, 30]), np.array([10, 80, 30, 30])  # order 0, 2, 3, 1
    chosen = np.array([500, 20, 300, 180]), np.array([40, 700, 100, 160])
    for delta in (0.0, 0.2):
        guess, event = best_event(Column(0, "x"), learned, chosen, delta)
        sets = [[0], [0, 2], [0, 2, 3], [0, 1, 2, 3]]
        guesses = [
            float(guessed_epsilon(chosen[0][some].sum(), 1000, chosen[1][some].sum(), 1000, delta)) for some in sets
        ]
        assert guess == max(guesses)
        assert event.members.tolist() == sets[int(np.argmax(guesses))]


@pytest.mark.parametrize(("at", "values"), [(0, 2), (1, 2), (2, 2), (1, 3)])
def test_the_best_answer_is_the_best_of_all(at, values):
    """Every past and every answer, counted one by one."""
    generator = np.random.default_rng(at + values)
    rows, other = (generator.integers(0, values, (300, at + 2)) for _ in range(2))
    guess, event = best_answer(Layout(at + 2, 1, values), at, rows, other)
    guesses = {}
    for past in itertools.product(range(values), repeat=at):
        some, others = (part[[tuple(row[:at]) == past for row in part.tolist()]] for part in (rows, other))
        for answer in range(values):
            counts = (some[:, at] == answer).sum(), len(some), (others[:, at] == answer).sum(), len(others)
            guesses[past, answer] = float(guessed_epsilon(*counts, 0.0))
    assert guess == max(guesses.values())
    assert guesses[event.past, int(event.members[0])] == guess
    assert event.statistic == Column(at, f"answer of round {at}")


def test_pasts_are_told_apart_up_to_4096():
    """Here the values of one answer."""
    for values, found in ((4096, True), (4097, False)):
        rows = np.array([[0], [values - 1]])
        assert (best_answer(Layout(1, 1, values), 0, rows, rows) is not None) == found


def test_a_learned_score_has_64_steps_of_the_same_size():
    generator = np.random.default_rng(3)
    often, seldom = ((generator.random((2048, 40)) < generator.random(40)).astype(int) for _ in range(2))
    score = Score.learned(often, seldom, 2)
    steps = histogram(score, np.vstack([often, seldom]))
    assert len(steps) == 64
    assert np.all(np.abs(steps - 64) <= 1)  # of 4096 rows, each with a score of its own
    assert score.name == "the learned likelihood ratio"


def test_a_learned_score_adds_up_the_ratios_of_each_answer_after_the_one_before():
    """The first answer is looked at as if after a 0."""
    rows, other = np.array([[0, 1], [1, 1], [1, 0]]), np.array([[0, 0], [1, 0]])
    score = Score.learned(rows, other, 2)
    first = {0: np.log((1.5 / 4) / (1.5 / 3)), 1: np.log((2.5 / 4) / (1.5 / 3))}
    then = {
        (0, 0): np.log((0.5 / 2) / (1.5 / 2)),
        (0, 1): np.log((1.5 / 2) / (0.5 / 2)),
        (1, 0): np.log((1.5 / 3) / (1.5 / 2)),
        (1, 1): np.log((1.5 / 3) / (0.5 / 2)),
    }
    total = {pair: first[pair[0]] + ratio for pair, ratio in then.items()}
    for pair, expected in total.items():
        step = int(score.codes(np.array([pair]))[0])
        assert step == sum(expected >= edge - 1e-12 for edge in score.edges)


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_differences_tell_what_comes_back_with_the_same_noise(columns):
    """Even rounds less odd ones, counted from the least possible: each value that can be has a code from 0 on."""
    rows = np.array(list(itertools.product(range(3), repeat=columns)), dtype=np.int16)
    codes = Differences(columns, 3).codes(rows)
    plain = rows[:, ::2].sum(axis=1) - rows[:, 1::2].sum(axis=1)
    np.testing.assert_array_equal(codes, plain - plain.min())
    assert any(isinstance(one, Differences) for one in statistics_of(Layout(columns, 1, 3), 1000))
    assert not any(isinstance(one, Differences) for one in statistics_of(Layout(columns), 1000))
    assert not any(isinstance(one, Differences) for one in statistics_of(Layout(1, 1, 3), 1000))
