"""A client's history, between two messages: in its own files, or, for studies only, in Flower's Context."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from flwr.app import ConfigRecord, RecordDict

from turnout.algorithm import Averaging, Coins, Mechanism, Prior, client_step
from turnout.client import (
    Conflict,
    DurableClient,
    History,
    Limit,
    Owner,
    RoundLost,
    RoundPassed,
    Stopped,
    Terms,
    account_for_all,
)
from turnout.files import Disk, InUse
from turnout.flower.protocol import RECORD, Question
from turnout.problem import ENROLMENT, Costs, PolynomialCosts

LOCK_SECONDS = 10.0
"""Seconds to wait for another process of this client that is just deciding."""

_COMPARED: set[tuple[Path, Path]] = set()
"""Folders whose runs were compared with their ledger."""

Result = TypeVar("Result")


class StateDirectory:
    """A client's files: one ledger for the private cost, for ever, and one history for each run.

    Args:
        folder: exists already; for this client alone.

    Raises:
        FileNotFoundError: there is no such folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such state directory: create it first")

    def decide(self, question: Question, run: str, costs: Costs, mechanism: Mechanism, owner: Owner) -> bool:
        """The bit for the round, on file before this returns; the same whenever it is asked for again.

        Raises:
            BudgetSpent: the mechanism would release what the owner does not allow.
            Stopped: the budget is spent and the client leaves.
        """
        folder, terms = self._run_folder(run), Terms(run, Prior(question.prior_average, question.prior_rounds))

        def once() -> bool:
            with owner.open_ledger(self.folder) as ledger:
                place = (self.folder.resolve(), owner.ledger_in(self.folder).resolve())
                if place not in _COMPARED:  # once a process is enough
                    account_for_all(ledger, self.folder)
                    _COMPARED.add(place)
                with DurableClient(
                    folder, costs, mechanism, ledger=ledger, terms=terms, after_stop=owner.after_stop
                ) as client:
                    _acknowledge(client, question)
                    return client.decide(question.round, question.signal)

        return _when_free(once)

    def last_training_seconds(self, run: str) -> float | None:
        """How long the last training of the run took; None before the first."""
        try:
            return float(json.loads((self._run_folder(run) / "training.json").read_text())["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def note_training(self, run: str, seconds: float) -> None:
        """Remember how long a training took."""
        Disk().put(self._run_folder(run) / "training.json", json.dumps({"seconds": seconds}).encode())

    def _run_folder(self, run: str) -> Path:
        folder = self.folder / run
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


class StudyState:
    """A client's history in `Context.state`: NOT durable, for simulations and tests alone.

    It is lost when a node restarts, and the ledger is only a count, so that a real client may be made to report more
    often than its owner allows. The decision is the same `client_step`.

    Args:
        state: Flower's, of this node in this run.
        coins: seeded, or the operating system's.
        client: its number, for seeded coins.
    """

    def __init__(self, state: RecordDict, coins: Coins, client: int) -> None:
        self._state, self._coins, self._client = state, coins, client

    def decide(self, question: Question, costs: Costs, mechanism: Mechanism, limit: Limit) -> bool:
        """The bit for the round; the same whenever it is asked for again."""
        kept, round = self._kept(), question.round
        if "last" in kept and round < kept["last"]:
            raise RoundPassed(f"round {round} has passed")
        if kept.get("last") == round:
            return bool(kept["bit"])
        spends = not mechanism.releases_once or "released" not in kept  # a release is counted once, as in a ledger
        if spends and kept.get("spent", 0) >= limit.reports:
            raise Stopped(f"all {limit.reports} reports are spent")
        history = self._history(kept, question)
        before = history.before(round)
        state = replace(before, memory=self._released(kept, costs, mechanism))
        step = client_step(costs, mechanism, state, question.signal, self._coins.uniform([self._client], round))
        history.add(round, before, step.state)
        bit = bool(step.participates[0])
        kept |= {"history": history.body(), "last": round, "bit": bit, "spent": kept.get("spent", 0) + spends}
        self._keep(kept)
        return bit

    def last_training_seconds(self) -> float | None:
        """How long the last training took; None before the first."""
        seconds = self._kept().get("training-seconds")
        return None if seconds is None else float(seconds)

    def note_training(self, seconds: float) -> None:
        """Remember how long a training took."""
        self._keep(self._kept() | {"training-seconds": seconds})

    def _kept(self) -> dict[str, Any]:
        record = self._state.get(RECORD)
        return json.loads(str(record["history"])) if record else {}

    def _keep(self, kept: Mapping[str, Any]) -> None:
        self._state[RECORD] = ConfigRecord({"history": json.dumps(kept)})

    def _history(self, kept: Mapping[str, Any], question: Question) -> History:
        if "history" not in kept:
            return History.begin(Prior(question.prior_average, question.prior_rounds), Averaging())
        history = History.read(kept["history"], Averaging())
        for round in question.not_counted:
            history.acknowledge(round, counted=False)
        return history

    def _released(self, kept: dict[str, Any], costs: Costs, mechanism: Mechanism) -> Costs | None:
        """Once, whatever the price and the cost later: from then on it acts on what was released."""
        if not mechanism.releases_once:
            return None
        if "released" not in kept:
            found = mechanism.enrol(costs, self._coins.uniform([self._client], 0, ENROLMENT))
            assert isinstance(found, PolynomialCosts)  # as those of this package are
            kept["released"] = [found.coefficients.tolist(), list(found.powers)]
        coefficients, powers = kept["released"]
        return PolynomialCosts(coefficients, tuple(powers))


def _acknowledge(client: DurableClient, question: Question) -> None:
    """Remove the reports that the server never received; a round that is not on file needs nothing."""
    for round in question.not_counted:
        try:
            client.acknowledge(round, counted=False)
        except (RoundPassed, RoundLost, Conflict):
            continue


def _when_free(action: Callable[[], Result]) -> Result:
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return action()
        except InUse:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
