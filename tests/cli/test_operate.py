"""`turnout operate` as an operator meets it."""

import contextlib
import csv
import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from typer.testing import CliRunner

from service.running import begun, codes_for, running, send, usual_rules
from service.served import eventually
from turnout.cli.operate import app
from turnout.errors import FileProblem, TurnoutError
from turnout.service import MISSING, NO, REFUSED, YES, Safety, close
from turnout.service.coordinator import Roll, hashed
from turnout.service.operator import matches, password_hash, read_password
from turnout.service.store import Enrolment, open_store


@pytest.fixture
def store(tmp_path):
    begun(tmp_path / "run.db").close()
    return str(tmp_path / "run.db")


def operate(*arguments):
    """What a command prints; its error is raised."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    if done.exception:
        raise done.exception
    return done.stdout


def codes(store, *arguments):
    return operate("codes", "--store", store, *arguments).split()


def is_good(store, code, hours):
    """Whether a device can still enrol with it so many hours from now."""
    opened = open_store(store)
    try:
        [device] = opened.enrol(
            [Enrolment(hashed(code), hashed("nonce"), hashed(f"token {code}"))], time.time() + 3600.0 * hours
        )
    finally:
        opened.close()
    return device is not None


def test_codes_wait_for_a_run_that_is_being_begun(tmp_path):
    path = tmp_path / "run.db"

    def serve():
        time.sleep(0.3)
        path.touch()  # made, and still without tables
        time.sleep(0.3)
        with contextlib.closing(open_store(str(path), create=True)):
            time.sleep(0.3)  # with tables, and still without a run
        begun(path).close()

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve)
        done = CliRunner().invoke(app, ["codes", "3", "--store", str(path)])
        serving.result()
    assert (done.exception, len(done.stdout.split())) == (None, 3)
    assert done.stderr == f"note: no run in {path} yet: waiting for `turnout serve`, 10 s at most\n"


def test_codes_do_not_wait_for_ever_nor_for_what_is_no_store(tmp_path, monkeypatch):
    monkeypatch.setattr("turnout.cli.operate.LONGEST_WAIT", 0.3)
    with pytest.raises(TurnoutError, match="no such file: check the path, or begin a run there"):
        codes(str(tmp_path / "none.db"))
    monkeypatch.setattr("turnout.cli.operate.LONGEST_WAIT", 60.0)
    (tmp_path / "other.db").write_text("no database at all, but a text of some length" * 100)
    began = time.monotonic()
    with pytest.raises(TurnoutError, match="not a database"):
        codes(str(tmp_path / "other.db"))
    with pytest.raises(TurnoutError, match="no such file"):
        operate("devices", "--store", tmp_path / "none.db")  # only codes wait
    assert time.monotonic() - began < 10.0


def test_codes_are_good_for_a_day_unless_told_otherwise(store):
    usual, late = codes(store, 2)
    assert is_good(store, usual, 23.9)
    assert not is_good(store, late, 24.1)
    usual, late = codes(store, 2, "--hours", 1000, "--weight", 2**40)
    assert is_good(store, usual, 999.9)
    assert not is_good(store, late, 1000.1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["0"], "count must be from 1 to 100,000"),
        (["100001"], "count must be from 1 to 100,000"),
        (["--weight", 2**40 + 1], "weight must be a whole number from 1 to 1,099,511,627,776"),
        (["--hours", 0], "hours must be above 0 and below a million, got 0.0"),
        (["--hours", "nan"], "hours must be above 0 and below a million"),
    ],
)
def test_what_no_operator_means_is_refused(store, arguments, told):
    with pytest.raises(ValueError, match=told):
        codes(store, *arguments)


def lived(location):
    """A store with four devices (the last joins late, the second leaves) and four closed rounds."""
    rules = usual_rules(safety=Safety("absent", hard_limit=2.0))
    store = begun(location, rules, 2.0, "night-shift")
    made = codes_for(store, 4)

    def enrol(which):
        store.enrol([Enrolment(hashed(made[slot]), hashed("nonce"), hashed(f"token {slot}")) for slot in which], 0.0)

    enrol(range(3))
    reports = ([YES, NO, YES], [YES, YES, YES], [MISSING, MISSING, MISSING], [NO, MISSING, YES, YES])
    for round, bits in enumerate(reports):
        if round == 2:
            store.withdraw(1, "me", "revoked")
        if round == 3:
            enrol([3])
        roll = Roll()
        roll.take(store.devices())
        closed, position = close(
            rules,
            store.position(),
            roll.members(),
            np.array(bits, dtype=np.uint8),
            2.0 + round,
            np.random.default_rng(5),
            seconds=1.25,
            closed_at=4_102_444_800.0625 + 10 * round,
        )
        store.close_round(closed, position)
    return store


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


REMEDIES = ("operate revoke DEVICE", "serve", "operate resume")


class TestRestore:
    def test_it_is_paused_and_says_what_it_has_brought_back_and_undone(self, tmp_path):
        store, back = lived(tmp_path / "run.db"), tmp_path / "back.db"
        store.change("me", capacity=1.5)
        operate("backup", tmp_path / "copy.db", "--store", tmp_path / "run.db")
        store.withdraw(2, "me", "revoked")
        store.change("me", capacity=1.0)
        said = operate("restore", tmp_path / "copy.db", "--store", back)
        assert f"{back}: run night-shift is restored, and paused" in said
        assert "as of 2100-01-01 00:00:30 UTC: round 4, capacity 1.5, mode running, 3 members" in said
        assert "undone: every enrolment, revocation, code, name, capacity, mode and version of the rules" in said
        revoke, serve, resume = (f"`turnout {words} --store {back}`" for words in REMEDIES)
        assert f"next: {revoke} for what was revoked since, {serve}, then {resume}" in said
        restored = open_store(str(back))
        assert (restored.control().mode, restored.devices()[2].left) == ("paused", None)
        assert [line.what for line in restored.changes()][-2:] == ["restored", "mode"]

    def test_the_devices_of_a_restored_run_take_part_only_once_it_is_resumed(self, tmp_path):
        store = begun(tmp_path / "run.db")
        (code,) = codes_for(store, 1)
        store.backup(tmp_path / "copy.db")
        operate("restore", tmp_path / "copy.db", "--store", tmp_path / "back.db")
        with running(open_store(str(tmp_path / "back.db"))) as found:
            token = send(found.url, "POST", "/v1/enrol", {"code": code, "nonce": "n" * 20})[1]["token"]
            report = {"run": "test", "round": 0, "participates": True}
            with ThreadPoolExecutor(1) as other:
                answer = other.submit(send, found.url, "POST", "/v1/report", report, token)
                eventually(lambda: found.coordinator.sync.open.heard == 1)
                with pytest.raises(TimeoutError):
                    answer.result(0.7)
                operate("resume", "--store", tmp_path / "back.db")
                assert answer.result(20)[1]["counted"]


class TestBooks:
    def test_a_row_for_each_round(self, tmp_path):
        lived(tmp_path / "run.db")  # and it is still open: a coordinator would be at work
        operate("rounds", tmp_path / "rounds.csv", "--store", tmp_path / "run.db")
        rows = table(tmp_path / "rounds.csv")
        assert ",".join(rows[0]) == (
            "round,closed_at,signal,capacity,participants,demand,members,heard,refused,frozen,seconds,expected,beyond_reach"
        )
        closed = ["2100-01-01T00:00:00.062Z", "2100-01-01T00:00:10.062Z"]
        assert [row["closed_at"] for row in rows[:2]] == closed
        counts = [
            [int(row[name]) for name in ("round", "participants", "demand", "members", "heard", "refused")]
            for row in rows
        ]
        assert counts == [[0, 2, 2, 3, 3, 0], [1, 2, 3, 3, 3, 1], [2, 0, 0, 2, 0, 0], [3, 2, 2, 3, 3, 0]]
        assert [(row["capacity"], row["frozen"], row["seconds"]) for row in rows[1:3]] == [
            ("3.0", "false", "1.25"),
            ("4.0", "true", "1.25"),
        ]
        store = open_store(str(tmp_path / "run.db"))
        assert [float(row["signal"]) for row in rows] == [closed.signal for closed in store.history()]

    def test_a_row_for_each_device_and_round(self, tmp_path):
        store = lived(tmp_path / "run.db")
        (refused,) = np.flatnonzero(store.closed(1).codes == REFUSED)
        operate("rounds", tmp_path / "rounds.csv", "--devices", "--store", tmp_path / "run.db")
        found = {(int(row["round"]), int(row["device"])): row["outcome"] for row in table(tmp_path / "rounds.csv")}
        second = {(1, slot): "refused" if slot == refused else "acknowledged" for slot in range(3)}
        assert found == second | {
            **{(0, 0): "acknowledged", (0, 1): "no", (0, 2): "acknowledged"},
            **{(2, 0): "missing", (2, 2): "missing"},  # the second has left
            **{(3, 0): "no", (3, 2): "acknowledged", (3, 3): "acknowledged"},
        }

    def test_what_devices_reported_is_for_the_owner_alone(self, tmp_path):
        lived(tmp_path / "run.db")
        operate("rounds", tmp_path / "rounds.csv", "--devices", "--store", tmp_path / "run.db")
        assert (tmp_path / "rounds.csv").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("command", ["rounds", "export", "backup", "password"])
def test_no_file_is_overwritten(tmp_path, command):
    lived(tmp_path / "run.db")
    (tmp_path / "there").write_text("of last month")
    with pytest.raises(TurnoutError, match=r"there: .*(must be new, got one that exists|File exists)"):
        operate(command, tmp_path / "there", *(() if command == "password" else ("--store", tmp_path / "run.db")))
    assert (tmp_path / "there").read_text() == "of last month"
    assert sorted(path.name for path in tmp_path.glob("*there*")) == ["there"]


def test_a_password_is_said_once_and_its_hash_is_kept(tmp_path):
    path = tmp_path / "operator"
    said = operate("password", path).strip()
    assert path.stat().st_mode & 0o777 == 0o600
    assert said not in path.read_text()
    assert matches(said, password_hash(path))
    with pytest.raises(FileProblem, match="holds the hash of a password: give a file that has the password itself"):
        read_password(path)


def test_a_device_is_revoked_by_its_number_or_a_tag_that_it_alone_has(store):
    """Tags are short: of two devices with the same one, neither is taken for the other."""
    tokens = [b"\x01" * 32, b"\x02" * 32, b"\x02" * 31 + b"\x03"]
    opened = open_store(store)
    requests = [
        Enrolment(hashed(code), hashed("nonce"), token) for code, token in zip(codes(store, 3), tokens, strict=True)
    ]
    assert all(opened.enrol(requests, time.time()))
    opened.close()
    assert [line["tag"] for line in json.loads(operate("devices", "--store", store, "--json"))] == [
        "01010101", "02020202", "02020202",
    ]  # fmt: skip
    for wrong in ("02020202", "3", "-1", "nobody"):
        with pytest.raises((ValueError, SystemExit)):
            operate("revoke", "--store", store, "--", wrong)
    assert "device 0 is no member" in operate("revoke", "01010101", "--store", store)
    for number in (1, 2):
        assert f"device {number} is no member" in operate("revoke", number, "--store", store)
