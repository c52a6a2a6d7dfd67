"""A device of a hidden run: its bit by the durable client, split for two aggregators, and never reported twice.

Why there is one report for a round. `report` takes these durable steps, each complete before the next: (1) the client
reserves, tosses and stores the bit, (2) the whole report, with both shares, is on file, and only then is it returned.
After a crash between the two the round is lost, as it is where the file was restored from an older copy: a bit that was
decided and has no report on file gets none, and is charged all the same.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from turnout.client import DurableClient, Ledger, RoundLost, RoundPassed, Seams, Stopped, Terms
from turnout.files import Journal
from turnout.prio import split
from turnout.privacy import plain
from turnout.problem import Costs
from turnout.service.hidden.messages import DeviceReport, PeerProblem
from turnout.service.hidden.records import Record, chain_problem, first_record
from turnout.service.hidden.rules import HiddenRules

REPORTS = "reports.jsonl"
"""The device's file of reports and records, beside the client's of rounds."""

LINES = 4096
"""With this number of lines the file is written again, with the newest record and report alone."""


def system_coin() -> float:
    """A number in [0, 1) from the operating system, 53 bits."""
    return secrets.randbelow(2**53) * 2.0**-53


class Sent(NamedTuple):
    """A device's report of a round, for the leader and for the helper, in bytes."""

    leader: bytes
    helper: bytes


