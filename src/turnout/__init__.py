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
    from turnout.algorithm.client import Averaging, Prior, client_step
    from turnout.algorithm.client import ClientState as ClientState
    from turnout.algorithm.coins import SeededCoins
    from turnout.algorithm.coins import SystemCoins as SystemCoins
    from turnout.algorithm.controllers import IntegralController, SelfTuningController
    from turnout.algorithm.mechanisms.capped_coin import CappedCoin as CappedCoin
    from turnout.algorithm.mechanisms.clamp import Clamp
    from turnout.algorithm.mechanisms.classical import Classical
    from turnout.algorithm.mechanisms.learned_memoized import LearnedMemoized as LearnedMemoized
    from turnout.algorithm.mechanisms.memoized import Memoized
    from turnout.algorithm.mechanisms.paper_coin import PaperCoin
    from turnout.algorithm.mechanisms.randomized_response import RandomizedResponse as RandomizedResponse
    from turnout.algorithm.mechanisms.tracking_clamp import TrackingClamp as TrackingClamp
    from turnout.plan.wish import Wish as Wish
    from turnout.privacy.account_of import account_of
    from turnout.privacy.certificate import certificate
    from turnout.problem.costs import PolynomialCosts
    from turnout.problem.optimum import Optimum as Optimum
    from turnout.problem.optimum import optimum
    from turnout.problem.population import Population, paper_population, read_population
    from turnout.problem.problem import Problem
    from turnout.report.picture import plot
    from turnout.simulation.recording import Keep
    from turnout.simulation.schedule import Schedule
    from turnout.simulation.simulate import replicate, simulate
    from turnout.simulation.trajectory import Trajectory
    from turnout.theory.feasibility import check_feasible as check_feasible
    from turnout.theory.fixed_point import predict

# Loaded on first use, so that `turnout --help` and a small device import only what they need.
_HOME = {
    "Averaging": "algorithm.client",
    "CappedCoin": "algorithm.mechanisms.capped_coin",
    "Clamp": "algorithm.mechanisms.clamp",
    "Classical": "algorithm.mechanisms.classical",
    "ClientState": "algorithm.client",
    "IntegralController": "algorithm.server",
    "Keep": "simulation.keep",
    "LearnedMemoized": "algorithm.mechanisms.learned_memoized",
    "Memoized": "algorithm.mechanisms.memoized",
    "Optimum": "problem.optimum",
    "PaperCoin": "algorithm.mechanisms.paper_coin",
    "PolynomialCosts": "problem.costs",
    "Population": "problem.population",
    "Prior": "algorithm.client",
    "Problem": "problem.problem",
    "RandomizedResponse": "algorithm.mechanisms.randomized_response",
    "Schedule": "simulation.schedule",
    "SeededCoins": "algorithm.coins",
    "SelfTuningController": "algorithm.self_tuning",
    "SystemCoins": "algorithm.coins",
    "TrackingClamp": "algorithm.mechanisms.tracking_clamp",
    "Trajectory": "simulation.trajectory",
    "Wish": "plan.wish",
    "account_of": "privacy.account_of",
    "certificate": "privacy.certificate",
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

# Twenty-five are listed, so that a newcomer sees the wood; the others are found by whoever asks for them.
__all__ = [
    "Averaging",
    "Clamp",
    "Classical",
    "IntegralController",
    "Keep",
    "Memoized",
    "PaperCoin",
    "PolynomialCosts",
    "Population",
    "Prior",
    "Problem",
    "Schedule",
    "SeededCoins",
    "SelfTuningController",
    "Trajectory",
    "__version__",
    "account_of",
    "certificate",
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
    import difflib

    near = difflib.get_close_matches(name, _HOME, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "dir(turnout) lists what there is, docs/reference.md the rest"
    raise AttributeError(f"module 'turnout' has no attribute {name!r}: {hint}")


def __dir__() -> list[str]:
    return __all__
