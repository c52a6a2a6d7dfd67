"""One suite for every kind of store: what the coordinator relies on must hold in SQLite and in PostgreSQL alike."""

import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.places import RUN, START, Places, after, close, closed, codes, everything, hashed, request, same
from service import closing
from turnout.service import MISSING, NO, REFUSED, YES, ClosedRound, Position, Summary
from turnout.service.store import schema, store
from turnout.service.store import sql as sql_store
from turnout.service.store.backup import Restored, open_store, restore
from turnout.service.store.store import (
    MODES,
    Change,
    Control,
    Device,
    StaleRound,
    StoreProblem,
)


def test_a_run_begins_once(places):
    location = places.new()
    kept = places.open(location, create=True)
    assert kept.run() is None
    kept.begin(RUN, START, 600)
    with pytest.raises(StoreProblem, match="a run is stored here already"):
        kept.begin(replace(RUN, name="other"), START, 600)
    again = places.open(location)
    assert (again.run(), again.position(), again.control()) == (RUN, START, Control(600.0, "running", 0))
    assert (again.devices(), again.changes(), list(again.history()), again.closed(0)) == ([], [], [], None)


def test_a_capacity_above_the_hard_limit_is_refused(places):
    kept = places.open(places.new(), create=True)
    kept.begin(replace(RUN, settings={"safety": {"missing": "absent", "hard_limit": 700.0}}), START, 600)
    with pytest.raises(ValueError, match="capacity must be at most the hard limit of 700, got 701"):
        kept.change("me", capacity=701.0)
    assert kept.control().capacity == 600.0
    assert kept.change("me", capacity=700.0).capacity == 700.0


def test_versions_of_the_rules(places):
    location = places.new()
    kept = places.begun(location)
    assert [(version.number, version.since, version.settings) for version in kept.rules()] == [(1, 0, RUN.settings)]
    close(kept, 2)
    settings = dict(RUN.settings) | {"safety": {"hard_limit": 650.0}}
    made = kept.change_rules(settings, 1, "me")
    assert (made.number, made.since, made.who, made.settings) == (2, 3, "me", settings), "round 2 is open"
    assert kept.control().revision == 1, "others notice"
    assert kept.change_rules(settings, 1, "me") == made, "the same again"
    later = kept.change_rules(RUN.settings, 2, "me", since=9)
    assert (later.number, later.since) == (3, 9)
    assert kept.change_rules(settings, 3, "me", since=5).since == 5, "and version 3 never holds"
    assert places.open(location).rules(after=2) == kept.rules()[2:]
    with pytest.raises(StoreProblem, match="the rules were changed meanwhile"):
        kept.change_rules(RUN.settings, 3, "me")
    with pytest.raises(ValueError, match="capacity must be at most the hard limit of 650 from round 3 on, got 651"):
        kept.change("me", capacity=651.0)
    with pytest.raises(ValueError, match="at most the hard limit of 599 from round 3 on, got 600"):
        kept.change_rules(settings | {"safety": {"hard_limit": 599.0}}, 4, "me")
    assert len(kept.rules()) == 4, "what is refused leaves nothing"
    assert [line.detail for line in kept.changes()] == [
        "version 2 from round 3 on: safety none -> {'hard_limit': 650.0}",
        "version 3 from round 9 on: safety {'hard_limit': 650.0} -> none",
        "version 4 from round 5 on: safety none -> {'hard_limit': 650.0}",
    ]


def test_without_a_run_there_is_nothing_to_do(places, tmp_path):
    kept = places.open(places.new(), create=True)
    tries = [
        kept.position,
        kept.control,
        lambda: kept.change("me", capacity=1.0),
        lambda: kept.change_rules({}, 1, "me"),
        lambda: kept.add_codes([hashed(1)], 1, None, "me"),
        lambda: kept.enrol([request(1)], 0.0),
        lambda: kept.withdraw(0, "me", "left"),
        lambda: kept.backup(tmp_path / "copy"),
        lambda: kept.close_round(closed(0, codes()), after(0)),
    ]
    for attempt in tries:
        with pytest.raises(StoreProblem, match="must hold a run"):
            attempt()
    assert (kept.run(), kept.changes(), kept.devices()) == (None, [], [])
    assert not (tmp_path / "copy").exists()


