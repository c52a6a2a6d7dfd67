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
from turnout.algorithm.controllers import controller_from_settings
from turnout.settings import Table

SEEDS = 20


def settled(problem, mechanism, initial, seed, start):
    """(error of the mean turnout of rounds 50 to 150, in allowed errors; its spread over the unavoidable)."""
    run = simulate(problem, mechanism, SelfTuningController(initial), 150, seed=seed, start=start)
    late, capacity = run.participants[50:], problem.capacity
    average = optimum(problem).average if isinstance(mechanism, Classical) else predict(problem, mechanism).average
    unavoidable = np.sqrt(np.sum(average * (1 - average)))
    return abs(late.mean() - capacity) / (0.03 * capacity + 1), late.std() / unavoidable


@pytest.mark.parametrize("clients", [20, 200, 20_000])
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


@pytest.mark.parametrize("initial", [0.0, -1.0, np.inf, np.nan])
def test_bad_first_signals(initial):
    with pytest.raises(ValueError, match="initial must be above 0"):
        SelfTuningController(initial)
