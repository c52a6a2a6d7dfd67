"""A strategy wrapper that lets the nodes choose: it asks them, and shows the strategy the participants only."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from logging import INFO, WARNING, getLogger
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from turnout.algorithm import Clamp, Controller, Mechanism, Prior, SelfTuningController, check_mechanism
from turnout.errors import TurnoutError, check_number, invalid
from turnout.flower.protocol import ABSTAINED, INELIGIBLE, LOST, RECORD, STOPPED, mechanism_text
from turnout.flower.replies import (
    PLAIN,
    STORED,
    ParticipationBook,
    StoredUpdates,
    UpdateCheck,
    arrays_of,
    check_kind,
    effective_share,
    likely_cause,
    with_arrays,
    with_weight,
)
from turnout.flower.selection_round import (
    ParticipantsGrid,
    Selection,
    StillWaiting,
    Tally,
    all_available,
    check_capacity_of,
    check_outermost,
    check_strategy,
    is_weighted_average,
    shares_reached,
)
from turnout.privacy import EVERY_REPORT, PublicAccount

SPREAD = 1.07
"""Turnouts spread so many times as far as independent coins with a constant mean would, because the signal
wanders: measured for `SelfTuningController` (see turnout.algorithm.controllers)."""


@dataclass(frozen=True)
class AtLeast:
    """At least this number of participants, in this share of the rounds. Make it with `at_least`.

    Attributes:
        number: the smallest turnout that is enough.
        confidence: the share of rounds in which it must be reached, in (0, 1).
    """

    number: int
    confidence: float

    def __post_init__(self) -> None:
        if isinstance(self.number, bool) or not isinstance(self.number, int) or self.number < 1:
            raise invalid("at_least number", "a whole number from 1", repr(self.number), "give the least turnout")
        if not 0.0 < self.confidence < 1.0:
            raise invalid("at_least confidence", "above 0 and below 1", self.confidence, "try 0.95")

    def capacity(self, clients: int) -> float:
        """The average turnout to aim at, so that the least one is reached often enough.

        Clients toss independently, so the turnout S is a sum of coins with mean C. By Hoeffding (1956), among all
        such sums of `clients` coins, P(S < number) is greatest for equal ones as long as number <= C: the binomial
        tail is a bound for any clients. C is the least mean whose exact binomial tail is 1 - confidence;
        its distance from the number is then stretched by SPREAD, for the signal's own wandering.

        Raises:
            ValueError: more are wanted than there are clients.

        Example:
            >>> round(at_least(15, confidence=0.95).capacity(clients=50), 2)
            20.49
        """
        if self.number >= clients:
            remedy = "lower it, or wait for more clients (min_available_nodes)"
            raise invalid("at_least number", f"below {clients} (clients)", self.number, remedy)
        low, high = float(self.number), float(clients)
        for _ in range(60):
            middle = 0.5 * (low + high)
            short = _binomial_below(self.number, clients, middle / clients) > 1.0 - self.confidence
            low, high = (middle, high) if short else (low, middle)
        return min(self.number + SPREAD * (high - self.number), float(clients))


def at_least(number: int, confidence: float = 0.95) -> AtLeast:
    """Capacity as "at least so many, with this confidence": the capacity is computed from the spread.

    It counts participants, also those that fail while they train: add as many as you expect to fail.

    Example:
        >>> at_least(15)
        AtLeast(number=15, confidence=0.95)
    """
    return AtLeast(number, confidence)


def _binomial_below(number: int, coins: int, chance: float) -> float:
    """P(fewer than `number` of `coins` fall), each with this chance, summed exactly.

    Example:
        >>> round(_binomial_below(2, 3, 0.5), 12)
        0.5
    """
    if chance <= 0.0 or chance >= 1.0:
        return float(chance <= 0.0 and number > 0) if number <= coins else 1.0
    logs = (
        math.lgamma(coins + 1) - math.lgamma(k + 1) - math.lgamma(coins - k + 1)
        + k * math.log(chance) + (coins - k) * math.log1p(-chance)
        for k in range(min(number, coins + 1))
    )  # fmt: skip
    return min(1.0, math.fsum(math.exp(log) for log in logs))


log = getLogger("flwr").log

USUAL_EPSILON_PER_REPORT = 1.0
"""Of the mechanism that is used if none is given: `Clamp` around capacity / clients."""

PAUSE = 0.5
"""Seconds between two checks for nodes at the start."""

FAILED_ROUNDS, FAILED_TRAININGS = 3, 20
"""A run in which nothing but failures came back ends after so many rounds with trainings, and so many trainings: flaky
ones, of which every second fails, would get there once in a million runs."""

MOST_TOLD = 5
"""Lines of the log about one round's faults of one kind."""

