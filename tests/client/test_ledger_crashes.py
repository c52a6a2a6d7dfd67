"""Crashes, torn lines, damage, full disks: the ledger never counts too little."""

import os
from pathlib import Path

import pytest

from client.faults import Crash, CrashingDisk, FailingDisk
from client.ledgers import again, begin, spend
from turnout.client.ledger import BudgetSpent, Ledger, LedgerRolledBack
from turnout.client.limit import Limit
from turnout.errors import FileProblem
from turnout.files import Disk, Journal


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
    (tmp_path / "a file").touch()
    with pytest.raises(FileProblem, match=r"the witness of .* cannot be read"):
        Ledger.open(tmp_path / "b.jsonl", datum="b", limit=Limit(1, 1.0), witness=tmp_path / "a file" / "w")
    with pytest.raises(FileProblem, match="no ordinary file"):
        Journal(Path("/dev/full"), "ledger")
