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

from turnout._lazy import lazy
from turnout.version import __version__

if TYPE_CHECKING:
    from turnout.algorithm import (
        Averaging,
        Clamp,
        Classical,
        FallingGainController,
        IntegralController,
        Memoized,
        PaperCoin,
        Prior,
        SelfTuningController,
        SumNoise,
        client_step,
    )
    from turnout.algorithm import CappedCoin as CappedCoin
    from turnout.algorithm import ClientState as ClientState
    from turnout.algorithm import LearnedMemoized as LearnedMemoized
    from turnout.algorithm import RandomizedResponse as RandomizedResponse
    from turnout.algorithm import SeededCoins as SeededCoins
    from turnout.algorithm import SystemCoins as SystemCoins
    from turnout.algorithm import TrackingClamp as TrackingClamp
    from turnout.plan import Goal as Goal
    from turnout.plan import _Package
    from turnout.privacy import account_of, certificate
    from turnout.problem import Optimum as Optimum
    from turnout.problem import PolynomialCosts, Population, Problem, optimum, paper_population, read_population
    from turnout.report import plot
    from turnout.simulation import Keep, Schedule, Trajectory, replicate, simulate
    from turnout.theory import check_feasible as check_feasible
    from turnout.theory import predict

    plan: _Package

# These are listed, so that a newcomer sees the important ones; the others can be used, too.
__all__ = [
    "Averaging",
    "Clamp",
    "Classical",
    "FallingGainController",
    "IntegralController",
    "Keep",
    "Memoized",
    "PaperCoin",
    "PolynomialCosts",
    "Population",
    "Prior",
    "Problem",
    "Schedule",
    "SelfTuningController",
    "SumNoise",
    "Trajectory",
    "__version__",
    "account_of",
    "certificate",
    "client_step",
    "optimum",
    "paper_population",
    "plan",
    "plot",
    "predict",
    "read_population",
    "replicate",
    "simulate",
]

# Loaded on first use, so that `turnout --help` and a small device import only what they need.
_load, _ = lazy(
    __name__,
    {
        "algorithm": (
            "Averaging",
            "CappedCoin",
            "Clamp",
            "Classical",
            "ClientState",
            "FallingGainController",
            "IntegralController",
            "LearnedMemoized",
            "Memoized",
            "PaperCoin",
            "Prior",
            "RandomizedResponse",
            "SeededCoins",
            "SelfTuningController",
            "SumNoise",
            "SystemCoins",
            "TrackingClamp",
            "client_step",
        ),
        "simulation": ("Keep", "Schedule", "Trajectory", "replicate", "simulate"),
        "problem": (
            "Optimum",
            "PolynomialCosts",
            "Population",
            "Problem",
            "optimum",
            "paper_population",
            "read_population",
        ),
        "plan": ("Goal",),
        "privacy": ("account_of", "certificate"),
        "theory": ("check_feasible", "predict"),
        "report": ("plot",),
    },
)


def __getattr__(name: str) -> Any:
    if name == "plan":  # the package, which can be called: `turnout.plan(…)`, and `turnout.plan.frontier`
        return importlib.import_module("turnout.plan")
    return _load(name)


def __dir__() -> list[str]:
    return __all__
