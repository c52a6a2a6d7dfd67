"""What is PostgreSQL's own: a server that goes away, several coordinators, passwords."""

import contextlib
import signal
import sys
import threading
import time
import traceback

import numpy as np
import pytest

from service import closing
from service.postgres import PASSWORD, server
from turnout.errors import MissingExtra
from turnout.service.rounds import MISSING, NO, YES, Position
from turnout.service.store import postgres as postgres_address
from turnout.service.store import postgres as postgres_store
from turnout.service.store.backup import open_store
from turnout.service.store.postgres import PostgresStore
from turnout.service.store.sqlite import SqliteTables
from turnout.service.store.store import Enrolment, Run, StaleRound, StoreProblem

RUN, START = Run("chargers", {"wait_for": 3}, 1234.5), Position(0, 0.35, {"signal": 0.35})


@pytest.fixture
def location():
    return server().database()


@pytest.fixture
def kept(location):
    opened = PostgresStore(location, create=True)
    opened.begin(RUN, START, 600.0)
    yield opened
    opened.close()


def close(kept: PostgresStore, rounds: int = 1) -> None:
    first = kept.position().round
    for round in range(first, first + rounds):
        kept.close_round(closing.closed(round), closing.after(round))


def check_books(kept: PostgresStore) -> int:
    """Gap-free, every round once, each as it was written; how many."""
    rounds = kept.position().round
    books = list(kept.history())
    assert [row.round for row in books] == list(range(rounds))
    assert all((row.codes == closing.closed(row.round).codes).all() for row in books)
    return rounds


def terminate(kept: PostgresStore) -> None:
    """What an administrator, or a broken network, does to its connection."""
    server().sql("postgres", f"SELECT pg_terminate_backend({kept._connection.info.backend_pid})")


def test_a_copy_to_a_slow_disk_takes_the_time_it_takes(location, tmp_path, monkeypatch):
    """The server ends what waits in a transaction, which a copy does while the target's disk works."""
    monkeypatch.setattr(postgres_store, "FROZEN", "50ms")
    monkeypatch.setattr(postgres_store, "RECONNECT_SECONDS", 0.0)
    many = SqliteTables.many

    def slow(self, sql, rows):
        many(self, sql, rows)
        time.sleep(0.1)

    with contextlib.closing(PostgresStore(location, create=True)) as kept:
        kept.begin(RUN, START, 600.0)
        monkeypatch.setattr(SqliteTables, "many", slow)
        kept.backup(tmp_path / "copy.db")
        with pytest.raises(StoreProblem, match="idle-in-transaction timeout"):
            kept._read(lambda tables: time.sleep(0.3) or tables.one("SELECT 1"))  # the twin: any other is ended
    assert open_store(str(tmp_path / "copy.db")).run() == RUN


