"""The optimisation problem: minimise the total cost while the averages add up to the capacity."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from turnout.display import card
from turnout.errors import check_kind, check_number, invalid
from turnout.problem.costs import Array, Costs, PolynomialCosts, check_costs
from turnout.problem.drawn import DrawnCosts
from turnout.problem.functions import costs_from

Weights = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Problem:
    """Minimise sum f_i(x_i) subject to sum w_i x_i = capacity and 0 <= x_i <= 1.

    Args:
        costs: the clients' costs: `PolynomialCosts`, your own, or a list of functions of the average, one per client.
        capacity: what the server needs in each round, on average.
        weights: how much each client adds to the turnout, in whole units (a charger's watts),
            shape (clients,); None means one each.

    Raises:
        ValueError: a cost breaks the paper's assumptions, a weight is not a positive whole
            number, or no averages can meet the capacity.

    Paper: Problem (2). Differs from paper: weights, which are all 1 there.

    Example:
        >>> costs = PolynomialCosts([[1.0], [2.0], [3.0]], powers=(2,))
        >>> Problem(costs, capacity=1.5)
        Problem(3 clients, capacity=1.5)
    """

    costs: Costs
    capacity: float
    weights: Weights | None = None

    def __post_init__(self) -> None:
        if isinstance(self.costs, type) or not isinstance(self.costs, Costs):  # a class has all methods of its objects
            object.__setattr__(self, "costs", costs_from(self.costs))
        if not isinstance(self.costs, (PolynomialCosts, DrawnCosts)):  # which check themselves
            check_costs(self.costs)
        if self.weights is not None:
            object.__setattr__(self, "weights", _check_weights(self.weights, len(self.costs)))
        _check_range(self.capacity, self.most)
        caller = sys._getframe(2).f_globals.get("__name__", "")  # of the generated __init__
        if caller.partition(".")[0] != "turnout":
            warn_of_share(self.capacity, self.most)

    def __len__(self) -> int:
        return len(self.costs)

    def __repr__(self) -> str:
        weighted = "" if self.weights is None else f", weights adding up to {self.most}"
        return f"Problem({len(self)} clients, capacity={self.capacity:g}{weighted})"

    def _repr_html_(self) -> str:
        weights = None if self.weights is None else f"adding up to {self.most:,}"
        return card("Problem", {"clients": len(self), "capacity": self.capacity, "weights": weights})

    @cached_property
    def most(self) -> int:
        """The largest turnout: the number of clients, or the sum of their weights."""
        return len(self.costs) if self.weights is None else int(self.weights.sum())

    @property
    def unit_weights(self) -> Weights | int:
        """The weights, or the number 1."""
        return 1 if self.weights is None else self.weights

    def cost(self, average: Array) -> float:
        """The total cost, sum of f_i(x_i)."""
        return _total_cost(self.costs, average)

    def random_cost(self) -> float:
        """The total cost if a server selects clients at random: every average is capacity / most."""
        return self.cost(np.full(len(self), self.capacity / self.most))


def _total_cost(costs: Costs, average: Array, present: npt.NDArray[np.bool_] | None = None) -> float:
    """Sum of f_i(x_i) over the clients (or those present), in little memory.

    The clients are added in fixed chunks, so that the sum has the same bits wherever it is made.
    """
    chunk, total = 1 << 16, 0.0
    for first in range(0, len(costs), chunk):
        part = slice(first, first + chunk)
        values = costs[part].value(average[part])
        total += float(np.sum(values if present is None else np.where(present[part], values, 0.0)))
    return total


def check_capacity(capacity: float, most: int) -> None:
    """Refuse a capacity that no averages between 0 and 1 can meet; warn of one that looks like a share."""
    _check_range(capacity, most)
    warn_of_share(capacity, most)


def _check_range(capacity: float, most: int) -> None:
    allowed = f"above 0 and at most {most} (the sum of all weights)"
    remedy = "choose a capacity in that range, or add clients"
    check_number("capacity", capacity, allowed, lambda given: 0.0 < given <= most, remedy)


def warn_of_share(capacity: float, most: int) -> None:
    """Warn of a capacity that looks like a share: one that a user gave, not one that turnout has computed."""
    if capacity < 1.0 and most > 2:
        told = f"capacity {capacity:g} is a turnout of less than 1 per round, of at most {most:,}"
        warnings.warn(f"{told}: if you mean a share, give a capacity of {capacity * most:.10g}", stacklevel=4)


def check_problem(problem: object) -> None:
    """Refuse anything but a problem; a population has no capacity.

    Example:
        >>> from turnout import paper_population
        >>> check_problem(paper_population())
        Traceback (most recent call last):
        ...
        ValueError: problem must be a turnout.Problem, got Population: call .problem(capacity) of a population
    """
    check_kind("problem", problem, Problem, "a turnout.Problem", "call .problem(capacity) of a population")


def _check_weights(weights: npt.ArrayLike, clients: int) -> Weights:
    given = np.asarray(weights)
    if given.shape != (clients,):
        raise invalid(
            "weights", f"of shape ({clients},), one per client", f"shape {given.shape}", "give one per client"
        )
    good = np.isfinite(given) & (given >= 1) & (given <= 2**52) & (given == np.floor(given))
    if not good.all():
        client = int(np.argmin(good))
        raise invalid(
            "weights",
            "whole numbers from 1 up",
            f"{given[client]} for client {client}",
            "use a smaller unit (watts, not kilowatts), and leave out clients of weight 0",
        )
    if float(np.sum(given, dtype=np.float64)) > 2**53:
        raise invalid(
            "weights", "of at most 2^53 together", f"{np.sum(given, dtype=np.float64):.3g}", "use a larger unit"
        )
    whole = given.astype(np.int64)
    whole.flags.writeable = False
    return whole
