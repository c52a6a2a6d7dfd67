"""What is SQLite's own: files, disks, locks."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from service import closing
from turnout.service.rounds import Position
from turnout.service.store import sqlite as sqlite_store
from turnout.service.store.backup import open_store, restore
from turnout.service.store.sqlite import SqliteStore
from turnout.service.store.store import Change, Device, Enrolment, Names, Run, StoreProblem

RUN, START = Run("chargers", {"wait_for": 3}, 1234.5), Position(0, 0.35, {"signal": 0.35})


def begun(path: Path, rounds: int = 0) -> SqliteStore:
    kept = SqliteStore(path, create=True)
    kept.begin(RUN, START, 600.0)
    close(kept, rounds)
    return kept


def close(kept: SqliteStore, rounds: int) -> None:
    first = kept.position().round
    for round in range(first, first + rounds):
        kept.close_round(closing.closed(round), closing.after(round))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


def test_a_commit_is_on_the_disk_when_it_returns(path):
    kept = begun(path)
    found = [kept._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert found == ["wal", 2]
    kept.close()


def test_only_its_owner_may_read_it(path):
    before = os.umask(0)
    try:
        kept = begun(path, 1)
        assert kept.lead()
    finally:
        os.umask(before)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["run.db", "run.db-shm", "run.db-wal", "run.db.lock"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    kept.close()


def test_one_leads_whatever_the_file_is_called(path):
    kept = begun(path)
    other_name = path.with_name("link.db")
    other_name.symlink_to(path)
    other = SqliteStore(other_name)
    assert kept.lead()
    assert not other.lead()
    kept.close()
    assert other.lead()
    other.close()


def test_who_leads_and_is_killed_leads_no_more(path):
    begun(path).close()
    code = (
        "import os, sys; from turnout.service.store.backup import open_store; "
        "assert open_store(sys.argv[1]).lead(); print('leads', flush=True); os.read(0, 1)"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"leads\n"
        kept = SqliteStore(path)
        assert not kept.lead()
        child.kill()
        child.wait()
        assert kept.lead()
        kept.close()


def test_what_is_not_a_store_is_refused_and_left_alone(tmp_path):
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE meta (name TEXT)")
    connection.close()
    (tmp_path / "text.db").write_text("to whom it may concern\n" * 100)
    (tmp_path / "empty.db").touch()
    (tmp_path / "folder.db").mkdir()
    reasons = {"other": "another kind", "text": "not a database", "empty": "an empty file", "folder": "unable to open"}
    for name, reason in reasons.items():
        path = tmp_path / f"{name}.db"
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(StoreProblem, match=reason) as problem:
            SqliteStore(path, create=name not in ("empty",))
        assert str(problem.value).startswith(f"{path}: ")
        assert (path.read_bytes() if path.is_file() else None) == before
    begun(tmp_path / "empty.db").close()  # asked to make one, it makes one of an empty file
    with pytest.raises(StoreProblem, match="no such file: check the path, or begin a run there with `turnout serve"):
        SqliteStore(tmp_path / "none.db")
    with pytest.raises(StoreProblem, match="no such file: check the path, or make its folder first"):
        SqliteStore(tmp_path / "nowhere" / "none.db", create=True)
    with pytest.raises(StoreProblem, match="not a directory"):
        SqliteStore(tmp_path / "text.db" / "none.db", create=True)


def test_two_copies_to_one_place_at_once_do_not_delete_each_other(path, tmp_path, monkeypatch):
    kept, other, check = begun(path, 3), SqliteStore(path), SqliteStore.check

    def overtaken(self):
        monkeypatch.setattr(SqliteStore, "check", check)
        other.backup(tmp_path / "copy.db")
        check(self)

    monkeypatch.setattr(SqliteStore, "check", overtaken)
    kept.backup(tmp_path / "copy.db")
    assert SqliteStore(tmp_path / "copy.db").position().round == 3
    assert not list(tmp_path.glob("copy.db.*part*"))


@pytest.mark.parametrize("damage", ["zeros", "cut", "header"])
def test_a_damaged_file_is_named_so(path, tmp_path, damage):
    kept = begun(path, 60)
    kept.backup(tmp_path / "copy.db")
    kept.close()
    for file in (path, tmp_path / "copy.db"):
        content = bytearray(file.read_bytes())
        if damage == "zeros":
            content[8192:] = bytes(len(content) - 8192)
        elif damage == "cut":
            del content[len(content) // 2 :]
        else:
            content[:100] = os.urandom(100)
        file.write_bytes(content)
    with pytest.raises(StoreProblem, match=r"malformed|not a database") as problem:
        list(read_all(path))
    assert str(path) in str(problem.value)
    with pytest.raises(StoreProblem, match=r"copy\.db: .*(damaged|malformed|not a database)"):
        restore(tmp_path / "copy.db", str(tmp_path / "back.db"))
    assert not (tmp_path / "back.db").exists()


def read_all(path: Path) -> list:
    kept = SqliteStore(path)
    try:
        return [kept.run(), kept.position(), kept.devices(), kept.changes(), *kept.history()]
    finally:
        kept.close()


def test_a_copy_without_some_rounds_is_refused(path, tmp_path):
    kept = begun(path, 3)
    kept.backup(tmp_path / "copy.db")
    with pytest.raises(StoreProblem, match="in use, not a copy"):
        restore(path, str(tmp_path / "back.db"))
    kept.close()
    connection = sqlite3.connect(tmp_path / "copy.db")
    connection.execute("UPDATE state SET round = 5")
    connection.commit()
    connection.close()
    with pytest.raises(StoreProblem, match="rounds are missing"):
        restore(tmp_path / "copy.db", str(tmp_path / "back.db"))
    with pytest.raises(StoreProblem, match="no such file"):
        restore(tmp_path / "none.db", str(tmp_path / "back.db"))
    assert not (tmp_path / "back.db").exists()


def test_a_copy_that_fails_leaves_nothing(path, tmp_path, monkeypatch):
    kept = begun(path, 3)
    with pytest.raises(StoreProblem, match="no such file"):
        kept.backup(tmp_path / "nowhere" / "copy.db")
    monkeypatch.setattr(SqliteStore, "check", lambda self: (_ for _ in ()).throw(StoreProblem("damaged")))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StoreProblem, match="damaged"):
        kept.backup(tmp_path / "copy.db")
    assert sorted(tmp_path.iterdir()) == before
    kept.close()


def test_a_full_store_says_so_and_keeps_what_it_has(path):
    kept = begun(path, 3)
    pages = kept._connection.execute("PRAGMA page_count").fetchone()[0]
    kept._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreProblem, match="full: make room on the disk") as problem:
        close(kept, 50)
    assert str(path) in str(problem.value)
    assert "tries again by itself" in str(problem.value)  # no restart is needed, as is shown below
    assert "start again" not in str(problem.value)
    rounds = kept.position().round
    assert [row.round for row in kept.history()] == list(range(rounds))
    kept._connection.execute("PRAGMA max_page_count = 1000000")
    close(kept, 5)
    assert [row.round for row in kept.history()] == list(range(rounds + 5))
    kept.close()


FULL_DISK = """
import resource, sys
from service import closing
from turnout.service.store.backup import open_store
from turnout.service.store.store import StoreProblem
kept, failures = open_store(sys.argv[1]), 0
most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, most[1]))
while failures < 5:
    round = kept.position().round
    try:
        kept.close_round(closing.closed(round), closing.after(round))
    except StoreProblem as problem:
        failures += 1
        assert kept.position().round == round and kept.closed(round) is None
        assert sys.argv[1] in str(problem) and "free space" in str(problem) or "make room" in str(problem), problem
