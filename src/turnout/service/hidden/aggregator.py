"""Either side of a hidden run: messages in, messages out, and a durable step before everything that is sent.

Why no round is opened twice. A share is made once: it is in the books, with its set, salt and noise, before anything of
it is sent. The witness has its commitment, the other side's before the own share is opened, and each record's hash. For
books that are behind it, or behind what the other side has seen, the round is void, unless the other side has its
record, with that hash or these commitments.

Why no report is prepared twice. That verifiers were sent, and for which members, is in the books and in the witness:
from then on the round takes no other report and no other member, and books that were restored without it void it.

A void round needs both: the leader, once it has asked, opens the round no more, and the helper writes the void record
unless it holds an opened one, which the leader then adopts. Messages from before a restart are not heard.

Why the chains are equal. The leader writes a record with a sum first, and the helper adopts it: with its own opening in
it, and after every part of it was computed again. The helper writes one without a sum first, and takes none but for a
round that it has lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from turnout.errors import invalid
from turnout.prio import MODULUS, Prepared, Role, added, opened, prepare, weighted_sum
from turnout.service import LARGEST_BODY, Members, Position, ProtocolProblem
from turnout.service.hidden.books import Books, Share
from turnout.service.hidden.messages import Closed, DeviceReport, Opening, PeerProblem, read
from turnout.service.hidden.records import (
    FEW,
    LOST,
    RESTORED,
    Record,
    commitment_of,
    counted_of,
    is_few,
    next_record,
    pack_set,
    set_bits,
    set_digest,
    unpack_set,
)
from turnout.service.hidden.rules import HiddenRules, canonical
from turnout.service.hidden.witness import RoundWitness

Draw = Callable[[int, float], int]
"""The noise of a round, from its number and sigma: from the system's entropy, and never the same again."""

ROLES: tuple[Role, Role] = ("leader", "helper")


