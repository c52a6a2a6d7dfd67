"""One device, round by round: decide, report until it is settled, act on what is acknowledged and on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnout.client import (
    KEPT,
    BudgetSpent,
    Conflict,
    Cost,
    DurableClient,
    Ledger,
    LedgerRolledBack,
    Limit,
    Owner,
    RoundLost,
    RoundPassed,
    Seams,
    Stopped,
    Terms,
    account_for_all,
    at_most,
    check_place,
    cost_from,
    has_reported,
    settings_of,
)
from turnout.errors import FileProblem, TurnoutError
from turnout.privacy import SAME_MECHANISM, Account
from turnout.problem import Costs
from turnout.service import (
    DECLINED,
    SPENT,
    USUAL_REPORTS,
    Offer,
    Proposal,
    Report,
    Welcome,
    is_little,
    lasting,
)
from turnout.service.agent.agreement import Agreement, Declined, agree
from turnout.service.agent.connection import Answered, Dialogue, Elsewhere, Halted
from turnout.service.agent.membership import Membership
from turnout.service.agent.work import Lease, Participation

USUAL_LIMIT = Limit(reports=USUAL_REPORTS, epsilon_per_report=1.0)
"""What a device allows by default."""


class NoCost(TurnoutError):
    """The owner's cost function gives no cost now. The text may hold private things: it stays here."""


