"""Crashes, kills, full disks and old copies: nothing is tossed twice, nothing is reported without its reservation."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from client.faults import CountingCoins, Crash, CrashingDisk, FailingDisk, copy
from client.opened import make, open_ledger
from turnout.client import store
from turnout.client.durable import Stopped, StoreRolledBack
from turnout.client.ledger import Ledger, LedgerRolledBack
from turnout.client.store import RoundLost, RoundPassed
from turnout.errors import FileProblem


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(tmp_path) as ledger:
        yield ledger


def lifetime(folder, disk, rounds, tossed, reported, reports=1000):
    """One life of a client, up to a crash; what it tossed and reported is added to the lists."""
    coins = CountingCoins(len(tossed))
    ledger = client = None
    try:
        ledger = open_ledger(folder, reports, disk=disk)
        client = make(folder, ledger, coins=coins, disk=disk)
        for round in rounds:
            try:
                reported.append((round, client.decide(round, 1.0)))
                client.acknowledge(round, round % 2 == 0)
            except (RoundLost, RoundPassed, Stopped, FileProblem):
                continue
    except (Crash, FileProblem):
        pass
    finally:
        for thing in (client, ledger):
            if thing is not None:
                thing.close()
        tossed += coins.tossed


def assert_sound(folder, tossed, reported):
    with open_ledger(folder) as ledger:
        reserved = ledger.reserved("run")
        assert ledger.spent == len(reserved)
    assert max(Counter(tossed).values(), default=1) == 1  # no round is tossed twice
    assert set(tossed) <= set(reserved)  # no toss without its reservation
    assert {round for round, _ in reported} <= set(tossed)
    assert len(set(reported)) == len(dict(reported))  # one bit a round


def test_a_ledger_that_lacks_what_is_on_file_is_refused_or_charged_for_it(tmp_path):
    with open_ledger(tmp_path) as ledger, make(tmp_path, ledger) as client:
        bits = [client.decide(round, 1.0) for round in range(5)]
    for name in ("ledger.jsonl", "ledger.jsonl.witness"):
        (tmp_path / name).unlink()
    with open_ledger(tmp_path) as ledger, pytest.raises(LedgerRolledBack, match=r"in 'run' \(5\)"):
        make(tmp_path, ledger)
    with open_ledger(tmp_path, spend_missing=True) as ledger, make(tmp_path, ledger) as client:
        assert ledger.spent == 5
        assert [client.decide(round, 1.0) for round in range(5)] == bits
        client.decide(5, 1.0)
        assert ledger.spent == 6
    with open_ledger(tmp_path) as ledger, make(tmp_path, ledger):
        assert ledger.spent == 6


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_a_crash_at_every_single_durable_step(tmp_path, power, monkeypatch):
    monkeypatch.setattr(store, "LINES", 6)
    monkeypatch.setattr(store, "KEPT", 2)
    whole = CrashingDisk()
    (tmp_path / "whole").mkdir()
    lifetime(tmp_path / "whole", whole, range(5), [], [])
    assert whole.steps > 40
    lost = 0
    for at in range(1, whole.steps + 1):
        folder, tossed, reported = tmp_path / str(at), [], []
        folder.mkdir()
        disk = CrashingDisk(at, power)
        lifetime(folder, disk, [0, 1, 1, 2, 3, 4], tossed, reported)
        assert disk.steps == at
        disk.lose_power()
        assert_sound(folder, tossed, reported)
        lifetime(folder, None, [*range(5), *range(3, 8)], tossed, reported)
        assert_sound(folder, tossed, reported)
        assert {5, 6, 7} <= set(dict(reported))  # it goes on
        lost += len(set(range(8)) - set(tossed))
    assert lost


@pytest.mark.parametrize("lasting", [False, True])
def test_a_disk_that_is_full_at_every_single_step(tmp_path, lasting):
    whole = FailingDisk()
    (tmp_path / "whole").mkdir()
    lifetime(tmp_path / "whole", whole, range(3), [], [])
    for at in range(1, whole.steps + 1):
        folder, tossed, reported = tmp_path / str(at), [], []
        folder.mkdir()
        lifetime(folder, FailingDisk(at, lasting=lasting), range(3), tossed, reported)
        if (folder / "ledger.jsonl.witness").exists():
            assert_sound(folder, tossed, reported)
        lifetime(folder, None, range(6), tossed, reported)
        assert_sound(folder, tossed, reported)
        assert {3, 4, 5} <= set(dict(reported))


def test_a_full_disk_costs_at_most_one_reservation_while_it_lasts(tmp_path, ledger):
    disk, coins = FailingDisk(), CountingCoins()
    with make(tmp_path, ledger, disk=disk, coins=coins) as client:
        client.decide(0, 1.0)
        disk.at, disk.lasting = disk.steps + 1, True
        for round in range(1, 10):
            with pytest.raises(FileProblem, match="No space left on device"):
                client.decide(round, 1.0)
        assert ledger.spent == len(coins.tossed) == 2


def test_killed_at_250_random_moments(tmp_path):
    killed(tmp_path, kills=250, budget=10**6)
    assert not (tmp_path / "stopped.log").exists()
    assert len(lines(tmp_path / "reports.log")) > 100


def test_killed_until_a_budget_of_exactly_60_is_spent(tmp_path):
    killed(tmp_path, kills=120, budget=60)
    assert lines(tmp_path / "stopped.log")
    entries = [json.loads(line) for line in lines(tmp_path / "ledger.jsonl")]
    assert sum(entry["entry"] == "reserved" for entry in entries) == 60


def killed(folder, kills, budget):
    script = Path(__file__).with_name("killed.py")
    subprocess.run([sys.executable, script, folder, str(kills), str(budget), "1"], check=True, timeout=120)
    assert not (folder / "errors.log").exists(), (folder / "errors.log").read_text()
    tossed = [int(line) for line in lines(folder / "tosses.log")]
    reported = [tuple(map(int, line.split())) for line in lines(folder / "reports.log")]
    with Ledger.open(folder / "ledger.jsonl", datum="cost") as ledger:
        reserved = set(ledger.reserved("run"))
        assert ledger.spent == len(reserved) <= budget
    assert max(Counter(tossed).values()) == 1
    assert set(tossed) <= reserved
    assert {round for round, _ in reported} <= set(tossed)
    assert len(set(reported)) == len(dict(reported))


def lines(path):
    return path.read_text().splitlines()


def test_a_torn_last_line_of_the_store_loses_that_round_alone(tmp_path, ledger):
    with make(tmp_path, ledger) as client:
        bits = [client.decide(round, 1.0) for round in range(5)]
    path = tmp_path / "rounds.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    coins = CountingCoins()
    with make(tmp_path, ledger, coins=coins) as client:
        assert [client.decide(round, 1.0) for round in range(4)] == bits[:4]
        for _ in range(2):
            with pytest.raises(RoundLost, match="report nothing"):
                client.decide(4, 1.0)
        client.acknowledge(4, False)
        assert client.status()["lost_rounds"] == 1
        client.decide(5, 1.0)
    assert coins.tossed == [5]


def test_an_older_copy_is_refused(tmp_path):
    home, elsewhere = tmp_path / "home", tmp_path / "usb"
    home.mkdir()
    elsewhere.mkdir()
    options = {"witness": elsewhere / "witness"}
    for start in (0, 5):
        with open_ledger(home, **options) as ledger, make(home, ledger) as client:
            for round in range(start, start + 5):
                client.decide(round, 1.0)
        if start == 0:
            copy(home, tmp_path / "backup")
    (home / "rounds.jsonl").write_bytes((tmp_path / "backup" / "rounds.jsonl").read_bytes())
    with (
        open_ledger(home, **options) as ledger,
        pytest.raises(StoreRolledBack, match="reservations for 5 later rounds"),
    ):
        make(home, ledger)
    copy(tmp_path / "backup", home)  # the ledger and the store
    with pytest.raises(LedgerRolledBack, match=r"ends at entry 5, its witness .* has seen entry 10"):
        open_ledger(home, **options)
