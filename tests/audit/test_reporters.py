"""What can be audited: reporters in both forms, what they are asked, and what they must answer."""

import numpy as np
import pytest

from turnout import Averaging, ClientState, Prior, SeededCoins, client_step
from turnout.algorithm import Clamp, Memoized, PaperCoin, intent
from turnout.audit.reporters import (
    MechanismReporter,
    ReporterProblem,
    SumReporter,
    as_reporter,
    draw,
    usual_costs,
    usual_signals,
)
from turnout.audit.subjects import ClampByClient, sum_of
from turnout.privacy import Observer
from turnout.problem import ENROLMENT


def told(answers):
    return lambda costs, signals, trials, seed: answers


def test_answers_are_checked():
    costs, one, two = usual_costs()["expensive"], np.ones(1), np.ones(2)
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

    draw(spoils, usual_costs()["expensive"], signals, 3, 0)
    assert signals.tolist() == [1.0, 1.0]

    def fails(costs, heard, trials, seed):
        raise KeyError("no signal")

    with pytest.raises(ReporterProblem, match=r"raised KeyError: 'no signal' \(signals \[1.0, 1.0\]\)"):
        draw(fails, usual_costs()["expensive"], signals, 3, 0)


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
        state, participates, *_ = client_step(
            alike, mechanism, state, signal, uniform, averaging=Averaging(by="probability")
        )
        np.testing.assert_array_equal(found[:, round], participates)


@pytest.mark.parametrize("honest", [0, 1, 3])
@pytest.mark.parametrize("by", ["bit", "probability"])
def test_a_sum_is_the_clients_bit_and_the_others(honest, by):
    """The others are clients of their own, expensive unless said otherwise."""
    signals, coins = np.array([1.0, 0.4]), SeededCoins(3)
    one = MechanismReporter(Clamp(1.0), averaging=Averaging(by=by))
    own = one.bits(usual_costs()["cheap"], signals, np.arange(40), coins).astype(int)
    for others in (None, usual_costs()["steep"]):
        crowd = one.bits(others or usual_costs()["expensive"], signals, np.arange(40, 40 * (honest + 1)), coins)
        seen = Observer("sum", honest, averaging=Averaging(by=by))
        found = SumReporter(Clamp(1.0), seen, others)(usual_costs()["cheap"], signals, 40, 3)
        np.testing.assert_array_equal(found, own + crowd.reshape(honest, 40, 2).sum(axis=0))


def test_a_sum_is_of_what_each_brings_and_of_each_ones_box():
    """The client comes first; its weight is in its intent too."""
    signals, coins, weights = np.array([0.3, 0.1]), SeededCoins(3), [5, 1, 2]
    boxes = ClampByClient(np.array([0.1, 0.2, 0.3]), np.array([0.9, 0.4, 0.5]))
    found = SumReporter(boxes, sum_of(3, weights))(usual_costs()["middle"], signals, 40, 3)
    expected = np.zeros((40, 2), dtype=int)
    for number, (weight, cost) in enumerate(zip(weights, ("middle", "expensive", "expensive"), strict=True)):
        one = MechanismReporter(boxes[number], averaging=Averaging(by="probability"), weight=weight)
        clients = np.arange(40 * number, 40 * (number + 1))
        expected += weight * one.bits(usual_costs()[cost], signals, clients, coins)
    np.testing.assert_array_equal(found, expected)
    assert np.any(found != SumReporter(boxes, sum_of(3))(usual_costs()["middle"], signals, 40, 3))


@pytest.mark.parametrize("weights", [[1, 1], [1, 1, 1, 1], [1, 1, 0.5], [0, 1, 1], [2, 1, -1], [np.nan, 1, 1]])
def test_weights_that_no_sum_can_be_told_apart_by(weights):
    with pytest.raises(ValueError, match=r"weights|honest"):
        SumReporter(Clamp(1.0), sum_of(3, weights))
    boxes = ClampByClient(np.full(2, 0.2), np.full(2, 0.4))
    with pytest.raises(ValueError, match="weights of 1 and boxes of 2"):
        SumReporter(boxes, sum_of(3))


@pytest.mark.parametrize(("by", "moves"), [("bit", False), ("probability", True)])
def test_histories_after_a_refused_yes(by, moves):
    """By the bit it is as if it had not been; by the probability, as if the server had said nothing."""
    cost, always = usual_costs()["cheap"], np.zeros(1)  # a coin that says yes
    given = cost, ClientState(np.array([0.5]), 1.0), 1.0, always
    refused, yes = MechanismReporter(Clamp(1.0), averaging=Averaging(by=by), refuses=True).step(*given)
    counted, _ = MechanismReporter(Clamp(1.0), averaging=Averaging(by=by)).step(*given)
    assert yes.tolist() == [True]
    assert refused.rounds == counted.rounds == 2.0
    assert refused.participations[0] == (counted.participations[0] if moves else 0.5)


def test_words_are_those_for_which_a_real_coin_says_yes():
    averages, one = np.array([0.1, 0.5, 0.9]), MechanismReporter(Clamp(1.0, 0.3), weight=2)
    for cost in usual_costs().values():
        for signal in (0.3, 0.0, -1.0, np.inf, np.nan):
            for average, words in zip(averages, one.words(cost, signal, averages).tolist(), strict=True):
                state = ClientState(np.full(2, average), 1.0)
                last_and_next = np.array([words - 1, words]) * 2.0**-53
                _, yes = one.step(cost[np.zeros(2, int)], state, signal, last_and_next)
                assert yes.tolist() == [True, False]


