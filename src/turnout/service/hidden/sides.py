"""Leader and helper: who says what when a round is closed. The leader asks, the helper answers.

Any message may be lost, doubled or late: the leader asks again what it still needs to know, from its books.
"""

from __future__ import annotations

import secrets

import numpy as np

from turnout.prio import Role, verified
from turnout.service.hidden.aggregator import Aggregator, Draw
from turnout.service.hidden.books import Books
from turnout.service.hidden.messages import (
    Again,
    Chosen,
    Close,
    Commit,
    Fetch,
    Hello,
    Message,
    Opened,
    PeerProblem,
    Records,
    Standing,
    Void,
    read,
)
from turnout.service.hidden.records import FEW, LOST, RESTORED, Record, counted_of, is_few, pack_set, roll_digest
from turnout.service.hidden.rules import HiddenRules
from turnout.service.hidden.witness import RoundWitness

Question = Hello | Fetch | Records | Void | Close | Commit


class Leader(Aggregator):
    """The aggregator that closes rounds: send what `request` gives, give the answer to `take`, until there is no more.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from turnout.algorithm import Classical, IntegralController
        >>> from turnout.prio import split
        >>> from turnout.service import Rules, Safety
        >>> from turnout.service.hidden.messages import DeviceReport
        >>> books, usual = (Books(":memory:"), Books(":memory:")), IntegralController(0.1, 2.0)
        >>> keys = (books[0].key, books[1].key)
        >>> rules = HiddenRules("boilers", Rules(Classical(), usual, Safety("absent")), capacity=2, keys=keys)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     witnesses = [RoundWitness(Path(folder, role), new=True) for role in ("leader", "helper")]
        ...     leader = Leader(rules, books[0], witnesses[0], lambda round, sigma: 0)
        ...     helper = Helper(rules, books[1], witnesses[1], lambda round, sigma: 0)
        ...     for side in (leader, helper):
        ...         side.enrol((slot, 1, 0) for slot in range(3))
        ...     for slot, bit in enumerate((1, 0, 1)):
        ...         made = split(bit, rules.context(0, weight=1))
        ...         for side, share in ((leader, made.leader), (helper, made.helper)):
        ...             _ = side.report([(slot, DeviceReport("boilers", 0, made.nonce, share).body())])
        ...     leader.close()
        ...     record = settled(leader, helper)
        >>> record.opened, record.count, helper.record == record
        (2, 3, True)
    """

    role: Role = "leader"

    def __init__(self, rules: HiddenRules, books: Books, witness: RoundWitness, draw: Draw) -> None:
        super().__init__(rules, books, witness, draw)
        self._closing = -1
        self._void = (-1, "")  # the round that we have asked to be void: we open it no more
        self._begin()

    def _begin(self) -> None:
        self._number = secrets.token_hex(16)
        self._peer: Standing | None = None

    def close(self) -> None:
        """Close the open round."""
        self._closing = self.round

    def void(self) -> None:
        """Give the open round up: nothing is opened, unless the helper has what we opened before."""
        self._void = (self.round, LOST)

    def request(self) -> bytes | None:
        """What to ask the helper now; None: nothing, until `close` or `void`.

        Raises:
            PeerProblem: the helper has another chain.
        """
        found = self._next()
        return None if found is None else found.body()

    def _next(self) -> Message | None:
        self._tell_witness()
        peer, round = self._peer, self.round
        if peer is None:
            share = self.books.share(round)
            seen = "" if share is None else share.seen
            return Hello(self._number, self.rules.digest, self.books.part, round, seen)
        if peer.round != round:
            behind = peer.round < round
            closed = tuple(self.books.closed(peer.round)) if behind else ()
            return Records(peer.tag, closed) if behind else Fetch(peer.tag, round)
        if peer.before != self._record.hash:
            raise PeerProblem(f"round {round}: both must have the same record before it, got two: stop both")
        why = peer.void or self._void_reason() or (self._void[1] if self._void[0] == round else "")
        if why:
            self._void = (round, why)
            return Void(peer.tag, round, why)
        share = self._share()
        if share is not None:
            return Commit(peer.tag, round, self._commitment(share))
        return self._close_message(peer) if self._closing == round else None

    def _close_message(self, peer: Standing) -> Close:
        """The verifiers of all reports; books and witness know of it before it is sent."""
        members = self.books.members(self.round)
        if not self.books.roll(self.round):
            self.books.keep_roll(self.round, roll_digest(members))
        self.witness.note(self.round, roll=self.books.roll(self.round))
        slots = [slot for slot in self.books.reports(self.round) if slot < len(members) and members.here[slot]]
        nonces, prepared = self._prepared(members, slots)
        rows = np.flatnonzero(prepared.well_formed).tolist()
        return Close(
            peer.tag,
            self.round,
            roll_digest(members),
            tuple(slots[row] for row in rows),
            tuple(nonces[row] for row in rows),
            tuple(prepared.verifiers[row] for row in rows),
        )

    def take(self, body: bytes) -> None:
        """Take the helper's answer; one of another conversation, or that comes twice, changes nothing.

        Raises:
            ProtocolProblem: it is none.
            PeerProblem: no honest helper says so.
        """
        message: Standing | Again | Records | Chosen | Opened = read(body, Standing, Again, Records, Chosen, Opened)
        if isinstance(message, Again):
            self._begin()
        elif isinstance(message, Standing):
            if message.tag[0] == self._number:
                self._learn_key(message.key)
                self._peer, self._seen = message, (message.round, message.seen)
        elif self._peer is not None and message.tag == self._peer.tag:
            self._take(message)

    def _take(self, message: Records | Chosen | Opened) -> None:
        assert self._peer is not None  # there is a conversation
        if isinstance(message, Records):
            self._adopt(message.closed)
            if message.closed and self._peer.round <= self.round:
                values = vars(self._peer) | {"round": self.round, "before": self._record.hash, "void": ""}
                self._peer = Standing(**values)
        elif message.round == self.round and self._void[0] != self.round:
            share = self._share()
            if isinstance(message, Opened) and share is not None and share.seen:
                self._check_opening(share, message.opening)
                self._write(share.set, (share.opening, message.opening), "")
            elif isinstance(message, Chosen) and share is None:
                members = self.books.members(self.round)
                fits = self._is_by_the_rules(members, message.set)
                if not (fits and self._make_share(members, message.set, message.commitment)):
                    self.void()


