"""A device whose ledger is lost does not begin again with an unspent budget."""

import shutil

import pytest

from client.faults import CountingCoins
from service.agents import make, on_file
from service.fake_coordinator import FakeCoordinator
from turnout.client import LedgerRolledBack, Limit, store
from turnout.service.agent.agent import BUDGET
from turnout.service.agent.membership import read_status

LEDGER, WITNESS = "ledger.jsonl", "ledger.jsonl.witness"


def spent(folder):
    return read_status(folder)["reports_spent"]


@pytest.mark.parametrize("lost", [[LEDGER], [LEDGER, WITNESS]], ids=["ledger", "both"])
def test_a_lost_ledger_is_refused_and_with_a_word_counted_as_spent(tmp_path, lost):
    coordinator = FakeCoordinator()
    make(tmp_path, coordinator, limit=Limit(9, 1.0)).run(rounds=4)
    before = on_file(tmp_path)
    for name in lost:
        (tmp_path / name).unlink()
    for _ in range(2):  # also when a new one has been begun meanwhile
        with pytest.raises(LedgerRolledBack, match=r"ledger\.jsonl: .*--count-missing-as-spent"):
            make(tmp_path, coordinator, limit=Limit(9, 1.0)).run(rounds=1)
    assert on_file(tmp_path) == before == coordinator.books
    coins = CountingCoins(2)
    agent = make(tmp_path, coordinator, limit=Limit(9, 1.0), spend_missing=True, coins=coins)
    agent.run(rounds=2)
    assert spent(tmp_path) == agent.account().rounds == 4 + 2
    assert coins.tossed == [4, 5]
    assert make(tmp_path, coordinator).run() == BUDGET  # agreed to once, and for ever
    assert spent(tmp_path) == 9
    assert len(coordinator.books) == 9


def test_older_copies_of_ledger_and_witness_together_are_noticed(tmp_path):
    coordinator = FakeCoordinator()
    make(tmp_path, coordinator).run(rounds=2)
    for name in (LEDGER, WITNESS):
        shutil.copy(tmp_path / name, tmp_path / f"{name}.copy")
    make(tmp_path, coordinator).run(rounds=3)
    for name in (LEDGER, WITNESS):
        shutil.copy(tmp_path / f"{name}.copy", tmp_path / name)
    with pytest.raises(LedgerRolledBack, match=r"in 'run' \(3\)"):
        make(tmp_path, coordinator).run(rounds=1)
    make(tmp_path, coordinator, spend_missing=True).run(rounds=1)
    assert spent(tmp_path) == 6


def test_rounds_that_are_not_on_file_any_more_count_too(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "LINES", 20)
    monkeypatch.setattr(store, "KEPT", 4)
    coordinator = FakeCoordinator()
    make(tmp_path, coordinator).run(rounds=30)
    assert len(on_file(tmp_path)) < 20
    (tmp_path / LEDGER).unlink()
    (tmp_path / WITNESS).unlink()
    make(tmp_path, coordinator, spend_missing=True).run(rounds=10)
    make(tmp_path, coordinator).run(rounds=1)
    assert spent(tmp_path) == 41


def test_a_lost_release_is_not_made_again(tmp_path):
    mechanism = {"kind": "memoized", "epsilon": 4.0, "price": 10.0, "levels": [0.2, 0.5, 0.8], "least": []}
    coordinator = FakeCoordinator(mechanism=mechanism)
    make(tmp_path, coordinator, limit=Limit(1, 4.0)).run(rounds=5)
    make(tmp_path, coordinator, limit=Limit(1, 4.0)).run(rounds=5)
    (tmp_path / LEDGER).unlink()
    (tmp_path / WITNESS).unlink()
    coins = CountingCoins(1)
    with pytest.raises(LedgerRolledBack, match="there is no ledger, though this device has reported"):
        make(tmp_path, coordinator, limit=Limit(1, 4.0), coins=coins).run(rounds=1)
    assert coins.tossed == []
    make(tmp_path, coordinator, limit=Limit(1, 4.0), spend_missing=True, coins=coins).run(rounds=3)
    assert coins.tossed == [10, 11, 12]  # no draw for a release: what was released before is in the device's file
    assert read_status(tmp_path)["releases_made"] == 1
    assert read_status(tmp_path)["total_epsilon"] == 4.0


def test_a_lost_ledger_is_noticed_in_another_run_too(tmp_path):
    """The rounds of every run in the folder are compared, also those of runs that are over."""
    make(tmp_path, FakeCoordinator()).run(rounds=5)
    (tmp_path / LEDGER).unlink()
    (tmp_path / WITNESS).unlink()
    second = FakeCoordinator(run="two", code="OTHER-CODE")
    with pytest.raises(LedgerRolledBack, match="there is no ledger, though this device has reported"):
        make(tmp_path, second, code="OTHER-CODE").run(rounds=1)
    assert second.nonces == [], "no code was used up"
    assert not (tmp_path / LEDGER).exists()
    assert "no total" not in read_status(tmp_path)
    assert read_status(tmp_path)["ledger_problem"] == "there is none, though this device has reported"
    agent = make(tmp_path, second, code="OTHER-CODE", spend_missing=True)
    agent.join()
    assert agent.account().rounds == 5
    agent.run(rounds=2)
    assert agent.account().rounds == 7


def test_a_ledger_elsewhere_is_remembered(tmp_path):
    coordinator, shared = FakeCoordinator(), tmp_path / "shared.jsonl"
    home = tmp_path / "home"
    make(home, coordinator, ledger=shared).run(rounds=2)
    make(home, coordinator).run(rounds=2)
    assert not (home / LEDGER).exists()
    assert spent(home) == 4
    with pytest.raises(ValueError, match=r"ledger must be .*shared\.jsonl, as this folder has it"):
        make(home, coordinator, ledger=tmp_path / "another.jsonl").run(rounds=1)


def test_a_ledger_that_is_behind_shows_no_total(tmp_path):
    make(tmp_path, FakeCoordinator()).run(rounds=2)
    older = (tmp_path / LEDGER).read_bytes()
    make(tmp_path, FakeCoordinator()).run(rounds=0)
    coordinator = FakeCoordinator(run="two", code="OTHER-CODE")
    make(tmp_path, coordinator, code="OTHER-CODE").run(rounds=3)
    (tmp_path / LEDGER).write_bytes(older)
    facts = read_status(tmp_path)
    assert "total_epsilon" not in facts
    assert "behind its witness" in facts["ledger_problem"]


def test_storage_that_is_away_for_a_moment_is_waited_for(tmp_path):
    """The folder of the witness is gone, not the witness alone: that is a disk, and no restored copy."""
    away, there = tmp_path / "away", tmp_path / "stick"
    with make(tmp_path / "home", FakeCoordinator(), witness=there / "w") as agent:
        assert agent.step() is not None
        there.rename(away)
        assert agent.step() is None  # noted, and tried again
        away.rename(there)
        assert agent.step() is not None


def test_a_welcome_that_was_cut_off_is_asked_for_again(tmp_path):
    coordinator = FakeCoordinator()
    coordinator.scripted = [(201, b""), (201, b'{"version": 1, "run')]
    make(tmp_path, coordinator).run(rounds=1)
    assert len(coordinator.books) == 1
    assert len(set(coordinator.nonces)) == 1
