"""One run and its rounds, as the server keeps them: the signal, who answered, and what is told about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Message, MetricRecord

from turnout.algorithm.client import Prior
from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.server import Controller
from turnout.flower.compatibility import shares_reached
from turnout.flower.protocol import (
    ABSTAINED,
    INELIGIBLE,
    LOST,
    REFUSED,
    STOPPED,
    Question,
    mechanism_text,
    read_answer,
)
from turnout.flower.weights import ParticipationBook
from turnout.privacy.public_account import PublicAccount

_COUNTED_AS = {
    ABSTAINED: "abstained",
    INELIGIBLE: "ineligible",
    REFUSED: "refused",
    STOPPED: "stopped",
    LOST: "lost",
}

MOST_UNCOUNTED = 16
"""Earlier rounds of one node that it is told about; more than that and it has been away."""


@dataclass
class Tally:
    """What happened in one round.

    Attributes:
        asked: nodes asked.
        volunteers: those that said yes.
        said_no: those that said no (or abstained from training, in one phase).
        counts: replies of other kinds: ineligible, refused, stopped, lost, failed, faults.
        reasons: what faults and errors said, for the log.
        trained: good updates.
        failed_trainings: volunteers without a good update (faulty ones included).
        faulty_updates: updates that were refused as garbage.
        effective_share: how evenly the weights lie.
        skipped: whether the model stays as it was.
        signal: what the round was decided by.
    """

    signal: float
    asked: list[int] = field(default_factory=list)
    volunteers: list[int] = field(default_factory=list)
    said_no: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    trained: int = 0
    failed_trainings: int = 0
    faulty_updates: int = 0
    effective_share: float = 0.0
    skipped: bool = False

    def count(self, kind: str, reason: str = "") -> None:
        """One more reply of a kind."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if reason:
            self.reasons.append(f"{kind}: {reason}")

    def count_error(self, reply: Message) -> None:
        """A reply with an error: ours, or a failure. Its node id is not believed, except in an abstention."""
        error = reply.error
        kind = _COUNTED_AS.get(error.code, "failed")
        node = reply.metadata.src_node_id
        if kind == "abstained" and node in self.asked and node not in self.said_no:
            self.said_no.append(node)
        else:
            self.count(kind, error.reason or f"error {error.code}")

    def read_answers(self, replies: Iterable[Message], round: int) -> None:
        """Sort the answers to the question of a round."""
        awaited = set(self.asked)
        for reply in replies:
            if reply.has_error():
                self.count_error(reply)
                continue
            node = reply.metadata.src_node_id
            try:
                if node not in awaited:
                    raise ValueError("answered twice, or was not asked")
                bit = read_answer(reply, round)
            except ValueError as fault:
                self.count("faults", f"node {node}: {fault}")
                continue
            awaited.discard(node)
            (self.volunteers if bit else self.said_no).append(node)

    @property
    def heard(self) -> int:
        """Nodes whose bit is known."""
        return len(self.volunteers) + len(self.said_no)

    @property
    def stopped(self) -> int:
        """Nodes whose budget of reports is spent."""
        return self.counts.get("stopped", 0)

    @property
    def reported(self) -> bool:
        """Whether anyone may have reported: not if all have stopped, or cannot train now, and say so."""
        return self.heard > 0 or self.stopped + self.counts.get("ineligible", 0) < len(self.asked)

    @property
    def unanswered(self) -> int:
        """Nodes from which nothing came in time."""
        return max(0, len(self.asked) - self.heard - sum(self.counts.values()))


