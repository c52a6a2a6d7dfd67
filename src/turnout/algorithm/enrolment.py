"""What clients act on once they have joined: their own costs, or what a mechanism released about them."""

from __future__ import annotations

import numpy as np

from turnout.algorithm.coins import ENROLMENT, Coins
from turnout.algorithm.mechanism import Mechanism
from turnout.problem.costs import Costs
from turnout.problem.problem import Problem


def released(problem: Problem, mechanism: Mechanism, coins: Coins) -> Costs | None:
    """The public surrogate costs that a mechanism releases, once, at joining; None if it releases nothing."""
    if not mechanism.releases_once:
        return None
    uniform = coins.uniform(np.arange(len(problem)), 0, ENROLMENT)
    return mechanism.enrol(problem.costs, uniform, problem.unit_weights, problem.capacity / problem.most)
