"""An agent whose run gets other rules: it agrees as at joining, on file before it decides, or leaves."""

import json
import shutil

import pytest

from client.faults import Crash
from service.agents import Always, make, on_file
from service.fake_coordinator import CLAMP, FakeCoordinator
from turnout.client import Limit
from turnout.files import Disk
from turnout.service.agent.agreement import Declined
from turnout.service.agent.membership import Membership, read_status

HALF = CLAMP | {"epsilon": 0.5}
MEMOIZED = {"kind": "memoized", "epsilon": 0.8, "price": 10.0, "levels": [0.1, 0.5, 0.9]}
NAMES = ["", "2-aaaaaaaa", "3-bbbbbbbb", "4-cccccccc"]


class Versioned(FakeCoordinator):
    """Its rules change: `since` has the first round of each version, `mechanisms` what it proposes."""

    def __init__(self, *mechanisms, since=(0, 3, 6, 9), **options):
        super().__init__(mechanism=mechanisms[0], **options)
        self.mechanisms, self.since, self.asked, self.behind = mechanisms, since[: len(mechanisms)], 0, False

    def version(self, round):
        return max(number for number, first in enumerate(self.since) if first <= round)

    def offer(self):
        name = NAMES[self.version(self.open)]
        return super().offer() | ({"rules": name} if name else {})

    def handle(self, method, path, body, token):
        if path != "/v1/rules":
            return super().handle(method, path, body, token)
        self.received.append((method, path, body, token))
        self.asked += 1
        return 200, {"run": "run", "mechanism": self.mechanisms[self.version(self.open)], "offer": self.offer()}


def ledger(folder, entry="reserved"):
    found = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [line for line in found if line["entry"] == entry]


def spent(folder):
    return {line["round"]: line["epsilon_per_report"] for line in ledger(folder)}


def test_it_agrees_and_goes_on_with_its_token_and_its_history(tmp_path):
    coordinator, said = Versioned(CLAMP, HALF), []
    agent = make(tmp_path, coordinator, on_problem=said.append)
    agent.run(rounds=6)
    assert spent(tmp_path) == {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.5, 4: 0.5, 5: 0.5}
    assert [report.get("rules", "") for report in coordinator.reports()] == [""] * 3 + ["2-aaaaaaaa"] * 3
    assert (coordinator.asked, len(coordinator.nonces)) == (1, 1)
    assert on_file(tmp_path) == coordinator.books
    assert [line for line in said if "version 2, as agreed: pure epsilon 0.5 per report" in line]
    found = read_status(tmp_path)
    assert (found["rules"], found["mechanism"]) == ("2-aaaaaaaa", HALF)
    make(tmp_path, coordinator, code=None).run(rounds=2)
    assert coordinator.asked == 1, "the agreement is on file"
    assert spent(tmp_path)[7] == 0.5
    assert Membership.load(tmp_path).welcome.mechanism == CLAMP, "what it was welcomed with stays"


def test_what_its_owner_does_not_allow_makes_it_leave_with_the_reason(tmp_path):
    coordinator = Versioned(CLAMP, CLAMP | {"epsilon": 2.0})
    agent = make(tmp_path, coordinator, coins=Always(), limit=Limit(100, 1.0))
    with pytest.raises(Declined, match=r"epsilon 2 per report .* more than the 1 .* This device has left the run"):
        agent.run(rounds=6)
    assert coordinator.left
    assert sorted(spent(tmp_path)) == [0, 1, 2]
    assert on_file(tmp_path) == coordinator.books, "what it had decided was reported first"
    assert read_status(tmp_path)["rules"] == ""


def test_a_release_follows_the_ledgers_own_rule(tmp_path):
    other = MEMOIZED | {"price": 20.0}
    coordinator = Versioned(CLAMP, MEMOIZED, CLAMP, other)
    make(tmp_path, coordinator, limit=Limit(100, 1.0)).run(rounds=12)
    assert len(ledger(tmp_path, "released")) == 1, "its owner allows one, and it acts on that one"
    assert sorted(spent(tmp_path)) == [0, 1, 2, 6, 7, 8]
    assert on_file(tmp_path) == coordinator.books
    again = Versioned(CLAMP, MEMOIZED, CLAMP, other)
    (folder := tmp_path / "another").mkdir()
    make(folder, again, limit=Limit(100, 1.0, releases=2)).run(rounds=12)
    assert [line["mechanism"]["price"] for line in ledger(folder, "released")] == [10.0, 20.0]


class CopyingDisk(Disk):
    """At the chosen step the machine is gone; what its disk held is in `copy`."""

    def __init__(self, folder, copy, at):
        self.folder, self.copy, self.at, self.steps = folder, copy, at, 0

    def step(self):
        self.steps += 1
        if self.steps == self.at:
            shutil.copytree(self.folder, self.copy)
            raise Crash

    def write(self, descriptor, data):
        self.step()
        super().write(descriptor, data)

    def sync(self, descriptor):
        self.step()

    def replace(self, source, target):
        self.step()
        super().replace(source, target)