def test_the_usual_signals():
    """A fair server, and those that are not: each different one once, each of the length asked for."""
    found = usual_signals(4, scale=2.0)
    expected: dict[str, list[float]] = {
        "usual": [2, 2, 2, 2],
        "zero": [0, 0, 0, 0],
        "negative": [-2, -2, -2, -2],
        "huge": [1e300] * 4,
        "infinite": [np.inf] * 4,
        "NaN": [np.nan] * 4,
        "on and off": [0, 2, 0, 2],
        "with NaN": [2, np.nan, 2, np.nan],
        "rising": [0.5, 0.5 * 16 ** (1 / 3), 0.5 * 16 ** (2 / 3), 8],
        "falling": [8, 8 / 16 ** (1 / 3), 8 / 16 ** (2 / 3), 0.5],
    }
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values)
    alone = usual_signals(1)  # in one round "on and off" is zero, and "with NaN" the usual one
    assert list(alone) == ["usual", "zero", "negative", "huge", "infinite", "NaN", "rising", "falling"]
    assert (alone["rising"].tolist(), alone["falling"].tolist()) == ([0.25], [4.0])


def test_the_usual_signals_of_one_round_lie_about_the_scale():
    alone = usual_signals(1, scale=2.0)
    assert (alone["rising"].tolist(), alone["falling"].tolist()) == ([0.5], [8.0])
    assert alone["negative"].tolist() == [-2.0]
    assert usual_signals(3)["usual"].tolist() == [1.0, 1.0, 1.0]


def test_the_usual_costs_send_the_intent_to_both_ends_and_to_between():
    """The extremes lie nine powers of ten from the middle one, whose intent does not depend on the average."""
    costs, averages = usual_costs(), np.array([0.25, 0.5, 1.0])
    slopes = {name: cost[np.zeros(3, np.int64)].slope(averages) for name, cost in costs.items()}
    intents = {name: intent(1.0, 1, averages, slope) for name, slope in slopes.items()}
    assert intents["cheap"].tolist() == [1.0, 1.0, 1.0]
    np.testing.assert_allclose(slopes["cheap"], 1e-9 * slopes["middle"])
    np.testing.assert_allclose(slopes["expensive"], 1e9 * slopes["middle"])
    np.testing.assert_allclose(intents["middle"], 0.5)
    np.testing.assert_allclose(intents["steep"], [1.0, 0.25, 0.0625])  # falls with the square of the average
    assert {len(cost) for cost in costs.values()} == {1}


def test_clients_begin_at_one_half_as_if_after_ten_rounds():
    """A cost whose intent falls with the average shows where they begin, and how fast that is forgotten."""
    given = usual_costs()["steep"], np.full(6, 1.5), 200, 5
    usual = MechanismReporter(PaperCoin(2.0))(*given)
    np.testing.assert_array_equal(usual, MechanismReporter(PaperCoin(2.0), Prior(0.5, 10), Averaging())(*given))
    for average, rounds in ((0.6, 10), (0.5, 9), (0.5, 11)):
        assert np.any(usual != MechanismReporter(PaperCoin(2.0), Prior(average, rounds))(*given))


@pytest.mark.parametrize("given", [[1, 0, 1], [[1], [0], [1]], [[[1]], [[0]], [[1]]], np.array([True, False, True])])
def test_answers_to_one_round_may_have_any_form(given):
    found = draw(told(given), usual_costs()["expensive"], np.ones(1), 3, 0)
    assert (found.tolist(), found.dtype) == ([[[1]], [[0]], [[1]]], np.int16)


def test_deliveries_keep_their_place():
    given = np.arange(12).reshape(3, 1, 4) % 2
    np.testing.assert_array_equal(draw(told(given), usual_costs()["expensive"], np.ones(1), 3, 0), given)
    mixed = [[[0, 1], [1, 0]], [[1, 1], [0, 2]]]
    with pytest.raises(ReporterProblem, match=r"must be 0 or 1, got 2: return the report itself"):
        draw(told(mixed), usual_costs()["expensive"], np.ones(2), 2, 0)
    assert draw(told(mixed), usual_costs()["expensive"], np.ones(2), 2, 0, values=3).tolist() == mixed


@pytest.mark.parametrize(("given", "shape"), [([1, 0], r"\(2,\)"), ([[1], [1, 0]], r"\(0,\)"), (1, r"\(\)")])
def test_what_came_instead_of_answers_is_told(given, shape):
    says = rf"of shape \(2,\) or \(2, deliveries\) a trial, 2 trials together \(2, 2, …\), got {shape}"
    with pytest.raises(ReporterProblem, match=says):
        draw(told(given), usual_costs()["expensive"], np.ones(2), 2, 0)


def test_forms_of_a_reporter_that_cannot_be_looked_into():
    """A function that is built in is taken for one of a cost and signals; what may take four arguments, for many."""
    many, at_once = as_reporter(max)
    assert (many(3, 5, 2, 0), at_once) == ([5, 5], False)
    assert as_reporter(lambda *all: "many")[1]
    assert not as_reporter(lambda costs, signals, again=1: [1])[1]
    for given in (3, None):
        with pytest.raises(ValueError, match="reporter must be a function, got"):
            as_reporter(given)
    for wrong in (lambda costs: 1, lambda costs, signals, trials: 1, lambda a, b, c, d, e: 1):
        with pytest.raises(ValueError, match="reporter must be of the form"):
            as_reporter(wrong)
