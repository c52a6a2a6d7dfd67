"""Choose a mechanism, a gain and a budget: `plan` for one goal, `frontier` for all budgets.

Forecasts come from `turnout.theory`, accounts from `turnout.privacy`.
"""

from turnout.plan.fleet import fleet_settings
from turnout.plan.frontiers import Frontier, frontier, growing
from turnout.plan.goal import Goal
from turnout.plan.offers import Outlook
from turnout.plan.planning import Plan, plan

__all__ = ["Frontier", "Goal", "Outlook", "Plan", "fleet_settings", "frontier", "growing", "plan"]


def __dir__() -> list[str]:
    return __all__
