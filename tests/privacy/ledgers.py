"""Ledgers, begun, opened again and spent, for the tests of ledgers."""

from turnout.privacy.ledger import Ledger, Limit


def begin(folder, reports=10, epsilon_per_report=1.0, **options):
    limit = Limit(reports, epsilon_per_report)
    return Ledger.open(folder / "cost.jsonl", datum="cost", limit=limit, **options)


def again(folder, **options):
    return Ledger.open(folder / "cost.jsonl", datum="cost", **options)


def spend(ledger, rounds, run="run"):
    for round in rounds:
        ledger.reserve(run, round, 0.5)
