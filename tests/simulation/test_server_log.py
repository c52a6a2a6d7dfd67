"""The server's log: however rounds are closed, it says the same."""

import numpy as np
import pytest

from turnout import IntegralController, PaperCoin, SelfTuningController, paper_population, simulate
from turnout.algorithm import integral_signal
from turnout.simulation.server_log import ServerLog


def assert_same(one, other):
    assert one.server == other.server
    assert all(type(signal) is float for signal in one.server.signals)
    for name in ("signal", "participants", "capacities"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("pieces", [(9,), (1, 1, 7), (2, 4, 3)])
def test_rounds_closed_together_are_rounds_closed_one_by_one(lag, pieces):
    controller, totals = IntegralController(0.37, 2.0, lag), np.random.default_rng(1).integers(0, 9, 9)
    one, together = (ServerLog.start(controller, 4.5, 12) for _ in range(2))
    begin = 0
    for length in pieces:
        signals = []
        for total in totals[begin : begin + length]:
            signals.append(integral_signal(signals[-1] if signals else one.server.signals[-1], 0.37, total, 4.5))
        for total in totals[begin : begin + length].tolist():
            one.close_round(total)
        together.close_rounds(totals[begin : begin + length], signals)
        begin += length
        assert_same(one, together)
    assert (one.round, one.rounds) == (9, 12)


def test_a_capacity_counts_from_the_round_on_in_which_it_is_set():
    log = ServerLog.start(IntegralController(1.0, 2.0), 3.0, 3)
    log.close_round(3)
    log.capacity = 5.0
    log.close_rounds([3, 3], [4.0, 6.0])
    assert log.capacities.tolist() == [3.0, 5.0, 5.0]
    assert log.signal.tolist() == [2.0, 2.0, 4.0, 6.0]
    assert log.server.deciding == 4.0


@pytest.mark.parametrize("rounds", [1, 2, 30])
@pytest.mark.parametrize(
    "controller", [IntegralController(0.2, 1.0), IntegralController(0.2, 1.0, 0), SelfTuningController()]
)
def test_a_log_resumes_where_it_stopped(rounds, controller, tmp_path):
    run = simulate(paper_population(0, 40).problem(20), PaperCoin(3.5), controller, rounds)
    right = ServerLog.start(controller, 20.0, rounds + 5)
    for total in run.participants.tolist():
        right.close_round(total)
    run.save(tmp_path / "run.npz")
    for before in (run, type(run).load(tmp_path / "run.npz")):
        found = ServerLog.resume(before, controller, 20.0, 5)
        assert_same(found, right)
        assert found.rounds == rounds + 5


def test_only_the_papers_own_controller_is_compiled():
    class Slower(IntegralController):
        """Moves half as far: `integral_signal` is not its step."""

        def step(self, state, participants, capacity):
            return super().step(state, 0.5 * (participants + capacity), capacity)

    assert ServerLog.start(IntegralController(0.2, 1.0), 9.0, 1).compiled_controller is not None
    for controller in (Slower(0.2, 1.0), SelfTuningController()):
        assert ServerLog.start(controller, 9.0, 1).compiled_controller is None
    problem = paper_population(0, 40).problem(20)
    engines = [simulate(problem, PaperCoin(3.5), Slower(0.2, 1.0), 40, engine=engine) for engine in ("numpy", "numba")]
    np.testing.assert_array_equal(engines[0].signal, engines[1].signal)
    assert not np.array_equal(
        engines[0].signal, simulate(problem, PaperCoin(3.5), IntegralController(0.2, 1.0), 40).signal
    )
