"""After the stop clients act on public data, and the loop stays closed."""

import numpy as np
import pytest

from conformance.populations import Fixed
from turnout import Classical, Keep, Problem, SelfTuningController, paper_population, simulate
from turnout.algorithm import Clamp
from turnout.attack.run import surrogate_after_stop


@pytest.mark.parametrize("mechanism", [Clamp(1.0), Clamp(0.5), Clamp(3.0)], ids=repr)
def test_the_signal_stays_where_it_was(mechanism):
    problem, server = paper_population(0).problem(600), SelfTuningController(5.0)
    before = simulate(problem, mechanism, server, 5_000, keep=Keep(every=5_000))
    settled = before.signal[-1000:].mean()
    frozen = Problem(surrogate_after_stop(before.average, float(settled)), 600)
    after = simulate(frozen, Classical(), server, 5_000, start=before)
    assert after.signal[-1000:].mean() == pytest.approx(settled, rel=0.15)
    assert after.signal[5_000:].max() < 1.3 * settled
    assert after.last(1000).mean() == pytest.approx(600, abs=5)
    # the same costs: the averages are kept, so is what they cost
    assert problem.cost(after.average) == pytest.approx(problem.cost(before.average), rel=0.03)


def test_the_frozen_average_alone_opens_the_loop():
    """The sabotaged twin: clients that ignore the signal leave the server without a brake."""
    deaf = Fixed(np.full(1200, 0.45))
    run = simulate(paper_population(0).problem(600), deaf, SelfTuningController(5.0), 300)
    assert run.last(100).mean() < 560
    assert run.signal[-1] > 100 * run.signal[0]


@pytest.mark.parametrize("weights", [None, np.array([1, 3, 10])], ids=["alike", "different"])
def test_the_intent_is_the_average_times_how_the_signal_has_moved(weights):
    """Intent: signal times weight times average over slope, whatever a later average is."""
    average, own = np.array([0.05, 0.4, 1.0]), np.ones(3) if weights is None else weights
    costs = surrogate_after_stop(average, 8.0) if weights is None else surrogate_after_stop(average, 8.0, weights)
    for signal in (4.0, 8.0, 12.0):
        for later in (0.1, 0.9):
            intent = signal * own * later / costs.slope(np.full(3, later))
            np.testing.assert_allclose(intent, average * signal / 8.0, rtol=1e-12)
