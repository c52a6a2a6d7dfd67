"""A world in which either aggregator stops at any step, or is restored from any earlier copy of its books.

Every message that was ever sent may arrive again. What must never happen is checked at each step.
"""

import itertools
import random
from collections import defaultdict
from functools import lru_cache

from service.hidden.scene import Pair
from turnout.prio import prepare
from turnout.service.hidden import Books, Helper, Leader, RoundWitness, first_record
from turnout.service.hidden.messages import Opened, Records, read
from turnout.service.hidden.records import Record, chain_problem
from turnout.service.hidden.witness import Done

WEIGHTS = (1, 2, 1)
ROUNDS = 24


class Stopped(Exception):
    """A side stops here, and forgets all that is not on its disk."""


class Wrong(AssertionError):
    """What must never happen."""


class NotYet(AssertionError):
    """In the end both should be at the same place, and further."""


@lru_cache(maxsize=4096)
def remembered(*given):
    return prepare(*given)


def prepare_once(role, key, contexts, nonces, shares):
    return remembered(role, key, tuple(contexts), tuple(nonces), tuple(shares))


class Beginning:
    """The books of both as a run begins, and what its devices report: the same for many worlds."""

    def __init__(self, folder):
        self.folder = folder
        self.pair = Pair(folder, WEIGHTS, least=2, capacity=2)
        self.rules = self.pair.rules
        self.copies = [books._db.serialize() for books in self.pair.books]
        coins = random.Random(1)
        self.bits = [[coins.randrange(2) for _ in WEIGHTS] for _ in range(ROUNDS)]
        self.reports = [
            [self.pair.report(slot, bit, round) for slot, bit in enumerate(bits)]
            for round, bits in enumerate(self.bits)
        ]


class NoFile(RoundWitness):
    """A witness that outlives its side, without a file."""

    def __init__(self, on_step):
        self.on_step, self.done = on_step, Done()

    def _put(self, done):
        self.done = done


