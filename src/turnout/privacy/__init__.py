"""What an observer can learn: certificates per report, accounts over many, filters, the paper's Lemma, the floor.

Every epsilon says per report or in total, against which `Observer`, and under which assumptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout._lazy import lazy
from turnout.privacy.accounting import (
    EVERYTHING,
    Account,
    least_epsilon,
    provided,
    report_epsilon,
    shown,
    shown_delta,
    total_delta,
    total_epsilon,
)
from turnout.privacy.accounts import PublicAccount, account_of
from turnout.privacy.certificates import Certificate, certificate, worst_of
from turnout.privacy.filter import RenyiFilter, renyi_to_epsilon
from turnout.privacy.observer import (
    ABSENT,
    EVERY_REPORT,
    FIXED_NUMBER,
    FIXED_ROUNDS,
    LAST,
    LOST_ROUNDS,
    LOST_RULES,
    NOISE_ADDED,
    NOISE_ONCE,
    NOISY_SUM,
    NOT_ADAPTIVE,
    NOTHING_ELSE,
    OBSERVERS,
    ONE_LEDGER,
    OTHER_HONEST,
    OTHERS_REPORT,
    OWN_BIT,
    PUBLIC_DESIGN,
    PUBLIC_HISTORY,
    RELEASED_ONCE,
    SAME_MECHANISM,
    SUM,
    TRUSTED_AGGREGATOR,
    UNKNOWN_SEED,
    UNWITNESSED,
    Observer,
    of_costs,
)
from turnout.privacy.spending import UNKNOWN, Kind, Spending, kind_of, plain, total_of

if TYPE_CHECKING:
    from turnout.privacy.floors import Floor, best_release, floor
    from turnout.privacy.lemma import combined_epsilon, lemma_epsilon, network_epsilon
    from turnout.privacy.noisy_sum import least_bound, sigma_for, total_epsilon_noisy_sum
    from turnout.privacy.sum_only import total_epsilon_of_plan, total_epsilon_sum_only
    from turnout.privacy.turnout_error import least_turnout_error

__all__ = [
    "ABSENT",
    "EVERYTHING",
    "EVERY_REPORT",
    "FIXED_NUMBER",
    "FIXED_ROUNDS",
    "LAST",
    "LOST_ROUNDS",
    "LOST_RULES",
    "NOISE_ADDED",
    "NOISE_ONCE",
    "NOISY_SUM",
    "NOTHING_ELSE",
    "NOT_ADAPTIVE",
    "OBSERVERS",
    "ONE_LEDGER",
    "OTHERS_REPORT",
    "OTHER_HONEST",
    "OWN_BIT",
    "PUBLIC_DESIGN",
    "PUBLIC_HISTORY",
    "RELEASED_ONCE",
    "SAME_MECHANISM",
    "SUM",
    "TRUSTED_AGGREGATOR",
    "UNKNOWN",
    "UNKNOWN_SEED",
    "UNWITNESSED",
    "Account",
    "Certificate",
    "Floor",
    "Kind",
    "Observer",
    "PublicAccount",
    "RenyiFilter",
    "Spending",
    "account_of",
    "best_release",
    "certificate",
    "combined_epsilon",
    "floor",
    "kind_of",
    "least_bound",
    "least_epsilon",
    "least_turnout_error",
    "lemma_epsilon",
    "network_epsilon",
    "of_costs",
    "plain",
    "provided",
    "renyi_to_epsilon",
    "report_epsilon",
    "shown",
    "shown_delta",
    "sigma_for",
    "total_delta",
    "total_epsilon",
    "total_epsilon_noisy_sum",
    "total_epsilon_of_plan",
    "total_epsilon_sum_only",
    "total_of",
    "worst_of",
]

# Loaded on first use: a device needs none of these.
__getattr__, _ = lazy(
    __name__,
    {
        "floors": (
            "Floor",
            "best_release",
            "floor",
        ),
        "lemma": (
            "combined_epsilon",
            "lemma_epsilon",
            "network_epsilon",
        ),
        "noisy_sum": (
            "least_bound",
            "sigma_for",
            "total_epsilon_noisy_sum",
        ),
        "sum_only": (
            "total_epsilon_of_plan",
            "total_epsilon_sum_only",
        ),
        "turnout_error": ("least_turnout_error",),
    },
)


def __dir__() -> list[str]:
    return __all__