@pytest.mark.parametrize("after", [HALF, MEMOIZED], ids=["clamp", "memoized"])
def test_a_crash_at_any_step_around_the_change_decides_nothing_under_rules_not_on_file(tmp_path, after):
    crash_everywhere(tmp_path, after)


def test_an_agreement_that_is_not_stored_first_is_noticed(tmp_path, monkeypatch):
    save = Membership.save
    monkeypatch.setattr(Membership, "save", lambda self, *where: None if self.agreed else save(self, *where))
    with pytest.raises(AssertionError, match="decided before the agreement was on file"):
        crash_everywhere(tmp_path, HALF)


def crash_everywhere(tmp_path, after):
    crashes = 0
    for step in range(1, 200):
        folder, copy = tmp_path / f"{step}", tmp_path / f"{step}-copy"
        folder.mkdir()
        coordinator = Versioned(CLAMP, after, since=(0, 1))
        first = make(folder, coordinator, disk=CopyingDisk(folder, copy, step))
        try:
            first.run(rounds=2)
        except Crash:
            crashes += 1
        else:
            break
        had = Membership.load(copy)
        agreed = had is not None and had.rules != ""
        decided = [round for round in on_file(copy) if round > 0] if (copy / "run" / "rounds.jsonl").exists() else []
        assert agreed or not decided, f"step {step}: decided before the agreement was on file"
        coordinator.scripted = [lost_round_closes(coordinator)] * 40
        make(copy, coordinator).run(rounds=3)
        expected = {round: 1.0 if round == 0 else after["epsilon"] for round in spent(copy)}
        assert spent(copy) == expected, f"step {step}"
        assert len(ledger(copy, "released")) == (after is MEMOIZED), f"step {step}"
        mine = on_file(copy)
        assert {round: mine[round] for round in coordinator.books} == coordinator.books, f"step {step}"
        assert len(set(coordinator.nonces)) == 1
    assert crashes > 25


def lost_round_closes(coordinator):
    """A device that has lost its round in the crash asks until another one is open."""

    def closes(method, path, body):
        asked = [path for _, path, _, _ in coordinator.received[-3:]]
        if path == "/v1/round" and asked.count("/v1/round") == 3:
            coordinator.open += 1

    return closes


def test_a_failing_disk_keeps_the_version_before_and_asks_again(tmp_path):
    coordinator, said = Versioned(CLAMP, HALF), []

    class Full(Disk):
        failing = False

        def put(self, path, data):
            if b'"agreed"' in data and not said:
                raise OSError(28, "No space left on device")
            super().put(path, data)

    agent = make(tmp_path, coordinator, disk=Full(), on_problem=said.append)
    for _ in range(7):
        agent.step()
    agent.close()
    assert any("No space left" in line for line in said)
    assert coordinator.asked == 2
    assert spent(tmp_path) == {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.5, 4: 0.5, 5: 0.5}


def test_a_stored_bit_is_sent_as_it_is_whatever_rules_hold_now(tmp_path):
    """Its round has closed, or was opened again by a restore, under other rules: it counts as it always has."""
    coordinator = Versioned(CLAMP, HALF, since=(0, 2))
    make(tmp_path, coordinator).run(rounds=1)

    def gone(method, path, body):
        raise Crash

    coordinator.scripted = [lambda *_: None, gone]  # the round is asked for, its report never arrives
    agent = make(tmp_path, coordinator)
    with pytest.raises(Crash):
        agent.run(rounds=1)
    bit, counted = on_file(tmp_path)[1]
    assert counted is None
    coordinator.since = (0, 1)  # another version holds for this round now
    refused = (409, {"error": "rules", "message": "update turnout", "next": coordinator.offer()})
    coordinator.scripted = [refused]
    make(tmp_path, coordinator).run(rounds=2)
    assert coordinator.reports()[-3:-1] == [
        {"run": "run", "round": 1, "participates": bit},
        {"run": "run", "round": 1, "participates": bit, "rules": "2-aaaaaaaa"},
    ]
    assert on_file(tmp_path) == coordinator.books
    assert spent(tmp_path) == {0: 1.0, 1: 1.0, 2: 0.5}


def test_a_coordinator_that_is_behind_does_not_bring_it_back_to_older_rules(tmp_path):
    coordinator = Versioned(CLAMP, HALF)
    make(tmp_path, coordinator).run(rounds=4)
    old = {"run": "run", "round": 2, "signal": 2.0}
    coordinator.scripted = [(200, old)]
    make(tmp_path, coordinator).run(rounds=2)
    assert coordinator.asked == 1
    assert spent(tmp_path) == {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.5, 4: 0.5}
    assert read_status(tmp_path)["rules"] == "2-aaaaaaaa"
