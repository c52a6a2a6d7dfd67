"""The problem: convex costs, populations of clients, the capacity, and the exact optimum.

It knows nothing of rounds, signals or privacy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout._lazy import lazy
from turnout.problem.costs import Array, Clients, Costs, PolynomialCosts, check_costs, polynomial
from turnout.problem.philox import (
    ENROLMENT,
    KEY_STEPS,
    MULTIPLIERS,
    NOISE,
    PARTICIPATION,
    POPULATION,
    Words,
    block_words,
    philox4x32,
)

if TYPE_CHECKING:
    from turnout.problem.drawn import DrawnCosts, Term, coefficient
    from turnout.problem.functions import FunctionCosts
    from turnout.problem.population import (
        Population,
        drawn_paper_population,
        paper_population,
        population_from_table,
        read_population,
    )
    from turnout.problem.problem import Problem, Weights, check_capacity, check_problem
    from turnout.problem.solve import Optimum, kkt_residual, optimum, rising_root

__all__ = [
    "ENROLMENT",
    "KEY_STEPS",
    "MULTIPLIERS",
    "NOISE",
    "PARTICIPATION",
    "POPULATION",
    "Array",
    "Clients",
    "Costs",
    "DrawnCosts",
    "FunctionCosts",
    "Optimum",
    "PolynomialCosts",
    "Population",
    "Problem",
    "Term",
    "Weights",
    "Words",
    "block_words",
    "check_capacity",
    "check_costs",
    "check_problem",
    "coefficient",
    "drawn_paper_population",
    "kkt_residual",
    "optimum",
    "paper_population",
    "philox4x32",
    "polynomial",
    "population_from_table",
    "read_population",
    "rising_root",
]

# Loaded on first use: a device needs none of these.
__getattr__, _ = lazy(
    __name__,
    {
        "drawn": (
            "DrawnCosts",
            "Term",
            "coefficient",
        ),
        "functions": ("FunctionCosts",),
        "population": (
            "Population",
            "drawn_paper_population",
            "paper_population",
            "population_from_table",
            "read_population",
        ),
        "problem": (
            "Problem",
            "Weights",
            "check_capacity",
            "check_problem",
        ),
        "solve": (
            "Optimum",
            "kkt_residual",
            "optimum",
            "rising_root",
        ),
    },
)


def __dir__() -> list[str]:
    return __all__