class HiddenDevice:
    """A device that survives crashes and restarts, for one hidden run; close it or use `with`.

    Args:
        folder: of this run alone, for the files of rounds and of reports; must exist.
        costs: its own private cost.
        rules: of the run, to which its owner has agreed.
        ledger: of the private cost. It counts what the rules' mechanism gives away by itself: with plain coins it must
            accept that there is no bound. What the noise leaves is charged here.
        weight: its public weight.
        joined: the round at which it joined.
        most: of the charges of all its reports. A report charges weight² / sigma²: without a bound of the noise the
            reports are as private as one normal number, moved by 1, whose variance is the reciprocal of the sum; with
            a bound, and at the rules' delta, as that number is at nine tenths of it. Rounds that the file of reports
            has lost, but the client knows of, are charged as if it had reported in each.
        seams: for tests.
        coin: the thinning's coin; for tests.

    Raises:
        What `DurableClient` raises.
    """

    def __init__(
        self,
        folder: str | Path,
        costs: Costs,
        rules: HiddenRules,
        *,
        ledger: Ledger,
        weight: int = 1,
        joined: int | None = None,
        most: float = math.inf,
        seams: Seams = Seams(),  # noqa: B008 (frozen)
        coin: Callable[[], float] = system_coin,
    ) -> None:
        self._rules, self._weight, self._most, self._coin = rules, weight, most, coin
        self._ledger, self._joined = ledger, joined or 0
        terms = Terms(rules.run, rules.rules.prior, rules.rules.averaging, weight, joined)
        self._client = DurableClient(folder, costs, rules.rules.mechanism, ledger=ledger, terms=terms, seams=seams)
        self._record, self._sent, self._counted = first_record(rules)[0], dict[str, Any](), False
        self._charged, self._lines = 0.0, 0
        try:
            self._journal = Journal(Path(folder, REPORTS), "device's reports", seams.disk)
        except BaseException:
            self._client.close()
            raise
        self._journal.mend()
        for entry in self._journal.entries:
            self._apply(entry)
        self._journal.entries.clear()
        self._acknowledge()

    def __enter__(self) -> HiddenDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"HiddenDevice(run {self._rules.run!r}, record of round {self._record.round})"  # never a bit, nor a share
        )

    def close(self) -> None:
        """Release the files; the ledger stays open."""
        self._journal.close()
        self._client.close()

    @property
    def record(self) -> Record:
        """The newest record that both aggregators gave; after it the next round is open."""
        return self._record

    @property
    def charged(self) -> float:
        """The sum of weight² / sigma² of all reports, and of the rounds whose report is not on file."""
        return self._charged + self._missing()

    @property
    def acts(self) -> bool:
        """Whether it acts, for the lease of the newest record: both count its "yes", and the record says go."""
        return bool(self._sent.get("round") == self._record.round and self._counts() and self._bit())

    def status(self) -> dict[str, Any]:
        """Where the device stands, for its own user."""
        return self._client.status() | {"charged": self.charged}

    def report(self) -> Sent | None:
        """The report of the round after the newest record; None: the round was lost in a crash, and has none.

        Whatever comes, the same bytes for one round.

        Raises:
            Stopped: it would charge more than its owner allows, or the ledger's budget is spent, or the rules have no
                more rounds.
        """
        round = self._record.round + 1
        if self._sent.get("round") != round:
            last = self._client.status()["last_round"]
            if self._sent.get("round", -1) > round or (last is not None and last >= round):
                return None
            if self._rules.is_bounded and round >= (self._rules.rounds or 0):
                raise Stopped(f"the rules have {self._rules.rounds} rounds, and the bound holds for no more: it leaves")
            charge = self._missing() + self._charge(round, round + 1)
            if self._charged + charge > self._most:
                raise Stopped(f"{self._charged + charge:g} would be charged, and {self._most:g} is allowed: it leaves")
            try:
                bit = self._client.decide(round, self._record.signal)
            except RoundLost:
                return None
            kept = self._record.thinning == 1.0 or self._coin() < self._record.thinning
            made = split(int(bit and kept), self._rules.context(round, self._weight))
            parts = {name: getattr(made, name).hex() for name in ("nonce", "leader", "helper")}
            self._append({"entry": "report", "round": round, **parts, "kept": kept, "charge": plain(charge)})
        nonce, *shares = (bytes.fromhex(self._sent[name]) for name in ("nonce", "leader", "helper"))
        return Sent(*(DeviceReport(self._rules.run, round, nonce, share).body() for share in shares))

    def take(self, leader: Sequence[bytes], helper: Sequence[bytes], counted: tuple[bool, bool]) -> bool:
        """Go on to the newest record, if both aggregators gave it.

        Args:
            leader, helper: the records that each gave, one after the other, from the first that the device lacks.
            counted: whether each says that this device's last report is in the set.

        Returns:
            Whether it acts, for the lease of the newest record.

        Raises:
            PeerProblem: they differ, or do not follow on what the device has: nothing changes.
            ProtocolProblem: they are no records.
        """
        if not leader or list(leader) != list(helper):
            raise PeerProblem("both aggregators must give the same records, got two stories: do not act")
        records = [Record.read(body) for body in leader]
        told = chain_problem(self._record, records)
        if told:
            raise PeerProblem(f"records must follow on those that the device has, but {told}: do not act")
        mine = [record for record in records if record.round == self._sent.get("round")]
        go = bool(mine and mine[0].go and all(counted))
        self._append({"entry": "record", "record": records[-1].body.decode(), "counted": go})
        self._acknowledge()
        return self.acts

    def _charge(self, first: int, stop: int) -> float:
        """For a report in each of these rounds."""
        if self._rules.noise is None or stop <= first:
            return math.inf if stop > first else 0.0
        opened = self._rules.noise.opened(first, stop)
        return math.fsum(number * (self._weight / sigma) ** 2 for sigma, number in opened.items())

    def _missing(self) -> float:
        """For the rounds after the last report on file, up to the last that the client has decided or passed."""
        last = self._client.status()["last_round"]
        known = max(-1 if last is None else last, self._ledger.passed(self._rules.run))
        reserved = self._ledger.reserved(self._rules.run)
        return self._charge(self._sent.get("round", self._joined - 1) + 1, max(known, *reserved[-1:], -1) + 1)

    def _counts(self) -> bool:
        """Whether its last report counts in its history: a "yes" that was thinned out was reported as "no"."""
        return bool(self._counted and self._sent["kept"])

    def _bit(self) -> bool:
        return self._client.decide(self._sent["round"], math.nan)  # as it is on file

    def _acknowledge(self) -> None:
        """The history of the last report's round; again after a crash, with the same outcome."""
        found = self._client.status()
        last = found["last_round"]
        if last is not None and 0 <= last <= self._record.round and found["acknowledged"] is None:
            with contextlib.suppress(RoundPassed):  # nothing was decided yet
                self._client.acknowledge(last, bool(self._sent.get("round") == last and self._counts()))

    def _append(self, entry: dict[str, Any]) -> None:
        if self._lines >= LINES:
            self._journal.rewrite(self._kept())
            self._lines = len(self._kept())
        self._journal.append(entry)
        self._apply(entry)

    def _kept(self) -> list[dict[str, Any]]:
        """What the file must still have: the sum of charges with the last report, and the newest record."""
        report = [{**self._sent, "charge": plain(self._charged)}] if self._sent else []
        record = {"entry": "record", "record": self._record.body.decode(), "counted": self._counted}
        order = [record, *report] if self._sent.get("round", -1) > self._record.round else [*report, record]
        return order

    def _apply(self, entry: dict[str, Any]) -> None:
        self._lines += 1
        if entry["entry"] == "report":
            self._sent = {name: entry[name] for name in ("entry", "round", "nonce", "leader", "helper", "kept")}
            self._charged += float(entry["charge"])
            self._counted = False
        else:
            self._record, self._counted = Record.read(entry["record"].encode()), entry["counted"]