assert round > 10, round
resource.setrlimit(resource.RLIMIT_FSIZE, most)
kept.close_round(closing.closed(round), closing.after(round))
print(round + 1)
"""


def test_a_disk_that_runs_full_loses_nothing(path):
    begun(path).close()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", FULL_DISK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    kept = SqliteStore(path)
    assert [row.round for row in kept.history()] == list(range(int(done.stdout)))
    assert kept.position().round == int(done.stdout)
    kept.check()
    kept.close()


READ_ONLY = """
import os, sys
from turnout.service.store.backup import open_store
from turnout.service.store.store import StoreProblem
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
for create in (False, True):
    try:
        open_store(sys.argv[1], create=create)
    except StoreProblem as problem:
        print(problem)
"""


@pytest.mark.parametrize("writable_folder", [False, True])
def test_a_file_that_may_not_be_written_is_refused(writable_folder):
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "run.db"
        begun(path, 2).close()
        path.chmod(0o444)
        before = path.read_bytes()
        folder.chmod(0o777 if writable_folder else 0o555)
        command = [sys.executable, "-c", READ_ONLY, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        assert len(lines) == 2, done.stderr
        assert all(line.startswith(f"{path}: ") and "writable to this user" in line for line in lines)
        assert path.read_bytes() == before
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_a_store_that_stays_locked_is_said_to_be(path, monkeypatch):
    begun(path).close()
    monkeypatch.setattr(sqlite_store, "LOCK_SECONDS", 0.05)
    kept, holder = SqliteStore(path), sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreProblem, match="locked: another process keeps it locked"):
        kept.change("me", capacity=7.0)
    assert kept.control().capacity == 600.0  # reading goes on
    holder.execute("ROLLBACK")
    holder.close()
    assert kept.change("me", capacity=7.0).capacity == 7.0
    kept.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_taken_away_is_noticed(path, replaced):
    kept = begun(path, 1)
    for file in sorted(path.parent.glob("run.db*")):
        file.rename(path.parent / f"away-{file.name}")
    if replaced:
        begun(path).close()
    with pytest.raises(StoreProblem, match="removed or replaced while in use"):
        close(kept, 1)
    kept.close()


def test_a_process_of_the_operator_and_the_coordinator_take_turns(path):
    kept = begun(path)
    code = (
        "import sys; from turnout.service.store.backup import open_store; kept = open_store(sys.argv[1])\n"
        "for number in range(40): kept.change('command line', capacity=1.0 + number)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)]) as child:
        while child.poll() is None:
            close(kept, 1)
        assert child.returncode == 0
    close(kept, 1)
    assert [line.detail.split(" -> ")[1] for line in kept.changes()] == [str(number) for number in range(1, 41)]
    assert [row.round for row in kept.history()] == list(range(kept.position().round))
    kept.close()


def test_a_store_without_a_run_goes_with_whoever_made_it(path, tmp_path):
    made = SqliteStore(path, create=True)
    assert made.lead()
    made.close()
    assert list(tmp_path.iterdir()) == []
    path.touch()  # it was there before, if empty
    SqliteStore(path, create=True).close()
    assert path.exists()
    path.unlink()
    made = SqliteStore(path, create=True)
    begun_by_another = SqliteStore(path)
    begun_by_another.begin(RUN, START, 600.0)
    made.close()
    assert begun_by_another.run() == RUN
    begun_by_another.close()
    begun(tmp_path / "full.db").close()
    assert SqliteStore(tmp_path / "full.db").run() == RUN


def test_a_store_that_another_process_has_open_stays(path):
    made = SqliteStore(path, create=True)
    other = SqliteStore(path)
    other.run()
    made.close()
    other.begin(RUN, START, 600.0)
    assert other.run() == RUN
    other.close()


VERSION_1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE run (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, settings TEXT NOT NULL, begun_at REAL NOT NULL);
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), round INTEGER NOT NULL, offered REAL NOT NULL, controller TEXT NOT NULL, switched_on BLOB NOT NULL, capacity REAL NOT NULL, mode TEXT NOT NULL, revision INTEGER NOT NULL);
CREATE TABLE devices (slot INTEGER PRIMARY KEY, token BLOB NOT NULL, weight INTEGER NOT NULL, joined INTEGER NOT NULL, left_in INTEGER NULL, revision INTEGER NOT NULL);
CREATE TABLE codes (code BLOB PRIMARY KEY, weight INTEGER NOT NULL, expires_at REAL NULL, nonce BLOB NULL, slot INTEGER NULL);
CREATE TABLE books (round INTEGER PRIMARY KEY, signal REAL NOT NULL, capacity REAL NOT NULL, slots INTEGER NOT NULL, codes BLOB NOT NULL, participants INTEGER NOT NULL, demand INTEGER NOT NULL, members INTEGER NOT NULL, heard INTEGER NOT NULL, frozen INTEGER NOT NULL, seconds REAL NOT NULL, closed_at REAL NOT NULL);
CREATE TABLE log (line INTEGER PRIMARY KEY, at REAL NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX devices_by_revision ON devices (revision);
CREATE TRIGGER books_unchanged BEFORE UPDATE ON books BEGIN SELECT RAISE(ABORT, 'this table is only ever added to'); END;
INSERT INTO meta VALUES ('schema', '1');
INSERT INTO run VALUES (1, 'chargers', '{"wait_for": 3}', 1234.5);
INSERT INTO state VALUES (1, 1, 0.5, '{"signal": 0.6}', x'', 600.0, 'running', 2);
INSERT INTO devices VALUES (0, x'01', 7, 0, NULL, 1), (1, x'02', 1, 0, 1, 2);
INSERT INTO codes VALUES (x'0a', 7, 50.0, x'1a', 0), (x'0b', 1, NULL, x'1b', 1), (x'0c', 3, NULL, NULL, NULL);
INSERT INTO books VALUES (0, 0.4, 600.0, 2, x'90', 7, 7, 2, 2, 0, 9.5, 1e9);
INSERT INTO log VALUES (0, 1e9, 'me', 'codes', '3 of weight 7');
"""  # noqa: E501  as the first version wrote it


