"""One run and its rounds on the server: the signal, the reports, and the metrics about them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from turnout.algorithm import (
    QUORUM,
    Controller,
    Heard,
    Mechanism,
    Presence,
    Prior,
    ServerState,
    in_reach,
    server_step,
)
from turnout.errors import TurnoutError, invalid
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
from turnout.flower.replies import ParticipationBook
from turnout.privacy import PublicAccount
from turnout.problem import PolynomialCosts, Problem

NEEDS_A_FIXED_COHORT = (
    flower.DifferentialPrivacyClientSideAdaptiveClipping,
    flower.DifferentialPrivacyClientSideFixedClipping,
    flower.DifferentialPrivacyServerSideAdaptiveClipping,
    flower.DifferentialPrivacyServerSideFixedClipping,
)

WITHOUT_FIXED_COHORT = (
    "its noise is set for a fixed number of clients with equal weights, and here their number is random: leave it out "
    "(LocalDpMod protects updates on the client: register it after self_selection_mod)"
)

NO_WEIGHTED_AVERAGE = (
    flower.FedMedian,
    flower.FedTrimmedAvg,
    flower.MultiKrum,
    flower.Krum,
    flower.Bulyan,
    flower.QFedAvg,
    flower.FedXgbBagging,
)


def is_weighted_average(strategy: Strategy) -> bool:
    """Whether the strategy averages the updates by their weights, as FedAvg and those made of it do.

    Example:
        >>> is_weighted_average(flower.FedAdam()), is_weighted_average(flower.FedMedian())
        (True, False)
    """
    return isinstance(strategy, flower.FedAvg) and not isinstance(strategy, NO_WEIGHTED_AVERAGE)


def check_strategy(strategy: Strategy) -> None:
    """Refuse strategies that cannot use another set of nodes in each round, also inside another wrapper.

    Raises:
        ValueError: names the strategy and the remedy.
    """
    if not isinstance(strategy, Strategy):
        remedy = "use one of flwr.serverapp.strategy"
        raise invalid("strategy", "a message-API strategy", type(strategy).__name__, remedy)
    for layer in _layers(strategy):
        name = type(layer).__name__
        if isinstance(layer, NEEDS_A_FIXED_COHORT):
            raise invalid("strategy", "one that takes any number of nodes", name, WITHOUT_FIXED_COHORT)
        if isinstance(layer, flower.FedXgbCyclic):
            remedy = "it trains one node per round in turn, and leaves nothing to choose: use FedXgbBagging"
            raise invalid("strategy", "one that trains all participants", name, remedy)
        fraction = getattr(layer, "fraction_train", 1.0)
        if fraction != 1.0:
            remedy = "the clients choose, and the strategy must not choose among them again: leave it out"
            raise invalid("fraction_train", "1.0", fraction, remedy)


def _layers(strategy: Strategy) -> Iterator[Strategy]:
    """A strategy and those that it wraps, as Flower's wrappers do: each in an attribute `strategy`."""
    seen: list[Strategy] = []
    found: Any = strategy
    while isinstance(found, Strategy) and found not in seen:
        yield found
        seen.append(found)
        found = getattr(found, "strategy", None)


