"""Updates are checked before they reach the strategy: garbage is a counted fault, never a part of the model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

MOST_EXAMPLES = 2.0**53
"""A weight above it is no count: a sum of such could overflow."""

Shape = tuple[tuple[str, tuple[int, ...]], ...]


def array_shape(arrays: ArrayRecord, exactly: bool = True) -> Shape:
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
        self._model = array_shape(model, exact_shapes)
        self._weight_key, self._exact = weight_key, exact_shapes

    def sort(self, replies: Iterable[Message], expected: Iterable[int]) -> tuple[dict[int, Message], list[str]]:
        """The good updates by node, in the order of node ids, and what is wrong with the others.

        Sums of floats depend on their order; replies come in any. So they are put in one.

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
    return arrays_name, array_shape(arrays, exact), metrics_name, kinds


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
