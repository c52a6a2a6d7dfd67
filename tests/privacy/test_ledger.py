"""The ledger: counts before the toss, never too little, and notices an older copy of itself."""

import json
import math
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from client.faults import Crash, CrashingDisk, FailingDisk
from turnout.errors import FileProblem
from turnout.privacy.journal import Disk, InUse, Journal
from turnout.privacy.ledger import BudgetSpent, Ledger, LedgerRolledBack, Limit


def begin(folder, reports=10, epsilon_per_report=1.0, **options):
    limit = Limit(reports, epsilon_per_report)
    return Ledger.open(folder / "cost.jsonl", datum="cost", limit=limit, **options)


def again(folder, **options):
    return Ledger.open(folder / "cost.jsonl", datum="cost", **options)


def spend(ledger, rounds, run="run"):
    for round in rounds:
        ledger.reserve(run, round, 0.5)


def test_a_budget_of_n_yields_n_across_runs_servers_and_restarts(tmp_path):
    count = 0
    with begin(tmp_path, reports=7):
        pass
    for run in ("a", "b", "c"):
        with again(tmp_path) as ledger:
            for round in range(3):
                try:
                    ledger.reserve(run, round, 1.0)
                    count += 1
                except BudgetSpent:
                    assert count == 7
    assert count == 7
    with again(tmp_path) as ledger:
        assert (ledger.spent, ledger.remaining) == (7, 0)
        with pytest.raises(BudgetSpent, match="all 7 reports that the client allows about 'cost' are spent"):
            ledger.reserve("d", 0, 1.0)
        assert ledger.reserved("c") == [0]


def test_the_same_round_counts_once(tmp_path):
    with begin(tmp_path, reports=1) as ledger:
        first = ledger.reserve("run", 4, 0.5, keep="x")
        second = ledger.reserve("run", 4, 0.25, keep="y")
        with pytest.raises(ValueError, match=r"epsilon_per_report must be at most 0\.5, as reserved before"):
            ledger.reserve("run", 4, 0.75)
    with again(tmp_path) as ledger:
        third = ledger.reserve("run", 4, 0.5)
        assert ledger.spent == 1
    assert (first.new, second.new, third.new) == (True, False, False)
    assert first.keep == second.keep == third.keep == "x"


def test_a_report_with_a_larger_certificate_is_refused_and_not_counted(tmp_path):
    with begin(tmp_path) as ledger:
        for epsilon in (1.0 + 1e-15, math.inf):
            with pytest.raises(BudgetSpent, match=r"of at most 1\.0, got"):
                ledger.reserve("run", 0, epsilon)
        assert ledger.spent == 0
        ledger.reserve("run", 0, 1.0)
    with begin(tmp_path, epsilon_per_report=math.inf, consent=True) as ledger:
        ledger.reserve("run", 1, math.inf)
    with again(tmp_path) as ledger:
        assert ledger.limit == Limit(10, math.inf)
        assert ledger.spent == 2


def test_limits_are_the_clients_lower_freely_higher_with_recorded_consent(tmp_path):
    with begin(tmp_path, reports=10) as ledger:
        spend(ledger, range(4))
    with begin(tmp_path, reports=3) as ledger:
        assert ledger.remaining == 0
        with pytest.raises(BudgetSpent):
            ledger.reserve("run", 9, 0.5)
    for limit in (Limit(4, 1.0), Limit(3, 1.5), Limit(1, 1.5)):
        with pytest.raises(ValueError, match=r"limit must be at most Limit\(reports=3.*consent=True"):
            begin(tmp_path, limit.reports, limit.epsilon_per_report)
    with begin(tmp_path, reports=5, consent=True) as ledger:
        spend(ledger, [4])
        assert ledger.remaining == 0
    entries = [json.loads(line) for line in (tmp_path / "cost.jsonl").read_text().splitlines()]
    assert [entry["consent"] for entry in entries if entry["entry"] == "limit"] == [False, True]