def test_a_store_that_is_not_there_is_not_made_unasked(places):
    location = places.new()
    with pytest.raises(StoreProblem, match="turnout serve"):
        open_store(location)
    with pytest.raises(StoreProblem):
        open_store(location)


def test_a_capacity_must_be_possible(places, kept):
    empty = places.open(places.new(), create=True)
    for capacity in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="capacity must be above 0"):
            kept.change("me", capacity=capacity)
        with pytest.raises(ValueError, match="capacity must be above 0"):
            empty.begin(RUN, START, capacity)
    assert (kept.control(), kept.changes(), empty.run()) == (Control(600.0, "running", 0), [], None)


def test_what_the_operator_changes_is_logged(kept):
    assert kept.change("page", capacity=400) == Control(400.0, "running", 1)
    assert kept.change("command", capacity=500.5, mode="paused") == Control(500.5, "paused", 2)
    assert kept.change("command", mode="paused") == kept.control() == Control(500.5, "paused", 2)
    with pytest.raises(ValueError, match="mode must be one of running, draining, paused, stopped"):
        kept.change("page", capacity=9.0, mode="asleep")
    found = kept.changes()
    assert [(line.who, line.what, line.detail) for line in found] == [
        ("page", "capacity", "600 -> 400"),
        ("command", "capacity", "400 -> 500.5"),
        ("command", "mode", "running -> paused"),
    ]
    assert all(line.at > 1.7e9 for line in found)


@pytest.mark.parametrize("table", ["log", "books", "rules"])
def test_log_books_and_rules_are_only_ever_added_to(places, table):
    location = places.new()
    kept = places.begun(location)
    kept.change("me", capacity=1)
    kept.change_rules({"wait_for": 4}, 1, "me")
    close(kept)
    before = everything(kept)
    what, key = ("participants = 0" if table == "books" else "who = 'nobody'"), schema.ADDED_TO[table]
    statements = [f"UPDATE main.{table} SET {what}", f"DELETE FROM main.{table}", f"UPDATE main.{table} SET {key} = 7"]
    if places.kind == "sqlite":
        columns = ", ".join(schema.COLUMNS[table])
        statements.append(f"INSERT OR REPLACE INTO {table} SELECT {columns} FROM {table}")
    else:
        statements.append(f"TRUNCATE turnout.{table}")
    for statement in statements:
        with pytest.raises((sqlite3.Error, psycopg.Error), match="only ever added to"):
            places.sql(location, statement)
    assert everything(kept) == before
    kept.change("me", capacity=2)
    close(kept)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_is_closed_comes_back_as_it_was(kept, data):
    number = st.floats(allow_nan=False, min_value=-1e300, max_value=1e300).map(lambda value: value + 0.0)
    count = st.integers(0, 2**53)
    round = kept.position().round
    reports = np.array(data.draw(st.lists(st.integers(0, 3), max_size=40)), dtype=np.uint8)
    went = ClosedRound(  # type: ignore[call-arg]
        round,
        data.draw(number),
        data.draw(number),
        reports,
        *(data.draw(count) for _ in range(4)),
        data.draw(st.booleans()),
        data.draw(number),
        data.draw(number),
    )
    state = data.draw(st.dictionaries(st.text(max_size=5), number, max_size=3)) | {"signal": data.draw(number)}
    position = Position(round + 1, data.draw(number), state, data.draw(st.binary(max_size=20)))
    kept.close_round(went, position)
    assert kept.position() == position
    assert same(kept.closed(round), went)
    assert [row.round for row in kept.history(max(0, round - 2))] == list(range(max(0, round - 2), round + 1))
    assert kept.closed(round + 1) is None


