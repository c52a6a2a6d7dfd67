"""Which mechanism, gain and budget for what is wanted: `plan` for one goal, `frontier` for all budgets.

Both predict with `turnout.theory` and account with `turnout.privacy`.
"""

from turnout.plan.frontiers import Frontier, frontier, growing
from turnout.plan.goal import Goal
from turnout.plan.offers import Outlook, makers
from turnout.plan.planning import Plan, plan

__all__ = ["Frontier", "Goal", "Outlook", "Plan", "frontier", "growing", "makers", "plan"]


def __dir__() -> list[str]:
    return __all__