def test_plain_readable_private_files(tmp_path):
    with begin(tmp_path, epsilon_per_report=math.inf) as ledger:
        ledger.reserve("run", np.int64(3), math.inf)
    for name in ("cost.jsonl", "cost.jsonl.witness"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    lines = (tmp_path / "cost.jsonl").read_text().splitlines()
    opened, reserved = (json.loads(line, parse_constant=pytest.fail) for line in lines)
    assert (opened["entry"], opened["datum"], opened["limit"]["reports"]) == ("opened", "cost", 10)
    assert (reserved["run"], reserved["round"], reserved["epsilon_per_report"]) == ("run", 3, "inf")
    assert reserved["previous"] == opened["hash"]
    os.chmod(tmp_path / "cost.jsonl", 0o644)
    with again(tmp_path):
        assert (tmp_path / "cost.jsonl").stat().st_mode & 0o777 == 0o600


# An older copy


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_restored_older_file_is_refused(tmp_path, elsewhere):
    options = {"witness": tmp_path / "stick"} if elsewhere else {}
    path = tmp_path / "cost.jsonl"
    with begin(tmp_path, **options) as ledger:
        spend(ledger, range(3))
    older = path.read_bytes()
    with again(tmp_path, **options) as ledger:
        spend(ledger, range(3, 5))
    newest = path.read_bytes()
    for copy in (
        older,
        newest[:-1],
        newest[:-90],
        newest.rsplit(b"\n", 2)[0] + b"\n",
        older.split(b"\n")[0] + b"\n",
        b"",
    ):
        path.write_bytes(copy)
        with pytest.raises(LedgerRolledBack, match=r"has seen entry 5.*Restore the newest copy"):
            again(tmp_path, **options)
        assert path.read_bytes() == copy  # a refusal changes nothing
    path.unlink()
    with pytest.raises(LedgerRolledBack):
        begin(tmp_path, **options)
    path.write_bytes(newest)
    with again(tmp_path, **options) as ledger:
        assert ledger.spent == 5


def test_a_missing_or_unreadable_witness_is_refused(tmp_path):
    with begin(tmp_path) as ledger:
        spend(ledger, range(2))
    witness = tmp_path / "cost.jsonl.witness"
    with pytest.raises(
        LedgerRolledBack, match=r"no witness at .*other \(the ledger began with .*cost\.jsonl\.witness\)"
    ):
        again(tmp_path, witness=tmp_path / "other")
    kept = witness.read_bytes()
    for garbage in (b"", b"[]", b"{}", b"\xff", kept[: len(kept) // 2]):
        witness.write_bytes(garbage)
        with pytest.raises(FileProblem, match="cannot be read"):
            again(tmp_path)
    witness.unlink()
    with pytest.raises(LedgerRolledBack, match="bring it back"):
        again(tmp_path)
    witness.write_bytes(kept)
    again(tmp_path).close()


def test_two_copies_that_share_a_witness_are_found_out(tmp_path):
    witness = tmp_path / "stick"
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    with begin(first, witness=witness) as ledger:
        spend(ledger, range(2))
    shutil.copytree(first, second)
    with again(first, witness=witness) as one, again(second, witness=witness) as two:
        spend(one, [2])
        with pytest.raises(LedgerRolledBack, match="another copy of this ledger may be in use"):
            spend(two, [3])
    with pytest.raises(LedgerRolledBack, match=r"its witness .* has seen entry 3"):
        again(second, witness=witness)
    witness.unlink()
    shutil.copy(first / "cost.jsonl", witness)  # not a witness at all
    with pytest.raises(FileProblem):
        again(second, witness=witness)


def test_a_fork_of_the_same_length_is_refused(tmp_path):
    with begin(tmp_path) as ledger:
        spend(ledger, [0])
    fork = (tmp_path / "cost.jsonl").read_bytes(), (tmp_path / "cost.jsonl.witness").read_bytes()
    with again(tmp_path) as ledger:
        spend(ledger, [1])
    mine = (tmp_path / "cost.jsonl.witness").read_bytes()
    (tmp_path / "cost.jsonl").write_bytes(fork[0])
    (tmp_path / "cost.jsonl.witness").write_bytes(fork[1])
    with again(tmp_path) as ledger:
        spend(ledger, [7, 8])
    (tmp_path / "cost.jsonl.witness").write_bytes(mine)
    with pytest.raises(LedgerRolledBack, match="two copies were in use"):
        again(tmp_path)


def test_what_is_missing_can_be_counted_as_spent(tmp_path):
    with begin(tmp_path) as ledger:
        spend(ledger, range(2))
    older = (tmp_path / "cost.jsonl").read_bytes()
    with again(tmp_path) as ledger:
        spend(ledger, range(2, 6))
    (tmp_path / "cost.jsonl").write_bytes(older)
    disk = CrashingDisk(2)  # and a crash before the witness has moved
    with pytest.raises(Crash):
        again(tmp_path, spend_missing=True, disk=disk)
    (tmp_path / "cost.jsonl").write_bytes(older)
    with again(tmp_path, spend_missing=True) as ledger:
        assert ledger.spent == 6
        spend(ledger, range(10, 14))
        with pytest.raises(BudgetSpent):
            spend(ledger, [14])
    with again(tmp_path) as ledger:
        assert ledger.spent == 10


def test_an_older_witness_is_harmless(tmp_path):
    with begin(tmp_path) as ledger:
        spend(ledger, range(2))
    older = (tmp_path / "cost.jsonl.witness").read_bytes()
    with again(tmp_path) as ledger:
        spend(ledger, range(2, 6))
    (tmp_path / "cost.jsonl.witness").write_bytes(older)
    with again(tmp_path) as ledger:
        assert ledger.spent == 6
    assert json.loads((tmp_path / "cost.jsonl.witness").read_text())["number"] == 6


# Crashes, torn lines, damage


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_a_crash_at_every_durable_step_never_counts_too_little(tmp_path, power):
    def life(folder, disk, granted):
        with begin(folder, reports=3, disk=disk) as ledger:
            for round in range(6):
                try:
                    if ledger.reserve("run", round, 1.0).new:
                        granted.append(round)
                except BudgetSpent:
                    pass

    whole = CrashingDisk()
    (tmp_path / "whole").mkdir()
    life(tmp_path / "whole", whole, [])
    assert whole.steps >= 20
    for at in range(1, whole.steps + 1):
        folder, granted, disk = tmp_path / str(at), [], CrashingDisk(at, power)
        folder.mkdir()
        with pytest.raises(Crash):
            life(folder, disk, granted)
        disk.lose_power()
        life(folder, None, granted)
        assert len(granted) == len(set(granted)) >= 2  # at most one reservation is wasted
        with again(folder) as ledger:
            assert ledger.spent == 3
            assert set(granted) <= set(ledger.reserved("run"))


def test_a_torn_line_that_the_witness_never_saw_is_dropped(tmp_path):
    path = tmp_path / "cost.jsonl"
    with begin(tmp_path) as ledger:
        spend(ledger, range(2))
    whole = path.read_bytes()
    for torn in (
        b"{",
        b"\0" * 300,
        b'{"number": 3, "entry": "reserved"}\n',
        b"\xff\xfe\r",
        b"\n",
        whole.splitlines()[-1],
    ):
        path.write_bytes(whole + torn)
        with again(tmp_path) as ledger:
            assert ledger.spent == 2
        assert path.read_bytes() == whole


def test_damage_before_the_last_line_is_refused(tmp_path):
    path = tmp_path / "cost.jsonl"
    with begin(tmp_path) as ledger:
        spend(ledger, range(4))
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for damaged in (
        whole.replace(b'"round": 1,', b'"round": 9,'),
        b"".join([*lines[:2], *lines[3:]]),
        b"".join([lines[1], lines[0], *lines[2:]]),
        lines[0] + b"\n" + b"".join(lines[1:]),
    ):
        path.write_bytes(damaged)
        with pytest.raises((FileProblem, LedgerRolledBack), match="damaged after line"):
            again(tmp_path)


@pytest.mark.parametrize("lasting", [False, True])
def test_a_full_disk_is_an_error_before_any_toss(tmp_path, lasting):
    for at in range(1, 6):  # write, sync; then write, sync, rename of the witness
        folder = tmp_path / str(at)
        folder.mkdir()
        disk = FailingDisk(lasting=lasting)
        with begin(folder, disk=disk) as ledger:
            disk.at = disk.steps + at
            with pytest.raises(FileProblem, match=r"cannot be written \(No space left on device\): free space"):
                ledger.reserve("run", 0, 1.0)
            disk.at = 0
            spent = ledger.spent
            if not lasting or at > 2:
                ledger.reserve("run", 1, 1.0)  # space was freed
                assert ledger.spent == spent + 1
        with again(folder) as ledger:
            assert set(ledger.reserved("run")) >= ({1} if not lasting or at > 2 else set())
            ledger.reserve("run", 2, 1.0)


class FullDevice(Disk):
    """What a real full device says."""

    full = False

    def write(self, descriptor, data):
        if not self.full:
            return super().write(descriptor, data)
        real = os.open("/dev/full", os.O_WRONLY)
        try:
            return super().write(real, data)
        finally:
            os.close(real)


def test_a_really_full_device(tmp_path):
    disk = FullDevice()
    with begin(tmp_path, disk=disk) as ledger:
        disk.full = True
        with pytest.raises(FileProblem, match="No space left"):
            ledger.reserve("run", 0, 1.0)
        assert ledger.spent == 0
        disk.full = False
        assert ledger.reserve("run", 0, 1.0).new


def test_places_that_cannot_hold_a_ledger(tmp_path):
    with pytest.raises(FileProblem, match=r"no folder .* for the ledger: create it first"):
        begin(tmp_path / "missing")
    with pytest.raises(FileProblem, match="no such ledger: give limit"):
        again(tmp_path)
    (tmp_path / "cost.jsonl").mkdir()
    with pytest.raises(FileProblem, match="cannot be opened as a ledger"):
        begin(tmp_path)
    with pytest.raises(FileProblem, match="the witness cannot be written"):
        Ledger.open(tmp_path / "b.jsonl", datum="b", limit=Limit(1, 1.0), witness=tmp_path / "no" / "w")
    with pytest.raises(FileProblem, match="no ordinary file"):
        Journal(Path("/dev/full"), "ledger")


# One at a time


def test_two_processes_cannot_use_one_ledger_at_once(tmp_path):
    code = (
        "import sys; from turnout.privacy.ledger import *; from turnout.privacy.journal import InUse\n"
        "try: Ledger.open(sys.argv[1], datum='cost')\n"
        "except InUse as error: sys.exit(str(error))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "cost.jsonl")]
    with begin(tmp_path) as ledger:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "in use elsewhere (one process at a time may have it open): stop the other one" in done.stderr
        with pytest.raises(InUse):
            again(tmp_path)
        spend(ledger, [0])
    assert subprocess.run(command, check=False).returncode == 0


def test_a_forked_child_may_not_use_its_parents_ledger(tmp_path, monkeypatch):
    with begin(tmp_path) as ledger:
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with pytest.raises(InUse, match="belongs to the process that opened it"):
            spend(ledger, [0])


def test_threads_share_a_ledger_and_never_exceed_it(tmp_path):
    with begin(tmp_path, reports=20) as ledger:
        granted, refused = [], []

        def work(name):
            for round in range(10):
                try:
                    granted.append(ledger.reserve(name, round, 1.0))
                except BudgetSpent:
                    refused.append(round)

        threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(granted), len(refused), ledger.spent) == (20, 20, 20)


def test_a_file_replaced_under_an_open_ledger_is_noticed(tmp_path):
    path = tmp_path / "cost.jsonl"
    with begin(tmp_path) as ledger:
        spend(ledger, [0])
        older = path.read_bytes()
        spend(ledger, [1])
        (tmp_path / "restored").write_bytes(older)
        os.replace(tmp_path / "restored", path)
        with pytest.raises(FileProblem, match="changed or replaced while in use"):
            spend(ledger, [2])
    with pytest.raises(FileProblem, match="is closed"):
        spend(ledger, [2])
    with pytest.raises(LedgerRolledBack):
        again(tmp_path)


def test_bad_arguments(tmp_path):
    for reports in (-1, 1.5, True, "many"):
        with pytest.raises(ValueError, match="limit reports must be a whole number"):
            Limit(reports, 1.0)
    for epsilon in (-1.0, math.nan, "1", True):
        with pytest.raises(ValueError, match="limit epsilon_per_report must be 0 or more"):
            Limit(1, epsilon)
    with pytest.raises(ValueError, match="datum must be a name"):
        Ledger.open(tmp_path / "a", datum="", limit=Limit(1, 1.0))
    with begin(tmp_path) as ledger:
        for arguments in (
            ("", 0, 1.0),
            (3, 0, 1.0),
            ("r", -1, 1.0),
            ("r", 0.5, 1.0),
            ("r", True, 1.0),
            ("r", 0, math.nan),
        ):
            with pytest.raises(ValueError, match="must be"):
                ledger.reserve(*arguments)
        assert ledger.spent == 0
    with pytest.raises(ValueError, match=r"datum must be 'cost', as the ledger .* began, got 'other'"):
        Ledger.open(tmp_path / "cost.jsonl", datum="other")


def test_the_witness_has_seen_every_entry_once_it_returns(tmp_path):
    """Also a changed limit: an older copy, with the higher limit, is refused at once."""
    path, witness = tmp_path / "cost.jsonl", tmp_path / "cost.jsonl.witness"

    def seen():
        return json.loads(witness.read_text())["number"]

    with Ledger.open(path, datum="cost", limit=Limit(5, 1.0)) as ledger:
        assert seen() == 0
        ledger.reserve("run", 0, 0.5)
        assert seen() == 1
        older = path.read_bytes()
        ledger.change_limit(Limit(2, 0.5))
        assert seen() == 2
    path.write_bytes(older)
    with pytest.raises(LedgerRolledBack, match="ends at entry 1"):
        Ledger.open(path, datum="cost")