def check_outermost() -> None:
    """Refuse to be called by one of Flower's differential-privacy wrappers.

    Flower does not tell a strategy what wraps it, and such a wrapper gives its noise's promise whoever participates:
    so the callers are looked at.

    Raises:
        ValueError: names the wrapper and the remedy.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, NEEDS_A_FIXED_COHORT):
            got = f"{type(caller).__name__} around it"
            raise invalid("SelfSelection", "without a differential-privacy wrapper", got, WITHOUT_FIXED_COHORT)
        frame = frame.f_back


def shares_reached(mechanism: Mechanism) -> tuple[float, float]:
    """(least, most) share of the nodes that participates on average: at a signal of 0, and at an infinite one.

    Example:
        >>> from turnout.algorithm import Clamp
        >>> [round(share, 4) for share in shares_reached(Clamp(1.0))]
        [0.2689, 0.7311]
    """
    from turnout.theory import reachable

    return reachable(_anybody(1, 1.0), mechanism)


def check_capacity_of(clients: int, capacity: float, mechanism: Mechanism) -> None:
    """Refuse a capacity that the mechanism cannot meet, from public data: the number of nodes, and its box."""
    from turnout.theory import check_feasible

    check_feasible(_anybody(clients, capacity), mechanism)


def _anybody(clients: int, capacity: float) -> Problem:
    """What can be reached does not depend on costs: any will do."""
    return Problem(PolynomialCosts(np.ones((clients, 1)), (2,)), capacity)


MOST_LOOKS = 8
"""Reads of the node list in one `configure_train`; a strategy that reads it more often waits for more nodes."""


class StillWaiting(TurnoutError):
    """The strategy waits for more nodes than participate: the round is skipped.

    Example:
        >>> issubclass(StillWaiting, TurnoutError)
        True
    """


class ParticipantsGrid(Grid):
    """A Grid that shows some of the nodes and passes everything else on.

    Args:
        grid: the real one.
        nodes: those to show.
    """

    def __init__(self, grid: Grid, nodes: Iterable[int]) -> None:
        self._grid, self._nodes, self._looks = grid, list(nodes), 0

    def get_node_ids(self) -> Iterable[int]:
        """The participants.

        Raises:
            StillWaiting: the strategy has asked too often: it would wait for ever.
        """
        self._looks += 1
        if self._looks > MOST_LOOKS:
            raise StillWaiting(f"the strategy waits for more than the {len(self._nodes)} nodes that participate")
        return list(self._nodes)

    def get_nodes(self) -> Iterable[Any]:
        """The participants, with what the Grid knows about them."""
        wanted = set(self._nodes)
        return [node for node in self._grid.get_nodes() if node.node_id in wanted]

    def set_run(self, run: Any) -> None:
        """Passed on."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The real Grid's."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Passed on."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Passed on."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Passed on."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Passed on."""
        return self._grid.send_and_receive(messages, timeout=timeout)


@contextmanager
def all_available(strategy: Strategy) -> Iterator[None]:
    """Within it the strategy does not wait: `min_available_nodes` counts nodes, and it is shown participants only."""
    usual = getattr(strategy, "min_available_nodes", None)
    if usual is None:
        yield
        return
    strategy.min_available_nodes = 0  # type: ignore[attr-defined]
    try:
        yield
    finally:
        strategy.min_available_nodes = usual  # type: ignore[attr-defined]


_COUNTED_AS = {
    ABSTAINED: "abstained",
    INELIGIBLE: "ineligible",
    REFUSED: "refused",
    STOPPED: "stopped",
    LOST: "lost",
}

FEW_METRICS = ("turnout-signal", "turnout-participants", "turnout-trained", "turnout-epsilon-total-against-server")
"""What a round's metrics have without being asked for more, beside the certificate."""

MOST_UNCOUNTED = 16
"""The most earlier rounds that a node is told about; with more it counts as having been away."""


