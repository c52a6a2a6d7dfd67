"""A gain that is too large is told, with one that is not; a gain that is not is never blamed."""

import warnings

import numpy as np
import pytest

from turnout import (
    Clamp,
    Classical,
    IntegralController,
    PaperCoin,
    PolynomialCosts,
    Problem,
    Schedule,
    SelfTuningController,
    paper_population,
    simulate,
)
from turnout.theory import tune

PROBLEM = paper_population(clients=400).problem(200)


@pytest.mark.parametrize("mechanism", [Classical(), PaperCoin(3.5), Clamp(1.0)])
@pytest.mark.parametrize("lag", [0, 1])
def test_the_warning_separates_at_the_bound_and_its_gain_is_stable(mechanism, lag):
    largest = tune(PROBLEM, mechanism).largest_gain * (1 if lag else 2)
    with pytest.warns(UserWarning, match=rf"gain .* is above {largest:.3g}, .*try ([\d.e-]+), or SelfTuning") as told:
        simulate(PROBLEM, mechanism, IntegralController(4.0 * largest, 1.0, lag), 300)
    stable = float(str(told[0].message).partition("try ")[2].split(",")[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for gain in (stable, 0.8 * largest):
            simulate(PROBLEM, mechanism, IntegralController(gain, 1.0, lag), 300)


def test_what_swings_for_another_reason_is_not_blamed_on_the_gain():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(PROBLEM, Classical(), SelfTuningController(), 300)
        moving = Schedule(capacity={round: 100 + 200 * (round // 10 % 2) for round in range(10, 300, 10)})
        simulate(PROBLEM, Classical(), IntegralController(0.5, 1.0), 300, schedule=moving)
        simulate(PROBLEM, Classical(), IntegralController(1e-6, 1.0), 300)  # slow: still on its way from the start


def test_weights_count():
    weights = np.full(100, 7)
    problem = Problem(PolynomialCosts(np.linspace(1.0, 9.0, 100)[:, None], (2,)), 350.0, weights)
    largest = tune(problem, Classical()).largest_gain
    with pytest.warns(UserWarning, match="the largest that is stable"):
        simulate(problem, Classical(), IntegralController(5.0 * largest, 1.0), 300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(problem, Classical(), IntegralController(0.5 * largest, 1.0), 300)
