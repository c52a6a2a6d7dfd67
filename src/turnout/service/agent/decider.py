"""The private half of a device: its cost, its ledger and its rounds on file. Nothing of it reaches the network."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from turnout.algorithm.coins import Coins
from turnout.algorithm.mechanism import Mechanism
from turnout.client.cost_files import Cost, cost_from
from turnout.client.durable import DATUM, LEDGER, DurableClient, Stopped, account_for_all, at_most, settings_of
from turnout.client.store import Conflict, RoundLost, RoundPassed
from turnout.errors import FileProblem, TurnoutError
from turnout.privacy.accounting import Account
from turnout.privacy.journal import Disk
from turnout.privacy.ledger import Ledger, Limit
from turnout.problem.costs import Costs
from turnout.service.agent.agreement import Agreement, agree
from turnout.service.agent.membership import Membership
from turnout.service.protocol import Offer

USUAL_LIMIT = Limit(reports=10_000, epsilon_per_report=1.0)
"""What a device allows if its owner says nothing."""


class NoCost(TurnoutError):
    """The owner's cost function gives no cost now. The text may hold private things: it stays here.

    Example:
        >>> issubclass(NoCost, TurnoutError)
        True
    """


class Decider:
    """A `DurableClient` and its ledger, opened when needed and again after a fault.

    Args:
        folder: the device's; each run has a folder of its own in it.
        costs: a number, a cost, or a function without arguments that gives the cost of the round.
        membership: with its welcome.
        ledger: the file; in the folder by default. Several folders of one device share one: one cost, one ledger.
        limit: the owner's; None: as it was, or `USUAL_LIMIT`.
        raise_limit: the owner agrees to a higher limit than the ledger's.
        accept_uncertified, witness, spend_missing: as in `Ledger.open`.
        coins, client_id, after_stop, disk: as in `DurableClient`.
    """

    def __init__(
        self,
        folder: Path,
        costs: Cost | Callable[[], Cost],
        membership: Membership,
        *,
        ledger: str | Path | None = None,
        limit: Limit | None = None,
        raise_limit: bool = False,
        accept_uncertified: bool = False,
        coins: Coins | None = None,
        client_id: int = 0,
        after_stop: str = "leave",
        witness: str | Path | None = None,
        spend_missing: bool = False,
        disk: Disk | None = None,
    ) -> None:
        self._folder, self._costs, self._membership = folder, costs, membership
        self._path, self._limit = Path(ledger or folder / LEDGER), limit
        self._ledger_options: dict[str, Any] = {
            "consent": raise_limit,
            "accept_uncertified": accept_uncertified,
            "witness": witness,
            "spend_missing": spend_missing,
            "disk": disk,
        }
        self._options: dict[str, Any] = {"coins": coins, "client_id": client_id, "after_stop": after_stop, "disk": disk}
        self._agreement: Agreement | None = None
        self._ledger: Ledger | None = None
        self._closed: Ledger | None = None  # what it had counted can still be asked for
        self._client: DurableClient | None = None

    def agree(self, own: Mechanism | None = None) -> Agreement:
        """Agree on a mechanism, within what the ledger allows.

        Raises:
            Declined: what the coordinator proposes is not allowed.
        """
        welcome, (_, averaging) = self._membership.welcome, self._membership.start()
        assert welcome is not None
        # None is begun yet: a device that declines leaves no ledger behind, with a limit that was not meant.
        ledger = self._open_ledger() if self._path.exists() else None
        self._agreement = agree(
            welcome.mechanism,
            averaging,
            limit=ledger.limit if ledger is not None else self._limit or USUAL_LIMIT,
            own=own,
            accept_uncertified=bool(self._ledger_options["accept_uncertified"]),
            release_is_due=ledger.release_is_due if ledger is not None else lambda settings: True,
        )
        return self._agreement

    def decide(self, offer: Offer) -> bool:
        """The bit for a round, on file before this returns; raises what `DurableClient.decide` does."""
        client = self._opened()
        if not client.acts_on_release:  # else the cost matters no more, and is not even looked at
            client.act_on(self._cost_now())
        return client.decide(offer.round, offer.signal)

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

    def account(self, delta: float) -> Account:
        """The total epsilon at delta of all that the ledger has counted, in all runs."""
        return (self._ledger or self._closed or self._open_ledger()).account(delta)

    def at_most(self, delta: float) -> Account:
        """The same once all that the owner allows is spent in this run."""
        assert self._agreement is not None  # after `agree`
        made, ledger = self._agreement, self._open_ledger()
        return at_most(ledger, made.mechanism, made.certificate.epsilon, delta)

    def places(self) -> tuple[Path, Path]:
        """Where the ledger and its witness are."""
        return self._open_ledger().places

    def status(self) -> dict[str, Any]:
        """The durable client's; empty while it is closed."""
        client = self._client
        return {} if client is None else client.status()

    def close(self) -> None:
        """Release all files; the next use opens them again."""
        if self._client is not None:
            self._client.close()
        if self._ledger is not None:
            with suppress(TurnoutError):
                self._ledger.catch_up()  # what others that share it have added: this is the last look
            self._ledger.close()
            self._closed = self._ledger
        self._client = self._ledger = None

    def _cost_now(self) -> Costs:
        """The same steps whether or not the cost has changed: how long they take must not tell."""
        found: Any = self._costs
        try:
            if not isinstance(found, Costs) and callable(found):
                found = found()
        except Exception as error:
            raise NoCost(f"the cost function failed ({type(error).__name__}: {error}): it is called again") from error
        try:
            return cost_from(found)
        except ValueError as error:
            raise NoCost(f"the cost function gave no cost: {error}") from error

    def _opened(self) -> DurableClient:
        if self._client is None:
            self._client = self._open()
        return self._client

    def _open_ledger(self) -> Ledger:
        if self._ledger is None:
            limit = self._limit if self._closed is None else None  # said once; later what is on file holds
            options = self._ledger_options
            ledger = Ledger.open(self._path, datum=DATUM, limit=limit, usual=USUAL_LIMIT, **options)
            try:
                if self._closed is None:  # once is enough
                    account_for_all(ledger, self._folder)
            except BaseException:
                ledger.close()
                raise
            self._ledger = ledger
        return self._ledger

    def _open(self) -> DurableClient:
        welcome, (prior, averaging) = self._membership.welcome, self._membership.start()
        assert welcome is not None
        assert self._agreement is not None
        home = self._folder / welcome.run
        try:
            home.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise FileProblem(f"{home}: cannot be made ({error.strerror}): free space, or make it writable") from error
        ledger, mechanism = self._open_ledger(), self._agreement.mechanism
        acts_on_release = mechanism.releases_once and not ledger.release_is_due(settings_of(mechanism))
        return DurableClient(
            home,
            None if acts_on_release else self._cost_now(),  # then the cost is not looked at
            mechanism,
            ledger=ledger,
            run=welcome.run,
            prior=prior,
            averaging=averaging,
            weight=welcome.weight,
            joined=welcome.offer.round,
            **self._options,
        )
