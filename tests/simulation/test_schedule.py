"""Who is there: every combination of joining, leaving and being away."""

import numpy as np
import pytest

from conformance.test_engines import assert_identical
from turnout import (
    Averaging,
    Classical,
    IntegralController,
    Keep,
    PaperCoin,
    Prior,
    Schedule,
    optimum,
    paper_population,
    simulate,
)

PROBLEM = paper_population(0, 40).problem(10)
SERVER = IntegralController(0.1, 5.0)
HALF = np.arange(20)


def turnout(schedule, rounds=30, start=None, engine="auto"):
    return simulate(PROBLEM, Classical(), SERVER, rounds, schedule=schedule, start=start, engine=engine)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_who_leaves_and_joins_again_was_there_before(engine):
    run = turnout(Schedule(leave={10: HALF}, join={20: HALF}), engine=engine)
    assert run.participants[0] == 40
    assert run.state.rounds.tolist() == [10.0] * 20 + [30.0] * 20  # a new history
    again = turnout(Schedule(leave={6: HALF}, join={6: HALF}), engine=engine)
    assert again.participants[0] == 40
    assert again.participants[6] >= 20  # leaves and joins in one round: begins anew, by taking part
    assert again.state.rounds[0] == 24


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_who_is_away_at_first_does_not_take_part(engine):
    run = turnout(Schedule(away=[(0, 5, slice(0, 40))]), 8, engine=engine)
    assert run.participants[:5].tolist() == [0] * 5
    late = turnout(Schedule(join={3: HALF}, away=[(2, 6, HALF)]), 8, engine=engine)
    assert late.participants[3] <= 20
    assert late.state.rounds[0] == 5
    prior = turnout(Schedule(away=[(0, 5, slice(0, 40))]), 8, start=Prior(0.5), engine=engine)
    assert prior.participants[:5].tolist() == [0] * 5


def test_joining_while_there_is_refused():
    with pytest.raises(ValueError, match="of clients that are not there"):
        turnout(Schedule(join={0: HALF, 6: HALF}))
    with pytest.raises(ValueError, match="name clients that exist"):
        turnout(Schedule(leave={6: [-1]}))


def test_feasibility_looks_at_who_is_there():
    with pytest.raises(ValueError, match="at most 5"):
        turnout(Schedule(leave={10: slice(0, 35)}))
    with pytest.raises(ValueError, match="at most 0"):
        turnout(Schedule(leave={10: slice(0, 40)}))
    few = Schedule(leave={10: slice(0, 30)}, capacity={10: 3})
    simulate(paper_population(0, 40).problem(10), PaperCoin(1.0), SERVER, 30, schedule=few)  # ten bring 1.8 by coin


def test_the_problem_as_it_stands():
    schedule = Schedule(leave={10: HALF}, capacity={10: 4})
    later = schedule.problem_at(20, PROBLEM)
    assert (len(later), later.capacity) == (20, 4)
    assert optimum(later).average.sum() == pytest.approx(4)
    assert len(schedule.problem_at(5, PROBLEM)) == 40


def test_a_continued_run_keeps_what_is_not_said():
    settings = {"schedule": Schedule(leave={10: HALF}, capacity={10: 5}), "averaging": Averaging(remember=20)}
    keep = Keep(every=7)
    whole = simulate(PROBLEM, Classical(), SERVER, 40, keep=keep, **settings)
    part = simulate(PROBLEM, Classical(), SERVER, 15, keep=keep, **settings)
    assert_identical(simulate(PROBLEM, Classical(), SERVER, 25, start=part), whole)


class Negative:
    """A user's own controller, whose signal may fall below 0 or be no number at all."""

    lag = 1

    def start(self):
        return IntegralController(1.0, 1.0).start()

    def step(self, state, participants, capacity):
        return type(state)(-1.0 if participants > capacity else float("nan") if participants == 0 else 30.0)

    def scaled(self, state, scale):
        return state

    def settings(self):
        return {"kind": "negative"}


def test_any_signal_is_the_same_on_every_engine():
    runs = [simulate(PROBLEM, PaperCoin(2.0), Negative(), 60, engine=engine) for engine in ("numpy", "numba")]
    np.testing.assert_array_equal(runs[0].participants, runs[1].participants)
    assert set(runs[0].signal[~np.isnan(runs[0].signal)]) >= {-1.0, 30.0}


def test_numpy_numbers_are_saved(tmp_path):
    run = simulate(
        paper_population(0, 40).problem(np.int64(10)),
        Classical(),
        IntegralController(np.float32(0.1), np.float64(1.0)),
        int(np.int64(5)),
        averaging=Averaging(np.int64(20)),
        start=Prior(np.float32(0.5), np.int64(3)),
        keep=Keep(every=np.int64(2), averages=slice(0, 3)),
    )
    run.save(tmp_path / "run.npz")
    assert type(run).load(tmp_path / "run.npz").averages.shape == (3, 3)


def test_threads_are_counted():
    with pytest.raises(ValueError, match="threads must be 1 or more"):
        simulate(PROBLEM, Classical(), SERVER, 5, threads=-5)
