"""Old closed rounds are summed up and deleted: nothing that anybody is told later changes."""

from __future__ import annotations

import contextlib
import sqlite3

import numpy as np
import psycopg
import pytest

from conformance.places import Places
from service.bare_device import Device
from service.running import begun, codes_for, running, usual_rules
from turnout import Averaging
from turnout.service import MISSING, NO, YES, Members, Summary, close
from turnout.service.coordinator import export, trim, why_kept
from turnout.service.coordinator.enrolment import hashed
from turnout.service.rules import Timing
from turnout.service.store.backup import restore
from turnout.service.store.sql import SqlStore
from turnout.service.store.store import Enrolment, StoreProblem

RULES = usual_rules(Timing(round=0.0, deadline=30.0), averaging=Averaging(remember=30))
DEVICES = 5


@pytest.fixture(params=["sqlite", "postgres"])
def places(request, tmp_path):
    found = Places(request.param, tmp_path)
    yield found
    for store in found.opened:
        store.close()


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    """So that a hundred rounds are many."""
    monkeypatch.setattr("turnout.service.coordinator.exporting.KEPT_ROUNDS", 20)
    monkeypatch.setattr("turnout.service.coordinator.exporting.STEP", 16)


def filled(location, rounds: int = 100, join_in: int = 40, clock=lambda round: 1000.0 + round):
    """A store with closed rounds; one device leaves, one joins late, one is silent after a while."""
    store = begun(location, RULES)
    keys = [(f"code-{i}", f"nonce-{i}", f"token-{i}") for i in range(DEVICES)]
    store.add_codes([hashed(code) for code, _, _ in keys], 1, None, "test")
    asked = [Enrolment(*map(hashed, key)) for key in keys]
    store.enrol(asked[:4], 0.0)
    random = np.random.default_rng(0)
    for round in range(rounds):
        if round == 30:
            store.withdraw(1, "test", "left")
        if round == join_in:
            store.enrol(asked[4:], 0.0)
        devices = store.devices()
        here = np.array([device.left is None for device in devices])
        members = Members(np.ones(len(devices), np.int64), np.array([d.joined for d in devices]), here)
        reports = random.integers(NO, YES + 1, len(devices)).astype(np.uint8)
        if round > 10:
            reports[2] = MISSING
        one = close(RULES, store.position(), members, reports, 2.0, random, closed_at=clock(round))
        store.close_round(*one)
    return store, asked


def test_histories_and_exports_go_on_from_the_summary(places, tmp_path):
    store, _ = filled(places.new())
    places.opened.append(store)
    whole = export(store)
    books = {closed.round: closed.codes for closed in store.history()}
    assert trim(store, 1050.0, "me").first_kept == 50
    found = export(store)
    assert found.state.participations.tolist() == whole.state.participations.tolist(), "to the bit"
    assert np.asarray(found.state.rounds).tolist() == np.asarray(whole.state.rounds).tolist()
    assert found.participants.tolist() == whole.participants[50:].tolist()
    assert found.provenance["first_round"] == 50
    assert [closed.round for closed in store.history()] == list(range(50, 100))
    assert trim(store, 1e12, "me").first_kept == 80, "the last ones stay"
    assert export(store).state.participations.tolist() == whole.state.participations.tolist()
    summary = store.summary()
    assert summary.totals == {
        "first_closed_at": 1000.0,
        "rounds": 80,
        "participants": int(whole.participants[:80].sum()),
        "reports": sum(int((books[round] != MISSING).sum()) for round in range(80)),
        "refused": 0,
        "frozen": 0,
        "last_closed_at": 1079.0,
    }
    assert [line.detail for line in store.changes() if line.what == "trimmed"][:2] == [
        "rounds 0 to 15: summed up, and deleted",
        "rounds 16 to 31: summed up, and deleted",
    ]
    store.backup(tmp_path / "copy.db")
    back = places.new()
    restore(tmp_path / "copy.db", back)
    again = places.open(back)
    assert again.summary().pack() == summary.pack()
    assert export(again).state.participations.tolist() == whole.state.participations.tolist()


def test_an_export_during_a_trim_is_of_one_time(places, monkeypatch):
    location = places.new()
    store, _ = filled(location)
    other = places.open(location)
    places.opened.append(store)
    whole, summary, others = export(store), SqlStore.summary, [other]

    def overtaken(self):
        found = summary(self)
        if others:
            trim(others.pop(), 1050.0, "me")
        return found

    monkeypatch.setattr(SqlStore, "summary", overtaken)
    found = export(store)
    assert other.summary().first_kept == 50
    assert found.participants.tolist() == whole.participants.tolist()
    assert found.state.participations.tolist() == whole.state.participations.tolist()


