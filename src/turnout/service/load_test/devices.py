"""The private side of a fleet: all devices' costs, histories and coins, and the one decision for many at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout.algorithm import Averaging, Coins, Mechanism, Prior, client_step, mechanism_from_settings
from turnout.client import History
from turnout.errors import invalid
from turnout.problem import ENROLMENT, Costs
from turnout.service import Offer, Proposal, ProtocolProblem, Welcome
from turnout.service.load_test.record import Bits, FleetRecord
from turnout.settings import Table

Some = npt.NDArray[np.bool_]


@dataclass
class Rehearsal:
    """Which devices are late in every round, and which are cut off; chosen at random, once for a fleet.

    Args:
        late: the share of devices that report late.
        late_seconds: by how much at the most; drawn again for every report.
        cut: the share that is offline for some rounds, below 1: the others see the rounds go by.
        cut_first: the first of these rounds.
        cut_rounds: how many.

    Example:
        >>> rehearsal = Rehearsal(cut=0.95, cut_first=100, cut_rounds=100)
        >>> rehearsal.draw(1000, seed=1)
        >>> int(rehearsal.away(150).sum()), int(rehearsal.away(200).sum())
        (950, 0)
    """

    late: float = 0.0
    late_seconds: float = 5.0
    cut: float = 0.0
    cut_first: int = 0
    cut_rounds: int = 0
    _slow: Some = field(init=False, repr=False)
    _cut: Some = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.late <= 1.0:
            raise invalid("late", "a share from 0 to 1", self.late, "try 0.1")
        if not 0.0 <= self.late_seconds < np.inf:
            raise invalid("late seconds", "0 or more", self.late_seconds, "try 5")
        if not 0.0 <= self.cut < 1.0:
            raise invalid("cut", "a share from 0 to below 1", self.cut, "leave some devices online, such as 0.95")
        if self.cut_first < 0 or self.cut_rounds < 0:
            raise invalid("cut rounds", "0 or more", (self.cut_first, self.cut_rounds), "write 0.95:100:100")

    def draw(self, devices: int, seed: int | None) -> None:
        """Choose the devices."""
        self._random = np.random.default_rng(seed)
        self._slow = self._some(self.late, devices)
        self._cut = self._some(self.cut, devices)

    def delays(self, batch: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Seconds by which these devices' reports are late, shape (batch,); mostly 0."""
        if not self.late:
            return np.zeros(len(batch))
        return self._slow[batch] * self._random.uniform(0.0, self.late_seconds, len(batch))

    def away(self, round: int) -> Some:
        """Who is cut off in a round, shape (devices,)."""
        return self._cut if self.is_out(round) else np.zeros(len(self._cut), np.bool_)

    def is_out(self, round: int) -> bool:
        """Whether the outage holds in a round."""
        return bool(self.cut) and self.cut_first <= round < self.cut_first + self.cut_rounds

    def pause(self, seconds: float) -> float:
        """A random time, up to half as much less or more: not all devices return at the same moment."""
        return seconds * float(self._random.uniform(0.5, 1.5))

    def _some(self, share: float, devices: int) -> Some:
        chosen = np.zeros(devices, np.bool_)
        chosen[self._random.permutation(devices)[: min(round(share * devices), devices)]] = True
        if share < 1.0 and devices and chosen.all():
            chosen[0] = False
        return chosen


Batch = npt.NDArray[np.int64]
"""Numbers of devices."""

NEVER = -1


