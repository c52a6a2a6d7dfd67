"""Where a run settles, how fast, and which gain: `predict`, `tune`, and the turnouts that a mechanism can reach.

Numbers from equations, checked against simulations.
"""

from turnout.theory.feasibility import check_feasible, reachable
from turnout.theory.fixed_point import Forecast, predict
from turnout.theory.tuning import Tuning, tune

__all__ = ["Forecast", "Tuning", "check_feasible", "predict", "reachable", "tune"]


def __dir__() -> list[str]:
    return __all__
