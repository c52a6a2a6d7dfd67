"""Stored updates: those who stay away are stood in for by the last update that they sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from turnout.flower.replies import Shape, array_shape

Values = npt.NDArray[np.floating]
Change = dict[str, Values]


class StoredUpdates:
    """The server's memory of each node's last update, as a control variate for the round's average.

    An update is d_i, the node's model less the one it was sent. In place of it the strategy averages
    d_i - y_i + ȳ, where y_i is what the node sent last time (0 before) and ȳ the mean of y over all connected nodes,
    weighted by their examples. Whom the average leaves out then matters only as far as updates have changed since:
    the noise of who happens to come nearly vanishes, and with it most of what the absent would lose.

    It takes the memory of one model for each node, and sees each update alone (as the weights do).
    Arrays that are not floats are left as they are.

    Differs from paper: no learning there. The idea is that of SAGA, with the server doing all the work: FedVARP
    (Jhunjhunwala et al. 2022); with no correction for who comes it would be MIFA (Gu et al. 2021).

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
            updates: the models that came back, by node.
            examples: n_i of each, the strategy's own weight.
            nodes: all that are connected.
        """
        if array_shape(model) != self._shape:  # another model than before: what was sent for that one says nothing
            self._shape, self._changes, self._examples = array_shape(model), {}, {}
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
        usual = sum(known.values()) / len(known) if known else 1.0
        total = sum(known.get(node, usual) for node in nodes)
        mean = {name: np.zeros_like(values) for name, values in sent.items() if values.dtype.kind == "f"}
        for node in nodes:
            for name, change in self._changes.get(node, {}).items():
                if name in mean:
                    mean[name] += (self._examples[node] / total) * change
        return mean
