"""Statistical evidence against a privacy claim.

`audit` searches for an event that a claim forbids; a `Claim` is what is promised, a reporter makes the reports.
"""

from turnout.audit.bounds import epsilon_at_least, smallest_detected
from turnout.audit.claims import Claim, in_total, of_mechanism, of_sum, per_report
from turnout.audit.durable import DurableReporter, ours
from turnout.audit.noisy_sums import NoisySumReporter, noisy_sum_subject
from turnout.audit.reporters import MechanismReporter, SumReporter, as_reporter, usual_costs
from turnout.audit.run import Audit, AuditInterrupted, Finding, audit
from turnout.audit.subjects import Subject, mechanism_subject, sum_of, sum_subject

__all__ = [
    "Audit",
    "AuditInterrupted",
    "Claim",
    "DurableReporter",
    "Finding",
    "MechanismReporter",
    "NoisySumReporter",
    "Subject",
    "SumReporter",
    "as_reporter",
    "audit",
    "epsilon_at_least",
    "in_total",
    "mechanism_subject",
    "noisy_sum_subject",
    "of_mechanism",
    "of_sum",
    "ours",
    "per_report",
    "smallest_detected",
    "sum_of",
    "sum_subject",
    "usual_costs",
]


def __dir__() -> list[str]:
    return __all__
