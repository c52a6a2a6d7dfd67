"""A client's own account of what it has given away: one ledger for one private datum, for ever.

Across runs and servers, every report about the datum is reserved here before its coin is tossed.
The limit is the client's; a server has no say in it.

Why a crash never under-counts. `reserve` takes three durable steps, each complete before the next:
(1) the line is appended to the ledger and synced, (2) the witness is moved to that line and synced,
(3) `reserve` returns, and only now may a coin be tossed. So whenever a coin was tossed, the line and
the witness are on the disk.

- Crash before or in (1): no coin. The ledger ends as before, or with a torn line. The witness does
  not know the torn line, which proves that no coin followed it: it is dropped. Were it known,
  the line had been whole once, and the ledger is refused as rolled back.
- Crash between (1) and (2): no coin, yet the line is there and counts as spent. Too much, not too little.
- Crash in (2): the witness is replaced as a whole; it is the old one (as above) or the new one.
- Crash after (2): the line counts, whether or not a coin was tossed.

A restored older ledger ends before its witness, or does not contain the witness's hash: refused.
The witness is worth most on other storage, which a backup of the ledger does not bring back too. Where
both files are restored or deleted at once, a client that still has its rounds on file notices (`account_for`).
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from turnout.errors import FileProblem, TurnoutError, invalid
from turnout.privacy.journal import Disk, Head, Journal
from turnout.privacy.witness import Witness

RELEASE = "release:"
"""So begins the name that a release is reserved under: made once, it covers every report that repeats it."""

_REMEDY = (
    "Restore the newest copy. If there is none, spend_missing=True (turnout join --count-missing-as-spent) goes on and "
    "counts all that is missing as spent; limits that you had set are to be given again"
)


class BudgetSpent(TurnoutError):
    """The client's limit allows no such report: do not toss. After the stop, leave or act on public data.

    Example:
        >>> issubclass(BudgetSpent, TurnoutError)
        True
    """


class LedgerRolledBack(TurnoutError):
    """The ledger is older than what its witness has seen, or has no witness: it would count too little.

    Example:
        >>> issubclass(LedgerRolledBack, TurnoutError)
        True
    """


@dataclass(frozen=True)
class Limit:
    """What the client allows for one private datum: so many reports, none worse than this.

    Args:
        reports: at most so many, over all runs and servers.
        epsilon_per_report: the largest certified epsilon per report, against a server that sees
            each report; `math.inf` allows mechanisms without a certificate.

    Example:
        >>> Limit(reports=1000, epsilon_per_report=0.5)
        Limit(reports=1000, epsilon_per_report=0.5)
    """

    reports: int
    epsilon_per_report: float

    def __post_init__(self) -> None:
        if isinstance(self.reports, bool) or not isinstance(self.reports, int) or self.reports < 0:
            raise invalid("limit reports", "a whole number from 0", repr(self.reports), "try 1000")
        object.__setattr__(self, "epsilon_per_report", _epsilon("limit epsilon_per_report", self.epsilon_per_report))

    def exceeds(self, other: Limit) -> bool:
        """Whether it allows anything that the other one does not."""
        return self.reports > other.reports or self.epsilon_per_report > other.epsilon_per_report


@dataclass(frozen=True)
class Reservation:
    """The right to toss once for one round of one run.

    Attributes:
        run, round: what it was reserved for.
        epsilon_per_report: the certificate it was reserved under.
        keep: the text stored with it.
        new: whether this call made it; if not, a coin may have been tossed already.
    """

    run: str
    round: int
    epsilon_per_report: float
    keep: str = ""
    new: bool = True


class Ledger:
    """An open ledger, for one process at a time. Make it with `Ledger.open`, close it or use `with`.

    Attributes:
        datum: the client's own name for the private datum.
        limit: what is allowed.
        spent: reports reserved so far.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Ledger.open(f"{folder}/cost.jsonl", datum="my cost", limit=Limit(2, 0.5)) as ledger:
        ...         _ = ledger.reserve("run-1", 0, epsilon_per_report=0.5)
        ...         again = ledger.reserve("run-1", 0, epsilon_per_report=0.5)
        ...         again.new, ledger.spent, ledger.remaining
        (False, 1, 1)
    """

    def __init__(self, journal: Journal, witness: Witness, spends_missing: bool) -> None:
        self.datum, self.spent = "", 0
        self.limit: Limit  # what the file says: `open` reads or begins it
        self._journal, self._witness, self._spends_missing = journal, witness, spends_missing
        self._reservations: dict[str, dict[int, Reservation]] = {}
        self._missing: Counter[str] = Counter()  # counted as spent without a reservation; "" if the run is not known
        self._mutex = threading.RLock()

    def __repr__(self) -> str:
        most = f"at most epsilon {self.limit.epsilon_per_report:g} per report"
        return f"Ledger({self.spent} of {self.limit.reports} reports spent, {most})"

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        datum: str,
        limit: Limit | None = None,
        consent: bool = False,
        witness: str | Path | None = None,
        spend_missing: bool = False,
        disk: Disk | None = None,
    ) -> Ledger:
        """Open the ledger of a datum, or begin it.

        Args:
            path: the file, one readable JSON line an entry, mode 0600.
            datum: the client's own name for the private datum; must be the one it began with.
            limit: needed to begin. Later: a lower one takes effect at once, a higher one needs consent.
            consent: the person behind the client agrees to a higher limit; this is recorded.
            witness: the second small file, best on other storage; `<path>.witness` by default.
            spend_missing: accept a ledger behind its witness, or behind a client's file, and count what is missing
                as spent. Rounds that the client has forgotten, too, could be tossed again: join under a new run name.
            disk: the durable steps; for tests.

        Raises:
            LedgerRolledBack: it is older than its witness, or its witness is missing.
            InUse: another process has it open.
            FileProblem: it is missing and no limit was given, damaged, or cannot be written.
            ValueError: another datum, or a higher limit without consent.
        """
        path, disk = Path(path), disk or Disk()
        if limit is None and not path.exists():
            raise FileProblem(f"{path}: no such ledger: give limit=Limit(...) to begin one")
        journal = Journal(path, "ledger", disk)
        try:
            ledger = cls(journal, Witness(Path(witness or f"{path}.witness"), path, disk), spend_missing)
            ledger._load(datum, limit)
            if limit is not None and limit != ledger.limit:
                ledger.change_limit(limit, consent=consent)
        except BaseException:
            journal.close()
            raise
        return ledger

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file and its lock; may be called twice."""
        self._journal.close()

    @property
    def remaining(self) -> int:
        """Reports that may still be reserved."""
        return max(0, self.limit.reports - self.spent)

    def reserved(self, run: str, after: int = -1) -> list[int]:
        """The rounds of a run that are reserved, later than `after`, ascending."""
        return sorted(round for round in self._reservations.get(run, ()) if round > after)

    def missing(self, run: str) -> int:
        """Reports that are counted without a reservation, and are or may be of this run."""
        return self._missing[run] + self._missing[""]

    def account_for(self, run: str, rounds: Collection[int], older: int = 0) -> None:
        """Compare with what a client has on file: all that it has tossed for must be counted here.

        Args:
            run: the client's.
            rounds: those it has tossed for; with a release in the ledger they may have no reservation.
            older: how many it tossed for before these.

        Raises:
            LedgerRolledBack: some are not counted; with `spend_missing` they are from now on.
        """
        reserved = self._reservations.get(run, {})
        before = sum(round < min(rounds, default=0) for round in reserved)
        missing = len(set(rounds) - reserved.keys()) + max(0, older - before) - self.missing(run)
        if missing <= 0 or any(name.startswith(RELEASE) for name in self._reservations):
            return
        if not self._spends_missing:
            raise LedgerRolledBack(
                f"{self._journal.path}: this ledger lacks reports that the client has made in {run!r} ({missing}): it "
                f"and its witness were deleted, or older copies restored. {_REMEDY}"
            )
        with self._mutex:
            self._move_witness()
            self._spend_missing(missing, run)
            self._move_witness()

    def reserve(self, run: str, round: int, epsilon_per_report: float, *, keep: str = "") -> Reservation:
        """Count one report, durably. Toss only after this has returned, and only if it is `new`.

        Args:
            run: the run's name, unique among all servers that this client reports to.
            round: the round in it, from 0.
            epsilon_per_report: the mechanism's certificate, against a server that sees each report.
            keep: a short text to store with it, such as a draw that must never be made twice.

        Returns:
            The reservation; the existing one (`new` false, not counted again) if there is one.

        Raises:
            BudgetSpent: the limit does not allow it. Nothing was counted.
            FileProblem: it could not be made durable. It may count as spent, and nothing may be tossed.
        """
        if not isinstance(run, str) or not run:
            raise invalid("run", "a name", repr(run), "give the run's unique name")
        if isinstance(round, bool) or not hasattr(round, "__index__") or not 0 <= round < 2**53:
            raise invalid("round", "a whole number from 0 to 2^53 - 1", repr(round), "count rounds from 0")
        round, epsilon = int(round), _epsilon("epsilon_per_report", epsilon_per_report)
        with self._mutex:
            self._move_witness()
            existing = self._reservations.get(run, {}).get(round)
            if existing is not None and epsilon > existing.epsilon_per_report:
                allowed = f"at most {existing.epsilon_per_report}, as reserved before for round {round} of {run!r}"
                raise invalid("epsilon_per_report", allowed, epsilon, "a reservation cannot grow: skip this round")
            if existing is not None:
                return replace(existing, new=False)
            self._check_budget(epsilon)
            made = Reservation(run, round, epsilon, keep)
            body = {"run": run, "round": round, "epsilon_per_report": _plain(epsilon)}
            self._append("reserved", body | ({"keep": keep} if keep else {}))
            self._reservations.setdefault(run, {})[round] = made
            self.spent += 1
            self._move_witness()
            return made

    def change_limit(self, limit: Limit, *, consent: bool = False) -> None:
        """Set another limit: a lower one freely, a higher one only with the person's consent; recorded.

        Raises:
            ValueError: it allows more than the present one, without consent.
        """
        raised = limit.exceeds(self.limit)
        if raised and not consent:
            remedy = "pass consent=True (turnout join --raise-limit) only if the person whose datum it is agrees"
            raise invalid("limit", f"at most {self.limit} (the client's own)", limit, remedy)
        with self._mutex:
            self._move_witness()
            self._append("limit", {"limit": _limit_body(limit), "consent": raised})
            self.limit = limit
            self._move_witness()

    def _check_budget(self, epsilon: float) -> None:
        allowed, path = self.limit, self._journal.path
        if epsilon > allowed.epsilon_per_report:
            raise BudgetSpent(
                f"{path}: a report must have a certified epsilon per report of at most "
                f"{allowed.epsilon_per_report}, got {epsilon}: use a mechanism with a smaller one"
            )
        if self.spent >= allowed.reports:
            raise BudgetSpent(
                f"{path}: all {allowed.reports} reports that the client allows about {self.datum!r} are spent: "
                "leave the run, or act on public data alone"
            )

    def _append(self, entry: str, body: dict[str, Any], number: int | None = None) -> None:
        self._journal.append({"entry": entry, "time": datetime.now(UTC).isoformat(timespec="seconds")} | body, number)

    def _load(self, datum: str, limit: Limit | None) -> None:
        """Read the ledger, compare it with its witness, and begin it if there is none."""
        journal, seen = self._journal, self._witness.read()
        if seen is None and (journal.entries or journal.torn):
            self._refuse_missing_witness()
        self._witness.seen = seen or Head()
        missing = self._witness.seen.number - journal.head.number
        if missing > 0 and not self._spends_missing:
            ends = f"ends at entry {journal.head.number}" if journal.entries else "is empty or was deleted"
            raise LedgerRolledBack(
                f"{journal.path}: this ledger {ends}, its witness {self._witness.path} has seen entry "
                f"{self._witness.seen.number}: an older copy was restored, or its end is lost. {_REMEDY}"
            )
        journal.mend()
        if journal.entries:
            self._replay(datum)
        else:
            self._begin(datum, limit)
        if missing > 0:
            self._spend_missing(missing, "", number=self._witness.seen.number + 1)
        self._move_witness()

    def _begin(self, datum: str, limit: Limit | None) -> None:
        """The witness first, with nothing in it: a crash from here on is told from a lost witness."""
        if not isinstance(datum, str) or not datum:
            raise invalid("datum", "a name", repr(datum), "give the private datum a name of your own")
        if limit is None:
            raise FileProblem(f"{self._journal.path}: this ledger is empty: give limit=Limit(...) to begin it")
        self.datum, self.limit = datum, limit
        if self._witness.seen.number < 0:  # otherwise it begins with the line that counts what is missing
            self._witness.write(Head())
            self._append("opened", {"datum": datum, "limit": _limit_body(limit), "witness": str(self._witness.path)})

    def _replay(self, datum: str) -> None:
        known = {-1: ""}
        for entry in self._journal.entries:
            known[entry["number"]] = entry["hash"]
            if entry["entry"] == "reserved":
                found = Reservation(
                    entry["run"], entry["round"], float(entry["epsilon_per_report"]), entry.get("keep", "")
                )
                self._reservations.setdefault(found.run, {})[found.round] = found
                self.spent += 1
            elif entry["entry"] == "missing":
                known[entry["witness"][0]] = entry["witness"][1]
                self.spent += entry["reports"]
                self._missing[entry.get("run", "")] += entry["reports"]
            if "limit" in entry:
                self.datum = entry.get("datum", self.datum)
                self.limit = Limit(entry["limit"]["reports"], float(entry["limit"]["epsilon_per_report"]))
        self._journal.entries.clear()
        if datum != self.datum:
            remedy = "one ledger is for one datum: open the right one, or begin another"
            raise invalid("datum", f"{self.datum!r}, as the ledger {self._journal.path} began", repr(datum), remedy)
        number, digest = self._witness.seen
        if number <= self._journal.head.number and known.get(number) != digest:
            raise LedgerRolledBack(
                f"{self._journal.path}: this ledger differs from what its witness {self._witness.path} has seen at "
                f"entry {number}: two copies were in use. Restore the copy that the witness belongs to"
            )

    def _spend_missing(self, reports: int, run: str, number: int | None = None) -> None:
        body = {"reports": reports, "run": run, "witness": list(self._witness.seen)}
        self._append("missing", body | {"datum": self.datum, "limit": _limit_body(self.limit)}, number)
        self.spent += reports
        self._missing[run] += reports

    def _refuse_missing_witness(self) -> NoReturn:
        began = next((entry["witness"] for entry in self._journal.entries if entry["entry"] == "opened"), "unknown")
        raise LedgerRolledBack(
            f"{self._journal.path}: no witness at {self._witness.path} (the ledger began with {began}): without it a "
            "restored older copy cannot be told. Name its place (witness=…, turnout join --witness), or bring it back"
        )

    def _move_witness(self) -> None:
        """See that the witness is where we left it, then move it to the head."""
        head = self._journal.head
        if self._witness.read() not in (self._witness.seen, head):  # the head: moved, but not known to be durable
            raise LedgerRolledBack(
                f"{self._witness.path}: the witness of {self._journal.path} was moved by somebody else or is gone: "
                "another copy of this ledger may be in use. Stop it, bring the witness back, and open the ledger again"
            )
        if head != self._witness.seen:
            self._witness.write(head)


def _epsilon(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value < 0:
        raise invalid(name, "0 or more, or math.inf for no certificate", repr(value), "give the certificate's value")
    return float(value)


def _plain(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)  # float() reads both back


def _limit_body(limit: Limit) -> dict[str, Any]:
    return {"reports": limit.reports, "epsilon_per_report": _plain(limit.epsilon_per_report)}
