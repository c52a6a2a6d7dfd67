"""The books of one aggregator of a hidden run: an SQLite file.

What returns from a method that writes is on the disk. Each of these steps has a name, so that a test can stop there. A
report's share is deleted when its round is closed: books that are stolen say nothing of the rounds before.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import sqlite3
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from turnout.errors import FileProblem, invalid
from turnout.service import Members, Position
from turnout.service.hidden.messages import Closed, Opening
from turnout.service.hidden.records import LOST, RESTORED, Record, first_record
from turnout.service.hidden.rules import HiddenRules, canonical
from turnout.service.hidden.witness import OnStep

STEPS = ("begin", "members", "reports", "close", "witness", "share", "commitment", "record")
"""The durable steps, in the order in which they are first taken."""

_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE members (slot INTEGER PRIMARY KEY, weight INTEGER NOT NULL, joined INTEGER NOT NULL, gone INTEGER)",
    "CREATE TABLE reports (round INTEGER, slot INTEGER, nonce BLOB NOT NULL, share BLOB NOT NULL, "
    "PRIMARY KEY (round, slot)) WITHOUT ROWID",
    "CREATE TABLE closes (round INTEGER PRIMARY KEY, roll TEXT NOT NULL)",
    "CREATE TABLE shares (round INTEGER PRIMARY KEY, chosen BLOB NOT NULL, share TEXT NOT NULL, salt TEXT NOT NULL, "
    "seen TEXT)",
    "CREATE TABLE records (round INTEGER PRIMARY KEY, record BLOB NOT NULL, chosen BLOB NOT NULL, "
    "openings BLOB NOT NULL, position BLOB NOT NULL)",
    # What was written once stays, whatever a program does.
    "CREATE TRIGGER one_share BEFORE UPDATE OF round, chosen, share, salt ON shares "
    "BEGIN SELECT RAISE(ABORT, 'a share is made once'); END",
    "CREATE TRIGGER one_commitment BEFORE UPDATE OF seen ON shares WHEN OLD.seen IS NOT NULL "
    "BEGIN SELECT RAISE(ABORT, 'a commitment is taken once'); END",
    "CREATE TRIGGER no_late_share BEFORE INSERT ON shares WHEN NEW.round <= (SELECT max(round) FROM records) "
    "BEGIN SELECT RAISE(ABORT, 'the round is closed'); END",
    "CREATE TRIGGER one_record BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'a record is written once'); END",
)


@dataclass(frozen=True)
class Share:
    """An aggregator's share of the open round.

    Attributes:
        set: packed, who reported and who counts.
        opening: its noisy share, and the salt.
        seen: the other aggregator's commitment; "": none yet.
    """

    set: bytes
    opening: Opening = field(repr=False)
    seen: str


class Books:
    """The durable books of one aggregator; one process has them open.

    Args:
        path: of the file, made if it is missing; ":memory:" for tests.
        on_step: for tests.

    Raises:
        FileProblem: it is no such file, or in use.

    Example:
        >>> books = Books(":memory:")
        >>> len(books.part), len(books.key)
        (32, 64)
    """

    def __init__(self, path: str | Path, on_step: OnStep = lambda name, done: None) -> None:
        self.path, self.on_step = str(path), on_step
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None, timeout=1.0, check_same_thread=False)
            weakref.finalize(self, self._db.close)  # of books that nobody closed
            # No write-ahead log: what is deleted would stay in it, as it would in a journal that is not truncated.
            safe = ("synchronous = FULL", "fullfsync = ON", "secure_delete = ON", "journal_mode = TRUNCATE")
            for pragma in ("locking_mode = EXCLUSIVE", *safe):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript("BEGIN EXCLUSIVE; COMMIT")  # and the lock is kept
            if not self._db.execute("SELECT name FROM sqlite_master").fetchall():
                with self._step("begin"):
                    for statement in _TABLES:
                        self._db.execute(statement)
                    self._db.execute("INSERT INTO meta VALUES ('secret', ?)", (secrets.token_bytes(32),))
            self._secret = self._meta("secret")
        except (sqlite3.Error, TypeError) as error:
            raise FileProblem(
                f"{path}: not the books of an aggregator, or in use ({error}): give another path"
            ) from None

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    @property
    def part(self) -> bytes:
        """This aggregator's part of the verify key, for the other one alone."""
        return hmac.digest(self._secret, b"verify key", "sha256")

    @property
    def key(self) -> str:
        """What the rules say of that part: its digest."""
        return hashlib.sha256(self.part).hexdigest()

    def salt_of(self, *facts: Any) -> str:
        """A number that these books alone can make of these facts, the same each time."""
        return hmac.digest(self._secret, b"salt" + canonical(facts), "sha256").hex()

    def begin(self, rules: HiddenRules) -> None:
        """Fix the rules, and write the first record; later, check that they are the same."""
        stored = self._meta("rules")
        if stored is None:
            record, position = first_record(rules)
            with self._step("begin"):
                self._db.execute("INSERT INTO meta VALUES ('rules', ?)", (canonical(rules.settings()),))
                self._add_record(Closed(record.body), -1, position)
        elif HiddenRules.from_settings(json.loads(stored)).digest != rules.digest:
            raise invalid("rules", "those that the books began with", rules.digest, "open the books of this run")

    def enrol(self, members: Iterable[tuple[int, int, int]]) -> None:
        """Add members: slot, weight, and the first round; the same again changes nothing.

        A slot is given once. Who was in no set yet can be corrected: so where the two sides differ, neither is stuck.
        """
        many, rows = list(members), self._db.execute("SELECT slot, weight, joined FROM members").fetchall()
        known = {slot: (weight, joined) for slot, weight, joined in rows if joined <= self._last_set()}
        for slot, weight, joined in many:
            if known.get(slot, (weight, joined)) != (weight, joined):
                told = f"weight {weight} from round {joined} for slot {slot}"
                raise invalid("a member", f"as slot {slot} was given: {known[slot]}", told, "give it another slot")
        with self._step("members"):
            self._db.executemany(
                "INSERT INTO members VALUES (?, ?, ?, NULL) ON CONFLICT (slot) DO UPDATE SET weight = excluded.weight, "
                "joined = excluded.joined, gone = NULL WHERE weight <> excluded.weight OR joined <> excluded.joined",
                many,
            )

    def leave(self, slot: int, round: int) -> None:
        """A member leaves: from this round on it is none. Who was in no set yet was never one: its slot is free."""
        with self._step("members"):
            if round <= self.last()[1].round:
                self._db.execute("DELETE FROM members WHERE slot = ? AND joined > ?", (slot, self._last_set()))
            self._db.execute("UPDATE members SET gone = ? WHERE slot = ? AND gone IS NULL", (round, slot))

    def members(self, round: int) -> Members:
        """The members of a round."""
        rows = self._db.execute("SELECT slot, weight, joined, gone FROM members WHERE joined <= ?", (round,)).fetchall()
        slots = max((row[0] for row in rows), default=-1) + 1
        weight, joined = np.ones(slots, np.int64), np.zeros(slots, np.int64)
        here = np.zeros(slots, np.bool_)
        for slot, heavy, since, gone in rows:
            weight[slot], joined[slot], here[slot] = heavy, since, gone is None or round < gone
        return Members(weight, joined, here)

    def add_reports(self, round: int, reports: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Keep reports: slot, nonce, share. The first of a slot stays."""
        with self._step("reports"):
            rows = [(round, *report) for report in reports]
            self._db.executemany("INSERT OR IGNORE INTO reports VALUES (?, ?, ?, ?)", rows)

    def reports(self, round: int) -> dict[int, tuple[bytes, bytes]]:
        """The nonce and the share of each slot that has reported, by slot."""
        rows = self._db.execute("SELECT slot, nonce, share FROM reports WHERE round = ? ORDER BY slot", (round,))
        return {slot: (nonce, share) for slot, nonce, share in rows.fetchall()}

    def roll(self, round: int) -> str:
        """The digest of the members with which the open round began to close; "": it did not."""
        row = self._db.execute("SELECT roll FROM closes WHERE round = ?", (round,)).fetchone()
        return "" if row is None else str(row[0])

    def keep_roll(self, round: int, roll: str) -> None:
        """Keep that verifiers are sent: from now on the members of the round stay."""
        with self._step("close"):
            self._db.execute("INSERT OR IGNORE INTO closes VALUES (?, ?)", (round, roll))

    def share(self, round: int) -> Share | None:
        """The own share of an open round, if it was made."""
        row = self._db.execute("SELECT chosen, share, salt, seen FROM shares WHERE round = ?", (round,)).fetchone()
        return None if row is None else Share(row[0], Opening(int(row[1]), row[2]), row[3] or "")

    def keep_share(self, round: int, share: Share) -> None:
        """Keep the own share, once for ever."""
        values = (round, share.set, str(share.opening.share), share.opening.salt, share.seen or None)
        with self._step("share"):
            self._db.execute("INSERT INTO shares VALUES (?, ?, ?, ?, ?)", values)

    def keep_commitment(self, round: int, seen: str) -> None:
        """Keep the other aggregator's commitment, once for ever."""
        with self._step("commitment"):
            self._db.execute("UPDATE shares SET seen = ? WHERE round = ?", (seen, round))

    def keep_record(self, closed: Closed, position: Position) -> None:
        """Close the open round: the record is kept, all shares of reports and the own one are deleted."""
        round = position.round - 1
        with self._step("record"):
            self._add_record(closed, round, position)
            for table in ("reports", "closes", "shares"):
                self._db.execute(f"DELETE FROM {table} WHERE round <= ?", (round,))

    def last(self) -> tuple[Record, Position]:
        """The newest record, and where the run stands after it."""
        row = self._db.execute("SELECT record, position FROM records ORDER BY round DESC LIMIT 1").fetchone()
        values = json.loads(row[1])
        presence = bytes.fromhex(values.pop("presence"))
        return Record.read(row[0]), Position(**values, presence=presence)

    def closed(self, first: int, most: int = 1000) -> list[Closed]:
        """The closed rounds from one on."""
        query = "SELECT record, chosen, openings FROM records WHERE round >= ? ORDER BY round LIMIT ?"
        rows = self._db.execute(query, (max(-1, min(first, 2**62)), most)).fetchall()
        return [Closed(row[0], row[1], tuple(Opening(**one) for one in json.loads(row[2]))) for row in rows]

    def last_void(self, round: int) -> int | None:
        """The last round up to one that was void without a set; None: there is none."""
        query = "SELECT max(round) FROM records WHERE round <= ? AND (instr(record, ?) > 0 OR instr(record, ?) > 0)"
        reasons = [canonical({"why": why})[1:-1] for why in (LOST, RESTORED)]
        found: int | None = self._db.execute(query, (round, *reasons)).fetchone()[0]
        return found

    def _last_set(self) -> int:
        """The last round whose members both have agreed on, or which has begun to close."""
        wheres = ("records WHERE chosen <> x''", "shares", "closes")
        query = " UNION ".join(f"SELECT round FROM {where}" for where in wheres)
        return max((row[0] for row in self._db.execute(query)), default=-1)

    def _add_record(self, closed: Closed, round: int, position: Position) -> None:
        where = {"round": position.round, "offered": float(position.offered), "controller": dict(position.controller)}
        stood = canonical(where | {"presence": position.presence.hex()})
        openings = canonical([asdict(one) for one in closed.openings])
        values = (round, closed.record, closed.set, openings, stood)
        self._db.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?)", values)

    def _meta(self, name: str) -> Any:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """One durable step: all of it or nothing."""
        self.on_step(name, False)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        self.on_step(name, True)