class Decider:
    """A `DurableClient` and its ledger, opened when needed and again after a fault.

    Args:
        folder: the device's; each run has a folder of its own in it.
        costs: a number, a cost, or a function without arguments that gives the cost of the round.
        owner: what the owner allows, and where the ledger is.
        seams: for tests.
    """

    def __init__(self, folder: Path, costs: Cost | Callable[[], Cost], owner: Owner, seams: Seams) -> None:
        self._folder, self._costs, self._owner, self._seams = folder, costs, owner, seams
        self._membership: Membership | None = None
        self._agreement: Agreement | None = None
        self._ledger: Ledger | None = None
        self._closed: Ledger | None = None  # what it had counted can still be asked for
        self._client: DurableClient | None = None

    def check_files(self) -> None:
        """Open the ledger and compare it with every run of the folder; where there is none, see that one may begin.

        Raises:
            LedgerRolledBack: it is lost, in part or whole.
            ValueError: the owner's limit is higher than before, without consent.
        """
        owner, path = self._owner, self._owner.ledger_in(self._folder)
        if path.exists() and path.stat().st_size:
            self._open_ledger()
            return
        check_place(path, owner.witness, owner.spend_missing)
        if has_reported(self._folder) and not owner.spend_missing:
            raise LedgerRolledBack(
                f"{path}: there is no ledger, though this device has reported: it and its witness were deleted or "
                "moved. Bring them back, or name the ledger (--ledger); if it is lost, --count-missing-as-spent "
                "begins another that counts all reports on file"
            )

    @property
    def rules(self) -> str:
        """The version of the rules that this device has agreed to."""
        assert self._membership is not None
        return self._membership.rules

    def agree(self, membership: Membership) -> Agreement:
        """Agree on a mechanism, within what the ledger allows; none is begun yet: a device that declines leaves none.

        Raises:
            Declined: what the coordinator proposes is not allowed.
        """
        self._agreement, self._membership = self._agreed(membership), membership
        return self._agreement

    def renew(self, proposal: Proposal) -> Agreement:
        """Agree to another version of the rules, as at joining. It is on file before anything is decided under it.

        Raises:
            Declined: what the coordinator proposes is not allowed.
            FileProblem: it cannot be stored; the device still has the version before.
        """
        assert self._membership is not None
        membership = replace(self._membership, agreed=proposal)
        agreement = self._agreed(membership)
        membership.save(self._folder, self._seams.disk)
        if self._client is not None:
            self._client.close()  # opened again with the other mechanism; the ledger stays
            self._client = None
        self._agreement, self._membership = agreement, membership
        return agreement

    def _agreed(self, membership: Membership) -> Agreement:
        _, averaging = membership.start()
        ledger, owner = self._ledger, self._owner
        return agree(
            membership.proposed,
            averaging,
            limit=ledger.limit if ledger is not None else owner.limit or USUAL_LIMIT,
            own=owner.mechanism,
            accept_uncertified=owner.accept_uncertified,
            release_is_due=ledger.release_is_due if ledger is not None else lambda settings: True,
            released=ledger.largest_release if ledger is not None else 0.0,
        )

    def decide(self, offer: Offer) -> bool:
        """The bit for a round, on file before this returns; raises what `DurableClient.decide` does."""
        client = self._opened()
        if not client.acts_on_release:  # else the cost matters no more, and is not even looked at
            client.act_on(self._cost_now())
        return client.decide(offer.round, offer.signal)

    @property
    def round_seconds(self) -> float | None:
        """The length of rounds by the rules that the device has agreed to, if it was told."""
        return None if self._membership is None else self._membership.round_seconds

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
        """Store the coordinator's acknowledgement; returns a sentence if it contradicts the stored one, which stays."""
        try:
            self._opened().acknowledge(round, counted)
        except (Conflict, RoundPassed, RoundLost) as problem:
            return str(problem)
        return ""

    def check_budget(self) -> None:
        """Check whether the device has stopped for good, without a round.

        Raises:
            Stopped: all reports are spent, and it leaves.
        """
        status = self._opened().status()
        if status["stopped_at"] is not None and status["after_stop"] == "leave" and not status["reports_remaining"]:
            raise Stopped(f"all {status['limit_reports']} reports were spent by round {status['stopped_at']}")

    def reports_left(self) -> tuple[int, int] | None:
        """(reports that are left in the ledger, of how many); None where the device acts on a release."""
        assert self._agreement is not None  # after `agree`
        if self._agreement.mechanism.releases_once:
            return None
        ledger = self._open_ledger()
        return ledger.remaining, ledger.limit.reports

    @property
    def after_stop(self) -> str:
        """What the device does once they are spent: leave, or follow."""
        return self._owner.after_stop

    def last(self) -> int:
        """The last round on file, or the one before joining."""
        last = self._opened().status()["last_round"]
        return -1 if last is None else int(last)

    def account(self, delta: float) -> Account:
        """The total epsilon at delta of all that the ledger has counted, in all runs."""
        return (self._ledger or self._closed or self._open_ledger()).account(delta)

    def at_most(self, delta: float) -> Account:
        """The same once all that the owner allows is spent in this run, with the mechanism that it has now."""
        assert self._agreement is not None  # after `agree`
        made, ledger = self._agreement, self._open_ledger()
        return at_most(ledger, made.mechanism, made.certificate.epsilon, delta).assuming(SAME_MECHANISM)

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
        """The same steps whether or not the cost has changed: their duration must not reveal it."""
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
            first = self._closed is None
            owner = self._owner if first else replace(self._owner, limit=None)  # later what is on file holds
            ledger = owner.open_ledger(self._folder, usual=USUAL_LIMIT, disk=self._seams.disk)
            try:
                if first:  # once is enough
                    account_for_all(ledger, self._folder)
            except BaseException:
                ledger.close()
                raise
            self._ledger = ledger
        return self._ledger

    def _open(self) -> DurableClient:
        assert self._membership is not None
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
            terms=Terms(welcome.run, prior, averaging, welcome.weight, welcome.offer.round),
            after_stop=self._owner.after_stop,
            seams=self._seams,
        )


LONGEST_LEASE = 3600.0
"""The longest lease that a device accepts, in seconds."""

MOST_CONFLICTS = 3
"""Rounds in a row for which the coordinator holds another bit: then two devices share one folder."""

LEFT = "left"
"""The outcome of a round in which the budget was spent and the device has left."""


class AgentProblem(TurnoutError):
    """This device cannot continue in this run."""


@dataclass(frozen=True)
class RoundDone:
    """The outcome of a round on this device.

    Attributes:
        round: which.
        participates: the bit that was reported; None if there was no report.
        counted: whether the coordinator has it so.
        lease: seconds for which work may continue from now; 0 if it may not.
        outcome: as the coordinator said ("accepted", "confirmed", "closed"), or "conflict", "ahead", "rules",
            "lost", "missed", "left".
    """

    round: int
    participates: bool | None
    counted: bool
    lease: float
    outcome: str


