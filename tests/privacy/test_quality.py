"""What the certified mechanisms cost: the notes' figures, forecast and simulated."""

import numpy as np
import pytest

from turnout import (
    Averaging,
    Keep,
    PolynomialCosts,
    Prior,
    Problem,
    SelfTuningController,
    optimum,
    paper_population,
    predict,
    simulate,
)
from turnout.algorithm import Clamp, Memoized, RandomizedResponse, TrackingClamp, widest_box
from turnout.privacy.accounting import total_epsilon

PROBLEMS = [paper_population(seed).problem(600) for seed in range(5)]
TABLE = {0.5: (56.2, 44.6), 1.0: (29.8, 17.9), 2.0: (7.6, 4.3), 3.0: (2.1, 1.5), 4.0: (0.63, 0.56)}


def simulated(problem, mechanism, rounds=10_000, start=None, averaging=None):
    run = simulate(
        problem, mechanism, SelfTuningController(5.0), rounds, start=start, averaging=averaging, keep=Keep(every=rounds)
    )
    return 100 * (run.cost[-1] / optimum(problem).cost - 1)


@pytest.mark.parametrize("epsilon", TABLE)
def test_gaps_at_equal_epsilon_per_report(epsilon):
    for made, expected in zip((RandomizedResponse, Clamp), TABLE[epsilon], strict=True):
        forecast = np.mean([100 * predict(problem, made(epsilon)).gap for problem in PROBLEMS])
        found = np.mean([simulated(problem, made(epsilon)) for problem in PROBLEMS])
        assert forecast == pytest.approx(expected, rel=0.1)
        assert found == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("epsilon", "most"), [(1.0, 1.4), (0.5, 5.1)])
def test_tracking_clamp(epsilon, most):
    gaps = [simulated(problem, TrackingClamp(epsilon), start=Prior(0.5, 20)) for problem in PROBLEMS[:3]]
    assert np.mean(gaps) <= most


def test_clamp_is_never_worse_than_randomized_response():
    generator = np.random.default_rng(0)
    for _ in range(50):
        clients = int(generator.integers(20, 200))
        table = generator.lognormal(0, 1.5, (clients, 2))
        costs = PolynomialCosts(table, (2, int(generator.integers(3, 7))))
        epsilon = float(generator.uniform(0.3, 4))
        low = 1 / (1 + np.exp(epsilon))
        problem = Problem(costs, clients * generator.uniform(low + 0.02, 0.98 - low))
        clamp, other = predict(problem, Clamp(epsilon)), predict(problem, RandomizedResponse(epsilon))
        assert clamp.cost <= other.cost * (1 + 1e-9)


def test_one_in_ten_thousand():
    """A million clients, a hundred wanted, epsilon 1 a report: a box centred on C/N meets it."""
    problem = paper_population(0, 1_000_000).problem(100)
    with pytest.raises(ValueError, match="with a smaller coin"):
        simulate(problem, Clamp(1.0), SelfTuningController(), 5)
    start = Prior(1e-4, 50_000)  # worth several participations, or one would change everything
    run = simulate(problem, Clamp(1.0, center=1e-4), SelfTuningController(1e-3), 400, start=start)
    assert run.last(300).mean() == pytest.approx(100, abs=3)
    real = total_epsilon(*widest_box(1.0, 1e-4), 10_000, 1e-6)  # the box as it is: a "yes" is rare, and so is its loss
    symmetric = total_epsilon(*widest_box(1.0), 10_000, 1e-6)  # the formula that looks at epsilon alone
    assert real.epsilon == pytest.approx(9.90, abs=0.05)
    assert symmetric.epsilon == pytest.approx(5038, abs=5)


def test_moving_by_the_probability_costs_nothing():
    """What a sum-only account needs: no trace of hidden bits in the state."""
    problem = PROBLEMS[0]
    bit = simulated(problem, Clamp(1.0))
    probability = simulated(problem, Clamp(1.0), averaging=Averaging(by="probability"))
    assert probability == pytest.approx(bit, rel=0.03)


@pytest.mark.parametrize(("epsilon", "most"), [(4.0, 28), (6.0, 9), (8.0, 3)])
def test_memoized_with_a_good_reference_price(epsilon, most):
    gaps = [simulated(problem, Memoized(epsilon, optimum(problem).price), 4000) for problem in PROBLEMS]
    assert np.mean(gaps) <= most
