"""A plan for a fleet of devices: what `turnout serve` needs beside the mechanism."""

from __future__ import annotations

import math
from typing import Any

from turnout.algorithm import IntegralController
from turnout.errors import invalid
from turnout.plan.planning import Plan

SPREADS = 4.0
"""Standard deviations of the turnout between capacity and hard limit: one round in 30,000 would exceed it."""

CAUTION = 0.1
"""The first signal of a fleet, in parts of the one that is expected: with a self-tuning controller the turnout then
rises to the capacity within some three rounds, also where the guess of the costs is wrong by a factor of ten; with the
expected signal itself, cheap devices would all participate in the first round."""


def hard_limit_for(found: Plan) -> int:
    """The capacity and four standard deviations of the turnout, but no more than everyone.

    Args:
        found: the plan.
    """
    problem, spread = found.goal.problem, found.outlook.forecast.spread
    limit = problem.capacity + SPREADS * spread if math.isfinite(spread) else problem.most
    return math.ceil(max(problem.capacity, min(limit, problem.most)))


def fleet_settings(found: Plan, round_seconds: float, missing: str | None = None) -> dict[str, Any]:
    """The settings of a plan as `turnout serve` takes them for a new run.

    The controller is self-tuning: a gain that was tuned for guessed costs could be unstable for the real ones.

    Args:
        found: the plan.
        round_seconds: the shortest time from one round to the next.
        missing: what a silent device counts as; None: the operator still has to say it.

    Example:
        >>> from turnout import paper_population
        >>> from turnout.plan import Goal, plan
        >>> found = plan(Goal(paper_population(clients=100).problem(40), rounds=100, budget=6.0))
        >>> settings = fleet_settings(found, 60.0)
        >>> settings["devices"], settings["safety"], settings["timing"], settings["controller"]["kind"]
        (100, {'hard_limit': 58}, {'round': 60.0}, 'self-tuning')
    """
    problem, settings = found.goal.problem, found.settings()
    controller = found.outlook.controller
    if not isinstance(controller, IntegralController):
        raise invalid(
            "observer of a fleet's plan",
            "'every-report' or 'sum'",
            found.goal.observer,
            "no coordinator adds noise: plan for every-report",
        )
    mean = problem.most / len(problem)
    initial = float(f"{CAUTION * controller.initial:.3g}")
    return settings | {
        "devices": len(problem),
        **({} if mean == 1.0 else {"weight": mean}),
        "controller": {"kind": "self-tuning", "initial": initial},
        "safety": ({"missing": missing} if missing else {}) | {"hard_limit": hard_limit_for(found)},
        "timing": {"round": float(round_seconds)},
    }
