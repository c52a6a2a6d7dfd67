"""The updates of a round: how much each counts, whether it is valid, and stored ones for clients that stay away.

An invalid update is counted as a fault and left out before it reaches the strategy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from turnout.errors import invalid, nearest

PRIOR_ROUNDS = 2.0
"""The public start of each estimate: this number of rounds at capacity / clients."""

FLOOR = 0.2
"""No estimate counts as less than this share of capacity / clients: a weight is at most five times the usual."""

INVERSE, STORED, PLAIN = "inverse-participation", "stored-updates", "plain"
KINDS = (INVERSE, STORED, PLAIN)
"""Stored updates are used with inverse-participation weights; see `StoredUpdates`."""


class ParticipationBook:
    """What the server saw of each node: since when it is connected, and how often it sent an update.

    Args:
        share: capacity / clients, public.

    Example:
        >>> book = ParticipationBook(share=0.5)
        >>> book.saw([1, 2])
        >>> book.close_round([1])
        >>> book.estimate(1), book.estimate(2)
        (0.6666666666666666, 0.3333333333333333)
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._rounds = 0
        self._joined: dict[int, int] = {}
        self._came: dict[int, int] = {}

    def saw(self, nodes: Iterable[int]) -> None:
        """These nodes are connected: those not seen before join now."""
        for node in nodes:
            self._joined.setdefault(node, self._rounds)

    def close_round(self, participants: Iterable[int]) -> None:
        """The round is over, and these nodes sent updates."""
        self._rounds += 1
        for node in participants:
            self._came[node] = self._came.get(node, 0) + 1

    def estimate(self, node: int) -> float:
        """x̂ = (past participations + 2 C/N) / (rounds since it joined + 2), the current round excluded."""
        rounds = self._rounds - self._joined.get(node, self._rounds)
        return (self._came.get(node, 0) + PRIOR_ROUNDS * self._share) / (rounds + PRIOR_ROUNDS)

    def weights(self, examples: Mapping[int, float]) -> dict[int, float]:
        """w_i ∝ n_i / max(x̂_i, 0.2 C/N), for the nodes that sent updates; the sum is that of the n_i.

        Args:
            examples: n_i, the strategy's own weight of each node.

        Example:
            >>> book = ParticipationBook(share=0.5)
            >>> book.saw([1, 2]); book.close_round([1])
            >>> book.weights({1: 30.0, 2: 30.0})
            {1: 20.0, 2: 40.0}
        """
        raw = {node: number / max(self.estimate(node), FLOOR * self._share) for node, number in examples.items()}
        scale = math.fsum(examples.values()) / math.fsum(raw.values()) if raw else 1.0
        return {node: weight * scale for node, weight in raw.items()}


def effective_share(weights: Iterable[float]) -> float:
    """How evenly the weights lie: (sum w)^2 / (n sum w^2), 1 if all are equal, 1/n if one has all.

    Example:
        >>> effective_share([1.0, 1.0]), effective_share([1.0, 0.0]), effective_share([])
        (1.0, 0.5, 0.0)
    """
    given = list(weights)
    largest = max(given, default=0.0)
    if largest <= 0.0:
        return 0.0
    scaled = [weight / largest for weight in given]
    return math.fsum(scaled) ** 2 / (len(scaled) * math.fsum(weight * weight for weight in scaled))


def check_kind(kind: str | None, is_weighted_average: bool, strategy: str) -> str:
    """Which weights to use: inverse participation for weighted averages, else plain, unless asked for.

    Raises:
        ValueError: unknown, or any but plain for a strategy that does not average by weight.

    Example:
        >>> check_kind(None, True, "FedAvg"), check_kind(None, False, "FedMedian")
        ('inverse-participation', 'plain')
    """
    if kind is None:
        return INVERSE if is_weighted_average else PLAIN
    if kind not in KINDS:
        allowed = "'inverse-participation', 'stored-updates', 'plain' or None"
        raise invalid("weights", allowed, repr(kind), nearest(kind, KINDS, "leave it out"))
    if kind != PLAIN and not is_weighted_average:
        remedy = "use FedAvg or a strategy made of it, or weights='plain'"
        raise invalid("weights", f"'plain' for {strategy}, which is no weighted average", repr(kind), remedy)
    return kind


MOST_EXAMPLES = 2.0**53
"""The largest weight: a sum of larger ones could overflow."""

Shape = tuple[tuple[str, tuple[int, ...]], ...]


def _array_shape(arrays: ArrayRecord, exactly: bool = True) -> Shape:
    """The names of the arrays and their shapes (all shapes empty if they need not agree exactly)."""
    return tuple((name, tuple(array.shape) if exactly else ()) for name, array in arrays.items())


