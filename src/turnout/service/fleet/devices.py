"""The private side of a fleet: all devices' costs, histories and coins, and the one decision for many at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from turnout.algorithm.client import Averaging, ClientState, Prior, client_step
from turnout.algorithm.coins import ENROLMENT, Coins
from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.mechanisms import mechanism_from_settings
from turnout.client.store import missed
from turnout.problem.costs import Costs
from turnout.service.fleet.record import Bits, FleetRecord
from turnout.service.protocol import Offer, ProtocolProblem, Welcome
from turnout.settings import Table

Batch = npt.NDArray[np.int64]
"""Numbers of devices."""

NEVER = -1


class Devices:
    """Histories that move by what the coordinator acknowledged, and by nothing else.

    A history is kept as it was before the open round, together with what it becomes if the report counts. If it
    does not, the round is one without participation. Nothing is on disk: who needs that uses `turnout join`.

    Args:
        costs: of all devices, never sent.
        coins: device i tosses as client i.
        welcome: of the first device that enrolled; all others must be told the same.
        record: holds the bits on file.
        keep: how many rounds stay on file; None: all.

    Attributes:
        last: the newest round that each has decided or missed, shape (devices,).
        reported: the round whose report is on its way, shape (devices,).
        unsettled: whether `last` awaits its acknowledgement, shape (devices,).
    """

    def __init__(self, costs: Costs, coins: Coins, welcome: Welcome, record: FleetRecord, keep: int | None) -> None:
        count = len(costs)
        self.welcome, self._costs, self._coins, self._record, self._keep = welcome, costs, coins, record, keep
        self._prior = Prior(welcome.prior_average, welcome.prior_rounds)
        self._averaging = Averaging(welcome.remember, welcome.by)
        self._mechanism: Mechanism = mechanism_from_settings(Table(welcome.mechanism, "mechanism"))
        self._participations = np.full(count, self._prior.participations)
        self._rounds = np.full(count, float(self._prior.rounds))
        self._if_counted = self._participations.copy()
        self._weights = np.ones(count, np.int64)
        self._draws = self._coins.uniform(np.arange(count), 0, ENROLMENT)
        self._memory: Costs | None = None
        self._stale = self._mechanism.releases_once
        self.last = np.full(count, NEVER)
        self.reported = np.full(count, NEVER)
        self.unsettled = np.zeros(count, np.bool_)
        record.weights = self._weights

    def join(self, device: int, welcome: Welcome) -> None:
        """A device's history starts at the round it was offered.

        Raises:
            ProtocolProblem: it was told something else than the first one.
        """
        for name in ("run", "prior_average", "prior_rounds", "remember", "by", "mechanism"):
            if getattr(welcome, name) != getattr(self.welcome, name):
                raise ProtocolProblem(f"all devices must be told the same {name}: not one run's coordinator")
        if welcome.weight != self._weights[device]:
            self._weights[device] = welcome.weight
            self._stale = self._mechanism.releases_once
        self.last[device] = welcome.offer.round - 1

    def settle(self, batch: Batch, round: int, counted: bool, heard: tuple[float, float]) -> int:
        """These devices know what became of their report of a round; returns how many were told otherwise before.

        Args:
            batch: who.
            round: which.
            counted: whether it stands in the books as reported.
            heard: when the first and the last of them heard it.
        """
        seen = self._record.rounds.get(round)
        if seen is not None:
            told_before = seen.answered[batch]
            contradicted = int(np.sum(told_before & (seen.counted[batch] != counted)))
            new = batch[~told_before]
            seen.answered[new], seen.counted[new] = True, counted
            seen.first_answer, seen.last_answer = seen.first_answer or heard[0], heard[1]
        else:
            contradicted = 0
        open = batch[self.unsettled[batch] & (self.last[batch] == round)]
        if len(open):
            without = self._state(open).after(np.zeros(len(open)), self._averaging)
            moves = counted or not self._averaging.takes_back
            self._participations[open] = self._if_counted[open] if moves else without.participations
            self._rounds[open] = without.rounds
            self.unsettled[open] = False
        return contradicted

    def decide(self, batch: Batch, offer: Offer) -> Bits:
        """The bits of these devices for an offered round, shape (batch,): tossed once, and from the file ever after."""
        seen = self._record.seen(offer.round, offer.signal, self._keep)
        self.reported[batch] = offer.round
        new = batch[self.last[batch] < offer.round]
        if len(new):
            self._miss(new, offer.round)
            seen.bits[new] = self._toss(new, offer)
        # A round that it had missed comes again only after a restored backup. Its history has a "no".
        seen.decided[batch] = True
        return seen.bits[batch]

    def _toss(self, batch: Batch, offer: Offer) -> Bits:
        after, bits = client_step(
            self._costs[batch],
            self._mechanism[batch],
            self._state(batch),
            offer.signal,
            self._coins.uniform(batch, offer.round),
            weights=self._weights[batch],
            averaging=self._averaging,
        )
        self._if_counted[batch] = after.participations
        self.unsettled[batch], self.last[batch] = True, offer.round
        return bits

    def _miss(self, batch: Batch, round: int) -> None:
        """An unanswered round and those never offered count as not participating."""
        gaps = round - 1 - self.last[batch] + self.unsettled[batch]
        self.unsettled[batch] = False
        for gap in np.unique(gaps[gaps > 0]):
            late = batch[gaps == gap]
            state = missed(self._state(late), int(gap), self._averaging)
            self._participations[late], self._rounds[late] = state.participations, state.rounds

    def _state(self, batch: Batch) -> ClientState:
        if self._stale:  # the same draws again: only the release of a device whose weight became known differs
            self._memory = self._mechanism.enrol(self._costs, self._draws, self._weights)
            self._stale = False
        memory = None if self._memory is None else self._memory[batch]
        return ClientState(self._participations[batch], self._rounds[batch], memory)
