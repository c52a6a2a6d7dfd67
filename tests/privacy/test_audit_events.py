"""The parts of an audit: what is looked at in a row of answers, which event is best, and how answers are drawn."""

import numpy as np
import pytest

from turnout import Averaging, ClientState, Prior, SeededCoins, client_step
from turnout.algorithm.coins import ENROLMENT
from turnout.algorithm.mechanisms import Clamp, Memoized, PaperCoin
from turnout.privacy.audit import Finding
from turnout.privacy.audit_bounds import chance_at_least
from turnout.privacy.audit_claims import in_total, per_report
from turnout.privacy.audit_events import (
    Beginning,
    Column,
    CountAndChanges,
    Event,
    Layout,
    Score,
    best_answer,
    best_event,
    columns_of,
    histogram,
    statistics_of,
)
from turnout.privacy.audit_reporters import (
    MechanismReporter,
    ReporterProblem,
    SumReporter,
    as_reporter,
    draw,
    usual_costs,
)
from turnout.privacy.audit_search import FINALISTS, Cell, Explored, Finalist, finalists_of

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


def explored(columns, trials=400):
    generator = np.random.default_rng(2)
    draws = {"cheap": 0.8, "dear": 0.2, "middle": 0.5}
    return Explored(
        Layout(columns),
        {Cell(name, "on"): (generator.random((trials, columns)) < p).astype(int) for name, p in draws.items()},
    )


def test_one_half_teaches_and_the_other_chooses():
    found = explored(2, trials=401)
    learn, choose = found.halves[Cell("cheap", "on")]
    assert (len(learn), len(choose)) == (200, 201)
    np.testing.assert_array_equal(np.vstack([learn, choose]), found.rows[Cell("cheap", "on")])
    assert found.scored(Cell("cheap", "on"), Cell("dear", "on")) is None  # whole rows are told apart
    many = explored(13)
    cells = Cell("cheap", "on"), Cell("dear", "on")
    score, learned, chosen = many.scored(*cells)
    assert many.scored(*cells)[0] is score
    assert [counts.sum() for counts in (*learned, *chosen)] == [200] * 4


@pytest.mark.parametrize("columns", [2, 13])
@pytest.mark.parametrize("claims", [per_report, in_total], ids=lambda claims: claims.__name__)
def test_finalists_tell_the_extremes_apart(columns, claims):
    made = claims(1.0, columns) if claims is per_report else claims(1.0, rounds=columns)
    claim = made[0] if isinstance(made, list | tuple) else made
    found = finalists_of(claim, explored(columns), ["cheap", "dear", "middle"], ["on"])
    assert 1 <= len(found) <= FINALISTS
    assert {found[0].cell.cost, found[0].other.cost} == {"cheap", "dear"}
    text = str(Finalist(Event(Column(0, "a"), np.array([1])), Cell("cheap", "on"), Cell("dear", "on")))
    assert text == "a = 1, cost 'cheap' against 'dear', signals 'on'"


def told(answers):
    return lambda costs, signals, trials, seed: answers


def test_answers_are_checked():
    costs, one, two = usual_costs()["dear"], np.ones(1), np.ones(2)
    assert draw(told([1, 0, 1]), costs, one, 3, 0).tolist() == [[[1]], [[0]], [[1]]]
    assert draw(told([[1, 0]] * 3), costs, two, 3, 0).shape == (3, 2, 1)
    assert draw(told(np.zeros((3, 2, 4))), costs, two, 3, 0).shape == (3, 2, 4)
    assert draw(told([[4.0]]), costs, one, 1, 0, values=5).tolist() == [[[4]]]
    for shape in ((3,), (2, 2), (3, 3), (3, 2, 0), (3, 2, 1, 1)):
        with pytest.raises(ReporterProblem, match="answers must be of shape"):
            draw(told(np.zeros(shape)), costs, two, 3, 0)
    with pytest.raises(ReporterProblem, match="answers must be of shape"):
        draw(told([[1], [1, 0]]), costs, two, 2, 0)  # trials of different lengths
    for answer in (2, -1, 0.5, np.nan):
        with pytest.raises(ReporterProblem, match="must be 0 or 1"):
            draw(told([[answer]]), costs, one, 1, 0)
    with pytest.raises(ReporterProblem, match="whole numbers from 0 to 4"):
        draw(told([[5]]), costs, one, 1, 0, values=5)
    with pytest.raises(ReporterProblem, match="got type"):
        draw(told([["yes"]]), costs, one, 1, 0)