class UpdateCheck:
    """Sorts the updates of one round into good ones and faults.

    An update is good if it has one ArrayRecord and one MetricRecord, all numbers in them finite, a weight above 0
    and at most 2^53, and the names and shapes of the model that was sent (or else, if no update has those, of most
    updates): what Flower's strategies need. For a strategy of another form the numbers alone are looked at.

    Args:
        model: what was sent.
        weight_key: the strategy's weight, such as "num-examples"; None: a strategy of another form.
        exact_shapes: False for strategies whose updates grow, such as boosted trees.
    """

    def __init__(self, model: ArrayRecord, weight_key: str | None, exact_shapes: bool = True) -> None:
        self._model = _array_shape(model, exact_shapes)
        self._weight_key, self._exact = weight_key, exact_shapes

    def sort(self, replies: Iterable[Message], expected: Iterable[int]) -> tuple[dict[int, Message], list[str]]:
        """The good updates by node, in the order of node ids, and what is wrong with the others.

        Sums of floats depend on their order, and replies arrive in any: so they are sorted.

        Args:
            replies: those without an error.
            expected: the nodes that were asked to train.
        """
        good: dict[int, Message] = {}
        faults: list[str] = []
        awaited = set(expected)
        for reply in replies:
            node = reply.metadata.src_node_id
            problem = self._problem(reply.content)
            if node not in awaited:
                problem = "nobody asked it to train"
            elif node in good:
                problem = "a second update"
            if problem:
                faults.append(f"node {node}: {problem}")
            else:
                good[node] = reply
        alike = good if self._weight_key is None else self._alike(good, faults)
        return dict(sorted(alike.items())), faults

    def weight(self, reply: Message) -> float:
        """The strategy's own weight of a good update; 1 if it has none."""
        if self._weight_key is None:
            return 1.0
        return float(next(iter(reply.content.metric_records.values()))[self._weight_key])  # type: ignore[arg-type]

    def _problem(self, content: RecordDict) -> str:
        arrays, metrics = list(content.array_records.values()), list(content.metric_records.values())
        for name, value in (item for record in metrics for item in record.items()):
            if not np.all(np.isfinite(value)):
                return f"metric {name!r} is not finite"
        if self._weight_key is not None:
            if len(arrays) != 1 or len(metrics) != 1:
                return f"{len(arrays)} ArrayRecords and {len(metrics)} MetricRecords, not one of each"
            weight = metrics[0].get(self._weight_key)
            if not isinstance(weight, (int, float)) or not 0.0 < weight <= MOST_EXAMPLES:
                return f"weight {self._weight_key!r} is {weight!r}"
        return next(filter(None, map(_arrays_problem, arrays)), "")

    def _alike(self, good: dict[int, Message], faults: list[str]) -> dict[int, Message]:
        """Those with the model's shape and the usual metrics: strategies stop the run if updates differ."""
        forms = {node: _form(reply.content, self._exact) for node, reply in good.items()}
        usual = Counter(forms.values())
        if not usual:
            return good
        as_sent = Counter({form: count for form, count in usual.items() if form[1] == self._model})
        wanted = (as_sent or usual).most_common(1)[0][0]
        for node, form in forms.items():
            if form != wanted:
                faults.append(f"node {node}: other names or shapes than the model, or other metrics than most")
                del good[node]
        return good


def _form(content: RecordDict, exact: bool) -> tuple[Any, ...]:
    (arrays_name, arrays), (metrics_name, metrics) = (
        next(iter(content.array_records.items())),
        next(iter(content.metric_records.items())),
    )
    kinds = tuple(sorted((key, len(value) if isinstance(value, list) else -1) for key, value in metrics.items()))
    return arrays_name, _array_shape(arrays, exact), metrics_name, kinds


def _arrays_problem(arrays: ArrayRecord) -> str:
    for name, array in arrays.items():
        try:
            values = array.numpy()
        except Exception as error:  # whatever the bytes make NumPy raise, they are garbage
            return f"array {name!r} cannot be read ({type(error).__name__})"
        if tuple(values.shape) != tuple(array.shape) or values.dtype.kind not in "fiub":
            return f"array {name!r} is not what it says"
        if values.dtype.kind == "f" and not np.all(np.isfinite(values)):
            return f"array {name!r} is not finite"
    return ""


_CAUSES = (
    (
        "secaggplus",
        "secaggplus_mod works with Flower's SecAggPlusWorkflow alone, which has no SelfSelection: remove it",
    ),
    (
        "clipping_mod",
        "this mod belongs to a differential-privacy wrapper, which does not go with SelfSelection: remove it "
        "(LocalDpMod works, after self_selection_mod)",
    ),
    (
        "found 0 ArrayRecord",
        "a mod before self_selection_mod expects a model in the question: make self_selection_mod the first one",
    ),
    (
        "function registered",
        "no function of the ClientApp takes messages of this type: SelfSelection(message_type=...) and the strategy "
        "must name one train function, on which self_selection_mod is registered",
    ),
    ("weight ", "return the number of examples in each update's metrics under the strategy's weighted_by_key"),
    ("did not ask", "self_selection_mod is registered twice (once in ClientApp(mods=...), perhaps): remove one"),
)
"""What an error says, and what is then most likely wrong."""


