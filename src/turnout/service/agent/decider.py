"""The private half of a device: its cost, its ledger and its rounds on file. Nothing of it reaches the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnout.algorithm.coins import Coins
from turnout.client.cost_files import Cost, cost_from
from turnout.client.durable import DATUM, DurableClient, Stopped
from turnout.client.store import Conflict, RoundLost, RoundPassed
from turnout.errors import FileProblem, TurnoutError
from turnout.privacy.journal import Disk
from turnout.privacy.ledger import Ledger
from turnout.problem.costs import Costs
from turnout.service.agent.agreement import Agreement
from turnout.service.agent.membership import Membership
from turnout.service.agent.status import LEDGER
from turnout.service.protocol import Offer


class NoCost(TurnoutError):
    """The owner's cost function gives no cost now. The text may hold private things: it stays here.

    Example:
        >>> issubclass(NoCost, TurnoutError)
        True
    """


class Decider:
    """A `DurableClient` and its ledger, opened when needed and again after a fault.

    Args:
        folder: the device's; the ledger is in it, and each run has a folder of its own in it.
        costs: a number, a cost, or a function without arguments that gives the cost of the round.
        membership: with its welcome.
        agreement: what the device has accepted.
        consent: the owner agrees to a higher limit than the ledger's.
        coins, client_id, after_stop, witness, spend_missing, disk: as in `DurableClient` and `Ledger`.
    """

    def __init__(
        self,
        folder: Path,
        costs: Cost | Callable[[], Cost],
        membership: Membership,
        agreement: Agreement,
        *,
        consent: bool = False,
        coins: Coins | None = None,
        client_id: int = 0,
        after_stop: str = "leave",
        witness: str | Path | None = None,
        spend_missing: bool = False,
        disk: Disk | None = None,
    ) -> None:
        self._folder, self._costs, self._membership, self._agreement = folder, costs, membership, agreement
        self._consent, self._witness, self._spend_missing, self._disk = consent, witness, spend_missing, disk
        self._options = {"coins": coins, "client_id": client_id, "after_stop": after_stop, "disk": disk}
        self._ledger: Ledger | None = None
        self._client: DurableClient | None = None
        self._acting_on: Any = None
        self._reports = 0

    def decide(self, offer: Offer) -> bool:
        """The bit for a round, on file before this returns; raises what `DurableClient.decide` does."""
        return self._opened(self._cost_now()).decide(offer.round, offer.signal)

    def unacknowledged(self) -> tuple[int, bool] | None:
        """The last round on file and its bit, if the coordinator's answer is not on file."""
        client = self._opened()
        status = client.status()
        last, known = status["last_round"], status["acknowledged"] is not None
        if last is None or last < 0 or known:
            return None
        try:
            return last, client.decide(last, 0.0)  # no toss: it is the last one on file, or none
        except (RoundLost, RoundPassed):
            return None

    def acknowledge(self, round: int, counted: bool) -> str:
        """Put the coordinator's word on file; a sentence if it contradicts what is there, which stays."""
        try:
            self._opened().acknowledge(round, counted)
        except (Conflict, RoundPassed, RoundLost) as problem:
            return str(problem)
        return ""

    def check_budget(self) -> None:
        """A device that has stopped for good needs no round to know it.

        Raises:
            Stopped: all reports are spent, and it leaves.
        """
        status = self._opened().status()
        if status["stopped_at"] is not None and status["after_stop"] == "leave" and not status["reports_remaining"]:
            raise Stopped(f"all {status['limit_reports']} reports were spent by round {status['stopped_at']}")

    def last(self) -> int:
        """The last round on file, or the one before joining."""
        last = self._opened().status()["last_round"]
        return -1 if last is None else int(last)

    def reports(self) -> int:
        """How many reports of this run the ledger has counted, at most: with those that were missing in it."""
        welcome = self._membership.welcome
        if self._ledger is not None and welcome is not None:
            self._reports = len(self._ledger.reserved(welcome.run)) + self._ledger.missing(welcome.run)
        return self._reports

    def status(self) -> dict[str, Any]:
        """The durable client's; empty while it is closed."""
        client = self._client
        return {} if client is None else client.status()

    def close(self) -> None:
        """Release all files; the next use opens them again."""
        self.reports()
        if self._client is not None:
            self._client.close()
        if self._ledger is not None:
            self._ledger.close()
        self._client = self._ledger = None

    def _cost_now(self) -> Any:
        found: Any = self._costs
        if isinstance(found, Costs) or not callable(found):
            return found
        try:
            return found()
        except Exception as error:
            raise NoCost(f"the cost function failed ({type(error).__name__}: {error}): it is called again") from error

    def _opened(self, cost: Any = None) -> DurableClient:
        """The client; opened anew where the cost is another one."""
        same = cost is None or cost is self._acting_on or (isinstance(cost, float) and cost == self._acting_on)
        if self._client is not None and same:
            return self._client
        cost = self._cost_now() if cost is None else cost
        try:
            costs = cost_from(cost)
        except ValueError as error:
            raise NoCost(f"the cost function gave no cost: {error}") from error
        if self._client is not None:
            self._client.close()
            self._client = None
        self._client = self._open(costs)
        self._acting_on = cost
        return self._client

    def _open(self, costs: Costs) -> DurableClient:
        welcome, (prior, averaging) = self._membership.welcome, self._membership.start()
        assert welcome is not None
        home = self._folder / welcome.run
        try:
            home.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise FileProblem(f"{home}: cannot be made ({error.strerror}): free space, or make it writable") from error
        if self._ledger is None:
            self._ledger = Ledger.open(
                self._folder / LEDGER,
                datum=DATUM,
                limit=self._agreement.limit,
                consent=self._consent,
                witness=self._witness,
                spend_missing=self._spend_missing,
                disk=self._disk,
            )
        return DurableClient(
            home,
            costs,
            self._agreement.mechanism,
            ledger=self._ledger,
            run=welcome.run,
            prior=prior,
            averaging=averaging,
            weight=welcome.weight,
            epsilon_per_report=self._agreement.certificate.epsilon,
            joined=welcome.offer.round,
            **self._options,  # type: ignore[arg-type]
        )
