"""Where a run settles, how fast, and which gain: forecasts (`predict`, `predict_change`) and tuning.

Numbers from equations, checked against simulations.
"""

from turnout.theory.feasibility import check_feasible, reachable
from turnout.theory.fixed_point import Forecast, predict, predict_change
from turnout.theory.noise_response import TurnoutErrors
from turnout.theory.tuning import FloorTuning, Tuning, tune, tune_floor, unstable

__all__ = [
    "FloorTuning",
    "Forecast",
    "Tuning",
    "TurnoutErrors",
    "check_feasible",
    "predict",
    "predict_change",
    "reachable",
    "tune",
    "tune_floor",
    "unstable",
]


def __dir__() -> list[str]:
    return __all__
