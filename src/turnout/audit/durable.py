"""The real client as an audit's reporter: files, ledger, retries, restarts and the stop included."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Clamp, Classical, Coins, Mechanism, Prior, Public, SeededCoins, SumNoise
from turnout.audit.claims import DELTA, of_budget, per_report
from turnout.audit.noisy_sums import noisy_sum_subject
from turnout.audit.reporters import usual_costs, usual_signals
from turnout.audit.subjects import Subject, our_mechanisms
from turnout.client import DurableClient, Ledger, Limit, Seams, Terms
from turnout.files import Disk
from turnout.privacy import Observer, certificate
from turnout.problem import Array, Costs

DELIVERIES = 3
"""Each round is decided, asked for again at once, and once more after a restart, then with another signal."""


class _Unsynced(Disk):
    """Files without the wait for the disk: power cuts are not what is audited."""

    def sync(self, descriptor: int) -> None:
        """Does nothing."""


@dataclass(frozen=True)
class DurableReporter:
    """A `DurableClient` with a ledger of its own in each trial, which follows public data after its last report.

    Args:
        mechanism: with a certificate.
        reports: how many its ledger allows.
        client: the class; tests give a faulty one.
        coins: makes the coins from a seed.

    Example:
        >>> DurableReporter(Clamp(1.0), reports=1)(usual_costs()["cheap"], np.ones(2), trials=1, seed=1).shape
        (1, 2, 3)
    """

    mechanism: Mechanism
    reports: int
    client: type[DurableClient] = DurableClient
    coins: Callable[[int], Coins] = SeededCoins

    def __call__(self, costs: Costs, signals: Array, trials: int, seed: int) -> npt.NDArray[np.bool_]:
        """All deliveries of all rounds, shape (trials, rounds, 3)."""
        coins, limit = self.coins(seed), Limit(self.reports, certificate(self.mechanism).epsilon)
        with tempfile.TemporaryDirectory(dir=_memory()) as home:
            folders = [Path(home, str(trial)) for trial in range(trials)]
            return np.stack([self._trial(folder, costs, signals, coins, limit) for folder in folders])

    def _trial(self, home: Path, costs: Costs, signals: Array, coins: Coins, limit: Limit) -> npt.NDArray[np.bool_]:
        home.mkdir()
        bits = np.zeros((len(signals), DELIVERIES), dtype=np.bool_)
        with _ledger(home, limit) as ledger, self._client(home, costs, coins, ledger) as client:
            for round, signal in enumerate(signals.tolist()):
                bits[round, 0] = client.decide(round, signal)
                bits[round, 1] = client.decide(round, signal)
        with _ledger(home, limit) as ledger, self._client(home, costs, coins, ledger) as client:
            for round in range(len(signals)):
                bits[round, 2] = client.decide(round, 1.0)
        return bits

    def _client(self, home: Path, costs: Costs, coins: Coins, ledger: Ledger) -> DurableClient:
        return self.client(
            home,
            costs,
            self.mechanism,
            ledger=ledger,
            terms=Terms("audit", Prior(0.5, 10)),
            after_stop="follow",
            seams=Seams(coins, int(home.name), _Unsynced()),
        )


def _ledger(home: Path, limit: Limit) -> Ledger:
    return Ledger.open(home / "ledger.jsonl", datum="cost", limit=limit, witness=home / "witness", disk=_Unsynced())


def _memory() -> str | None:
    """A folder in memory where there is one (Linux): trials are thousands of small files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def durable_subject(
    reports: int = 2, rounds: int = 3, *, delta: float = DELTA, coins: Callable[[int], Coins] = SeededCoins
) -> Subject:
    """The real client with `Clamp(1)`: a number of reports, retries of each, and only public data after them.

    Example:
        >>> durable_subject().name
        'durable client, clamp, epsilon 1 per report, 2 reports, retries, restarts, 1 round after the stop'
    """
    mechanism = Clamp(1.0)
    low, high = (float(end) for end in mechanism.box(Public()))
    claims = [claim for claim in per_report(1.0, rounds, delta, retries=True) if claim.of != "total"]
    after = rounds - reports
    name = f"durable client, clamp, epsilon 1 per report, {reports} reports, retries, restarts, {after} round"
    costs, signals = usual_costs(), usual_signals(rounds)
    return Subject(
        f"{name}{'' if after == 1 else 's'} after the stop",
        DurableReporter(mechanism, reports, coins=coins),
        (*claims, *of_budget((low, high), reports, rounds, delta)),
        {name: signals[name] for name in ("usual", "on and off")},
        {name: costs[name] for name in ("cheap", "expensive")},
        share=0.004,
    )


def ours(delta: float = DELTA, coins: Callable[[int], Coins] = SeededCoins) -> list[Subject]:
    """All reporters of this package that promise something.

    Example:
        >>> ours()[-1].name[:14]
        'durable client'
    """
    heavy = Observer("noisy-sum", noise=SumNoise(3.0), weights=[2, 1, 1])
    noisy = noisy_sum_subject(Classical(), heavy, 2, delta=delta, coins=coins)
    return [*our_mechanisms(delta=delta, coins=coins), noisy, durable_subject(delta=delta, coins=coins)]