def test_a_reporter_gets_its_own_signals_and_its_error_is_told():
    signals = np.ones(2)

    def spoils(costs, heard, trials, seed):
        heard[:] = 7.0
        return np.zeros((trials, 2))

    draw(spoils, usual_costs()["dear"], signals, 3, 0)
    assert signals.tolist() == [1.0, 1.0]

    def fails(costs, heard, trials, seed):
        raise KeyError("no signal")

    with pytest.raises(ReporterProblem, match=r"raised KeyError: 'no signal' \(signals \[1.0, 1.0\]\)"):
        draw(fails, usual_costs()["dear"], signals, 3, 0)


def test_both_forms_of_a_reporter():
    many, at_once = as_reporter(lambda costs, signals, trials, seed: "many")
    assert (many(None, None, 3, 0), at_once) == ("many", True)
    many, at_once = as_reporter(lambda costs, signals: [1, 0])
    assert (many(None, None, 3, 0), at_once) == ([[1, 0]] * 3, False)
    with pytest.raises(ValueError, match="of the form"):
        as_reporter(lambda costs, signals, trials: 1)


@pytest.mark.parametrize("mechanism", [PaperCoin(2.0), Memoized(2.0, 1.0)], ids=lambda one: one.kind)
def test_clients_of_a_mechanism_answer_by_the_one_decision(mechanism):
    """Each trial is a client of its own number, from the public prior, with its own coins."""
    cost, signals, coins = usual_costs()["cheap"], np.array([0.3, 1.0, 0.2]), SeededCoins(6)
    found = MechanismReporter(mechanism, Prior(0.25, 4), Averaging(by="probability"))(cost, signals, 50, 6)
    alike = cost[np.zeros(50, np.int64)]
    memory = None
    if isinstance(mechanism, Memoized):
        memory = mechanism.enrol(alike, coins.uniform(np.arange(50), 0, ENROLMENT))
    state = ClientState(np.full(50, 1.0), 4.0, memory)
    for round, signal in enumerate(signals):
        uniform = coins.uniform(np.arange(50), round)
        state, came = client_step(alike, mechanism, state, signal, uniform, averaging=Averaging(by="probability"))
        np.testing.assert_array_equal(found[:, round], came)


@pytest.mark.parametrize("honest", [0, 1, 3])
def test_a_sum_is_the_clients_bit_and_the_others(honest):
    """The others are clients of their own, dear unless said otherwise."""
    signals, coins = np.array([1.0, 0.4]), SeededCoins(3)
    one = MechanismReporter(Clamp(1.0), averaging=Averaging(by="probability"))
    own = one.bits(usual_costs()["cheap"], signals, np.arange(40), coins).astype(int)
    for others in (None, usual_costs()["middle"]):
        crowd = one.bits(others or usual_costs()["dear"], signals, np.arange(40, 40 * (honest + 1)), coins)
        found = SumReporter(Clamp(1.0), honest, others)(usual_costs()["cheap"], signals, 40, 3)
        np.testing.assert_array_equal(found, own + crowd.reshape(40, honest, 2).sum(axis=1))


def test_a_finding_says_what_was_seen():
    claim = per_report(1.0, rounds=1)[0]
    found = Finding(claim, 1.25, "a yes", 1900, 2000, 100, 2001)
    assert str(found).startswith("REFUTED: ")
    assert str(found).endswith(": at least 1.2500 (a yes: 1,900 of 2,000 against 100 of 2,001)")
    assert str(Finding(claim, 1.0, "a yes")).startswith("not refuted: ")


@pytest.mark.parametrize("error", [0.0, 1.0, -0.1, np.nan])
def test_a_bound_needs_a_rate_of_error(error):
    with pytest.raises(ValueError, match="must be"):
        chance_at_least(1, 3, error)
