"""After the stop clients act on public data, and the loop stays closed."""

import numpy as np
import pytest

from conformance.populations import Fixed
from turnout import Classical, Keep, Problem, SelfTuningController, paper_population, simulate
from turnout.algorithm.mechanisms import Clamp
from turnout.privacy.stop import surrogate_after_stop


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