def test_numpy_numbers_go_down_as_numbers(kept):
    row = closed(0, codes(YES))
    kept.close_round(replace(row, participants=np.int64(3), signal=np.float64(0.4), frozen=np.True_), after(0))
    assert same(kept.closed(0), replace(row, frozen=True))


def test_the_books_are_read_in_pages(kept, monkeypatch):
    monkeypatch.setattr(sql_store, "_PAGE", 3)
    close(kept, 8)
    assert [row.round for row in kept.history()] == list(range(8))
    assert [row.round for row in kept.history(5)] == [5, 6, 7]
    assert list(kept.history(8)) == []


def test_only_the_open_round_can_be_closed(kept):
    close(kept, 2)
    before = everything(kept)
    for round in (0, 1, 3):
        with pytest.raises(StaleRound, match=f"the open round must be {round}, got 2"):
            kept.close_round(closed(round, codes(YES)), after(round))
    with pytest.raises(ValueError, match="position must be at round 3, got 4"):
        kept.close_round(closed(2, codes(YES)), after(3))
    assert everything(kept) == before


@pytest.mark.parametrize("mode", MODES)
def test_draining_and_stopped_end_with_the_round(kept, mode):
    kept.change("me", mode=mode)
    revision = kept.control().revision
    kept.close_round(closed(0, codes(NO, REFUSED)), after(0))
    ends = mode in ("draining", "stopped")
    assert kept.control() == Control(600.0, "paused" if ends else mode, revision + ends)
    if ends:
        line = kept.changes()[-1]
        assert (line.who, line.what, line.detail) == ("coordinator", "mode", f"{mode} -> paused")


def test_an_order_to_stop_that_came_while_the_round_was_closing_is_not_lost(kept):
    kept.change("me", mode="stopped")
    kept.close_round(closed(0, codes(YES, NO)), after(0))
    assert kept.control().mode == "stopped"
    kept.close_round(closed(1, codes(REFUSED, NO)), after(1))
    assert kept.control().mode == "paused"


def test_an_error_half_way_changes_nothing(kept, monkeypatch):
    kept.change("me", mode="draining")
    kept.add_codes([hashed(0)], 1, None, "me")
    kept.enrol([request(0)], 0.0)
    before = everything(kept)

    def fail(*_: object) -> None:
        raise RuntimeError("half way")

    with monkeypatch.context() as patched:
        patched.setattr(sql_store, "_note", fail)
        for attempt in (
            lambda: close(kept),
            lambda: kept.change("me", capacity=7),
            lambda: kept.withdraw(0, "me", "left"),
            lambda: kept.add_codes([hashed(1)], 1, None, "me"),
        ):
            with pytest.raises(RuntimeError, match="half way"):
                attempt()
    assert everything(kept) == before
    close(kept)


def test_rounds_that_are_trimmed_while_they_are_read_are_missed(places, monkeypatch):
    """Whoever reads on after a gap has a table without these rounds, or histories that are wrong."""
    monkeypatch.setattr("turnout.service.store.sql._PAGE", 4)
    location = places.new()
    kept, other = places.begun(location), places.open(location)
    close(kept, 12)
    rounds = kept.history()
    next(rounds)
    other.trim(Summary(10, totals={"rounds": 10}), "me")
    with pytest.raises(StoreProblem, match="trimmed while they were read: read them again"):
        list(rounds)
    assert [row.round for row in kept.history()] == [10, 11]


def test_a_snapshot_is_as_the_store_was_at_one_time(places, monkeypatch):
    monkeypatch.setattr("turnout.service.store.sql._PAGE", 4)
    location = places.new()
    kept, other = places.begun(location), places.open(location)
    close(kept, 12)

    def read(view):
        before = everything(view)
        close(other)
        other.trim(Summary(10, totals={"rounds": 10}), "me")
        other.change("me", capacity=5.0)
        assert everything(view) == before
        assert (view.summary().first_kept, view.lead()) == (0, False)
        for refused in (lambda: view.change("me", capacity=6.0), lambda: view.backup(places.folder / "copy.db")):
            with pytest.raises(StoreProblem, match="a snapshot is only read"):
                refused()
        view.close()
        return before

    assert kept.snapshot(read)[1].round == 12
    assert (kept.position().round, kept.summary().first_kept, kept.control().capacity) == (13, 10, 5.0)