def left_declining(dialogue: Dialogue, welcome: Welcome, declined: Declined) -> Declined:
    """What to raise once a device that declines has left: a member would delay rounds, and count in the quorum."""
    heard = False
    with suppress(Halted):
        heard = dialogue.leave(welcome.token, DECLINED)
    told = "This device has left the run: to join after all, it needs a new code"
    if not heard:
        told = f"The coordinator could not be told: ask the operator to revoke device {welcome.tag}"
    return Declined(f"{declined}. {told}")


class DeviceRounds:
    """The rounds of a device that has joined.

    Args:
        dialogue: with the coordinator.
        decider: the cost and the files.
        lease: of the work.
        welcome: run and token.
    """

    def __init__(self, dialogue: Dialogue, decider: Decider, lease: Lease, welcome: Welcome) -> None:
        self._dialogue, self._decider, self._lease, self._welcome = dialogue, decider, lease, welcome
        self._offer: Offer | None = None
        self._settled = False
        self._conflicts: set[int] = set()  # rounds, since the last one that was answered
        self._warned: float | None = None  # the share of the budget of which the owner was told last

    def one(self) -> RoundDone:
        """The next round, to its end: what is on file and not acknowledged is sent again first, whatever is open."""
        round, bit = -1, False
        try:
            if not self._settled:
                left = self._decider.unacknowledged()
                self._settled = True
                if left is not None:
                    return self._report(*left)
                self._decider.check_budget()
            offer = self._offer or self._dialogue.round(self._welcome.token, self._welcome.run)
            offer = self._under_agreed_rules(offer)
            self._offer, round = None, offer.round
            bit = self._decider.decide(offer)
        except RoundLost:
            return self._sit_out(round, "lost")
        except RoundPassed:
            last = self._decider.last()
            if last - round > KEPT:
                raise AgentProblem(
                    f"the coordinator offers round {round}, this device has reported up to round {last}: it was "
                    "restored from too old a copy, or is not ours. Enrol in a new run"
                ) from None
            return self._sit_out(round, "missed")
        except (Stopped, BudgetSpent) as spent:
            return self._leave(round, f"the budget is spent: {spent}", SPENT if isinstance(spent, Stopped) else "")
        return self._report(round, bit)

    def _under_agreed_rules(self, offer: Offer) -> Offer:
        """The offer, or a later one, once this device has agreed to the rules that it is decided under.

        A round that is on file needs no decision, so no other rules: a coordinator that is behind, or restored, may
        offer it with an older version.
        """
        while offer.rules != self._decider.rules and offer.round > self._decider.last():
            proposal = self._dialogue.rules(self._welcome.token, self._welcome.run)
            if proposal.offer.round >= offer.round:
                self._renew(proposal)
                return proposal.offer
            self._dialogue.wait_for_news()  # asked one that is behind
            offer = self._dialogue.round(self._welcome.token, self._welcome.run)
        return offer

    def _renew(self, proposal: Proposal) -> None:
        """Agree, or leave with the reason."""
        try:
            agreement = self._decider.renew(proposal)
        except Declined as declined:
            self._lease.end()
            raise left_declining(self._dialogue, self._welcome, declined) from None
        version = proposal.offer.rules.partition("-")[0] or "1"
        self._dialogue.noted(f"the run's rules have changed to version {version}, as agreed: {agreement.certificate}")

    def reopen(self) -> None:
        """After a fault: the files are opened again, and what is on file and not acknowledged is sent again."""
        self._decider.close()
        self._settled, self._offer = False, None

    def _report(self, round: int, bit: bool) -> RoundDone:
        """Send the bit until it is settled; then, and only then, act on it."""
        told = self._send(round, bit)
        if isinstance(told, Elsewhere) and told.why == "rules":  # a bit on file, from before the coordinator's restore
            self._renew(self._dialogue.rules(self._welcome.token, self._welcome.run))
            told = self._send(round, bit)
        if isinstance(told, Elsewhere):
            return self._astray(round, bit, told)
        self._conflicts.clear()
        answer = told.answer
        until = told.sent_at + min(answer.lease, LONGEST_LEASE)
        works = bit and answer.counted and until > self._dialogue.clock()
        if not works:
            self._lease.end()
        self._acknowledge(round, answer.counted)
        seconds = until - self._dialogue.clock() if works else 0.0
        if works:
            self._dialogue.check()  # not while the agent is being stopped
            self._lease.grant(Participation(self._welcome.run, round, until, seconds))
        self._go_on(answer.next, round)
        return RoundDone(round, bit, answer.counted, max(0.0, seconds), answer.outcome)

    def _send(self, round: int, bit: bool) -> Answered | Elsewhere:
        report = Report(self._welcome.run, round, bit, self._few_left(), rules=self._decider.rules)
        return self._dialogue.report(self._welcome.token, report)

    def _astray(self, round: int, bit: bool, told: Elsewhere) -> RoundDone:
        """Ahead: the coordinator is back at an older round, where what is on file is sent again. Conflict: it holds
        another bit for this round than the one on file. Which of the two is true for its total is not known, so no
        work is done for it; the history has it as not participating, and the device waits for the next."""
        self._lease.end()
        if told.why in ("ahead", "rules"):
            self._offer, self._settled = told.next, self._settled and told.why == "ahead"
            self._dialogue.wait_for_news()
            return RoundDone(round, bit, False, 0.0, told.why)
        self._acknowledge(round, False)
        self._conflicts.add(round)
        self._dialogue.noted(
            f"the coordinator holds another bit for round {round} than this device's: no work in this round"
        )
        if len(self._conflicts) >= MOST_CONFLICTS:
            raise AgentProblem(
                f"the coordinator held another bit for {len(self._conflicts)} rounds in a row: another device uses a "
                "copy of this folder. Stop both, and enrol each with a code of its own in a folder of its own"
            )
        if told.next is None or told.next.round == round:
            return self._sit_out(round, "conflict", bit)
        self._go_on(told.next, round)
        return RoundDone(round, bit, False, 0.0, "conflict")

    def _acknowledge(self, round: int, counted: bool) -> None:
        """Durably, before anything else is decided. If it cannot be, the report is sent again after `reopen`."""
        problem = self._decider.acknowledge(round, counted)
        if problem:
            self._dialogue.noted(problem)

    def _go_on(self, following: Offer | None, after: int) -> None:
        """To the next round, at once; where there is none yet, or an older one, without haste."""
        if following is not None and following.round > after:
            self._dialogue.all_is_well()
        else:
            self._dialogue.wait_for_news()
        self._offer = following

    def _sit_out(self, round: int, outcome: str, bit: bool | None = None) -> RoundDone:
        """No report (any more) for this round: ask until another one is open."""
        while True:
            self._dialogue.wait_for_news()
            offer = self._dialogue.round(self._welcome.token, self._welcome.run)
            if offer.round != round:
                self._dialogue.all_is_well()
                self._offer = offer
                return RoundDone(round, bit, False, 0.0, outcome)

    def _few_left(self) -> int | None:
        """How many reports are left, if few: the operator is told with the report, the owner once for each share."""
        left, limit = self._decider.reports_left() or (1, 1)
        share, seconds = is_little(left, limit), self._decider.round_seconds
        if share is not None and left and share != self._warned:
            then = "leaves the run" if self._decider.after_stop == "leave" else "follows public data alone"
            self._dialogue.noted(
                f"few of the {limit:,} reports that this device allows are left ({lasting(left, seconds)}); then it "
                f"{then}. To allow more, before that: turnout join … --reports NUMBER --raise-limit"
            )
        self._warned = share
        return left if share is not None else None

    def _leave(self, round: int, why: str, reason: str = "") -> RoundDone:
        """The budget is spent: end work, leave, and report nothing more."""
        self._lease.end()
        self._dialogue.noted(why)
        if not self._dialogue.leave(self._welcome.token, reason):
            self._dialogue.noted("the coordinator has not confirmed that this device has left")
        return RoundDone(round, None, False, 0.0, LEFT)
