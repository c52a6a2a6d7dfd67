"""A history under acknowledgement: what a client has participated in, as far as the server has counted it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from turnout.algorithm import Averaging, ClientState, Prior
from turnout.problem import Array

_NONE = -(2**62)  # no round yet
_STEPS = 10_000  # missed rounds that are counted one by one; beyond, by a formula

ALL = slice(None)
"""All clients; some of them are named by their numbers."""


class History:
    """The histories of one client or many; the last round of each is kept apart until the server has acknowledged it.

    A report moves the history as if it were counted. If the server says that it did not count it, the round becomes one
    without participation, unless histories move by the probability (`Averaging.takes_back`). Rounds that were never
    decided count as not participating.

    Args:
        start: the histories before the first round.
        averaging: how they move.
        last: the round before the first; None: missed rounds count from the first decision on.

    Attributes:
        last: the newest round in each history, shape (clients,).
        unsettled: whether that round awaits its acknowledgement, shape (clients,).

    Example:
        >>> history = History(ClientState(np.array([5.0]), 10.0), Averaging())
        >>> before = history.before(0)
        >>> history.add(0, before, before.after(np.ones(1), Averaging()))
        >>> history.before(1).average, history.acknowledge(0, counted=False), history.before(1).average
        (array([0.54545455]), None, array([0.45454545]))
    """

    def __init__(self, start: ClientState, averaging: Averaging, last: int | None = None) -> None:
        clients = len(start.participations)
        self._averaging = averaging
        self._settled = _rows(start)  # participations and rounds, shape (2, clients), without the unsettled round
        self._if_counted = self._settled.copy()
        self.last = np.full(clients, _NONE if last is None else last, dtype=np.int64)
        self.unsettled = np.zeros(clients, np.bool_)

    @classmethod
    def begin(cls, prior: Prior, averaging: Averaging, clients: int = 1) -> History:
        """From the public average that everyone starts from."""
        return cls(ClientState(np.full(clients, prior.participations), float(prior.rounds)), averaging)

    @classmethod
    def read(cls, body: Sequence[Any], averaging: Averaging) -> History:
        """What `body` gave."""
        settled, if_counted, last, unsettled = map(np.array, body)
        made = cls(ClientState(*settled), averaging)
        made._if_counted, made.last, made.unsettled = if_counted, last, unsettled
        return made

    def body(self) -> list[Any]:
        """As JSON holds it."""
        return [array.tolist() for array in (self._settled, self._if_counted, self.last, self.unsettled)]

    def settled(self, which: Any = ALL) -> ClientState:
        """Histories without the rounds that await their acknowledgement."""
        return ClientState(*self._settled[:, which].copy())

    def before(self, round: int, which: Any = ALL) -> ClientState:
        """Histories before a later round than the last."""
        state = ClientState(*np.where(self.unsettled[which], self._if_counted[:, which], self._settled[:, which]))
        last = self.last[which]
        for newest in set(last.tolist()) - {round - 1, _NONE}:
            later = missed(state, round - 1 - newest, self._averaging)
            state = ClientState(*np.where(last == newest, _rows(later), _rows(state)))
        return state

    def add(self, round: int, before: ClientState, after: ClientState, which: Any = ALL) -> None:
        """A round was decided: from what `before` gave for it, and to `after` if it counts."""
        self._settled[:, which], self._if_counted[:, which] = _rows(before), _rows(after)
        self.last[which], self.unsettled[which] = round, True

    def acknowledge(self, round: int, counted: bool, which: Any = ALL) -> None:
        """The server has counted a round, or not; nothing changes unless it is the last one, and unsettled."""
        these = np.arange(len(self.last))[which]
        these = these[self.unsettled[these] & (self.last[these] == round)]
        if counted or not self._averaging.takes_back:
            self._settled[:, these] = self._if_counted[:, these]
        else:
            self._settled[:, these] = _rows(missed(self.settled(these), 1, self._averaging))
        self.unsettled[these] = False


def _rows(state: ClientState) -> Array:
    rows = np.empty((2, len(state.participations)))
    rows[0], rows[1] = state.participations, state.rounds
    return rows


def missed(state: ClientState, rounds: int, averaging: Averaging) -> ClientState:
    """The histories after rounds without participation; as if counted one by one, however many."""
    nothing = np.zeros(len(state.participations))
    for _ in range(min(rounds, _STEPS)):
        state = state.after(nothing, averaging)
    rest = max(0, rounds - _STEPS)
    if not rest:
        return state
    full = np.maximum(0.0, rest - np.maximum(0.0, averaging.cap - state.rounds))  # rounds in which an older one fades
    fades = (1.0 - 1.0 / averaging.cap) ** full
    return ClientState(state.participations * fades, np.minimum(state.rounds + rest, averaging.cap))
