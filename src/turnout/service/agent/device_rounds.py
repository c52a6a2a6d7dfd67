"""One device, round by round: decide, report until it is settled, act on what is acknowledged and on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnout.client.durable import Stopped
from turnout.client.store import KEPT, RoundLost, RoundPassed
from turnout.errors import TurnoutError
from turnout.privacy.ledger import BudgetSpent
from turnout.service.agent.decider import Decider
from turnout.service.agent.dialogue import Dialogue, Elsewhere
from turnout.service.agent.lease import Lease, Participation
from turnout.service.protocol import Offer, Report, Welcome

MOST_CONFLICTS = 3
"""Rounds in a row for which the coordinator holds another bit: then two devices share one folder."""

LEFT = "left"
"""The outcome of a round in which the budget was spent and the device has left."""


class AgentProblem(TurnoutError):
    """This device cannot go on in this run.

    Example:
        >>> issubclass(AgentProblem, TurnoutError)
        True
    """


@dataclass(frozen=True)
class RoundDone:
    """What became of a round on this device.

    Attributes:
        round: which.
        participates: the bit that was reported; None if there was no report.
        counted: whether the coordinator has it so.
        lease: seconds that work may go on from now; 0 if it may not.
        outcome: as the coordinator said ("accepted", "confirmed", "closed"), or "conflict", "ahead",
            "lost", "missed", "left".
    """

    round: int
    participates: bool | None
    counted: bool
    lease: float
    outcome: str


class DeviceRounds:
    """The rounds of a device that has joined.

    Args:
        dialogue: with the coordinator.
        decider: the cost and the files.
        lease: of the work.
        welcome: run and token.
        clock: of the lease.
        longest_lease: seconds, whatever the coordinator says.
        noted: told of what fails, in a sentence.
    """

    def __init__(
        self,
        dialogue: Dialogue,
        decider: Decider,
        lease: Lease,
        welcome: Welcome,
        *,
        clock: Callable[[], float],
        longest_lease: float,
        noted: Callable[[str], None],
    ) -> None:
        self._dialogue, self._decider, self._lease, self._welcome = dialogue, decider, lease, welcome
        self._clock, self._longest_lease, self._noted = clock, longest_lease, noted
        self._offer: Offer | None = None
        self._settled = False
        self._conflicts: set[int] = set()  # rounds, since the last one that was answered

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
            return self._leave(round, f"the budget is spent: {spent}")
        return self._report(round, bit)

    def reopen(self) -> None:
        """After a fault: the files are opened anew, and what is on file and not acknowledged is sent again."""
        self._decider.close()
        self._settled, self._offer = False, None

    def _report(self, round: int, bit: bool) -> RoundDone:
        """Send the bit until it is settled; then, and only then, act on it."""
        told = self._dialogue.report(self._welcome.token, Report(self._welcome.run, round, bit))
        if isinstance(told, Elsewhere):
            return self._astray(round, bit, told)
        self._conflicts.clear()
        answer = told.answer
        until = told.sent_at + min(answer.lease, self._longest_lease)
        works = bit and answer.counted and until > self._clock()
        if not works:
            self._lease.end()
        self._acknowledge(round, answer.counted)
        seconds = until - self._clock() if works else 0.0
        if works:
            self._dialogue.check()  # not while the agent is being stopped
            self._lease.grant(Participation(self._welcome.run, round, until, seconds))
        self._go_on(answer.next, round)
        return RoundDone(round, bit, answer.counted, max(0.0, seconds), answer.outcome)

    def _astray(self, round: int, bit: bool, told: Elsewhere) -> RoundDone:
        """Ahead: the coordinator is back at an older round, where what is on file is sent again. Conflict: it holds
        another bit for this round than the one on file. Which of the two is true for its total is not known, so no
        work is done for it; the history has it as not participating, and the rest of it is sat out."""
        self._lease.end()
        if told.why == "ahead":
            self._offer = told.next
            self._dialogue.wait_for_news()
            return RoundDone(round, bit, False, 0.0, "ahead")
        self._acknowledge(round, False)
        self._conflicts.add(round)
        self._noted(f"the coordinator holds another bit for round {round} than this device's: no work in this round")
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
            self._noted(problem)

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

    def _leave(self, round: int, why: str) -> RoundDone:
        """The budget is spent: end work, say goodbye, and report nothing more."""
        self._lease.end()
        self._noted(why)
        if not self._dialogue.leave(self._welcome.token):
            self._noted("the coordinator could not be told that this device has left")
        return RoundDone(round, None, False, 0.0, LEFT)