def test_reports_are_put_together_where_several_collect_them(places):
    location = places.new()
    here, there = places.begun(location), places.open(location)
    close(here)
    one = here.merge(1, codes(YES, MISSING, NO, MISSING))
    assert one.tolist() == [YES, MISSING, NO, MISSING]
    two = there.merge(1, codes(NO, YES, MISSING, MISSING, NO))
    assert two.dtype == np.uint8
    if not here.shared:
        assert two.tolist() == [NO, YES, MISSING, MISSING, NO]
        return
    assert two.tolist() == [YES, YES, NO, MISSING, NO]
    assert here.merge(1, codes()).tolist() == two.tolist()
    for round in (0, 2):
        assert here.merge(round, codes(NO, NO)).tolist() == [NO, NO]
    close(here)
    assert there.merge(1, codes(NO)).tolist() == [NO]
    assert there.merge(2, codes(MISSING, MISSING)).tolist() == [MISSING, MISSING]
    assert places.sql(location, "SELECT count(*) FROM main.reports") == [(0,)]


def test_one_leads(places):
    location = places.new()
    here, there = places.begun(location), places.open(location)
    assert [here.lead(), there.lead(), here.lead(), there.lead()] == [True, False, True, False]
    here.close()
    assert there.lead()


def test_the_lead_is_taken_from_who_is_silent_and_from_nobody_else(places):
    location = places.new()
    here, there = places.begun(location), places.open(location)
    assert here.lead()
    assert not there.end_lead(60.0)
    assert here.lead()
    assert there.end_lead(0.0) == there.shared
    if there.shared:
        for _ in range(500):  # the session ends in its own time
            if there.lead():
                break
            time.sleep(0.01)
        assert [there.lead(), here.lead(), there.lead()] == [True, False, True]


def test_two_at_once_close_every_round_once(places):
    location = places.new()
    places.begun(location).add_codes([hashed(n) for n in range(60)], 1, None, "me")
    won: list[list[int]] = [[], []]
    failed: list[BaseException] = []

    def work(me: int) -> None:
        try:
            kept = open_store(location)
            for number in range(30):
                round = kept.position().round
                try:
                    kept.close_round(replace(closed(round, codes(YES)), demand=me), after(round))
                    won[me].append(round)
                except StaleRound:
                    pass
                kept.change(f"operator {me}", capacity=1 + number + me / 2)
                assert kept.enrol([request(30 * me + number, me, number)], 0.0) != [None]
            kept.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    kept = places.open(location)
    assert sorted(won[0] + won[1]) == list(range(kept.position().round))
    assert [row.demand for row in kept.history()] == [int(row.round in won[1]) for row in kept.history()]
    assert [device.slot for device in kept.devices()] == list(range(60))
    revisions = sorted(device.revision for device in kept.devices())
    assert len(set(revisions)) == 60
    assert kept.control().revision == 120
    log = [line.detail.split(" -> ") for line in kept.changes()[1:]]
    assert [old for old, _ in log[1:]] == [new for _, new in log[:-1]]


