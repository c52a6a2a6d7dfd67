"""Many simulated devices over real connections, in one process: for rehearsals and load tests.

Each device has a connection of its own and says what a real one says. There is neither a task nor a timer for
each: answers that arrive about together are handled together, and `client_step` decides for all of them at once.
Nothing is durable: a fleet that is started again enrols again, with new codes.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turnout.algorithm import Coins, SeededCoins, SystemCoins
from turnout.errors import TurnoutError, invalid
from turnout.problem import Costs, Problem
from turnout.service import (
    ENROL,
    REPORT,
    ROUND,
    RULES,
    Address,
    Answer,
    Offer,
    Proposal,
    ProtocolProblem,
    Report,
    Welcome,
    fields,
    read_json,
)
from turnout.service.load_test.connection import Arrival, Switchboard, allow_connections, request_head, with_body
from turnout.service.load_test.devices import Batch, Devices, Rehearsal
from turnout.service.load_test.record import Bits, FleetRecord

AT_ONCE, SLOWLY = 200, 20
"""Enrolments under way, at the most; and once the coordinator has said that they are too many."""

TICK = 0.05
"""Seconds between checks of what is due."""

PAUSE = 1.0
"""Seconds before something is tried again, unless the coordinator says when."""

ENROLLING, REPORTING, ASKING, AGREEING = 1, 2, 3, 4
"""What a device awaits an answer to."""

JOINING, ACTIVE, CUT, DONE, OUT = range(5)
"""Where a device stands; OUT: refused or revoked, for good."""

Offers = defaultdict[Offer, list[Batch]]


class Fleet:
    """N devices against a coordinator.

    Args:
        url: of the coordinator.
        clients: the devices' costs, or a problem with them (its capacity is not used).
        codes: one-time codes, at least one per device; device i enrols with the i-th.
        seed: device i tosses `SeededCoins(seed)` as client i, so that a run equals `simulate`; None: the system's.
        ca: a PEM file with the certificates to trust, for https.
        rehearsal: who is late, who is cut off and when.
        keep: how many rounds stay on file; None: all.
        patience: seconds after which an unanswered request is sent again; more than the coordinator holds it.
        progress: called about four times a second with the record so far.

    Attributes:
        record: what has happened so far.

    Example:
        >>> from turnout import paper_population
        >>> Fleet("http://127.0.0.1:8440", paper_population(clients=8).costs, ["code"] * 8, seed=1)
        Fleet(8 devices, http://127.0.0.1:8440)
    """

    def __init__(
        self,
        url: str,
        clients: Problem | Costs,
        codes: Sequence[str],
        *,
        seed: int | None = None,
        ca: Path | None = None,
        rehearsal: Rehearsal | None = None,
        keep: int | None = None,
        patience: float = 90.0,
        progress: Callable[[FleetRecord], None] | None = None,
    ) -> None:
        self._costs = clients.costs if isinstance(clients, Problem) else clients
        count = len(self._costs)
        if len(codes) < count:
            remedy = "make more with `turnout operate codes`, or start fewer devices"
            raise invalid("codes", f"at least one for each of {count} devices", f"{len(codes)}", remedy)
        if keep is not None and keep < 2:
            raise invalid("keep", "2 rounds or more, or None for all", keep, "try 256")
        self._url, self._address = url, Address.of(url, ca)
        self._coins: Coins = SystemCoins() if seed is None else SeededCoins(seed)
        self._rehearsal = rehearsal or Rehearsal()
        self._rehearsal.draw(count, seed)
        self._keep, self._patience, self._progress = keep, patience, progress
        self.record = FleetRecord(count, weights=np.ones(count, np.int64), tokens=[""] * count)
        nonces = [secrets.token_urlsafe(18) for _ in range(count)]
        self._enrolments = [{"code": codes[i].strip(), "nonce": nonces[i]} for i in range(count)]
        self._heads = [b""] * count
        self._where = np.full(count, JOINING, np.int8)
        self._to_enrol: deque[int] = deque()
        self._enrolling, self._at_once = 0, AT_ONCE
        self._devices: Devices | None = None
        self._rounds, self._end, self._newest = math.inf, math.inf, -1
        self._stopping = False

    def __repr__(self) -> str:
        return f"Fleet({self.record.devices} devices, {self._url})"

    async def run(self, rounds: int | None = None) -> FleetRecord:
        """Enrol, and participate until every device has had this number of rounds; None: until `stop`.

        All end together: if a device enrols later, the others have more rounds. A second call resumes where the
        first stopped, with new connections.

        Raises:
            Unreachable: the first connection fails.
            TurnoutError: no device may enrol, or the coordinator speaks another protocol.
        """
        allow_connections(self.record.devices)
        self._rounds, self._stopping = math.inf if rounds is None else rounds, False
        begun = time.monotonic() - self.record.seconds
        self._board = Switchboard(self._address, self.record, self._handle, self._rehearsal.pause)
        try:
            self._begin()
            while not (self._stopping or self._finished()):
                await asyncio.sleep(TICK)
                self._board.tick(self._patience)
                self.record.seconds = time.monotonic() - begun
                if self._progress is not None:
                    self._progress(self.record)
                if self._board.error is not None:
                    raise self._board.error
        finally:
            await self._board.close()
            self.record.seconds = time.monotonic() - begun
            self.record.finish(self._stopping)
        return self.record

    def stop(self) -> None:
        """Let `run` return soon."""
        self._stopping = True

    def _finished(self) -> bool:
        return not np.isin(self._where, (JOINING, ACTIVE)).any()

    def _begin(self) -> None:
        """Enrol whoever has not; others send a bit again that awaits its answer, or ask for the open round."""
        self._to_enrol, self._enrolling = deque(np.flatnonzero(self._where == JOINING).tolist()), 0
        self._end = math.inf if self._to_enrol else self._newest + self._rounds
        joined = np.flatnonzero(np.isin(self._where, (ACTIVE, CUT, DONE)))
        self._where[joined] = ACTIVE
        unanswered = (
            np.zeros(len(joined), np.bool_) if self._devices is None else self._devices.history.unsettled[joined]
        )
        for device in joined[~unanswered].tolist():
            self._ask(device)
        for offer, batch in self._unanswered(joined[unanswered]):
            self._report(batch, offer)
        self._enrol_more()

    def _unanswered(self, devices: Batch) -> list[tuple[Offer, Batch]]:
        """These devices by the round whose answer they await."""
        if self._devices is None:
            return []
        last = self._devices.history.last[devices]
        signals = {round: self.record.rounds[round].signal for round in np.unique(last).tolist()}
        return [(Offer(round, signal), devices[last == round]) for round, signal in signals.items()]

    def _enrol_more(self) -> None:
        head = request_head(self._address, "POST", ENROL)
        while self._to_enrol and self._enrolling < self._at_once:
            device = self._to_enrol.popleft()
            self._enrolling += 1
            body = json.dumps(self._enrolments[device]).encode()
            self._board.send(device, ENROLLING, head + with_body(body))

    def _handle(self, arrived: Mapping[Arrival, list[int]]) -> None:
        """All that has arrived: first what it says of the past, then one decision for each round that is offered."""
        offers: Offers = defaultdict(list)
        for arrival, devices in arrived.items():
            batch = np.array(devices)
            try:
                self._take(arrival, batch, offers)
            except (ProtocolProblem, ValueError) as problem:
                if not self.record.enrolled:
                    raise TurnoutError(f"this is no coordinator that a fleet understands: {problem}") from None
                self._fault("no answer of the protocol", batch)
                self._try_again(batch, arrival.kind)
        for offer, batches in offers.items():
            self._go_on(np.concatenate(batches), offer)

    def _take(self, arrival: Arrival, batch: Batch, offers: Offers) -> None:
        if arrival.status in (408, 429, 503):
            self._fault("asked to wait", batch)
            self._at_once = SLOWLY if arrival.kind == ENROLLING else self._at_once
            self._try_again(batch, arrival.kind, arrival.retry_after)
        elif arrival.status >= 500:
            self._fault("coordinator's error", batch)
            self._try_again(batch, arrival.kind)
        elif arrival.kind == ENROLLING and arrival.status == 201:
            self._welcomed(int(batch[0]), Welcome.read(read_json(arrival.body)), offers)
        elif arrival.kind == REPORTING and arrival.status == 200:
            self._answered(batch, read_json(arrival.body), offers)
        elif arrival.kind == REPORTING and arrival.status == 409:
            self._objected(batch, read_json(arrival.body), offers)
        elif arrival.kind == ASKING and arrival.status == 200:
            offers[Offer.read(read_json(arrival.body))].append(batch)
        elif arrival.kind == AGREEING and arrival.status == 200:
            assert self._devices is not None
            proposal = Proposal.read(read_json(arrival.body))
            self._devices.agree(batch, proposal)
            offers[proposal.offer].append(batch)
        else:
            self._leave(batch, "refused" if arrival.kind == ENROLLING else "sent away")

    def _welcomed(self, device: int, welcome: Welcome, offers: Offers) -> None:
        if self._devices is None:
            self._devices = Devices(self._costs, self._coins, welcome, self.record, self._keep)
            self.record.run = welcome.run
        self._devices.join(device, welcome)
        self.record.tokens[device] = welcome.token
        self._heads[device] = request_head(self._address, "POST", REPORT, token=welcome.token)
        self._where[device] = ACTIVE
        offers[welcome.offer].append(np.array([device]))
        self._newest = max(self._newest, welcome.offer.round)
        self._enrolled_one()

    def _enrolled_one(self) -> None:
        self._enrolling -= 1
        self._enrol_more()
        if not self._to_enrol and not self._enrolling:
            if not self.record.enrolled:
                raise TurnoutError("no device may enrol: the codes are used, expired, or another run's")
            self._end = self._newest + self._rounds

    def _answered(self, batch: Batch, value: Any, offers: Offers) -> None:
        answer = Answer.read(value, fields(value, {"round": int}, "answer")["round"])
        batch = self._of_round(batch, answer.round)
        if answer.outcome == "pending":
            for device in batch.tolist():
                self._board.send_again(device, REPORTING)
            return
        self._settle(batch, answer.round, answer.counted)
        self._follow(batch, answer.next, offers)

    def _of_round(self, batch: Batch, round: int) -> Batch:
        """Those that reported this round; an answer about another one is a fault."""
        assert self._devices is not None
        right: Bits = self._devices.reported[batch] == round
        if not right.all():
            self._fault("answer to another round", batch[~right])
            self._try_again(batch[~right], REPORTING)
        return batch[right]

    def _settle(self, batch: Batch, round: int, counted: bool) -> None:
        assert self._devices is not None
        contradictions = self._devices.settle(batch, round, counted, (self._board.heard_from, self._board.heard_until))
        if contradictions:
            self.record.faults["acknowledged otherwise before"] += contradictions

    def _objected(self, batch: Batch, value: Any, offers: Offers) -> None:
        """A 409: the coordinator has another bit, the round is not open yet there, or it is another run."""
        assert self._devices is not None
        said = fields(value, {"error": str, "next": object}, "objection")
        offer = None if said["next"] is None else Offer.read(said["next"])
        self._fault(f"409 {said['error'][:20]}", batch)
        if said["error"] == "ahead" and offer is not None:
            offers[offer].append(batch)  # what is on file goes out again
        elif said["error"] == "conflict":
            reported = self._devices.reported[batch]
            for round in np.unique(reported).tolist():
                self._settle(batch[reported == round], round, False)
            stuck = np.zeros(len(batch), np.bool_) if offer is None else reported >= offer.round
            self._follow(batch[~stuck], offer, offers)
            self._follow(batch[stuck], None, offers)
        else:
            self._leave(batch, "sent away")

    def _follow(self, batch: Batch, offer: Offer | None, offers: Offers) -> None:
        """Continue with the next round, or ask for it in a while."""
        if offer is not None:
            offers[offer].append(batch)
            return
        for device in batch.tolist():
            self._board.later(self._rehearsal.pause(PAUSE), self._ask, device)

    def _ask(self, device: int, kind: int = ASKING) -> None:
        path = ROUND if kind == ASKING else RULES
        request = request_head(self._address, "GET", path, token=self.record.tokens[device])
        self._board.send(device, kind, request + b"\r\n")

    def _go_on(self, batch: Batch, offer: Offer) -> None:
        """Decide a round and report it; or be done, or be cut off."""
        self._newest = max(self._newest, offer.round)
        if offer.round >= self._end:
            self._where[batch] = DONE
            return
        away = self._rehearsal.away(offer.round)[batch]
        for device in batch[away].tolist():
            self._where[device] = CUT
            self._board.hang_up(device)
        batch = batch[~away]
        if self._devices is not None and len(batch):
            unknown = self._devices.to_ask(batch, offer)
            for device in batch[unknown].tolist():
                self._ask(device, AGREEING)
            batch = batch[~unknown]
        if len(batch):
            self._report(batch, offer)
        if not self._rehearsal.is_out(self._newest):
            for device in np.flatnonzero(self._where == CUT).tolist():
                self._where[device] = ACTIVE
                self._ask(device)

    def _report(self, batch: Batch, offer: Offer) -> None:
        assert self._devices is not None
        bits = self._devices.decide(batch, offer)
        run = self.record.run
        agreed = str(self._devices.agreed[batch[0]])  # all of a batch have the same, unless they send what is on file
        no, yes = (with_body(Report(run, offer.round, bit, rules=agreed).body()) for bit in (False, True))
        delays = self._rehearsal.delays(batch)
        for device, bit, delay in zip(batch.tolist(), bits.tolist(), delays.tolist(), strict=True):
            request = self._heads[device] + (yes if bit else no)
            if delay:
                self._board.later(delay, self._board.send, device, REPORTING, request)
            else:
                self._board.send(device, REPORTING, request)

    def _try_again(self, batch: Batch, kind: int, seconds: float | None = None) -> None:
        for device in batch.tolist():
            wait = self._rehearsal.pause(PAUSE) if seconds is None else seconds + self._rehearsal.pause(0.1 * PAUSE)
            self._board.later(wait, self._board.send_again, device, kind)

    def _leave(self, batch: Batch, why: str) -> None:
        self._fault(why, batch)
        joining = int(np.sum(self._where[batch] == JOINING))
        self._where[batch] = OUT
        for _ in range(joining):
            self._enrolled_one()

    def _fault(self, name: str, batch: Batch) -> None:
        self.record.faults[name] += len(batch)