@pytest.mark.parametrize("way", ["opened", "restored"])
def test_a_store_of_version_1_is_brought_up_to_date_with_all_that_it_has(path, tmp_path, way):
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    connection.close()
    if way == "restored":
        restore(path, str(tmp_path / "back.db"))
        path = tmp_path / "back.db"
    kept = SqliteStore(path)
    assert (kept.run(), kept.position().round, kept.position().signal) == (RUN, 1, 0.6)
    assert kept.devices() == [Device(0, b"\x01", 7, 0, None, 1), Device(1, b"\x02", 1, 0, 1, 2)]
    assert [closed.codes.tolist() for closed in kept.history()] == [[2, 1]]
    assert [(code.code, code.slot, code.state(60.0), code.names) for code in kept.codes()] == [
        (b"\x0a", 0, "used", Names()),
        (b"\x0b", 1, "used", Names()),
        (b"\x0c", None, "unused", Names()),
    ]
    assert kept.changes()[0] == Change(1e9, "me", "codes", "3 of weight 7")
    kept.rename(0, "me", label="charger 4")
    kept.add_codes([b"\x0d"], 1, None, "me", [Names("charger 5")])
    found = kept.enrol([Enrolment(b"\x0c", b"\x1c", b"\x03"), Enrolment(b"\x0d", b"\x1d", b"\x04")], 60.0)
    assert [device.names.label for device in found] == ["", "charger 5"]
    kept.close()
    assert [device.names.label for device in SqliteStore(path).devices()] == ["charger 4", "", "", "charger 5"]


def test_a_copy_from_another_version_goes_through_the_same_way(path, tmp_path, monkeypatch):
    kept = begun(path, 2)
    kept.backup(tmp_path / "copy.db")
    kept.close()
    from turnout.service.store import schema, store

    monkeypatch.setattr(store, "SCHEMA", store.SCHEMA + 1)
    monkeypatch.setitem(schema.MIGRATIONS, store.SCHEMA - 1, ["UPDATE state SET capacity = 7.0"])
    restore(tmp_path / "copy.db", str(tmp_path / "back.db"))
    back = open_store(str(tmp_path / "back.db"))
    assert back.control().capacity == 7.0
    assert back.run() == replace(RUN)
    back.close()
