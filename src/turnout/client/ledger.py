"""A client's own account of what it has given away: one ledger for one private cost, for ever.

Across runs, servers and folders, every report about the cost is reserved here before its coin is tossed, and a release
that covers all later reports is made once. A cost that is measured again or that changes is not a new one. The limit is
the client's; no server can change it. Several processes may share a ledger: each holds it for a moment at a time.

Why a crash never under-counts. `reserve` takes three durable steps, each complete before the next:
(1) the line is appended to the ledger and synced, (2) the witness is moved to that line and synced,
(3) `reserve` returns, and only now may a coin be tossed. So whenever a coin was tossed, the line and
the witness are on the disk. `release` does the same, with what was released in the line.

- Crash before or in (1): no coin. The ledger ends as before, or with a torn line. The witness does
  not know the torn line, which proves that no coin followed it: it is dropped. Were it known,
  the line had been whole once, and the ledger is refused as rolled back.
- Crash between (1) and (2): no coin, yet the line is there and counts as spent. It counts too much, not too little.
- Crash in (2): the witness is replaced as a whole; it is the old one (as above) or the new one.
- Crash after (2): the line counts, whether or not a coin was tossed.

A restored older ledger ends before its witness, or does not contain the witness's hash: refused. So the witness is
kept outside the ledger's folder, where a restored copy of the folder does not bring it back too. Where
both files are restored or deleted at once, a client that still has its rounds on file notices (`account_for`). Where
all three are restored, nothing can notice: then the coins, made from the ledger's key, repeat the same bit for the same
signal (`KeyedCoins`), and only a signal that differs from the one before gets another report out of the client.
"""

from __future__ import annotations

import math
import os
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from turnout.client.limit import Limit, as_epsilon, as_round
from turnout.client.witness import Note, Witness, usual_place
from turnout.errors import FileProblem, TurnoutError, invalid
from turnout.files import LOCK_SECONDS, Disk, Head, Journal
from turnout.privacy import Account, Kind, Spending, plain

DELTA = 1e-6
"""Of the total that a ledger shows of itself."""

_REMEDY = (
    "Restore the newest copy. If there is none, spend_missing=True (turnout join --count-missing-as-spent) continues "
    "and counts all that is missing as spent; limits that you had set are to be given again"
)


class BudgetSpent(TurnoutError):
    """The client's limit allows no such report or release: do not toss. After the stop, leave or act on public data."""


class LedgerRolledBack(TurnoutError):
    """The ledger is older than what its witness has seen, or has no witness: it would count too little."""


@dataclass(frozen=True)
class Reservation:
    """The right to toss one coin for one round of one run.

    Attributes:
        run, round: what it was reserved for.
        epsilon_per_report: the certificate it was reserved under.
        new: whether this call made it; if not, a coin may have been tossed already.
    """

    run: str
    round: int
    epsilon_per_report: float
    new: bool = True


