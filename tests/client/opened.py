"""A ledger and a durable client, opened as the tests need them."""

from client.faults import Boxed, CountingCoins
from turnout.algorithm import Prior
from turnout.client.durable import DurableClient, Seams, Terms
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

    def group(made):
        return made(**{name: options.pop(name) for name in made.__dataclass_fields__ if name in options})

    terms, seams, costs = group(Terms), group(Seams), options.pop("costs", COSTS)
    return DurableClient(folder, costs, mechanism or Boxed(), ledger=ledger, terms=terms, seams=seams, **options)
