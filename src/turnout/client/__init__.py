"""The durable client: it reserves, tosses, stores, reports. Agents, the load test and Flower clients share it.

Its ledger counts what was given away about one private cost, and its witness notices an old copy.
The base install is enough: neither simulation nor theory.
"""

from turnout.client.cost_files import Cost, cost_from, load, read_cost
from turnout.client.durable import (
    DATUM,
    LEDGER,
    ROUNDS,
    DurableClient,
    Seams,
    Stopped,
    StoreRolledBack,
    Terms,
    account_for_all,
    at_most,
    has_reported,
    reports_on_file,
    settings_of,
)
from turnout.client.history import History
from turnout.client.ledger import DELTA, BudgetSpent, Ledger, LedgerRolledBack, check_place
from turnout.client.limit import Limit, limit_with, read_ledger
from turnout.client.owner import Owner
from turnout.client.store import KEPT, Conflict, Decision, RoundLost, RoundPassed
from turnout.client.witness import NoPlace, usual_place

__all__ = [
    "DATUM",
    "DELTA",
    "KEPT",
    "LEDGER",
    "ROUNDS",
    "BudgetSpent",
    "Conflict",
    "Cost",
    "Decision",
    "DurableClient",
    "History",
    "Ledger",
    "LedgerRolledBack",
    "Limit",
    "NoPlace",
    "Owner",
    "RoundLost",
    "RoundPassed",
    "Seams",
    "Stopped",
    "StoreRolledBack",
    "Terms",
    "account_for_all",
    "at_most",
    "check_place",
    "cost_from",
    "has_reported",
    "limit_with",
    "load",
    "read_cost",
    "read_ledger",
    "reports_on_file",
    "settings_of",
    "usual_place",
]


def __dir__() -> list[str]:
    return __all__