class Aggregator:
    """What leader and helper have in common; use `Leader` or `Helper`, one call at a time.

    Args:
        rules: of the run.
        books: this aggregator's own.
        witness: of these books, outside them.
        draw: this aggregator's noise.
    """

    role: Role

    def __init__(self, rules: HiddenRules, books: Books, witness: RoundWitness, draw: Draw) -> None:
        self.rules, self.books, self.witness, self._draw = rules, books, witness, draw
        if rules.keys[ROLES.index(self.role)] != books.key:
            told = "made with the keys of these books"
            raise invalid("rules", told, "rules with another key", "open the books that the run began with")
        books.begin(rules)
        self._other: Role = "helper" if self.role == "leader" else "leader"
        self._verify_key = b""
        self._seen: tuple[int, str] = (-1, "")  # a round, and what the other side holds of ours for it
        self._load()

    @property
    def round(self) -> int:
        """The open round."""
        return self._position.round

    @property
    def record(self) -> Record:
        """The newest record."""
        return self._record

    def enrol(self, members: Iterable[tuple[int, int, int]]) -> None:
        """Add members: slot, weight, and the first round, which must not have begun to close. Both sides must do so."""
        for slot, weight, joined in (many := list(members)):
            self._check_ahead("joined", joined)
            self.rules.context(joined, weight)  # refuses a weight that no report could have
            if slot < 0:
                raise invalid("slot", "0 or more", slot, "number the members from 0")
        self.books.enrol(many)

    def leave(self, slot: int, round: int) -> None:
        """A member leaves: from this round on it is none. Both sides must do so."""
        self._check_ahead("round", round)
        self.books.leave(slot, round)

    def _check_ahead(self, name: str, round: int) -> None:
        first = self.round + (self.books.share(self.round) is not None or bool(self.books.roll(self.round)))
        if round < first:
            raise invalid(name, f"{first} or later", round, "name a round whose set is not chosen yet")

    def report(self, reports: Iterable[tuple[int, bytes]]) -> list[str]:
        """Take reports from devices: the slot of each, which its caller has made sure of, and its bytes.

        Returns:
            For each: "" where it is on the disk; else why it is not, in a word: "closed", "early", "unknown",
            "malformed", or "another" where the slot has reported other bytes for this round.
        """
        known, members = self.books.reports(self.round), self.books.members(self.round)
        closing = bool(self.books.roll(self.round))  # verifiers were sent: what they were made of stays
        answers, new = [], dict[int, tuple[bytes, bytes]]()
        for slot, body in reports:
            answer, found = self._checked(slot, body, members)
            if found is not None:
                mine = (found.nonce, found.share)
                had = known.get(slot) or (None if closing else new.setdefault(slot, mine))
                answer = "closed" if had is None else "" if had == mine else "another"
            answers.append(answer)
        if new:
            self.books.add_reports(self.round, [(slot, *report) for slot, report in new.items()])
        return answers

    def records(self, after: int, known: str = "", most: int = 1000) -> list[bytes]:
        """The records that a device lacks, one after the other.

        Args:
            after: the round of its newest record, and
            known: that record's hash. Where ours of that round is another, since both sides were restored, they begin
                at the last round that was void: there a device may take up the chain.
            most: at most so many.
        """
        self._tell_witness()
        first = after + 1
        mine = [Record.read(closed.record) for closed in self.books.closed(after, 1)]
        if known and mine and mine[0].round == after and mine[0].hash != known:
            found = self.books.last_void(after)
            first = first if found is None else found
        return [closed.record for closed in self.books.closed(first, most)]

    def is_counted(self, slot: int, round: int) -> bool:
        """Whether the report of a slot is in the set of a closed round: for that device alone."""
        found = [one for one in self.books.closed(round, 1) if Record.read(one.record).round == round]
        counted = unpack_set(found[0].set, self.books.members(round))[1] if found else ()
        return 0 <= slot < len(counted) and bool(counted[slot])

    def _checked(self, slot: int, body: bytes, members: Members) -> tuple[str, DeviceReport | None]:
        try:
            found = read(body if len(body) <= LARGEST_BODY else b"", DeviceReport)
        except ProtocolProblem:
            return "malformed", None
        if found.run != self.rules.run or not (0 <= slot < len(members) and members.here[slot]):
            return "unknown", None
        if found.round != self.round:
            return ("closed" if found.round < self.round else "early"), None
        return "", found

    def _load(self) -> None:
        self._record, self._position = self.books.last()
        self._tell_witness()

    def _tell_witness(self) -> None:
        """Before anything is sent: its disk may have failed the last time."""
        self.witness.close(self.round - 1, self._record.hash)

    def _learn_key(self, part: bytes) -> None:
        """The other side's part of the verify key, which must be the one that the rules were made with."""
        if hashlib.sha256(part).hexdigest() != self.rules.keys[ROLES.index(self._other)]:
            raise PeerProblem("its part of the verify key must be the one in the rules, got another: stop both")
        parts = [self.books.part, part] if self.role == "leader" else [part, self.books.part]
        self._verify_key = hashlib.sha256(canonical([self.rules.run, *(one.hex() for one in parts)])).digest()

    def _prepared(self, members: Members, slots: Sequence[int]) -> tuple[list[bytes], Prepared]:
        """The nonces of these slots' reports, and what the first step of two-party Prio makes of them."""
        held, weights = self.books.reports(self.round), members.weight[list(slots)].tolist()
        contexts = {weight: self.rules.context(self.round, weight) for weight in set(weights)}
        nonces, shares = [held[slot][0] for slot in slots], [held[slot][1] for slot in slots]
        contexts_of = [contexts[weight] for weight in weights]
        return nonces, prepare(self.role, self._verify_key, contexts_of, nonces, shares)

    def _void_reason(self) -> str:
        """Why the open round must be void for this side: its books are behind what was done in it."""
        done, share = self.witness.done, self.books.share(self.round)
        made, taken = ("", "") if share is None else (self._commitment(share), share.seen)
        told = self._seen[1] if self._seen[0] == self.round else ""
        pairs = ((done.roll, self.books.roll(self.round)), (done.made, made), (done.taken, taken), (told, made))
        behind = done.round > self.round or any(known not in ("", held) for known, held in pairs)
        return RESTORED if behind else ""

    def _make_share(self, members: Members, chosen: bytes, seen: str) -> bool:
        """Add up and add noise, once; the witness knows before anything is sent. False: the set is of other reports."""
        round, (heard, counted) = self.round, unpack_set(chosen, members)
        slots = np.flatnonzero(counted).tolist()
        if not set(np.flatnonzero(heard).tolist()) <= set(self.books.reports(round)):
            return False
        nonces, prepared = self._prepared(members, slots)
        if not prepared.well_formed.all() or chosen != pack_set(members, heard, counted, nonces):
            return False
        total = weighted_sum(prepared.out_shares, prepared.well_formed, members.weight[slots])
        noise = self._draw(round, self.rules.sigma(round))
        bound = None if self.rules.noise is None else self.rules.noise.bound
        if bound is not None and abs(noise) > bound:
            raise invalid("noise", f"within the bound of {bound}", noise, "draw it from bounded noise")
        share = added(total, noise)
        salt = self.books.salt_of(self.rules.run, round, set_digest(chosen), share)
        self.books.keep_share(round, Share(chosen, Opening(share, salt), seen))
        return self._share() is not None

    def _share(self) -> Share | None:
        """The own share of the open round, with the witness up to date."""
        found = self.books.share(self.round)
        if found is not None:
            self.witness.note(self.round, made=self._commitment(found), taken=found.seen)
        return found

    def _commitment(self, share: Share) -> str:
        """To the own share, and with its set to the members and the reports in it."""
        return commitment_of(self.rules.run, self.round, self.role, share.set, share.opening)

    def _check_opening(self, share: Share, theirs: Opening) -> None:
        made = commitment_of(self.rules.run, self.round, self._other, share.set, theirs)
        if share.seen != made:
            raise PeerProblem(f"round {self.round}: its opening must be what it committed to, got another: stop both")

    def _write(self, chosen: bytes, openings: tuple[Opening, ...], why: str) -> None:
        record, position = self._computed(chosen, openings, why)
        self.books.keep_record(Closed(record.body, chosen, openings), position)
        self._load()

    def _computed(self, chosen: bytes, openings: tuple[Opening, ...], why: str) -> tuple[Record, Position]:
        """The record that these give, checked against the rules."""
        if openings and (len(openings) != 2 or not all(0 <= one.share < MODULUS for one in openings)):
            raise PeerProblem(f"round {self.round}: a sum must have two openings, got others: stop both")
        total = opened(openings[0].share, openings[1].share) if openings else None
        if (total is None) != bool(why) or bool(chosen) != (why in ("", FEW)):
            raise PeerProblem(f"round {self.round}: a record must have a sum and a set, or a reason, got both or none")
        attended = None
        if chosen:
            members = self.books.members(self.round)
            if not self._is_by_the_rules(members, chosen, few=bool(why)):
                raise PeerProblem(f"round {self.round}: the set must be by the rules, got another: stop both")
            attended = (members, chosen)
            self._check_total(total, int(members.weight[unpack_set(chosen, members)[1]].sum()))
        return next_record(self.rules, self._record, self._position, attended, total, why)

    def _check_total(self, total: int | None, most: int) -> None:
        """With bounded noise a sum is in a range."""
        least, most = -self.rules.margin, most + self.rules.margin
        if self.rules.is_bounded and total is not None and not least <= total <= most:
            raise PeerProblem(f"round {self.round}: a sum must be from {least} to {most}, got {total}: stop both")

    def _is_by_the_rules(self, members: Members, chosen: bytes, *, few: bool = False) -> bool:
        """Whether a set has members alone, counts whom the rules count, and has the minimum batch or not."""
        heard, counted = unpack_set(chosen, members)
        bits = set_bits(members, heard, counted_of(self._position, members, heard))
        fits = chosen[: len(bits)] == bits and not (heard & ~members.here).any()
        return fits and is_few(self.rules, members, heard, counted) == few

    def _adopt(self, many: Iterable[Closed]) -> None:
        """Write what the other side has closed, after computing it again."""
        for closed in many:
            record = Record.read(closed.record)
            if record.round < self.round:
                if [one.record for one in self.books.closed(record.round, 1)] != [closed.record]:
                    raise PeerProblem(f"round {record.round}: its record must be ours, got another: stop both")
            elif record.round == self.round:
                self._check_known(record, closed)
                found, position = self._computed(closed.set, closed.openings, record.why)
                if found.body != closed.record:
                    raise PeerProblem(f"round {record.round}: its record must follow from the sum, got another")
                self.books.keep_record(closed, position)
                self._load()

    def _check_known(self, record: Record, closed: Closed) -> None:
        """A record of a lost round is the one that the witness has, or void; a void one comes from the helper."""
        lost = self.witness.round > self.round
        if lost and record.hash == self.witness.record(self.round):
            return
        if closed.openings:
            if lost:
                raise PeerProblem(f"round {self.round}: its record must be the one we had, got another: stop both")
            self._check_openings(closed)
        elif record.why not in ((RESTORED,) if lost else (FEW, LOST, RESTORED) if self.role == "leader" else ()):
            raise PeerProblem(f"round {self.round}: it is not void for us, got {record.why[:16]!r}: stop both")

    def _check_openings(self, closed: Closed) -> None:
        """An opened record has this side's own opening, and the set and the commitments that it knows."""
        mine, theirs = closed.openings if self.role == "leader" else closed.openings[::-1]
        if mine.salt != self.books.salt_of(self.rules.run, self.round, set_digest(closed.set), mine.share):
            raise PeerProblem(f"round {self.round}: it must have our own opening, got one that we never made")
        share, done = self.books.share(self.round), self.witness.done
        if share is not None and (share.set, share.opening) != (closed.set, mine):
            raise PeerProblem(f"round {self.round}: its set and our share in it must be ours, got others")
        ours = Share(closed.set, mine, done.taken if share is None or not share.seen else share.seen)
        if done.made != self._commitment(ours):
            raise PeerProblem(f"round {self.round}: it must have the share that we made, got another: stop both")
        self._check_opening(ours, theirs)
