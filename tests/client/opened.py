"""A ledger and a durable client, opened as the tests need them."""

from client.faults import Boxed, CountingCoins
from turnout.algorithm import Prior
from turnout.client.durable import DurableClient
from turnout.client.ledger import Ledger
from turnout.client.limit import Limit
from turnout.problem import PolynomialCosts

COSTS = PolynomialCosts([[3.0]], powers=(2,))


def open_ledger(folder, reports=1000, **options):
    witness = folder / "ledger.jsonl.witness"
    options = {"limit": Limit(reports, 8.0), "accept_uncertified": True, "witness": witness} | options
    return Ledger.open(folder / "ledger.jsonl", datum="cost", **options)


def make(folder, ledger, mechanism=None, **options):
    options = {"prior": Prior(0.5), "run": "run", "coins": CountingCoins(1)} | options
    return DurableClient(folder, options.pop("costs", COSTS), mechanism or Boxed(), ledger=ledger, **options)
