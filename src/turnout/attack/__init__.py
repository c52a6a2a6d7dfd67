"""What an observer of every report, or of the sums with noise, recovers of the private costs.

`infer` attacks the reports of a run, `infer_from_sums` its opened sums; `attack_case` simulates a case and attacks it.
"""

from turnout.attack.attack import AttackErrors, Estimates, attack_errors, infer
from turnout.attack.cost_family import CostFamily
from turnout.attack.evidence import Reports
from turnout.attack.noisy_sums import infer_from_sums
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
    "infer_from_sums",
    "reports_of",
    "surrogate_after_stop",
    "usual_cases",
]


def __dir__() -> list[str]:
    return __all__
