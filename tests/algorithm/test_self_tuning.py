"""A server that knows the capacity and what came, and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout import (
    Classical,
    PaperCoin,
    PolynomialCosts,
    Prior,
    Problem,
    Schedule,
    SelfTuningController,
    Trajectory,
    optimum,
    paper_population,
    predict,
    simulate,
)
from turnout.algorithm.controllers import SelfTuningState, controller_from_settings
from turnout.settings import Table

SEEDS = 20


def settled(problem, mechanism, initial, seed, start):
    """(error of the mean turnout of rounds 50 to 150, in allowed errors; its spread over the unavoidable)."""
    run = simulate(problem, mechanism, SelfTuningController(initial), 150, seed=seed, start=start)
    late, capacity = run.participants[50:], problem.capacity
    average = optimum(problem).average if isinstance(mechanism, Classical) else predict(problem, mechanism).average
    unavoidable = np.sqrt(np.sum(average * (1 - average)))
    return abs(late.mean() - capacity) / (0.03 * capacity + 1), late.std() / unavoidable


LARGE = pytest.param(20_000, marks=pytest.mark.deployment)


@pytest.mark.parametrize("clients", [20, 200, LARGE])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("mechanism", [Classical(), PaperCoin(3.5)], ids=repr)
def test_any_size_and_any_first_signal(clients, share, mechanism):
    """Medians over seeds, from a first signal between 0.01 and 100; nobody is forced to take part."""
    for initial in (0.01, 1.0, 100.0):
        found = []
        for seed in range(SEEDS):
            problem = paper_population(seed if clients < 10_000 else seed % 4, clients).problem(share * clients)
            found.append(settled(problem, mechanism, initial, seed, Prior(share, 10)))
        errors, spreads = np.median(found, axis=0)
        assert errors <= 1
        assert spreads <= 1.3


@pytest.mark.parametrize("clients", [200, 2_000])
@pytest.mark.parametrize("change", ["half leave", "twice as many", "capacity halves", "capacity doubles"])
def test_sudden_changes(clients, change):
    """Every second client leaves or joins at round 300: settled again within 40 rounds, and stable."""
    odd = np.arange(1, clients, 2)
    schedule = {
        "half leave": Schedule(leave={300: odd}),
        "twice as many": Schedule(join={300: odd}),
        "capacity halves": Schedule(capacity={300: 0.1 * clients}),
        "capacity doubles": Schedule(capacity={300: 0.4 * clients}),
    }[change]
    after = []
    for seed in range(SEEDS):
        problem = paper_population(seed, clients).problem(0.2 * clients)
        run = simulate(
            problem, Classical(), SelfTuningController(), 600, seed=seed, start=Prior(0.2, 10), schedule=schedule
        )
        late = run.participants[340:] / run.capacity[340:]
        after.append((abs(late.mean() - 1), late.max()))
    mean, peak = np.median(after, axis=0)
    assert mean < 0.03 + 1 / clients
    assert peak < 2


def test_watts():
    """Weights far above 1: the noise is far above the square root of the capacity."""
    generator = np.random.default_rng(0)
    weights = generator.choice([3700, 7400, 11000, 22000], 300)
    costs = PolynomialCosts(generator.uniform(500, 4000, (300, 1)), (2,))
    problem = Problem(costs, 0.4 * weights.sum(), weights)
    run = simulate(problem, PaperCoin(3.5), SelfTuningController(), 400, start=Prior(0.4, 10))
    assert run.participants[50:].mean() == pytest.approx(problem.capacity, rel=0.03)


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 7, 600, 10**9]), st.floats(1e-3, 1e9)), min_size=1, max_size=200),
    st.floats(1e-6, 1e6),
)
def test_no_sequence_of_turnouts_makes_nonsense(history, initial):
    server = SelfTuningController(initial)
    state = server.start()
    for participants, capacity in history:
        state = server.step(state, participants, capacity)
        assert all(np.isfinite(value) for value in state)
        assert initial * 1e-16 < state.signal < initial * 1e16


def test_it_continues_and_is_made_again(tmp_path):
    problem, server = paper_population(0, 200).problem(60), SelfTuningController(3.0)
    whole = simulate(problem, Classical(), server, 100)
    simulate(problem, Classical(), server, 40).save(tmp_path / "part.npz")
    rest = simulate(problem, Classical(), server, 60, start=Trajectory.load(tmp_path / "part.npz"))
    np.testing.assert_array_equal(rest.signal, whole.signal)
    assert controller_from_settings(Table(server.settings())) == server
    numpy = simulate(problem, Classical(), server, 100, engine="numpy")
    np.testing.assert_array_equal(numpy.signal, whole.signal)


def after(error, last=0.0, gain=1.0, size=None, signal=1.0):
    """The state after a round that missed a capacity of 1000 by a share `error`; errors were so large before, too."""
    state = SelfTuningState(signal, gain, last, error * error if size is None else size)
    return SelfTuningController(1.0).step(state, 1000.0 * (1.0 - error), 1000.0)


def test_the_gain_rises_while_errors_agree_and_is_halved_when_they_alternate():
    assert after(0.2, last=0.2, gain=0.4).gain == pytest.approx(1.5 * 0.4)
    assert after(-0.2, last=-0.2, gain=0.4).gain == pytest.approx(1.5 * 0.4)
    assert after(0.2, last=-0.2, gain=0.4).gain == pytest.approx(0.4 / 2)
    assert after(0.2, last=0.2, gain=0.4).signal == pytest.approx(np.exp(0.6 * 0.2))
    assert after(0.2, last=-0.2, gain=0.2).gain == 0.15  # and no further
    unequal = after(0.1, last=-0.3, gain=0.8, size=0.09)
    assert unequal.gain == pytest.approx(0.8 * 0.5 ** (1 / 3))  # a third as sure as of equal errors


def test_a_gain_above_one_falls_to_the_secant_when_the_goal_was_stepped_over():
    assert after(0.1, last=-0.3, gain=4.0, size=0.09).gain == pytest.approx(4.0 * 0.3 / (0.3 + 0.1))
    assert (
        after(0.3, last=-0.1, gain=3.0, size=0.09).gain == 1.0
    )  # the secant would be 0.75: below 1 nothing overshoots
    assert after(0.3, last=-0.1, gain=1.2, size=0.09).gain == pytest.approx(1.2 * 0.5 ** (1 / 3))


def test_errors_far_below_the_usual_size_are_noise():
    state = after(0.1, last=0.1, gain=0.4, size=1.0)
    assert state.size == pytest.approx(0.7 * 1.0 + 0.3 * 0.01)
    assert state.gain == pytest.approx(0.4 * 1.5 ** (0.01 / 0.703))
    assert state.error == pytest.approx(0.1)
    quiet = after(0.0, last=0.0, gain=0.4, size=0.0)
    assert quiet == SelfTuningState(1.0, 0.4, 0.0, 0.0)


@pytest.mark.parametrize(("error", "gain"), [(0.49, 0.2), (0.5, 0.2), (0.51, 1.0), (-0.51, 1.0)])
def test_an_error_of_more_than_five_times_the_usual_size_is_a_change(error, gain):
    assert after(error, gain=0.2, size=0.01).gain == gain
    assert after(error, gain=1.5, size=0.01).gain == 1.5  # who is bold stays so


def test_no_round_changes_the_signal_more_than_tenfold():
    up, down = after(0.5, last=0.5, gain=8.0), after(-2.0, last=-2.0, gain=1.0)
    assert (up.signal, down.signal) == (pytest.approx(10.0), pytest.approx(0.1))
    assert (up.gain, down.gain) == (pytest.approx(np.log(10.0) / 0.5), pytest.approx(np.log(10.0) / 2.0))
    crowd = after(-50.0, gain=1.0)
    assert (crowd.signal, crowd.error) == (pytest.approx(0.1), pytest.approx(-np.log(10.0)))
    assert after(0.5, last=0.5, gain=3.0).gain == 4.5  # just within


def test_the_signal_stays_within_reach_of_the_first():
    assert after(0.9, gain=2.0, signal=5e14).signal == 1e15
    assert after(-0.9, gain=2.0, signal=2e-15).signal == 1e-15
    assert SelfTuningController(1e-290).step(SelfTuningState(1e-290, 1.0, 0.0, 0.0), 0, 9.0).signal > 2e-290


def test_it_begins_with_the_gain_that_is_safe_for_everyone():
    assert SelfTuningController().start() == SelfTuningState(1.0, 1.0, 0.0, 0.0)
    assert SelfTuningController(3).start().signal == 3.0
    assert SelfTuningController().lag == 0


@pytest.mark.parametrize("initial", [0.0, -1.0, np.inf, np.nan, 1e-310, 1e300])
def test_bad_first_signals(initial):
    with pytest.raises(ValueError, match="initial must be above 0"):
        SelfTuningController(initial)