def likely_cause(reasons: Iterable[str], otherwise: str) -> str:
    """The most likely cause of failures, with its remedy, from what the replies said.

    Example:
        >>> likely_cause(["KeyError: 'secaggplus_configs'"], "see the client's log")
        "secaggplus_mod works with Flower's SecAggPlusWorkflow alone, which has no SelfSelection: remove it"
        >>> likely_cause(["ZeroDivisionError"], "see the client's log")
        "see the client's log"
    """
    said = "\n".join(reasons)
    return next((cause for text, cause in _CAUSES if text in said), otherwise)


def with_weight(reply: Message, key: str, weight: float) -> Message:
    """The reply with another weight in its metrics; the client's own record is left as it is."""
    (name, metrics) = next(iter(reply.content.metric_records.items()))
    changed = MetricRecord({field: (weight if field == key else value) for field, value in metrics.items()})
    reply.content = RecordDict(
        {other: (changed if other == name else record) for other, record in reply.content.items()}
    )
    assert math.isfinite(weight)
    return reply


def arrays_of(reply: Message) -> ArrayRecord:
    """The model in a good update."""
    return next(iter(reply.content.array_records.values()))


def with_arrays(reply: Message, arrays: ArrayRecord) -> Message:
    """The reply with another model in the place of its own."""
    name = next(iter(reply.content.array_records))
    reply.content = RecordDict(
        {other: (arrays if other == name else record) for other, record in reply.content.items()}
    )
    return reply


Values = npt.NDArray[np.floating]
Change = dict[str, Values]


class StoredUpdates:
    """The server's memory of each node's last update, as a control variate for the round's average.

    An update is d_i, the node's model less the one it was sent. In place of it the strategy averages
    d_i - y_i + ȳ, where y_i is what the node sent last time (0 before) and ȳ the mean of y over all connected nodes,
    weighted by their examples. Whom the average leaves out then matters only as far as updates have changed since:
    the noise of who happens to participate nearly vanishes, and with it most of the bias against the absent.

    It takes the memory of one model for each node, and sees each update alone (as the weights do).
    Arrays that are not floats are left as they are.

    Differs from paper: no learning there. The idea is that of SAGA, with the server doing all the work: FedVARP
    (Jhunjhunwala et al. 2022); without a correction for who participates it would be MIFA (Gu et al. 2021).

    Example:
        >>> stored, model, one = StoredUpdates(), ArrayRecord([np.zeros(1)]), ArrayRecord([np.ones(1)])
        >>> _ = stored.correct(model, {7: one}, {7: 10.0}, nodes=[7, 8])
        >>> second = stored.correct(model, {8: one}, {8: 10.0}, nodes=[7, 8])
        >>> second[8].to_numpy_ndarrays()                          # half of what node 7 sent is added
        [array([1.5])]
    """

    def __init__(self) -> None:
        self._changes: dict[int, Change] = {}
        self._examples: dict[int, float] = {}
        self._shape: Shape = ()

    def correct(
        self,
        model: ArrayRecord,
        updates: Mapping[int, ArrayRecord],
        examples: Mapping[int, float],
        nodes: Iterable[int],
    ) -> dict[int, ArrayRecord]:
        """The updates, corrected; what they were is kept.

        Args:
            model: what was sent.
            updates: the models that were returned, by node.
            examples: n_i of each, the strategy's own weight.
            nodes: all that are connected.
        """
        if _array_shape(model) != self._shape:  # another model than before: what was sent for that one says nothing
            self._shape, self._changes, self._examples = _array_shape(model), {}, {}
        sent = {name: array.numpy() for name, array in model.items()}
        mean = self._mean(sent, list(nodes), examples)
        corrected = {}
        for node, arrays in updates.items():
            before, change, made = self._changes.get(node, {}), {}, ArrayRecord()
            for name, array in arrays.items():
                values = array.numpy()
                if name not in mean or values.shape != mean[name].shape or values.dtype.kind != "f":
                    made[name] = array
                    continue
                change[name] = values - sent[name]
                made[name] = Array((values + mean[name] - before.get(name, 0.0)).astype(values.dtype))
            self._changes[node], self._examples[node] = change, examples[node]
            corrected[node] = made
        return corrected

    def _mean(self, sent: Change, nodes: list[int], examples: Mapping[int, float]) -> Change:
        """ȳ, over all connected nodes; those that never sent anything count as 0, with the usual weight."""
        known = self._examples | dict(examples)
        usual = math.fsum(known.values()) / len(known) if known else 1.0
        total = math.fsum(known.get(node, usual) for node in nodes)
        mean = {name: np.zeros_like(values) for name, values in sent.items() if values.dtype.kind == "f"}
        for node in nodes:
            for name, change in self._changes.get(node, {}).items():
                if name in mean:
                    mean[name] += (self._examples[node] / total) * change
        return mean
