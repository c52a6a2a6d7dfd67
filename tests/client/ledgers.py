"""Ledgers, begun, opened again and spent, for the tests of ledgers."""

from turnout.client.ledger import Ledger
from turnout.client.limit import Limit


def begin(folder, reports=10, epsilon_per_report=1.0, **options):
    options = {"limit": Limit(reports, epsilon_per_report), "witness": folder / "cost.jsonl.witness"} | options
    return Ledger.open(folder / "cost.jsonl", datum="cost", **options)


def again(folder, **options):
    options = {"witness": folder / "cost.jsonl.witness"} | options
    return Ledger.open(folder / "cost.jsonl", datum="cost", **options)


def spend(ledger, rounds, run="run"):
    for round in rounds:
        ledger.reserve(run, round, 0.5)