@pytest.mark.parametrize(
    ("wrong", "before", "kept"),
    [
        ({10: 4e9}, 1050.0, 50),  # the clock was ahead for a round: the others are as old as they are
        ({round: round - 500.0 for round in range(60)}, 1060.0, 0),  # fresh, on a machine that began without a clock
        ({round: round - 500.0 for round in range(60)}, 1062.0, 62),  # and old as soon as a later one is
        ({70: 1005.0}, 1010.0, 10),  # the clock went back: neither that round nor those before it are so old
        ({round: 4e9 + round for round in range(30, 100)}, 1050.0, 30),  # it has been wrong since
    ],
)
def test_a_clock_that_was_wrong_neither_keeps_rounds_nor_deletes_fresh_ones(places, wrong, before, kept):
    store, _ = filled(places.new(), clock=lambda round: wrong.get(round, 1000.0 + round))
    places.opened.append(store)
    assert trim(store, before, "me").first_kept == kept
    assert (f"when round {kept} closed, which cannot be true" in why_kept(store, before)) == (kept in wrong)
    assert trim(store, 1e9, "me").first_kept == (30 if 99 in wrong else 80)


def test_the_last_report_of_every_device_is_still_answered_as_it_was(places):
    """Whoever was away asks about the last round it reported: the answer must be what the coordinator counted."""
    store, _ = filled(places.new())
    places.opened.append(store)
    books = {closed.round: closed for closed in store.history()}
    trim(store, 1e12, "me")
    summary = store.summary()
    for slot in range(DEVICES):
        heard = [round for round in range(80) if books[round].code(slot) != MISSING]
        if heard:
            codes = summary.of_round(heard[-1])
            assert (codes[slot] if slot < len(codes) else MISSING) == books[heard[-1]].code(slot)
    assert summary.heard.tolist()[1:3] == [29, 10], "the one that left, and the one that fell silent"


def test_a_device_that_was_away_gets_its_answer_over_the_wire(tmp_path, monkeypatch):
    store = begun(tmp_path / "run.db", usual_rules(Timing(round=0.0, deadline=30.0), wait_for=1))
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        sync = coordinator.coordinator.sync
        away, other = (Device(coordinator.url, code) for code in codes)
        monkeypatch.setattr("turnout.service.coordinator.enrolment.GONE_AFTER", 0)  # no round waits for anybody
        coordinator.call(sync.withdraw, 1, "test", "left")
        for round in range(40):
            assert away.report(round, round % 2 == 0)[1]["counted"]
        assert other.report(0, True)[0] == 401
        coordinator.call(sync.call, lambda: trim(store, 1e12, "me"))
        assert coordinator.call(sync.call, store.summary).first_kept == 20
        status, answer = away.report(19, False)
        assert (status, answer["outcome"], answer["counted"]) == (200, "closed", True)
        assert away.report(19, True)[1]["error"] == "conflict", "another bit than the one that stands"
        status, answer = away.report(3, False)
        assert (answer["outcome"], answer["counted"]) == ("closed", False), "it has reported since: nobody acts on this"


def test_an_old_enrolment_that_is_delivered_again_resets_nobody(places):
    store, asked = filled(places.new())
    places.opened.append(store)
    trim(store, 1e12, "me")
    before = store.devices()
    store.enrol([asked[2]], 0.0)  # silent since round 10, and in no stored round
    assert [device.joined for device in store.devices()] == [device.joined for device in before]


def test_the_database_itself_deletes_no_round_that_is_not_summed_up(places):
    location = places.new()
    store, _ = filled(location, 60)
    places.opened.append(store)
    trim(store, 1010.0, "me")
    for statement in (
        "DELETE FROM main.books WHERE round = 10",
        "DELETE FROM main.books",
        "UPDATE main.books SET heard = 0",
        "DELETE FROM main.trimmed",
        "UPDATE main.trimmed SET first_kept = 50",
    ):
        with pytest.raises((sqlite3.Error, psycopg.Error), match="only ever added to"):
            places.sql(location, statement)
    assert [closed.round for closed in store.history()] == list(range(10, 60))
    with pytest.raises(StoreProblem, match="trimmed meanwhile"):
        store.trim(Summary(12, totals={"rounds": 3}), "me")  # it sums up three rounds, and would delete twelve
    with pytest.raises(StoreProblem, match="trimmed meanwhile"):
        store.trim(Summary(60, totals={"rounds": 60}), "me")


def test_a_summary_that_forgets_histories_is_noticed(places, monkeypatch):
    """The twin: whoever deletes rounds alone."""
    store, _ = filled(places.new())
    places.opened.append(store)
    whole = export(store).state.participations.tolist()

    def forgetful(before, closed, *_):
        rounds = sum(1 for _ in closed)
        return Summary(before.first_kept + rounds, totals={"rounds": before.first_kept + rounds})

    monkeypatch.setattr("turnout.service.coordinator.exporting.summed_up", forgetful)
    trim(store, 1e12, "me")
    with contextlib.suppress(IndexError):
        assert export(store).state.participations.tolist() != whole