class World:
    """Two sides and what was ever seen of them.

    Args:
        beginning: shared by many worlds.
        stops: at which events a side stops: {number: copies to restore by side, or {} for none}.
        kinds: of both sides; twins for sabotage.
        forgets: whether the witness says nothing.
    """

    def __init__(self, beginning, stops=(), kinds=(Leader, Helper), forgets=False):
        self.beginning, self.stops, self.kinds, self.forgets = beginning, dict(stops), kinds, forgets
        self.events, self.names, self.noise = 0, [], itertools.count(1)
        self.opened, self.revealed = defaultdict(set), defaultdict(set)
        self.head = first_record(beginning.rules)[0]  # what a device has that never stops
        self.books = [Books(":memory:"), Books(":memory:")]
        self.copies, self.sides = [[], []], list(beginning.pair.sides)
        self.witnesses = [NoFile(lambda name, done, side=side: self.event(side, name, done)) for side in (0, 1)]
        for side, copy in enumerate(beginning.copies):
            self.restore(side, copy)
            self.books[side].on_step = lambda name, done, side=side: self.event(side, name, done)
            self.copies[side].append(copy)
        for side in (0, 1):
            self.restart(side)

    def event(self, side, name, done):
        """A durable step: it may be the last."""
        number, self.events = self.events, self.events + 1
        self.names.append((side, name, done))
        if done:
            if name != "witness":
                self.copies[side].append(self.books[side]._db.serialize())
            self.look(side)
        if number in self.stops:
            raise Stopped(side)

    def look(self, side):
        """A record with a sum that either has written is an opening, whoever asks for it."""
        for closed in self.books[side].closed(0):
            record = Record.read(closed.record)
            if record.opened is not None:
                self.opened[record.round].add((record.opened, record.set))
                self.check(record)
                if len(self.opened[record.round]) > 1:
                    raise Wrong(f"round {record.round} opened twice")

    def check(self, record):
        """The sum is what was reported, and one draw of each side."""
        bits, heavy = self.beginning.bits[record.round], zip(WEIGHTS, strict=False)
        true = sum(weight * bit for (weight,), bit in zip(heavy, bits, strict=True))
        if record.count == len(WEIGHTS) and (record.opened - true) % 1000:
            raise Wrong(f"round {record.round} has a false sum")

    def overhear(self, side, body):
        """What leaves a side: of its shares, one per round."""
        found = read(body, Opened, Records) if b'"opening' in body else None
        if isinstance(found, Opened):
            self.revealed[1, found.round].add(found.opening.share)
        elif found is not None:
            for closed in found.closed:
                for one, opening in enumerate(closed.openings):
                    self.revealed[one, Record.read(closed.record).round].add(opening.share)
        for (one, round), shares in self.revealed.items():
            if len(shares) > 1:
                raise Wrong(f"side {one} opened two shares of round {round}")

    def follow(self):
        """A device takes what both give it, and must be able to."""
        both = [side.records(self.head.round, self.head.hash) for side in self.sides]
        if both[0] == both[1] and both[0]:
            records = [Record.read(body) for body in both[0]]
            told = chain_problem(self.head, records)
            if told and records[-1].round > self.head.round:
                raise Wrong(f"a device cannot go on: {told}")
            self.head = self.head if told else records[-1]

    def draw(self, round, sigma):
        return 1000 * next(self.noise)

    def restore(self, side, copy):
        self.books[side]._db.deserialize(copy)
        self.books[side]._secret = self.books[side]._meta("secret")

    def restart(self, side):
        if self.forgets:
            self.witnesses[side].done = Done()
        try:
            made = self.kinds[side](self.beginning.rules, self.books[side], self.witnesses[side], self.draw)
            self.sides[side] = made
        except Stopped:
            self.restart(side)

    def stopped(self, side):
        """Start again; from older copies where the plan says so."""
        for one, copy in self.stops.get(self.events - 1, {}).items():
            self.copies[one] = self.copies[one][: copy % len(self.copies[one]) + 1]  # later ones are of another story
            self.restore(one, self.copies[one][-1])
            if one != side:
                self.restart(one)
        self.restart(side)

    def guarded(self, side, act, *given):
        """What a side says; None where it stops."""
        try:
            return act(*given)
        except Stopped as stop:
            self.stopped(stop.args[0])
            return None

    @property
    def leader(self):
        return self.sides[0]

    @property
    def helper(self):
        return self.sides[1]

    def send_reports(self):
        """Devices send, again and again, what they have for the open round."""
        for side in (0, 1):
            now = self.sides[side].round
            if now < ROUNDS:
                reports = [(slot, both[side]) for slot, both in enumerate(self.beginning.reports[now])]
                while self.guarded(side, lambda: self.sides[side].report(reports)) is None:  # noqa: B023 (at once)
                    pass

    def turn(self):
        """One question and its answer; whether there was one."""
        self.follow()
        question = self.guarded(0, self.leader.request)
        if question is None:
            return False
        self.overhear(0, question)
        answer = self.guarded(1, self.helper.answer, question)
        if answer is not None:
            self.overhear(1, answer)
            self.guarded(0, self.leader.take, answer)
        return True

    def run(self, rounds):
        """Until both have closed so many rounds, in order."""
        for _ in range(60 * rounds):
            for _ in range(20):
                if not self.turn():
                    break
            if min(side.round for side in self.sides) >= rounds:
                break
            self.send_reports()
            if self.leader.round < rounds:
                self.leader.close()
        return self.ended(rounds)

    def ended(self, rounds):
        """Both have the same chain, and it goes on; the records."""
        chains = [[one.record for one in books.closed(0)] for books in self.books]
        if chains[0] != chains[1]:
            raise NotYet("the chains differ")
        records = [Record.read(body) for body in chains[0]]
        self.follow()
        if self.head != records[-1]:
            raise Wrong(f"a device stands still at round {self.head.round}")
        if len(records) < rounds:
            raise NotYet(f"it stands still at round {len(records)}")
        return records
