import math
from contextlib import nullcontext

import numpy as np
import pytest

from theory.test_predict import POPULATIONS
from turnout import Classical, IntegralController, PaperCoin, paper_population, predict, simulate
from turnout.theory.fixed_point import turnout_spread
from turnout.theory.mean_field import MeanField, Moments
from turnout.theory.tuning import tune


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("mechanism", [Classical(), PaperCoin(3.5)], ids=repr)
def test_the_bound_separates(population, mechanism):
    """At half of the largest gain the turnout is calm, at twice it oscillates."""
    problem = POPULATIONS[population]()
    tuning, unavoidable = tune(problem, mechanism), predict(problem, mechanism).spread
    for share, settles in ((0.5, True), (2.0, False)):
        server = IntegralController(share * tuning.largest_gain, tuning.initial)
        with nullcontext() if settles else pytest.warns(UserWarning, match="the largest that is stable"):
            tail = simulate(problem, mechanism, server, 3000).last(1000)
        assert (tail.std() < 2 * unavoidable) == settles
        if settles:
            assert tail.mean() == pytest.approx(problem.capacity, abs=0.02 * problem.capacity + 1)


@pytest.mark.parametrize("population", POPULATIONS)
def test_the_recommended_gain_settles_when_it_says(population):
    problem = POPULATIONS[population]()
    tuning = tune(problem, PaperCoin(3.5))
    run = simulate(problem, PaperCoin(3.5), tuning.controller(), tuning.settling_rounds + 400)
    late = run.participants[tuning.settling_rounds :]
    allowed = 0.02 * problem.capacity + 4 * late.std() / math.sqrt(len(late))
    assert abs(late.mean() - problem.capacity) <= allowed
    assert tuning.settling_rounds < 200


def test_everyone_always_needs_no_gain():
    """Where nobody answers the signal, any gain is stable, and still one is recommended."""
    tuning = tune(paper_population(0, 40).problem(40), Classical())
    assert tuning.gain > 0
    assert np.isfinite(tuning.gain)


def test_unstable_gains_have_no_spread(paper_problem):
    field = MeanField(paper_problem, Classical())
    forecast = predict(paper_problem, Classical())
    moments = Moments(forecast.average, np.zeros(1200))
    for lag, bound in ((0, 2.0), (1, 1.0)):
        largest = bound * tune(paper_problem, Classical()).largest_gain
        assert turnout_spread(field, forecast.signal, moments, IntegralController(1.01 * largest, 1.0, lag)) == math.inf
        assert turnout_spread(field, forecast.signal, moments, IntegralController(0.9 * largest, 1.0, lag)) < 200