@dataclass
class Selection:
    """A run: what was fixed before its first round, and the state of the controller.

    Attributes:
        capacity: the average turnout aimed at.
        clients: how many nodes there were at the start.
        mechanism: what the clients use.
        prior: the public start of every history.
        controller: how the signal moves.
        account: the public bound.
        book: who came how often.
    """

    capacity: float
    clients: int
    mechanism: Mechanism
    prior: Prior
    controller: Controller
    account: PublicAccount
    book: ParticipationBook

    def __post_init__(self) -> None:
        self._mechanism, self._shares = mechanism_text(self.mechanism), shares_reached(self.mechanism)
        self._state: Any = self.controller.start()
        self._signals: list[float] = [self._state.signal]
        self._uncounted: dict[int, list[int]] = {}
        self._told_of_stops: set[str] = set()
        self.reports = 0  # the most that any one client has made

    @property
    def signal(self) -> float:
        """What decides the coming round: the newest signal, or an older one where the controller lags."""
        return self._signals[max(0, len(self._signals) - 1 - self.controller.lag)]

    def records(self, round: int, phase: str) -> Callable[[int], ConfigRecord]:
        """From a node to what it is told in a round: the same for all, but for answers of theirs that were lost."""
        average, rounds = float(self.prior.average), float(self.prior.rounds)
        question = Question(phase, round, float(self.signal), self._mechanism, average, rounds)
        usual = question.record()

        def record(node: int) -> ConfigRecord:
            lost = self._uncounted.get(node)
            return question.not_counting(lost).record() if lost else usual

        return record

    def out_of_reach(self, nodes: int) -> bool:
        """Whether so many nodes bring more, or fewer, than the capacity at any signal."""
        least, most = self._shares
        return not least * nodes < self.capacity <= most * nodes * (1.0 + 1e-12)

    def close(self, tally: Tally, round: int) -> None:
        """The bits are in: move the signal. A round in which nobody was heard says nothing."""
        if tally.heard:
            self._state = self.controller.step(self._state, len(tally.volunteers), self.capacity)
        self._signals.append(self._state.signal)
        self.reports += tally.reported
        heard = {*tally.volunteers, *tally.said_no}
        for node in tally.asked:
            if node in heard:
                self._uncounted.pop(node, None)
            else:
                self._uncounted[node] = [*self._uncounted.get(node, ()), round][-MOST_UNCOUNTED:]

    def news_of_stops(self, tally: Tally) -> str:
        """A warning when the first nodes stop for good, and one when nobody is left; else nothing."""
        kind = "all" if tally.stopped >= len(tally.asked) else "some"
        if not tally.stopped or kind in self._told_of_stops:
            return ""
        self._told_of_stops.add(kind)
        what = f"{tally.stopped} of {len(tally.asked)} nodes have stopped: their budgets of reports are spent"
        if kind == "some":
            return f"{what}, and they do not come again"
        remedy = "train for fewer rounds than their limit (turnout-limit-reports), or see docs/flower.md, Traps"
        return f"{what}. Nobody is left, and the model stays as it is: {remedy}"

    def metrics(self, tally: Tally) -> MetricRecord:
        """The round in numbers, for the run's metrics. All of it is public."""
        total = self.account.total(self.reports)
        covered = "per-report" if self.account.per == "report" else "lifetime"
        kinds = ("ineligible", "refused", "stopped", "lost", "failed", "faults")
        return MetricRecord(
            {
                "turnout-signal": float(tally.signal),
                "turnout-capacity": float(self.capacity),
                "turnout-asked": len(tally.asked),
                "turnout-participants": len(tally.volunteers),
                "turnout-abstained": len(tally.said_no),
                **{f"turnout-{kind}": tally.counts.get(kind, 0) for kind in kinds},
                "turnout-unanswered": tally.unanswered,
                "turnout-trained": tally.trained,
                "turnout-failed-trainings": tally.failed_trainings,
                "turnout-faulty-updates": tally.faulty_updates,
                "turnout-skipped": int(tally.skipped),
                "turnout-effective-share": tally.effective_share,
                f"turnout-epsilon-{covered}-against-server": self.account.certified,
                "turnout-epsilon-total-against-server": total.epsilon,
                "turnout-epsilon-total-delta": total.delta,
                "turnout-epsilon-total-reports": self.reports,
            }
        )