@dataclass
class Tally:
    """What happened in one round.

    Attributes:
        asked: nodes asked.
        participants: nodes whose report was "yes".
        said_no: those that said no (or abstained from training, in one phase).
        counts: replies of other kinds: ineligible, refused, stopped, lost, failed, faults.
        reasons: what faults and errors said, for the log.
        trained: good updates.
        failed_trainings: participants without a good update (faulty ones included).
        faulty_updates: updates that were refused as garbage.
        effective_share: how evenly the weights lie.
        skipped: whether the model stays as it was.
        signal: what the round was decided by.
    """

    signal: float
    asked: list[int] = field(default_factory=list)
    participants: list[int] = field(default_factory=list)
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
            (self.participants if bit else self.said_no).append(node)

    @property
    def heard(self) -> int:
        """Nodes whose bit is known."""
        return len(self.participants) + len(self.said_no)

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
        """Nodes without a reply in time."""
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
        book: how often each node participated.
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
        self._server = ServerState.start(self.controller)
        self._known: dict[int, int] = {}  # every node that was ever asked, by its place in the presence
        self._presence = Presence.start(0)
        self._uncounted: dict[int, list[int]] = {}
        self._told_of_stops: set[str] = set()
        self.reports = 0  # the most that any one client has made

    @property
    def signal(self) -> float:
        """The signal of the next round: the newest, or an older one where the controller lags."""
        return self._server.deciding

    def records(self, round: int, phase: str) -> Callable[[int], ConfigRecord]:
        """The question to each node in a round: the same for all, apart from the list of its lost reports."""
        average, rounds = float(self.prior.average), float(self.prior.rounds)
        question = Question(phase, round, float(self.signal), self._mechanism, average, rounds)
        usual = question.record()

        def record(node: int) -> ConfigRecord:
            lost = self._uncounted.get(node)
            return question.not_counting(lost).record() if lost else usual

        return record

    def out_of_reach(self, nodes: int) -> bool:
        """Whether this number of nodes exceeds, or misses, the capacity at any signal."""
        least, most = self._shares
        return not in_reach(self.capacity, least * nodes, most * nodes)

    def close(self, tally: Tally, round: int) -> None:
        """Move the signal by the bits. A round without any report does not move it.

        A node that has just returned participates at once: its report is spent, and a model is not harmed by one more.
        The signal follows it from the next round on.
        """
        heard = {*tally.participants, *tally.said_no}
        counted, known = self._attendance(tally, heard)
        wanted = sum(node in counted for node in tally.participants)
        self._server = server_step(self.controller, self._server, wanted, self.capacity, known)
        self.reports += tally.reported
        for node in tally.asked:
            if node in heard:
                self._uncounted.pop(node, None)
            else:
                self._uncounted[node] = [*self._uncounted.get(node, ()), round][-MOST_UNCOUNTED:]

    def _attendance(self, tally: Tally, heard: set[int]) -> tuple[set[int], Heard]:
        """Who counts, and what is known of the round besides its total."""
        for node in tally.asked:
            self._known.setdefault(node, len(self._known))
        nodes = list(self._known)
        reported, everyone = np.array([node in heard for node in nodes], np.bool_), np.ones(len(nodes), np.bool_)
        presence, rounds = self._presence.grown(len(nodes)), self.prior.rounds + self._server.round + 1
        expected = presence.expected  # of these, not of all: some are connected, and never able to train
        enough = bool(heard) and int((reported & expected).sum()) >= QUORUM * int(expected.sum())
        least, most = self._shares
        self._presence, seen = presence.after(
            reported, everyone, 1, rounds, capacity=self.capacity, high=most, enough=enough, over=0
        )
        least, most = least * seen.weight, most * seen.weight
        reach = None if in_reach(self.capacity, least, most) else (least, most)
        counted = {node for node, counts in zip(nodes, seen.counted, strict=True) if counts}
        return counted, Heard(enough, reach, seen.share, seen.scale)

    def news_of_stops(self, tally: Tally) -> str:
        """A warning when the first nodes stop for good, and one when nobody is left; else nothing."""
        kind = "all" if tally.stopped >= len(tally.asked) else "some"
        if not tally.stopped or kind in self._told_of_stops:
            return ""
        self._told_of_stops.add(kind)
        what = f"{tally.stopped} of {len(tally.asked)} nodes have stopped: their budgets of reports are spent"
        if kind == "some":
            return f"{what}, and they do not participate again"
        remedy = "train for fewer rounds than their limit (turnout-limit-reports), or see docs/flower.md, Traps"
        return f"{what}. Nobody is left, and the model stays as it is: {remedy}"

    def metrics(self, tally: Tally, wanted: str = "all") -> MetricRecord:
        """The round in numbers, for the run's metrics: a few of them, or all. All of it is public."""
        total = self.account.total(self.reports)
        covered = "per-report" if self.account.per == "report" else "lifetime"
        kinds = ("ineligible", "refused", "stopped", "lost", "failed", "faults")
        found: dict[str, int | float] = {
            "turnout-signal": float(tally.signal),
            "turnout-capacity": float(self.capacity),
            "turnout-asked": len(tally.asked),
            "turnout-participants": len(tally.participants),
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
        few = (*FEW_METRICS, f"turnout-epsilon-{covered}-against-server")
        return MetricRecord({name: value for name, value in found.items() if wanted == "all" or name in few})
