"""What an observer of every report recovers of the private costs.

`infer` attacks the reports of a run; `attack_run` simulates a case and attacks it.
"""

from turnout.attack.attack import AttackErrors, Estimates, attack_errors, infer
from turnout.attack.cost_family import CostFamily
from turnout.attack.evidence import Reports
from turnout.attack.reports import reports_of
from turnout.attack.run import AttackCase, attack_case, attack_run, surrogate_after_stop, usual_cases

__all__ = [
    "AttackCase",
    "AttackErrors",
    "CostFamily",
    "Estimates",
    "Reports",
    "attack_case",
    "attack_errors",
    "attack_run",
    "infer",
    "reports_of",
    "surrogate_after_stop",
    "usual_cases",
]


def __dir__() -> list[str]:
    return __all__