class Cut:
    """A connection that breaks at its next commit: just before it, or after it and before the answer."""

    def __init__(self, kept: PostgresStore, *, after: bool) -> None:
        self._real, self._after, self._kept = kept._connection, after, kept
        kept._connection = self

    def __getattr__(self, name):
        return getattr(self._real, name)

    def execute(self, statement, *values):
        if statement == "COMMIT":
            if self._after:
                self._real.execute(statement)
            pid = self._real.info.backend_pid
            server().sql("postgres", f"SELECT pg_terminate_backend({pid})")
            while server().sql("postgres", f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"):
                time.sleep(0.01)
        return self._real.execute(statement, *values)


def test_a_restart_between_calls_is_no_failure(kept):
    close(kept, 2)
    assert kept.lead()
    server().restart()
    close(kept, 2)
    assert kept.lead()
    assert check_books(kept) == 4


def test_restarts_during_calls_lose_and_double_nothing(kept, location):
    failed: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            other = PostgresStore(location)
            while not done.is_set():
                round = other.position().round
                other.merge(round, closing.closed(round).codes)
                other.close_round(closing.closed(round), closing.after(round))
                assert other.lead()
            other.close()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    seen = []
    for _ in range(3):
        time.sleep(0.15)
        server().restart()
        seen.append(kept.position().round)
    time.sleep(0.15)
    done.set()
    thread.join()
    assert not failed, failed
    rounds = check_books(kept)
    assert 0 < seen[0] < seen[1] < seen[2] < rounds


@pytest.mark.parametrize("after", [False, True])
def test_a_close_whose_commit_was_cut_off_is_done_once(kept, after):
    close(kept)
    Cut(kept, after=after)
    kept.close_round(closing.closed(1), closing.after(1))
    assert check_books(kept) == 2
    with pytest.raises(StaleRound):
        kept.close_round(closing.closed(1), closing.after(1))


def test_a_close_that_another_did_meanwhile_is_stale(kept, location):
    other = PostgresStore(location)
    cut = Cut(kept, after=False)
    real = cut._real.execute

    def closed_by_another(statement, *values):
        if statement == "COMMIT":
            terminate(kept)
            time.sleep(0.1)
            row = closing.closed(0)
            other.close_round(type(row)(**vars(row) | {"demand": 77}), closing.after(0))
        return real(statement, *values)

    cut.execute = closed_by_another
    with pytest.raises(StaleRound):
        kept.close_round(closing.closed(0), closing.after(0))
    assert kept.closed(0).demand == 77
    other.close()


@pytest.mark.parametrize("after", [False, True])
def test_what_may_not_be_done_twice_is_not(kept, after):
    Cut(kept, after=after)
    with pytest.raises(StoreProblem, match="look whether it was done"):
        kept.add_codes([bytes(32)], 1, None, "me")
    assert len(kept.changes()) == int(after)


@pytest.mark.parametrize("after", [False, True])
def test_what_may_be_done_twice_comes_to_the_same(kept, after):
    kept.add_codes([bytes(32)], 1, None, "me")
    Cut(kept, after=after)
    [device] = kept.enrol([Enrolment(bytes(32), b"n" * 32, b"t" * 32)], 0.0)
    assert kept.devices() == [device]
    assert (device.slot, device.revision) == (0, 1 + after)
    Cut(kept, after=after)
    kept.change("me", capacity=7.0)
    Cut(kept, after=after)
    assert kept.withdraw(0, "me", "left").left == 0
    Cut(kept, after=after)
    assert kept.merge(0, np.array([YES], dtype=np.uint8)).tolist() == [YES]
    assert [line.what for line in kept.changes()] == ["codes", "capacity", "left"]


def test_a_server_that_stays_away_is_named_and_comes_back(kept, monkeypatch):
    monkeypatch.setattr(postgres_store, "RECONNECT_SECONDS", 0.3)
    server().stop(signal.SIGQUIT)
    try:
        for attempt in (kept.position, kept.lead, lambda: close(kept), lambda: open_store(server().url("postgres"))):
            with pytest.raises(StoreProblem, match="check that the server runs") as problem:
                attempt()
            assert PASSWORD not in str(problem.value)
    finally:
        server().start()
    close(kept)
    assert check_books(kept) == 1


def test_the_lead_is_lost_with_its_connection(kept, location):
    other = PostgresStore(location)
    assert [kept.lead(), other.lead()] == [True, False]
    server().sql(location, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    while not other.lead():
        time.sleep(0.01)
    assert not kept.lead()
    other.close()


def test_reports_on_the_table_may_be_lost_with_the_server_but_are_put_there_again(kept, location):
    other = PostgresStore(location)
    given = np.array([YES, MISSING, NO], dtype=np.uint8)
    assert kept.merge(0, given).tolist() == given.tolist()
    server().restart()
    assert other.merge(0, np.array([NO, NO], dtype=np.uint8)).tolist() in ([NO, NO], [YES, NO, NO])
    together = kept.merge(0, given)
    assert together.tolist() == other.merge(0, given).tolist()
    assert together.tolist()[1:] == [NO, NO]
    other.close()


def test_many_merges_at_once_agree(kept, location):
    slots, tables = 400, []
    random = np.random.default_rng(3)
    reports = [random.integers(0, 3, slots).astype(np.uint8) for _ in range(3)]

    def work(mine: np.ndarray) -> None:
        other = PostgresStore(location)
        for end in range(20, slots + 1, 20):
            other.merge(0, np.where(np.arange(slots) < end, mine, MISSING).astype(np.uint8))
        barrier.wait()
        tables.append(other.merge(0, mine))
        other.close()

    barrier = threading.Barrier(3)
    threads = [threading.Thread(target=work, args=(mine,)) for mine in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tables) == 3
    assert (tables[0] == tables[1]).all()
    assert (tables[0] == tables[2]).all()
    heard = np.any([mine != MISSING for mine in reports], axis=0)
    assert ((tables[0] != MISSING) == heard).all()
    assert np.any([tables[0] == mine for mine in reports], axis=0).all()


def test_several_may_make_it_at_once(location):
    made, failed = [], []

    def work() -> None:
        try:
            made.append(PostgresStore(location, create=True))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    made[0].begin(RUN, START, 600.0)
    assert [one.run() for one in made] == [RUN] * 4
    for one in made:
        one.close()


def test_a_coordinator_that_was_halted_in_a_transaction_holds_up_nobody(location, monkeypatch):
    monkeypatch.setattr(postgres_address, "FROZEN", "200ms")
    halted, other = PostgresStore(location, create=True), PostgresStore(location)
    halted.begin(RUN, START, 600.0)
    halted._connection.execute("BEGIN")
    halted._connection.execute("SELECT value FROM meta FOR UPDATE")
    close(other)
    close(halted)
    assert check_books(other) == 2
    for one in (halted, other):
        one.close()
        with pytest.raises(StoreProblem, match="closed"):
            one.position()


def test_a_commit_is_on_the_disk_even_where_the_server_would_not_wait(location):
    name = location.rsplit("/", 1)[1]
    server().sql("postgres", f"ALTER DATABASE {name} SET synchronous_commit = off")
    opened = PostgresStore(location, create=True)
    opened.begin(RUN, START, 600.0)
    opened.merge(0, np.array([YES], dtype=np.uint8))
    assert opened._connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    opened.close()


SECRET = "hunter2"


@pytest.mark.parametrize(
    "location",
    [
        "postgresql://turnout:{secret}@127.0.0.1:{port}/postgres",
        "postgres://turnout@127.0.0.1:{port}/postgres?password={secret}",
        "postgresql://turnout:{secret}@127.0.0.1:1/postgres",
        "postgresql://turnout:x/{secret}@127.0.0.1:{port}/postgres",
        "postgresql://turnout:{secret}/x@127.0.0.1:{port}/postgres",
        "postgresql://turnout:x@{secret}@127.0.0.1:{port}/postgres",
        "postgresql://turnout:{secret}@x@127.0.0.1:{port}/postgres",
        "postgresql://turnout:{secret}@127.0.0.1:{port}/postgres?nonsense={secret}",
        "postgresql://turnout:%{secret}@127.0.0.1:{port}/postgres",
        "postgresql://turnout:{secret}?x@127.0.0.1:{port}/postgres",
        "postgresql://turnout:{secret}#x@127.0.0.1:{port}/postgres",
        "postgresql://turnout:[{secret}@127.0.0.1:{port}/postgres",
        "postgresql:///postgres?host=127.0.0.1&port={port}&user=turnout&password={secret}",
    ],
)
def test_a_password_is_never_shown(location):
    with pytest.raises(StoreProblem) as problem:
        open_store(location.format(secret=SECRET, port=server().port), create=True)
    shown = "".join(traceback.format_exception(problem.value, chain=True))
    assert SECRET not in shown.replace(str(location), "")
    assert str(problem.value).startswith("postgres")
    assert problem.value.__suppress_context__ or problem.value.__context__ is None


def test_what_is_missing_is_said(location):
    gone = location.rsplit("/", 1)[0] + "/nowhere"
    with pytest.raises(StoreProblem, match=r'"nowhere" does not exist: .* that the database exists \(`createdb`\)'):
        open_store(gone, create=True)
    with pytest.raises(StoreProblem, match="no store in this database"):
        open_store(location)
    server().sql("postgres", f"DO $$ BEGIN CREATE ROLE guest LOGIN PASSWORD '{SECRET}'; END $$")
    guest = location.replace(f"turnout:{PASSWORD}", f"guest:{SECRET}")
    with pytest.raises(StoreProblem, match="let this user create and use the schema"):
        open_store(guest, create=True)
    server().sql("postgres", "DROP ROLE guest")


def test_the_library_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"pip install 'turnout\[postgres\]'"):
        open_store("postgresql://nobody@nowhere/nothing")