class Devices:
    """The devices' histories, which move only by what the coordinator acknowledged.

    Nothing is on disk: a device that needs that uses `turnout join`.

    Args:
        costs: of all devices, never sent.
        coins: device i tosses as client i.
        welcome: of the first device that enrolled; all others must receive the same.
        record: holds the bits on file.
        keep: how many rounds stay on file; None: all.

    Attributes:
        history: what each has participated in.
        reported: the round whose report is on its way, shape (devices,).
        agreed: the version of the rules that each has agreed to.
    """

    def __init__(self, costs: Costs, coins: Coins, welcome: Welcome, record: FleetRecord, keep: int | None) -> None:
        count = len(costs)
        self.welcome, self._costs, self._coins, self._record, self._keep = welcome, costs, coins, record, keep
        self._averaging = Averaging(welcome.remember, welcome.by)
        self.history = History.begin(Prior(welcome.prior_average, welcome.prior_rounds), self._averaging, count)
        self._mechanisms: dict[str, Mechanism] = {}
        self.agreed = np.full(count, "", dtype=object)
        self._propose(welcome.offer.rules, welcome.mechanism)
        self._weights = np.ones(count, np.int64)
        self._draws = self._coins.uniform(np.arange(count), 0, ENROLMENT)
        self._memory: Costs | None = None
        self._releasing: Mechanism | None = None
        self._stale = True
        self.reported = np.full(count, NEVER)
        record.weights = self._weights

    def join(self, device: int, welcome: Welcome) -> None:
        """A device's history starts at the round it was offered.

        Raises:
            ProtocolProblem: it received something else than the first one.
        """
        for name in ("run", "prior_average", "prior_rounds", "remember", "by"):
            if getattr(welcome, name) != getattr(self.welcome, name):
                raise ProtocolProblem(f"all devices must receive the same {name}: not one run's coordinator")
        self._propose(welcome.offer.rules, welcome.mechanism)
        self.agreed[device] = welcome.offer.rules
        if welcome.weight != self._weights[device]:
            self._weights[device] = welcome.weight
            self._stale = True
        self.history.last[device] = welcome.offer.round - 1

    def agree(self, batch: Batch, proposal: Proposal) -> None:
        """These devices agree to a version of the rules: nobody here has limits."""
        self._propose(proposal.offer.rules, proposal.mechanism)
        self.agreed[batch] = proposal.offer.rules

    def to_ask(self, batch: Batch, offer: Offer) -> Bits:
        """Who must agree to the rules of an offer before it decides, shape (batch,)."""
        found: Bits = (self.agreed[batch] != offer.rules) & (self.history.last[batch] < offer.round)
        return found

    def _propose(self, rules: str, settings: Mapping[str, Any]) -> None:
        mechanism: Mechanism = mechanism_from_settings(Table(settings, "mechanism"))
        known = self._mechanisms.setdefault(rules, mechanism)
        if known.settings() != mechanism.settings():
            raise ProtocolProblem("all devices must receive the same mechanism: not one run's coordinator")

    def settle(self, batch: Batch, round: int, counted: bool, heard: tuple[float, float]) -> int:
        """These devices have an answer to their report of a round; returns how many had another answer before.

        Args:
            batch: who.
            round: which.
            counted: whether the coordinator has it as reported.
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
        self.history.acknowledge(round, counted, batch)
        return contradicted

    def decide(self, batch: Batch, offer: Offer) -> Bits:
        """The bits of these devices for an offered round, shape (batch,): tossed once, and from the file ever after."""
        seen = self._record.seen(offer.round, offer.signal, self._keep)
        self.reported[batch] = offer.round
        new = batch[self.history.last[batch] < offer.round]
        if len(new):
            seen.bits[new] = self._toss(new, offer)
        # A round that it had missed is offered again only after a restored backup. Its history has a "no".
        seen.decided[batch] = True
        return seen.bits[batch]

    def _toss(self, batch: Batch, offer: Offer) -> Bits:
        before, mechanism = self.history.before(offer.round, batch), self._mechanisms[offer.rules]
        step = client_step(
            self._costs[batch],
            mechanism[batch],
            replace(before, memory=self._released(batch, mechanism)),
            offer.signal,
            self._coins.uniform(batch, offer.round),
            weights=self._weights[batch],
            averaging=self._averaging,
        )
        self.history.add(offer.round, before, step.state, batch)
        return step.participates

    def _released(self, batch: Batch, mechanism: Mechanism) -> Costs | None:
        """What these devices act on, where their mechanism releases once: the first release, as a ledger has it."""
        if not mechanism.releases_once:
            return None
        if self._stale:  # the same draws again: only the release of a device whose weight became known differs
            self._releasing = self._releasing or mechanism
            self._memory = self._releasing.enrol(self._costs, self._draws, self._weights)
            self._stale = False
        return None if self._memory is None else self._memory[batch]