GRACE = 10.0
"""Seconds to wait at the start for as many nodes as the capacity needs, once `min_available_nodes` are connected."""


_NO_FAILURE = (ABSTAINED, INELIGIBLE, STOPPED, LOST)
"""Error codes of nodes that do not train, and say why: nothing has failed."""


@dataclass
class _Failures:
    """Whether any training of a run has succeeded, and what the others said."""

    trained: bool = False
    rounds: int = 0
    trainings: int = 0
    told: str = ""

    def note(self, good: int, reasons: list[str], hint: str) -> None:
        """After a round: how many updates were good, and what is wrong with the others; a hint may say why.

        Raises:
            TurnoutError: enough rounds have shown that every training fails.
        """
        self.trained = self.trained or good > 0
        if good or not reasons:
            return
        cause = f"{hint}: give SelfSelection(message_type=...)" if hint else likely_cause(reasons, "see a client's log")
        self.told = f"({reasons[0][:300]}): {cause}"
        self.rounds, self.trainings = self.rounds + 1, self.trainings + len(reasons)
        log(WARNING, "aggregate_train: all %d trainings of this round failed %s", len(reasons), self.told)
        if self.rounds >= FAILED_ROUNDS and self.trainings >= FAILED_TRAININGS:
            self.finish()

    def finish(self) -> None:
        """After the run: without a single good update it is no success.

        Raises:
            TurnoutError: says why every training failed.
        """
        if self.trainings and not self.trained:
            rounds = f"{self.rounds} round{'s' if self.rounds > 1 else ''}"
            raise TurnoutError(f"all {self.trainings} trainings of {rounds} failed, and none succeeded {self.told}")


