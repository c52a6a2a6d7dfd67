"""What goes together: strategies with a cohort that differs by round, capacities with a mechanism."""

from __future__ import annotations

import numpy as np
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from turnout.algorithm.mechanism import Mechanism
from turnout.errors import invalid
from turnout.problem.costs import PolynomialCosts
from turnout.problem.problem import Problem

NEEDS_A_FIXED_COHORT = (
    flower.DifferentialPrivacyClientSideAdaptiveClipping,
    flower.DifferentialPrivacyClientSideFixedClipping,
    flower.DifferentialPrivacyServerSideAdaptiveClipping,
    flower.DifferentialPrivacyServerSideFixedClipping,
)

NO_WEIGHTED_AVERAGE = (
    flower.FedMedian,
    flower.FedTrimmedAvg,
    flower.MultiKrum,
    flower.Krum,
    flower.Bulyan,
    flower.QFedAvg,
    flower.FedXgbBagging,
)


def is_weighted_average(strategy: Strategy) -> bool:
    """Whether the strategy averages the updates by their weights, as FedAvg and those made of it do.

    Example:
        >>> is_weighted_average(flower.FedAdam()), is_weighted_average(flower.FedMedian())
        (True, False)
    """
    return isinstance(strategy, flower.FedAvg) and not isinstance(strategy, NO_WEIGHTED_AVERAGE)


def check_strategy(strategy: Strategy) -> None:
    """Refuse strategies that do not go with a cohort that differs from round to round.

    Raises:
        ValueError: names the strategy and the remedy.
    """
    name = type(strategy).__name__
    if not isinstance(strategy, Strategy):
        raise invalid("strategy", "a message-API strategy", name, "use one of flwr.serverapp.strategy")
    if isinstance(strategy, NEEDS_A_FIXED_COHORT):
        remedy = "its noise is set for a fixed number of clients, and here the number is random: leave it out"
        raise invalid("strategy", "one that takes a cohort of any size", name, remedy)
    if isinstance(strategy, flower.FedXgbCyclic):
        remedy = "it trains one node a round in turn, and leaves nothing to choose: use FedXgbBagging"
        raise invalid("strategy", "one that trains all volunteers", name, remedy)
    fraction = getattr(strategy, "fraction_train", 1.0)
    if fraction != 1.0:
        remedy = "the clients choose, and the strategy must not choose among them again: leave it out"
        raise invalid("fraction_train", "1.0", fraction, remedy)


def shares_reached(mechanism: Mechanism) -> tuple[float, float]:
    """(least, most) share of the nodes that comes on average: what a signal of 0 and an endless one bring.

    Example:
        >>> from turnout.algorithm.mechanisms.clamp import Clamp
        >>> [round(share, 4) for share in shares_reached(Clamp(1.0))]
        [0.2689, 0.7311]
    """
    from turnout.theory.feasibility import reachable

    return reachable(_anybody(1, 1.0), mechanism)


def check_capacity_of(clients: int, capacity: float, mechanism: Mechanism) -> None:
    """Refuse a capacity that the mechanism cannot bring about, from public data alone: how many, and its box."""
    from turnout.theory.feasibility import check_feasible

    check_feasible(_anybody(clients, capacity), mechanism)


def _anybody(clients: int, capacity: float) -> Problem:
    """What can be reached does not depend on costs: any will do."""
    return Problem(PolynomialCosts(np.ones((clients, 1)), (2,)), capacity)
