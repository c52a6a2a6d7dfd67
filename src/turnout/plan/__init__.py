"""Which mechanism, gain and budget for what is wanted: `plan` for one wish, `frontier` for all budgets.

Both predict with `turnout.theory` and account with `turnout.privacy`.
"""

from turnout.plan.frontiers import Frontier, frontier, growing
from turnout.plan.offers import Outlook, makers
from turnout.plan.planning import Plan, plan
from turnout.plan.wish import Wish

__all__ = ["Frontier", "Outlook", "Plan", "Wish", "frontier", "growing", "makers", "plan"]


def __dir__() -> list[str]:
    return __all__