class SelfSelection(Strategy):
    """Wraps a message-API strategy: its nodes decide for themselves, privately, whether to train in a round.

    Use it with `self_selection_mod` on the client's train function, outermost.

    Args:
        strategy: any strategy that trains all nodes it is shown, such as FedAvg, FedProx, FedAdam, FedMedian.
        capacity: the turnout wanted on average, or `at_least(n, confidence)`. The turnout of a round spreads around
            the average like a sum of independent coins.
        mechanism: how intent becomes a probability, the same for all; `Clamp(1.0, center=capacity / nodes)` by
            default. Clients refuse one without a certificate unless their owner has agreed.
        controller: how the signal moves; `SelfTuningController()` by default.
        phases: 2, ask first and send the model to participants only; or 1, send it to all, some abstain.
        weights: "inverse-participation", the default of weighted averages; "stored-updates", which also uses
            the last update of nodes that do not participate (the server keeps one per node); or "plain".
        prior_rounds: every history starts from capacity / nodes, worth so many rounds. Public.
        ask_timeout: seconds to wait for answers.
        startup_timeout: seconds to wait for the strategy's `min_available_nodes` before round 1.
        delta: the slack of the total in the account.
        observer: "every-report", the server. Nothing else is possible here: a Flower server sees every report.
        message_type: of the strategy's training messages: the question goes to the same train function.
        metrics: "few", five of a round's numbers among its training metrics; or "all" of them.

    Raises:
        ValueError: a setting out of range, or a strategy that cannot use another set of nodes in each round.

    Example:
        >>> from flwr.serverapp.strategy import FedAvg
        >>> SelfSelection(FedAvg(min_available_nodes=50), capacity=15)
        SelfSelection(FedAvg, capacity=15)
    """

    _selection: Selection | None
    _tally: Tally | None
    _config: tuple[ConfigRecord, ConfigRecord] | None
    _model: ArrayRecord
    _other_type: str
    _sent: list[int]
    _stored: StoredUpdates
    _failures: _Failures

    def __init__(
        self,
        strategy: Strategy,
        *,
        capacity: float | AtLeast,
        mechanism: Mechanism | None = None,
        controller: Controller | None = None,
        phases: int = 2,
        weights: str | None = None,
        prior_rounds: float = 10.0,
        ask_timeout: float = 60.0,
        startup_timeout: float = 600.0,
        delta: float = 1e-6,
        observer: str = EVERY_REPORT,
        message_type: str = "train",
        metrics: str = "few",
    ) -> None:
        check_strategy(strategy)
        if isinstance(strategy, SelfSelection):
            raise invalid("strategy", "wrapped once", strategy, "remove one SelfSelection")
        self.strategy, self.capacity, self.mechanism = strategy, capacity, mechanism
        self.controller = controller or SelfTuningController()
        self.weights = check_kind(weights, is_weighted_average(strategy), type(strategy).__name__)
        self.phases, self.prior_rounds, self.delta, self.observer = phases, prior_rounds, delta, observer
        self.ask_timeout, self.startup_timeout, self.message_type = ask_timeout, startup_timeout, message_type
        self.metrics = metrics
        self._check_settings()
        self._reset()

    def __repr__(self) -> str:
        return f"SelfSelection({type(self.strategy).__name__}, capacity={self.capacity})"

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *args: Any, **kwargs: Any) -> flower.Result:
        """Run the strategy from the start, as `Strategy.start` does; histories and signal begin again.

        Raises:
            TurnoutError: as `configure_train` does, or there were trainings and not one of them succeeded.
        """
        if type(self.strategy).start is not Strategy.start:
            log(WARNING, "SelfSelection does not call %s.start(), which is its own", type(self.strategy).__name__)
        self._reset()
        result = super().start(grid, initial_arrays, *args, **kwargs)
        self._failures.finish()
        return result

    def summary(self) -> None:
        """Log the settings, then those of the strategy."""
        check_outermost()
        mechanism = "Clamp around capacity / nodes" if self.mechanism is None else repr(self.mechanism)
        log(INFO, "\t├──> Self-selection settings:")
        log(INFO, "\t│\t├── Capacity: %s | phases: %d", self.capacity, self.phases)
        log(INFO, "\t│\t├── Mechanism: %s", mechanism)
        log(INFO, "\t│\t├── Controller: %r", self.controller)
        log(INFO, "\t│\t└── Weights: %s", self.weights)
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask all nodes, and let the strategy configure the participants' training.

        Raises:
            ValueError: before the first round, a capacity that the mechanism cannot meet.
            TurnoutError: too few nodes at the start, or every node refuses the first question.
        """
        check_outermost()
        if self._selection is None:
            self._selection = self._prepare(grid)
        selection = self._selection
        self._tally = tally = Tally(selection.signal, asked=list(grid.get_node_ids()))
        self._model, self._sent = arrays, []
        selection.book.saw(tally.asked)
        if selection.out_of_reach(len(tally.asked)):
            log(WARNING, "%d nodes cannot meet capacity %.4g at any signal", len(tally.asked), selection.capacity)
        if self.phases == 2:
            self._ask(server_round, grid)
            selection.close(tally, server_round)
            self._tell(tally)
        chosen = tally.participants if self.phases == 2 else tally.asked
        tally.skipped = len(chosen) < self._needed
        if tally.skipped:
            log(
                INFO,
                "configure_train: round skipped, %d nodes participate and %d are needed",
                len(chosen),
                self._needed,
            )
            return []
        messages = self._configure(server_round, arrays, config, ParticipantsGrid(grid, chosen))
        self._sent = [message.metadata.dst_node_id for message in messages]
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the updates, weight them, and let the strategy aggregate them.

        Raises:
            TurnoutError: some rounds have passed, and every training has failed.
        """
        selection, tally = self._selection, self._tally
        if selection is None or tally is None:
            raise TurnoutError("aggregate_train was called before configure_train: run the strategy with start()")
        replies = list(replies)
        errors = [reply for reply in replies if reply.has_error()]
        check = UpdateCheck(self._model, self._weight_key, not isinstance(self.strategy, flower.FedXgbBagging))
        good, faults = check.sort((reply for reply in replies if not reply.has_error()), self._sent)
        if self.phases == 1:
            self._close_one_phase(server_round, replies, errors)
        for fault in faults[:MOST_TOLD]:
            log(WARNING, "aggregate_train: faulty update left out, %s", fault)
        if len(faults) > MOST_TOLD:
            log(WARNING, "aggregate_train: %d more faulty updates left out", len(faults) - MOST_TOLD)
        tally.trained, tally.faulty_updates = len(good), len(faults)
        tally.failed_trainings = (len(self._sent) if self.phases == 2 else len(tally.participants)) - len(good)
        tally.skipped = tally.skipped or len(good) < (1 if self.phases == 2 else self._needed)
        arrays, metrics = None, None
        if not tally.skipped:
            self._weigh(good, check, selection, tally)
            failures = [reply for reply in errors if reply.error.code < 100]
            arrays, metrics = self.strategy.aggregate_train(server_round, [*good.values(), *failures])
        selection.book.close_round(() if tally.skipped else good)
        log(INFO, "aggregate_train: account: %s", selection.account.sentence(selection.reports))
        failed = [error.error for error in errors if error.error.code not in _NO_FAILURE]
        reasons = [*faults, *(error.reason or f"error {error.code}" for error in failed)]
        self._failures.note(len(good), reasons, self._other_type)
        return arrays, MetricRecord({**(metrics or {}), **selection.metrics(tally, self.metrics)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy does: evaluation is not gated."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the strategy does."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    @property
    def _needed(self) -> int:
        return max(1, int(getattr(self.strategy, "min_train_nodes", 1)))

    @property
    def _weight_key(self) -> str | None:
        return getattr(self.strategy, "weighted_by_key", None)

    def _reset(self) -> None:
        self._selection, self._tally, self._config = None, None, None
        self._model, self._sent, self._other_type = ArrayRecord(), [], ""
        self._stored, self._failures = StoredUpdates(), _Failures()

    def _check_settings(self) -> None:
        capacity = self.capacity
        if not isinstance(capacity, AtLeast):
            check_number("capacity", capacity, "above 0", _positive, "give the turnout wanted, or at_least(n)")
        if (capacity.number if isinstance(capacity, AtLeast) else capacity) < self._needed:
            allowed = f"at least {self._needed} (the strategy's min_train_nodes), else most rounds are skipped"
            remedy = "capacity is a number of clients, not a share; or lower min_train_nodes"
            raise invalid("capacity", allowed, capacity, remedy)
        if self.phases not in (1, 2):
            raise invalid("phases", "1 or 2", self.phases, "2 asks first, and sends the model to participants only")
        if self.metrics not in ("few", "all"):
            raise invalid("metrics", "'few' or 'all'", repr(self.metrics), "leave it out for the usual five")
        for name in ("ask_timeout", "startup_timeout", "prior_rounds"):
            check_number(name, getattr(self, name), "above 0", _positive, "leave it out")
        check_number("delta", self.delta, "from 0 and below 1", lambda delta: 0.0 <= delta < 1.0, "try 1e-6")
        if self.observer != EVERY_REPORT:
            remedy = "a Flower server sees every report by its node, and histories move by the bit: leave it out"
            raise invalid("observer", repr(EVERY_REPORT), repr(self.observer), remedy)
        if self.mechanism is not None:
            check_mechanism(self.mechanism)
            if self.mechanism.needs_population:
                remedy = "give Memoized with its price and levels: `turnout plan` finds them"
                raise invalid("mechanism", "one that a client can use by itself", self.mechanism.kind, remedy)
            mechanism_text(self.mechanism)

    def _prepare(self, grid: Grid) -> Selection:
        """Before round 1: wait for the nodes, then fix what is public and check that the capacity can be met."""
        clients = self._wait(grid)
        capacity = self.capacity.capacity(clients) if isinstance(self.capacity, AtLeast) else float(self.capacity)
        share = capacity / clients
        mechanism = self.mechanism
        if mechanism is None:
            if not share < 1.0:
                remedy = "lower capacity, or wait for more nodes (the strategy's min_available_nodes)"
                raise invalid("capacity", f"below {clients} (connected nodes)", f"{capacity:g}", remedy)
            mechanism = Clamp(USUAL_EPSILON_PER_REPORT, center=share)
        check_capacity_of(clients, capacity, mechanism)
        log(INFO, "Self-selection: %d nodes, capacity %.4g, %r", clients, capacity, mechanism)
        prior = Prior(share, self.prior_rounds)
        account, book = PublicAccount(mechanism, self.delta), ParticipationBook(share)
        return Selection(capacity, clients, mechanism, prior, self.controller, account, book)

    def _wait(self, grid: Grid) -> int:
        """Wait until `min_available_nodes` are connected, and a little longer for as many as the capacity needs."""
        least = max(1, int(getattr(self.strategy, "min_available_nodes", 1)))
        wanted = self.capacity.number + 1 if isinstance(self.capacity, AtLeast) else self.capacity
        most = 1.0 if self.mechanism is None else shares_reached(self.mechanism)[1]
        begun = time.monotonic()
        while True:
            count, waited = len(list(grid.get_node_ids())), time.monotonic() - begun
            if count >= least and (most * count >= wanted or waited >= GRACE):
                return count
            if waited >= self.startup_timeout:
                raise TurnoutError(
                    f"{count} nodes after {waited:.0f} s, and the strategy wants min_available_nodes={least}: "
                    "start more nodes, or lower it"
                )
            log(INFO, "Waiting for nodes to connect: %d connected (minimum required: %d).", count, least)
            time.sleep(PAUSE)

    def _ask(self, server_round: int, grid: Grid) -> None:
        """Phase one: a small message to everyone."""
        selection, tally = self._selection, self._tally
        assert selection is not None
        assert tally is not None
        records = selection.records(server_round, "ask")
        messages = [
            Message(
                RecordDict({RECORD: records(node)}),
                dst_node_id=node,
                message_type=self.message_type,
                ttl=self.ask_timeout,
                group_id=str(server_round),
            )
            for node in tally.asked
        ]
        tally.read_answers(grid.send_and_receive(messages, timeout=self.ask_timeout), server_round)
        self._stop_if_all_refuse(tally, selection)

    def _configure(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: ParticipantsGrid
    ) -> list[Message]:
        """The strategy's own messages, each with the question beside the model."""
        selection, tally = self._selection, self._tally
        assert selection is not None
        assert tally is not None
        records = selection.records(server_round, "train")
        try:
            with all_available(self.strategy):
                messages = list(self.strategy.configure_train(server_round, arrays, self._own(config), grid))
        except StillWaiting as waiting:
            log(WARNING, "configure_train: round skipped, %s", waiting)
            tally.skipped = True
            return []
        types = sorted({message.metadata.message_type for message in messages} - {self.message_type})
        if types and not self._other_type:
            self._other_type = (
                f"the strategy sends {', '.join(types)!r}, and the question went to {self.message_type!r}"
            )
            log(WARNING, "configure_train: %s: give SelfSelection(message_type=...)", self._other_type)
        for message in messages:
            message.content = RecordDict({**message.content, RECORD: records(message.metadata.dst_node_id)})
        return messages

    def _own(self, config: ConfigRecord) -> ConfigRecord:
        """A copy that strategies may write into, kept from round to round: some decrease a setting in it."""
        if self._config is None or self._config[0] is not config:
            self._config = (config, ConfigRecord(dict(config)))
        return self._config[1]

    def _close_one_phase(self, server_round: int, replies: list[Message], errors: list[Message]) -> None:
        """In one phase the updates are the reports: a node that sent one, valid or not, participates."""
        selection, tally = self._selection, self._tally
        assert selection is not None
        assert tally is not None
        tally.asked = list(self._sent)
        sent = {reply.metadata.src_node_id for reply in replies if not reply.has_error()}
        tally.participants = [node for node in self._sent if node in sent]
        for error in errors:
            tally.count_error(error)
        self._stop_if_all_refuse(tally, selection)
        selection.close(tally, server_round)
        self._tell(tally)

    def _weigh(self, good: dict[int, Message], check: UpdateCheck, selection: Selection, tally: Tally) -> None:
        own = {node: check.weight(reply) for node, reply in good.items()}
        if self.weights == STORED:
            updates = {node: arrays_of(reply) for node, reply in good.items()}
            for node, arrays in self._stored.correct(self._model, updates, own, tally.asked).items():
                with_arrays(good[node], arrays)
        if self.weights != PLAIN and self._weight_key is not None:
            own = selection.book.weights(own)
            for node, reply in good.items():
                with_weight(reply, self._weight_key, own[node])
        tally.effective_share = effective_share(own.values())

    def _stop_if_all_refuse(self, tally: Tally, selection: Selection) -> None:
        """If every node refuses in the first round, the setup is wrong, and no later round will differ."""
        bad = tally.counts.get("refused", 0) + tally.counts.get("failed", 0)
        if selection.reports == 0 and tally.asked and bad == len(tally.asked) and not tally.heard:
            usual = (
                "register self_selection_mod(...) as the first mod of the train function, and give it what it asks for"
            )
            cause = likely_cause(tally.reasons, usual)
            asked = f"the question of type {self.message_type!r}"
            raise TurnoutError(f"all {bad} nodes refused or failed to answer {asked} ({tally.reasons[0]}): {cause}")

    def _tell(self, tally: Tally) -> None:
        assert self._selection is not None
        log(
            INFO,
            "configure_train: %d of %d nodes participate (capacity %.4g, signal %.6g), %d abstained, %s%d not heard",
            len(tally.participants),
            len(tally.asked),
            self._selection.capacity,
            tally.signal,
            len(tally.said_no),
            f"{tally.stopped} stopped, " if tally.stopped else "",
            max(0, len(tally.asked) - tally.heard - tally.stopped),
        )
        news = self._selection.news_of_stops(tally)
        if news:
            log(WARNING, "configure_train: %s", news)
        for reason in tally.reasons[:MOST_TOLD]:
            log(INFO, "\t> %s", reason)


def _positive(value: float) -> bool:
    return value > 0.0
