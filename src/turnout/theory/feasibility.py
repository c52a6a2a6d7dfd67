"""Can this mechanism meet this capacity at all?"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Mechanism, check_mechanism, in_reach, widest
from turnout.errors import invalid
from turnout.problem import Problem, check_problem

Members = npt.NDArray[np.bool_] | None
"""Which clients count, shape (clients,); None: all."""


def reachable(problem: Problem, mechanism: Mechanism, members: Members = None) -> tuple[float, float]:
    """(least, most) turnout on average: at a signal of 0, and at an infinite one.

    Example:
        >>> from turnout.algorithm import PaperCoin
        >>> from turnout.problem import paper_population
        >>> least, most = reachable(paper_population().problem(600), PaperCoin(beta=1.0))
        >>> round(least, 1), most
        (220.7, 1200.0)
    """
    clients = len(problem)
    sizes = {np.size(value) for value in mechanism.parameters() if np.ndim(value)} - {clients}
    if sizes:
        raise invalid(
            f"{mechanism.kind} parameters",
            f"one number, or one for each of the {clients} clients",
            f"{sizes.pop()} numbers",
            "give as many as there are clients",
        )
    low, high = widest(mechanism)
    return _brought(problem, low, members), _brought(problem, high, members)


def _brought(problem: Problem, chance: Any, members: Members) -> float:
    """The mean turnout if each client participates with this probability, shared or its own."""
    if np.ndim(chance) == 0 and members is None:
        return float(chance) * problem.most
    here: Any = True if members is None else members
    return float(np.sum(chance * problem.unit_weights * here))


def check_feasible(
    problem: Problem, mechanism: Mechanism, capacity: float | None = None, members: Members = None
) -> None:
    """Refuse a capacity that the mechanism cannot meet at any signal.

    Args:
        problem: the clients and the capacity.
        mechanism: by its coin some clients participate, whatever the signal.
        capacity: another capacity than the problem's (from a schedule).
        members: the clients that are members then; None: all.

    Raises:
        ValueError: names the range that is possible.

    Example:
        >>> from turnout.algorithm import PaperCoin
        >>> from turnout.problem import paper_population
        >>> check_feasible(paper_population().problem(150), PaperCoin(beta=1.0))
        Traceback (most recent call last):
        ...
        ValueError: capacity must be above 220.7 and at most 1200.0 (the turnouts that the mechanism can reach), \
got 150: raise capacity, or choose parameters with a smaller coin
    """
    check_problem(problem)
    check_mechanism(mechanism)
    wanted = problem.capacity if capacity is None else capacity
    least, most = reachable(problem, mechanism, members)
    if not in_reach(wanted, least, most):
        raise invalid(
            "capacity",
            f"above {least:.1f} and at most {most:.1f} (the turnouts that the mechanism can reach)",
            wanted,
            _remedy(wanted <= least, most < problem.most * (1.0 - 1e-12)),
        )


def _remedy(too_low: bool, held_back: bool) -> str:
    """What to do; `held_back`: the mechanism's box keeps clients away that would participate."""
    if too_low:
        return "raise capacity, or choose parameters with a smaller coin"
    return "lower capacity, or choose parameters with a wider box" if held_back else "lower capacity, or add clients"