@pytest.mark.parametrize("target", ["sqlite", "postgres"])
def test_a_copy_brings_the_run_back_anywhere(places, tmp_path, target):
    kept = places.begun()
    kept.add_codes([hashed(0), hashed(1)], 3, 1e10, "me")
    kept.enrol([request(0)], 0.0)
    kept.withdraw(0, "me", "left")
    close(kept, 3)
    before = everything(kept)
    copy = tmp_path / "copy.db"
    kept.backup(copy)
    close(kept)
    assert [path.name for path in tmp_path.glob("copy*")] == ["copy.db"]
    assert copy.stat().st_mode & 0o777 == 0o600
    content = copy.read_bytes()
    other = Places(target, tmp_path / "other")
    other.folder.mkdir()
    location = other.new()
    last = before[-1][-1].at
    assert restore(copy, location, "me") == Restored(RUN, last, 3, Control(600.0, "running", 2), 0)
    assert copy.read_bytes() == content
    back = places.open(location)
    run, position, control, *rest, log = everything(back)
    assert (run, position, Control(600.0, "running", 2), *rest, log[:-2]) == before
    assert control == Control(600.0, "paused", 3)
    assert [(line.who, line.what, line.detail) for line in back.changes(len(log) - 2)] == [
        ("me", "restored", "as of round 3"),
        ("me", "mode", "running -> paused"),
    ]
    assert back.enrol([request(1, 1, 1)], 0.0) == [Device(1, hashed(2001), 3, 3, None, 4)]
    close(back)
    with pytest.raises(StoreProblem, match="a run is stored here already"):
        restore(copy, location)
    with pytest.raises(StoreProblem, match="must be new"):
        kept.backup(copy)


def test_a_newer_store_is_refused(places, monkeypatch):
    location = places.new()
    kept = places.begun(location)
    with monkeypatch.context() as patched:
        patched.setattr(store, "SCHEMA", store.SCHEMA - 1)
        with pytest.raises(StoreProblem, match=f"at most {store.SCHEMA}, got {store.SCHEMA + 1}: it is newer"):
            open_store(location)
    close(kept)


def test_an_older_store_is_brought_up_to_date_or_left_alone(places, monkeypatch):
    location = places.new()
    before = everything(places.begun(location))
    now = store.SCHEMA
    monkeypatch.setattr(store, "SCHEMA", now + 2)
    with pytest.raises(StoreProblem, match=f"version {now} cannot be changed to {now + 2}"):
        open_store(location)
    first = ["ALTER TABLE devices ADD COLUMN hint BYTES", "UPDATE state SET revision = revision + 5"]
    monkeypatch.setitem(schema.MIGRATIONS, now, first)
    monkeypatch.setitem(schema.MIGRATIONS, now + 1, ["UPDATE nothing SET at_all = 1"])
    with pytest.raises(StoreProblem, match="nothing"):
        open_store(location)
    with monkeypatch.context() as old:
        old.setattr(store, "SCHEMA", now)
        assert everything(places.open(location)) == before
    monkeypatch.setitem(schema.MIGRATIONS, now + 1, ["CREATE TABLE extra (note BYTES, size WHOLE)"])
    for _ in range(2):
        kept = places.open(location)
        assert kept.control().revision == 5
    with monkeypatch.context() as old:
        old.setattr(store, "SCHEMA", now)
        with pytest.raises(StoreProblem, match="another turnout has changed the tables"):
            kept.change("me", capacity=7.0)
    assert places.sql(location, "SELECT hint FROM main.devices") == []
    assert places.sql(location, "SELECT note FROM main.extra") == []


def test_whoever_is_killed_has_lost_nothing_that_was_committed(places):
    location = places.new()
    places.begun(location)
    run = [sys.executable, closing.__file__, location, "25"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    told = [int(line) for line in done.stdout.split()]
    kept = places.open(location)
    rounds = kept.position().round
    books = list(kept.history())
    assert [row.round for row in books] == list(range(rounds))
    assert all(same(row, closing.closed(row.round)) for row in books)
    assert kept.position() == closing.after(rounds - 1)
    assert told == sorted(set(told))
    assert set(told) <= set(range(rounds))
    assert 10 < len(told) <= rounds <= len(told) + 150  # a kill may come between the commit and the telling


def test_a_change_is_a_line(kept):
    kept.change("me", capacity=5)
    assert kept.changes() == [Change(kept.changes()[0].at, "me", "capacity", "600 -> 5")]
