"""A history under acknowledgement: what a client has participated in, as far as the server has counted it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Averaging, ClientState, Prior

_NONE = -(2**62)  # no round yet
_STEPS = 10_000  # missed rounds that are counted one by one; beyond, by a formula

ALL = slice(None)
"""All clients; some of them are named by their numbers."""


class History:
    """The histories of one client or many, with the last round of each apart until the server has acknowledged it.

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
        self._settled, self._if_counted = _arrays(start), _arrays(start)  # without, and with a round that is unsettled
        self.last = np.full(clients, _NONE if last is None else last, dtype=np.int64)
        self.unsettled = np.zeros(clients, np.bool_)

    @classmethod
    def begin(cls, prior: Prior, averaging: Averaging, clients: int = 1) -> History:
        """From the public average that everyone starts from."""
        return cls(ClientState(np.full(clients, prior.participations), float(prior.rounds)), averaging)

    @classmethod
    def read(cls, body: Mapping[str, Any], averaging: Averaging) -> History:
        """What `body` gave."""
        made = cls(_state(body["settled"]), averaging)
        made._if_counted = _state(body["if_counted"])
        made.last, made.unsettled = np.array(body["last"]), np.array(body["unsettled"])
        return made

    def body(self) -> dict[str, Any]:
        """As JSON holds it."""
        body = {"last": self.last.tolist(), "unsettled": self.unsettled.tolist()}
        for name, state in {"settled": self._settled, "if_counted": self._if_counted}.items():
            body[name] = [state.participations.tolist(), np.asarray(state.rounds).tolist()]
        return body

    def settled(self, which: Any = ALL) -> ClientState:
        """Histories without the rounds that await their acknowledgement."""
        return _some(self._settled, which)

    def before(self, round: int, which: Any = ALL) -> ClientState:
        """Histories before a later round than the last."""
        state = _where(self.unsettled[which], _some(self._if_counted, which), _some(self._settled, which))
        last = self.last[which]
        for newest in set(last.tolist()) - {round - 1, _NONE}:
            state = _where(last == newest, missed(state, round - 1 - newest, self._averaging), state)
        return state

    def add(self, round: int, before: ClientState, after: ClientState, which: Any = ALL) -> None:
        """A round was decided: from what `before` gave for it, and to `after` if it counts."""
        _put(self._settled, which, before)
        _put(self._if_counted, which, after)
        self.last[which], self.unsettled[which] = round, True

    def acknowledge(self, round: int, counted: bool, which: Any = ALL) -> None:
        """The server has counted a round, or not; nothing changes unless it is the last one, and unsettled."""
        these = np.arange(len(self.last))[which]
        these = these[self.unsettled[these] & (self.last[these] == round)]
        if counted or not self._averaging.takes_back:
            _put(self._settled, these, _some(self._if_counted, these))
        else:
            _put(self._settled, these, missed(self.settled(these), 1, self._averaging))
        self.unsettled[these] = False


def _state(body: Sequence[Sequence[float]]) -> ClientState:
    participations, rounds = body
    return ClientState(np.array(participations), np.array(rounds))


def _arrays(state: ClientState) -> ClientState:
    participations = np.array(state.participations, dtype=np.float64)
    return ClientState(participations, np.full(len(participations), state.rounds, dtype=np.float64))


def _some(state: ClientState, which: Any) -> ClientState:
    return ClientState(state.participations[which], np.asarray(state.rounds)[which])


def _put(state: ClientState, which: Any, values: ClientState) -> None:
    state.participations[which], np.asarray(state.rounds)[which] = values.participations, values.rounds


def _where(some: npt.NDArray[np.bool_], then: ClientState, otherwise: ClientState) -> ClientState:
    return ClientState(
        np.where(some, then.participations, otherwise.participations), np.where(some, then.rounds, otherwise.rounds)
    )


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
