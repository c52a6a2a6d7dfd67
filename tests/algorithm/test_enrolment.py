"""What clients act on once they have joined."""

import numpy as np

from turnout import Classical, PolynomialCosts, Problem, SeededCoins
from turnout.algorithm import Clamp, Memoized
from turnout.algorithm.client import released
from turnout.algorithm.coins import ENROLMENT


def test_only_a_mechanism_with_a_release_releases():
    """By coins of their own: those of round 0, for joining."""
    weights = np.array([1, 2, 1, 3])
    problem = Problem(PolynomialCosts([[1.0], [2.0], [9.0], [40.0]], (2,)), 3, weights)
    assert released(problem, Classical(), SeededCoins(1)) is None
    assert released(problem, Clamp(1.0), SeededCoins(1)) is None
    mechanism = Memoized(2.0, 8.0)
    uniform = SeededCoins(1).uniform(np.arange(4), 0, ENROLMENT)
    expected = mechanism.enrol(problem.costs, uniform, problem.unit_weights)
    np.testing.assert_array_equal(released(problem, mechanism, SeededCoins(1)).coefficients, expected.coefficients)
