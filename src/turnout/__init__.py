"""turnout: clients that decide for themselves.

A server needs C of N clients in each round. It broadcasts one public number; each client decides
by itself whether to take part, from a cost that it never reveals, its own past, and a privacy coin.

    >>> import turnout
    >>> problem = turnout.paper_population(seed=0).problem(capacity=600)
    >>> turnout.optimum(problem)
    Optimum(cost=1753.56, price=9.9761, 105 clients always, 0 never)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from turnout.version import __version__

if TYPE_CHECKING:
    from turnout.algorithm.client import Averaging, ClientState, Prior, client_step
    from turnout.algorithm.coins import SeededCoins, SystemCoins
    from turnout.algorithm.mechanisms.classical import Classical
    from turnout.algorithm.mechanisms.paper_coin import PaperCoin
    from turnout.algorithm.self_tuning import SelfTuningController
    from turnout.algorithm.server import IntegralController
    from turnout.problem.costs import PolynomialCosts
    from turnout.problem.optimum import Optimum, optimum
    from turnout.problem.population import Population, paper_population, read_population
    from turnout.problem.problem import Problem
    from turnout.report.picture import plot
    from turnout.simulation.keep import Keep
    from turnout.simulation.schedule import Schedule
    from turnout.simulation.simulate import replicate, simulate
    from turnout.simulation.trajectory import Trajectory
    from turnout.theory.feasibility import check_feasible
    from turnout.theory.fixed_point import predict

# Loaded on first use, so that `turnout --help` and a small device import only what they need.
_HOME = {
    "Averaging": "algorithm.client",
    "Classical": "algorithm.mechanisms.classical",
    "ClientState": "algorithm.client",
    "IntegralController": "algorithm.server",
    "Keep": "simulation.keep",
    "Optimum": "problem.optimum",
    "PaperCoin": "algorithm.mechanisms.paper_coin",
    "PolynomialCosts": "problem.costs",
    "Population": "problem.population",
    "Prior": "algorithm.client",
    "Problem": "problem.problem",
    "Schedule": "simulation.schedule",
    "SeededCoins": "algorithm.coins",
    "SelfTuningController": "algorithm.self_tuning",
    "SystemCoins": "algorithm.coins",
    "Trajectory": "simulation.trajectory",
    "check_feasible": "theory.feasibility",
    "client_step": "algorithm.client",
    "optimum": "problem.optimum",
    "paper_population": "problem.population",
    "plot": "report.picture",
    "predict": "theory.fixed_point",
    "read_population": "problem.population",
    "replicate": "simulation.simulate",
    "simulate": "simulation.simulate",
}

__all__ = [
    "Averaging",
    "Classical",
    "ClientState",
    "IntegralController",
    "Keep",
    "Optimum",
    "PaperCoin",
    "PolynomialCosts",
    "Population",
    "Prior",
    "Problem",
    "Schedule",
    "SeededCoins",
    "SelfTuningController",
    "SystemCoins",
    "Trajectory",
    "__version__",
    "check_feasible",
    "client_step",
    "optimum",
    "paper_population",
    "plot",
    "predict",
    "read_population",
    "replicate",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"turnout.{_HOME[name]}"), name)
    raise AttributeError(f"module 'turnout' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