class Helper(Aggregator):
    """The other aggregator: it answers."""

    role: Role = "helper"

    def __init__(self, rules: HiddenRules, books: Books, witness: RoundWitness, draw: Draw) -> None:
        super().__init__(rules, books, witness, draw)
        self._tag: tuple[str, str] | None = None

    def answer(self, body: bytes) -> bytes:
        """The answer to what the leader asks; the same again where it asks twice.

        Raises:
            ProtocolProblem: it is no question.
            PeerProblem: no honest leader asks so.
        """
        self._tell_witness()
        message: Question = read(body, Hello, Fetch, Records, Void, Close, Commit)
        if isinstance(message, Hello):
            return self._greeted(message).body()
        if self._tag is None or message.tag != self._tag:
            return Again().body()
        return self._answered(message, self._tag).body()

    def _greeted(self, message: Hello) -> Message:
        if message.rules != self.rules.digest:
            raise PeerProblem("rules must be the same for both aggregators, got others: begin another run")
        self._learn_key(message.key)
        self._tag, self._seen = (message.tag, secrets.token_hex(16)), (message.round, message.seen)
        return self._standing()

    def _standing(self, void: str = "") -> Standing:
        assert self._tag is not None
        share = self._share()
        seen, why = "" if share is None else share.seen, void or self._void_reason()
        return Standing(self._tag, self.books.part, self.round, self._record.hash, seen, why)

    def _answered(self, message: Fetch | Records | Void | Close | Commit, tag: tuple[str, str]) -> Message:
        if isinstance(message, Records):
            self._adopt(message.closed)
            return self._standing()
        if message.round < self.round:  # closed: whatever was asked, this is what came of it
            return Records(tag, tuple(self.books.closed(message.round)))
        if message.round > self.round or isinstance(message, Fetch):
            return self._standing()
        if isinstance(message, Void):
            if message.why not in (LOST, RESTORED):
                raise PeerProblem(f"a round must be void for {LOST} or {RESTORED}, got {message.why!r}")
            self._write(b"", (), self._void_reason() or message.why)
            return Records(tag, tuple(self.books.closed(message.round)))
        return self._chosen(message, tag) if isinstance(message, Close) else self._opened(message, tag)

    def _chosen(self, message: Close, tag: tuple[str, str]) -> Message:
        """Choose the set and make the share, once."""
        members, share = self.books.members(self.round), self._share()
        if self._void_reason():
            return self._standing()
        if share is None:
            if message.roll != roll_digest(members):
                return self._standing(LOST)
            heard = self._verified(message, members.here)
            counted = counted_of(self._position, members, heard)
            held = self.books.reports(self.round)
            nonces = [held[slot][0] for slot in np.flatnonzero(counted).tolist()]
            chosen = pack_set(members, heard, counted, nonces)
            if is_few(self.rules, members, heard, counted):
                self._write(chosen, (), FEW)
                return Records(tag, tuple(self.books.closed(message.round)))
            self._make_share(members, chosen, "")
            share = self._share()
            assert share is not None  # it has just been made
        return Chosen(tag, message.round, share.set, self._commitment(share))

    def _verified(self, message: Close, here: np.ndarray) -> np.ndarray:
        """Whose reports both have, with the same nonce, and that are a bit."""
        theirs = dict(zip(message.slots, zip(message.nonces, message.verifiers, strict=False), strict=False))
        held = self.books.reports(self.round)
        slots = [slot for slot, (nonce, _) in held.items() if slot in theirs and theirs[slot][0] == nonce]
        slots = [slot for slot in slots if slot < len(here) and here[slot]]
        _, prepared = self._prepared(self.books.members(self.round), slots)
        fits = verified([theirs[slot][1] for slot in slots], prepared.verifiers)
        heard = np.zeros(len(here), np.bool_)
        heard[np.array(slots, np.int64)[fits]] = True
        return heard

    def _opened(self, message: Commit, tag: tuple[str, str]) -> Message:
        """Open the own share, once the leader has committed to its own."""
        share = self._share()
        if share is None or self._void_reason():
            return self._standing()
        if share.seen == "":
            self.books.keep_commitment(message.round, message.commitment)
        elif share.seen != message.commitment:
            raise PeerProblem(f"round {message.round}: it must commit once, got a second commitment: stop both")
        self._share()  # the witness knows the commitment
        return Opened(tag, message.round, share.opening)


def settled(leader: Leader, helper: Helper) -> Record:
    """Send what the leader asks to the helper, until the leader asks no more.

    Returns:
        The newest record, the same on both sides.
    """
    while (body := leader.request()) is not None:
        leader.take(helper.answer(body))
    return leader.record
