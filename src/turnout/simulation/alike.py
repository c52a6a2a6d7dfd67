"""Histories that are all alike, as before round 0 and after a common start: no array until someone looks."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from turnout.algorithm.client import ClientState
from turnout.problem.costs import Array, Costs


class AlikeState(ClientState):
    """Every client has the same past; the array is made when it is first asked for.

    So a billion clients can begin on a device without ever being written down here.

    Attributes:
        value: everyone's participations.
        clients: how many there are.

    Example:
        >>> AlikeState(1.0, 3, rounds=2.0, memory=None).participations
        array([1., 1., 1.])
    """

    value: float
    clients: int

    def __init__(self, value: float, clients: int, rounds: Array | float, memory: Costs | None) -> None:
        vars(self).update(value=value, clients=clients, rounds=rounds, memory=memory)

    @cached_property
    def participations(self) -> Array:
        """Past participations, shape (clients,)."""
        return np.full(self.clients, self.value)
