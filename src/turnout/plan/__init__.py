"""Choose a mechanism, a gain and a budget: `plan` for one goal, `frontier` for all budgets.

Forecasts come from `turnout.theory`, accounts from `turnout.privacy`. The package can be called: `turnout.plan(…)` is
its function `plan`.

    >>> from turnout import paper_population, plan
    >>> plan(paper_population().problem(600), rounds=500, budget=3.0, observer="sum").mechanism.kind
    'clamp'
"""

import sys
from types import ModuleType
from typing import Any

from turnout.plan.fleet import fleet_settings
from turnout.plan.frontiers import Frontier, frontier, growing
from turnout.plan.goal import Goal
from turnout.plan.noisy import HardLimit, least_clients, not_sensible, settled_again
from turnout.plan.offers import Outlook
from turnout.plan.planning import Plan, plan
from turnout.problem import Problem

__all__ = [
    "Frontier",
    "Goal",
    "HardLimit",
    "Outlook",
    "Plan",
    "fleet_settings",
    "frontier",
    "growing",
    "least_clients",
    "not_sensible",
    "plan",
    "settled_again",
]


class _Package(ModuleType):
    """A package that is also the function that has its name."""

    def __call__(self, goal: Goal | Problem, **wanted: Any) -> Plan:
        return plan(goal, **wanted)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return __all__