class Ledger:
    """An open ledger. Make it with `Ledger.open`, close it or use `with`.

    Attributes:
        datum: the client's own name for the private cost.
        limit: what is allowed.
        key: the secret that this client's coins are made from; never shown.
        accepts_uncertified: whether the person has agreed, this time, to reports without a certificate.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     limit, witness = Limit(reports=2, epsilon_per_report=0.5), f"{folder}/witness"
        ...     with Ledger.open(f"{folder}/cost.jsonl", datum="my cost", limit=limit, witness=witness) as ledger:
        ...         _ = ledger.reserve("run-1", 0, epsilon_per_report=0.5)
        ...         again = ledger.reserve("run-1", 0, epsilon_per_report=0.5)
        ...         again.new, ledger.spent, ledger.remaining
        (False, 1, 1)
    """

    def __init__(self, journal: Journal, witness: Witness, spends_missing: bool, accepts_uncertified: bool) -> None:
        self.datum, self.key = "", b""
        self.limit: Limit  # what the file says: `open` reads or begins it
        self.accepts_uncertified = accepts_uncertified
        self._journal, self._witness, self._spends_missing = journal, witness, spends_missing
        self._reservations: dict[str, dict[int, Reservation]] = {}
        self._missing: Counter[str] = Counter()  # counted as spent without a reservation, by run
        self._passed: dict[str, int] = {}  # the last round of each run that may have been tossed for, and is forgotten
        self._runs: dict[str, tuple[int, int]] = {}  # of each run: the last round that has passed, how many counted
        self._spending, self._place = Spending(), ""
        self._released: list[dict[str, Any]] = []  # as far as it is known what was released
        self._lost_releases: list[float] = []  # the epsilons of the others
        self._consents = False  # whether another release was agreed to since the last
        self._mutex = threading.RLock()

    def __repr__(self) -> str:
        with self._mutex:
            return f"Ledger({self._spending.total(DELTA)!r}; {self.allows})"

    @property
    def allows(self) -> str:
        """What is still allowed, in words."""
        limit = self.limit
        more = f"{self.remaining:,} more report{'' if self.remaining == 1 else 's'} of at most epsilon "
        left = max(0, limit.releases - self.releases)
        once = f", {left} release{'' if left == 1 else 's'} of at most epsilon {limit.for_release:g}" if left else ""
        return f"{more}{limit.epsilon_per_report:g} each{once}"

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        datum: str,
        limit: Limit | None = None,
        usual: Limit | None = None,
        consent: bool = False,
        accept_uncertified: bool = False,
        witness: str | Path | None = None,
        spend_missing: bool = False,
        disk: Disk | None = None,
    ) -> Ledger:
        """Open the ledger of a private cost, or begin it.

        Args:
            path: the file, one readable JSON line per entry, mode 0600.
            datum: the client's own name for the private cost; must be the one it began with.
            limit: needed to begin. Later: a lower one takes effect at once, a higher one needs consent.
            usual: the limit to begin with, if none is given.
            consent: the person behind the client agrees to a higher limit; this is recorded.
            accept_uncertified: the person agrees, for as long as this ledger is open, to reports without a
                certificate. From the first of them on the total is infinite.
            witness: the second small file, best on other storage. By default where it was before, or else outside the
                ledger's folder (see `turnout.client.witness.usual_place`).
            spend_missing: accept a ledger behind its witness, or behind a client's file, and count what is missing
                as spent. Rounds that may have been tossed for are never tossed for again.
            disk: the durable steps; for tests.

        Raises:
            LedgerRolledBack: it is older than its witness, or its witness is missing.
            InUse: another process has held it for long.
            FileProblem: it is missing and no limit was given, damaged, or cannot be written.
            ValueError: another datum, or a higher limit without consent.
        """
        path, disk = Path(path), disk or Disk()
        if limit is None and usual is None and not path.exists():
            raise FileProblem(f"{path}: no such ledger: give limit=Limit(...) to begin one")
        journal = Journal(path, "ledger", disk, LOCK_SECONDS)
        try:
            named = witness if witness is not None else _last_place(journal) or usual_place(path)
            place = Path(os.path.realpath(named))
            ledger = cls(journal, Witness(place, path, disk), spend_missing, accept_uncertified)
            ledger._load(datum, limit or usual)
            if limit is not None and limit != ledger.limit:
                ledger.change_limit(limit, consent=consent)
            if ledger._place != os.path.abspath(place):
                ledger._append("place", {"place": os.path.abspath(place)})
            journal.let_go()
        except BaseException:
            journal.close()
            raise
        return ledger

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file; may be called twice."""
        self._journal.close()

    @property
    def places(self) -> tuple[Path, Path]:
        """Where the ledger and its witness are."""
        return self._journal.path, self._witness.path

    @property
    def spent(self) -> int:
        """Reports reserved so far, by whoever shares this ledger, as far as seen."""
        with self._mutex:
            return self._spending.spent

    @property
    def releases(self) -> int:
        """Releases made so far."""
        return len(self._spending.releases)

    @property
    def remaining(self) -> int:
        """Reports that may still be reserved."""
        return max(0, self.limit.reports - self.spent)

    @property
    def last_release(self) -> dict[str, Any] | None:
        """What was released last, as it was handed in; None if nothing was, or if it is lost."""
        return dict(self._released[-1]) if self._released else None

    @property
    def largest_release(self) -> float:
        """The largest epsilon of what was released; 0 if nothing was."""
        self.catch_up()
        with self._mutex:
            return max(self._spending.releases, default=0.0)

    def account(self, delta: float, more: Mapping[Kind, int] | None = None, releasing: Iterable[float] = ()) -> Account:
        """The total epsilon at delta of all lines of this ledger, and of future reports and releases."""
        self.catch_up()
        with self._mutex:
            return self._spending.total(delta, more, releasing)

    def catch_up(self) -> None:
        """Read what others that share this ledger have added; a closed one stays as it was."""
        if self._journal.is_open:
            with self.turn():
                pass

    def reserved(self, run: str, after: int = -1) -> list[int]:
        """The rounds of a run that are reserved, later than `after`, ascending."""
        return sorted(round for round in self._reservations.get(run, ()) if round > after)

    def passed(self, run: str) -> int:
        """The last round of a run that may have been tossed for and is forgotten: never toss for it again; -1: none."""
        return self._passed.get(run, -1)

    def account_for(self, run: str, tossed: Mapping[int, float], older: Mapping[float, int] | None = None) -> None:
        """Compare with what a client has on file: all that it has tossed for must be counted here.

        Args:
            run: the client's.
            tossed: the rounds that it has reserved and tossed for, each with its epsilon per report.
            older: how many it tossed for before these, by their epsilon.

        Raises:
            LedgerRolledBack: some are not counted; with `spend_missing` they are from now on.
        """
        with self.turn():
            reserved, before = self._reservations.get(run, {}), Counter(older or {})
            lost = sorted((epsilon for round, epsilon in tossed.items() if round not in reserved), reverse=True)
            known = sum(round < min(tossed, default=math.inf) for round in reserved)
            lost += sorted(before.elements(), reverse=True)[: max(0, before.total() - known)]
            lost = sorted(lost, reverse=True)[: max(0, len(lost) - self._missing[run])]
            if not lost:
                return
            self._refuse_lost(f"reports that the client has made in {run!r} ({len(lost)})")
            spent = Spending(Counter(Kind(epsilon) for epsilon in lost))
            self._spend_missing(spent, {run: len(lost)}, {run: max(tossed, default=-1)})

    def account_for_release(self, release: Mapping[str, Any]) -> None:
        """Compare with what a client acts on: its release must be counted here.

        Raises:
            LedgerRolledBack: it is not; with `spend_missing` it is from now on, as it was.
        """
        with self.turn():
            if dict(release) in self._released:
                return
            counted = float(release["epsilon"]) in self._lost_releases  # counted, and nothing else of it was known
            if not counted:
                self._refuse_lost("the release that the client acts on")
            self._add_release(release, counted)

    def reserve(
        self, run: str, round: int, epsilon_per_report: float, *, box: tuple[float, float] | None = None
    ) -> Reservation:
        """Count one report, durably. Toss only after this has returned, and only if it is `new`.

        Args:
            run: the run's name, unique among all servers that this client reports to.
            round: the round in it, from 0.
            epsilon_per_report: the mechanism's certificate, against an observer of every report.
            box: the public limits of its probability, if they are fixed: then the total is smaller.

        Returns:
            The reservation; the existing one (`new` false, not counted again) if there is one.

        Raises:
            BudgetSpent: the limit does not allow it. Nothing was counted.
            FileProblem: it could not be made durable. It may count as spent, and nothing may be tossed.
        """
        if not isinstance(run, str) or not run:
            raise invalid("run", "a name", repr(run), "give the run's unique name")
        round, epsilon = as_round(round), as_epsilon("epsilon_per_report", epsilon_per_report)
        with self.turn():
            existing = self._reservations.get(run, {}).get(round)
            if existing is not None and epsilon > existing.epsilon_per_report:
                allowed = f"at most {existing.epsilon_per_report}, as reserved before for round {round} of {run!r}"
                raise invalid("epsilon_per_report", allowed, epsilon, "a reservation cannot grow: skip this round")
            if existing is not None:
                return replace(existing, new=False)
            self._check_budget(epsilon)
            kind = Kind(epsilon) if box is None else Kind(epsilon, float(box[0]), float(box[1]))
            self._append("reserved", {"run": run, "round": round} | kind.body())
            return self._reservations[run][round]

    def release_is_due(self, mechanism: Mapping[str, Any]) -> bool:
        """Whether a release is due: none was made yet; or the client allows more than were made, and agreed to it since
        the last, or the mechanism is another one. If not, act on the last."""
        if not self.releases:
            return True
        last = self._released[-1]["mechanism"] if self._released else None
        return self.releases < self.limit.releases and (self._consents or last != dict(mechanism))

    def check_release(self, epsilon: float) -> None:
        """Refuse a release that the limit does not allow.

        Raises:
            BudgetSpent: it does not.
        """
        allowed, path = self.limit, self._journal.path
        if self.releases >= allowed.releases:
            raise BudgetSpent(
                f"{path}: {self.datum!r} was released {self.releases} times, and the client allows {allowed.releases}: "
                "act on the last release, or agree to another one (limit releases, turnout join --releases)"
            )
        if epsilon > allowed.for_release and not (math.isinf(epsilon) and self.accepts_uncertified):
            raise BudgetSpent(
                f"{path}: a release must have a certified epsilon of at most {allowed.for_release}, for the lifetime "
                f"of the cost, got {epsilon}: use a smaller one, or allow it (limit epsilon_per_release, turnout join "
                f"--epsilon-per-release {float(epsilon)!r})"
            )

    def release(self, epsilon: float, mechanism: Mapping[str, Any], released: Mapping[str, Any]) -> None:
        """Count a release, durably, with what it released. Act on it only after this has returned.

        Args:
            epsilon: certified, for the lifetime of the cost.
            mechanism: its settings.
            released: what to act on from now on; plain data, and public from now on.

        Raises:
            BudgetSpent: the limit does not allow it. Nothing was counted.
        """
        with self.turn():
            epsilon = as_epsilon("epsilon", epsilon)
            self.check_release(epsilon)
            self._add_release({"epsilon": epsilon, "mechanism": dict(mechanism), "released": dict(released)})

    def change_limit(self, limit: Limit, *, consent: bool = False) -> None:
        """Set another limit: a lower one freely, a higher one only with the person's consent; recorded.

        Raises:
            ValueError: it allows more than the present one, without consent.
        """
        with self.turn():
            raised = limit.beyond(self.limit)
            if raised and not consent:
                name, before, now = raised
                remedy = "add --raise-limit (consent=True, turnout-consent=true) if the person whose cost it is agrees"
                raise invalid(f"limit {name}", f"at most {before:g}, as this client allowed before", now, remedy)
            self._append("limit", {"limit": limit.body(), "consent": bool(raised)})

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the ledger, with all that others have added to it, and its witness where it was left.

        Raises:
            LedgerRolledBack: the witness was moved by somebody else than those who share this ledger.
        """
        with self._mutex, self._journal.turn() as news:
            heads = [self._witness.seen, *(Head(entry["number"], entry["hash"]) for entry in news)]
            for entry in news:
                self._take(entry)
            note = self._witness.read()
            if note is None:
                self._witness.check_folder()
            if note is None or note.head not in (*heads, self._journal.head):  # the head: moved, not known as durable
                raise LedgerRolledBack(
                    f"{self._witness.path}: the witness of {self._journal.path} was moved by somebody else or is gone: "
                    "another copy of this ledger may be in use. Stop it, bring the witness back, and open it again"
                )
            self._witness.seen = note.head
            self._move_witness()
            yield

    def _check_budget(self, epsilon: float) -> None:
        allowed, path = self.limit, self._journal.path
        if epsilon > allowed.epsilon_per_report and not (math.isinf(epsilon) and self.accepts_uncertified):
            raise BudgetSpent(
                f"{path}: a report must have a certified epsilon per report of at most "
                f"{allowed.epsilon_per_report}, got {epsilon}: use a mechanism with a smaller one"
            )
        if self.spent >= allowed.reports:
            raise BudgetSpent(
                f"{path}: all {allowed.reports} reports that the client allows about {self.datum!r} are spent: "
                "leave the run, or act on public data alone"
            )

    def _append(self, entry: str, body: Mapping[str, Any], number: int | None = None) -> None:
        """Add a line, move the witness to it, and take it in."""
        line = {"entry": entry, "time": datetime.now(UTC).isoformat(timespec="seconds")} | dict(body)
        self._journal.append(line, number)
        self._take(line)
        self._move_witness()

    def _add_release(self, release: Mapping[str, Any], counted: bool = False) -> None:
        body = {"epsilon": plain(float(release["epsilon"]))} | {name: release[name] for name in _RELEASED[1:]}
        self._append("released", body | ({"counted": True} if counted else {}))

    def _take(self, entry: Mapping[str, Any]) -> None:
        """What a line says."""
        self._spending.take(entry)
        if entry["entry"] == "reserved":
            found = Reservation(entry["run"], entry["round"], float(entry["epsilon_per_report"]))
            self._reservations.setdefault(found.run, {})[found.round] = found
            self._count(found.run, found.round, 1)
        elif entry["entry"] == "released":
            self._released.append({name: entry[name] for name in _RELEASED})
            self._consents = False
            if entry.get("counted"):
                self._lost_releases.remove(float(entry["epsilon"]))
        elif entry["entry"] == "missing":
            for run, number in entry["runs"].items():
                self._missing[run] += number
                self._count(run, -1, number)
            for run, last in entry["passed"].items():
                self._passed[run] = max(last, self._passed.get(run, -1))
                self._count(run, last, 0)
            lost = [float(epsilon) for epsilon in entry["spent"]["releases"]]
            self._lost_releases += lost
            self._consents &= not lost
        self._place = entry.get("place", self._place)
        if "key" in entry:
            self.key = bytes.fromhex(entry["key"])
        if "limit" in entry:
            self.datum = entry.get("datum", self.datum)
            limit = Limit(**entry["limit"])
            self._consents |= entry["entry"] == "limit" and limit.releases > self.limit.releases
            self.limit = limit

    def _count(self, run: str, round: int, number: int) -> None:
        last, before = self._runs.get(run, (-1, 0))
        self._runs[run] = (max(last, round), before + number)

    def _load(self, datum: str, limit: Limit | None) -> None:
        """Read the ledger, compare it with its witness, and begin it if there is none."""
        journal, note = self._journal, self._witness.read()
        unwitnessed = note is None and bool(journal.entries or journal.torn)
        if unwitnessed and not self._spends_missing:
            self._witness.check_folder()
            self._refuse_missing_witness()
        note = note or Note(journal.head if unwitnessed else Head())
        self._witness.seen = note.head
        missing = note.head.number - journal.head.number
        if missing > 0 and not self._spends_missing:
            ends = f"ends at entry {journal.head.number}" if journal.entries else "is empty or was deleted"
            raise LedgerRolledBack(
                f"{journal.path}: this ledger {ends}, its witness {self._witness.path} has seen entry "
                f"{note.head.number}: an older copy was restored, or its end is lost. {_REMEDY}"
            )
        journal.mend()
        if journal.entries:
            self._replay(datum)
        else:
            self._begin(datum, limit)
        if missing > 0:
            lost = note.spending.beyond(self._spending)
            counts = {run: number - self._runs.get(run, (-1, 0))[1] for run, (_, number) in note.runs.items()}
            passed = {run: last for run, (last, _) in note.runs.items() if last > self._runs.get(run, (-1, 0))[0]}
            counts = {run: number for run, number in counts.items() if number > 0}
            self._spend_missing(lost, counts, passed, number=note.head.number + 1)
        if unwitnessed:
            self._append("unwitnessed", {"place": os.path.abspath(self._witness.path)})
        if not self.key:  # it begins with what is missing
            self._append("key", {"key": secrets.token_hex(32)})
        self._move_witness()

    def _begin(self, datum: str, limit: Limit | None) -> None:
        """The witness first, with nothing in it: a crash from here on differs from a lost witness."""
        if not isinstance(datum, str) or not datum:
            raise invalid("datum", "a name", repr(datum), "give the private cost a name of your own")
        if limit is None:
            raise FileProblem(f"{self._journal.path}: this ledger is empty: give limit=Limit(...) to begin it")
        self.datum, self.limit = datum, limit
        if self._witness.seen.number < 0:  # otherwise it begins with the line that counts what is missing
            self._witness.write(Note())
            opened = {"datum": datum, "limit": limit.body(), "key": secrets.token_hex(32)}
            self._append("opened", opened | {"place": os.path.abspath(self._witness.path)})

    def _replay(self, datum: str) -> None:
        known = {-1: ""}
        for entry in self._journal.entries:
            known[entry["number"]] = entry["hash"]
            if entry["entry"] == "missing":
                known[entry["witness"][0]] = entry["witness"][1]
            self._take(entry)
        self._journal.entries.clear()
        if datum != self.datum:
            remedy = "one ledger is for one cost: open the right one, or begin another"
            raise invalid("datum", f"{self.datum!r}, as the ledger {self._journal.path} began", repr(datum), remedy)
        number, digest = self._witness.seen
        if number <= self._journal.head.number and known.get(number) != digest:
            raise LedgerRolledBack(
                f"{self._journal.path}: this ledger differs from what its witness {self._witness.path} has seen at "
                f"entry {number}: two copies were in use. Restore the copy that the witness belongs to"
            )

    def _refuse_lost(self, what: str) -> None:
        if not self._spends_missing:
            raise LedgerRolledBack(
                f"{self._journal.path}: this ledger lacks {what}: it and its witness were deleted, or older copies "
                f"restored. {_REMEDY}"
            )

    def _spend_missing(
        self, lost: Spending, runs: Mapping[str, int], passed: Mapping[str, int], number: int | None = None
    ) -> None:
        body = {"reports": lost.spent, "spent": lost.body(), "runs": dict(runs), "passed": dict(passed)}
        body |= {"witness": list(self._witness.seen), "place": os.path.abspath(self._witness.path)}
        self._append("missing", body | {"datum": self.datum, "limit": self.limit.body()}, number)

    def _refuse_missing_witness(self) -> NoReturn:
        raise LedgerRolledBack(
            f"{self._journal.path}: no witness at {self._witness.path} (the ledger's was at "
            f"{_last_place(self._journal) or 'an unknown place'}): without it no older copy is noticed. "
            "Name its place (witness=…, turnout join --witness), or restore it. If it is lost, spend_missing=True "
            "(turnout join --count-missing-as-spent) continues with a new one, and every total says so from then on"
        )

    def _move_witness(self) -> None:
        """To the head, with all that is spent up to it."""
        if self._journal.head != self._witness.seen:
            self._witness.write(Note(self._journal.head, self._spending, self._runs))


def check_place(path: Path, witness: str | Path | None, spend_missing: bool) -> None:
    """Refuse a place where no ledger can begin, before anything is asked of anybody.

    Raises:
        LedgerRolledBack: there was one, as its witness knows.
        FileProblem: there is no folder, or no place for the witness.
    """
    if not path.parent.is_dir():
        raise FileProblem(f"{path}: no folder {path.parent} for the ledger: create it first")
    place = Path(witness) if witness is not None else usual_place(path)
    note = Witness(place, path, Disk()).read()
    if note is not None and note.head.number >= 0 and not spend_missing:
        raise LedgerRolledBack(
            f"{path}: this ledger is empty or was deleted, its witness {place} has seen entry {note.head.number}: "
            f"{_REMEDY}. For another device, with another cost, take another folder"
        )


_RELEASED = ("epsilon", "mechanism", "released")


def _last_place(journal: Journal) -> str:
    """Where the ledger says that its witness is; empty if it does not."""
    return next((entry["place"] for entry in reversed(journal.entries) if "place" in entry), "")
