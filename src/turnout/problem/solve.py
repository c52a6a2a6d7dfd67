"""The exact optimum, from the KKT conditions: f_i'(x_i) = price * w_i wherever 0 < x_i < 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turnout.display import card
from turnout.problem.costs import Array, inverse_slope
from turnout.problem.problem import Problem, check_problem


def rising_root(excess: Callable[[float], float], guess: float, tolerance: float) -> float:
    """The positive root of a rising function, by the Illinois method in the logarithm.

    Args:
        excess: negative below the root, positive above.
        guess: where to start; any positive number.
        tolerance: an excess no larger counts as none.
    """
    low = high = max(guess, 1e-300)
    below = above = excess(low)
    factor = 1.05
    while below > 0.0 and low > 1e-290:
        high, above, low = low, below, low / factor
        below, factor = excess(low), min(factor**2, 1e30)
    while above < 0.0 and high < 1e290:
        low, below, high = high, above, high * factor
        above, factor = excess(high), min(factor**2, 1e30)
    last, root = 0.0, high if abs(above) < abs(below) else low
    for _ in range(100):
        if abs(min(-below, above, key=abs)) <= tolerance or below >= above:
            break
        share = min(max(below / (below - above), 1e-3), 1.0 - 1e-3)
        root = low * math.exp(share * math.log(high / low))
        value = excess(root)
        if abs(value) <= tolerance or not low < root < high:
            break
        if value > 0.0:
            high, above, below = root, value, below * (0.5 if last > 0.0 else 1.0)
        else:
            low, below, above = root, value, above * (0.5 if last < 0.0 else 1.0)
        last = value
    return root


@dataclass(frozen=True, eq=False)
class Optimum:
    """The unique solution of a `Problem`.

    Attributes:
        average: x_i*, shape (clients,).
        price: the multiplier of the capacity; what the signal settles at without privacy.
        cost: the smallest total cost.

    Paper: x* of Problem (2). Differs from paper: there, x* is the last average of a classical run.

    Example:
        >>> from turnout import paper_population
        >>> best = optimum(paper_population().problem(600))
        >>> round(best.cost, 1), round(best.price, 2)
        (1753.6, 9.98)
    """

    average: Array
    price: float
    cost: float

    def __repr__(self) -> str:
        always, never = self._at_bounds()
        return f"Optimum(cost={self.cost:.6g}, price={self.price:.6g}, {always} clients always, {never} never)"

    def _repr_html_(self) -> str:
        always, never = self._at_bounds()
        facts = {"total cost": self.cost, "price": self.price, "clients": len(self.average)}
        return card("Optimum", facts | {"always take part": always, "never take part": never})

    def _at_bounds(self) -> tuple[int, int]:
        return int(np.sum(self.average == 1.0)), int(np.sum(self.average == 0.0))


def optimum(problem: Problem) -> Optimum:
    """Solve the problem exactly; a million clients take seconds.

    One price decides every client's average (the inverse of its slope), and the turnout rises with the
    price: so one bracketed search finds the price that meets the capacity.

    Example:
        >>> from turnout.problem import PolynomialCosts
        >>> optimum(Problem(PolynomialCosts([[1.0], [3.0]], powers=(2,)), capacity=1.0))
        Optimum(cost=0.75, price=1.5, 0 clients always, 0 never)
    """
    check_problem(problem)
    weights = problem.unit_weights

    def brought(price: float) -> float:
        return float(np.sum(weights * inverse_slope(problem.costs, price * weights)))

    ones = np.ones(len(problem))
    everyone = float(np.max(problem.costs.slope(ones) / weights))  # from this price on, all average 1
    guess = float(np.median(problem.costs.slope(ones * (problem.capacity / problem.most)) / weights))
    if problem.capacity >= problem.most:
        price = everyone
    else:
        price = rising_root(lambda candidate: brought(candidate) - problem.capacity, guess, 1e-13 * problem.capacity)
    average = inverse_slope(problem.costs, price * weights)
    return Optimum(average, price, problem.cost(average))


def kkt_residual(problem: Problem, solution: Optimum) -> float:
    """How far a solution is from the KKT conditions, relative; 0 is exact.

    The largest of: the relative error of the capacity, and of each client's slope against
    price * weight (only in the forbidden direction for clients at 0 or 1).

    Example:
        >>> from turnout.problem import PolynomialCosts
        >>> problem = Problem(PolynomialCosts([[1.0], [3.0]], powers=(2,)), capacity=1.0)
        >>> kkt_residual(problem, optimum(problem)) < 1e-9
        True
    """
    target = solution.price * problem.unit_weights
    off = problem.costs.slope(solution.average) - target
    off = np.where(solution.average <= 0.0, np.minimum(off, 0.0), off)
    off = np.where(solution.average >= 1.0, np.maximum(off, 0.0), off)
    brought = float(np.sum(problem.unit_weights * solution.average))
    return max(float(np.max(np.abs(off) / target)), abs(brought - problem.capacity) / problem.capacity)
