"""The coordinator over real sockets: reports, answers, restarts, the operator's changes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from service.bare_device import Device, at_once
from service.running import begun, codes_for, running, send, usual_rules
from turnout.report import run_page
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.coordinator.exporting import export
from turnout.service.protocol import Welcome, tag_of
from turnout.service.rules import Safety, Timing
from turnout.service.store.backup import open_store
from turnout.service.store.store import Store, StoreProblem


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return begun(tmp_path / "run.db", usual_rules(wait_for=2))


def test_a_device_is_told_what_is_public_and_nothing_else(store: Store) -> None:
    codes = codes_for(store, 2, weight=7)
    with running(store) as coordinator:
        welcome, later = (Device(coordinator.url, code).welcome for code in codes)
        tags = [tag_of(coordinator.coordinator.sync.roll[slot].token) for slot in (0, 1)]
        assert tags == [Welcome.read(one).tag for one in (welcome, later)], "by which people know it on both sides"
    assert set(welcome) == {
        "version", "run", "token", "weight", "prior_average", "prior_rounds", "remember", "by", "mechanism", "offer",
        "round_seconds",
    }  # fmt: skip
    assert welcome["offer"] == {"round": 0, "signal": 1.0}
    assert welcome["weight"] == 7


def test_a_report_is_held_until_all_have_reported_and_then_acknowledged(store: Store, tmp_path: Path) -> None:
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        one, two = (Device(coordinator.url, code) for code in codes)
        (status, first), (_, second) = at_once(lambda: one.report(0, True), lambda: two.report(0, False))
        assert status == 200
        assert (first["outcome"], first["counted"]) == ("accepted", True)
        assert first["next"] == second["next"] == {"round": 1, "signal": first["next"]["signal"]}
        assert first["lease"] >= 5.0, "the deadline, and how long the request was held"
        assert second["lease"] == 0.0
        assert one.report(0, True)[1] | {"lease": 0} == first | {"outcome": "closed", "lease": 0}
        assert 0.0 < one.report(0, True)[1]["lease"] < 5.0, "what is left of it"
        status, conflict = one.report(0, False)
        assert (status, conflict["error"]) == (409, "conflict")
    with closing(open_store(str(tmp_path / "run.db"))) as kept:
        assert kept.closed(0).participants == 1


def test_the_same_bit_again_is_confirmed_and_another_is_a_conflict(store: Store, tmp_path: Path) -> None:
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        one, two = (Device(coordinator.url, code) for code in codes)
        answers = {}
        held = threading.Thread(target=lambda: answers.update(first=one.report(0, True)))
        held.start()
        wait_until(lambda: coordinator.coordinator.sync.open.heard == 1)
        assert one.report(0, False)[0] == 409
        again = threading.Thread(target=lambda: answers.update(again=one.report(0, True)))
        again.start()
        wait_until(lambda: len(coordinator.coordinator.sync.open.held) == 2)
        assert one.report(0, True)[0] == 429, "two requests of one device are held at most"
        two.report(0, True)
        held.join()
        again.join()
    assert answers["first"][1]["outcome"] == "accepted"
    assert answers["again"][1]["outcome"] == "confirmed"
    with closing(open_store(str(tmp_path / "run.db"))) as kept:
        assert kept.closed(0).participants == 2


def wait_until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_device_that_is_late_is_told_that_it_was_not_counted(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(Timing(round=0.0, deadline=0.3), wait_for=2))
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        one, two = (Device(coordinator.url, code) for code in codes)
        assert one.report(0, True)[1]["counted"]
        status, late = two.report(0, True)
        assert (status, late["outcome"], late["counted"], late["lease"]) == (200, "closed", False, 0.0)
        assert late["next"]["round"] == 1


def test_a_device_that_is_gone_is_not_waited_for_and_comes_back_by_reporting(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(Timing(round=0.0, deadline=0.2), wait_for=2))
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        one, two = (Device(coordinator.url, code) for code in codes)
        for number in range(3):
            one.report(number, True)
        assert coordinator.coordinator.sync.roll.gone() == {1}
        assert coordinator.coordinator.sync.open.due == 1

        def after_the_other(round: int):  # nobody waits for a device that is gone: it must be first
            wait_until(
                lambda: coordinator.coordinator.sync.open.heard or coordinator.coordinator.sync.open.number != round
            )
            return one.report(round, True)

        back = [at_once(lambda k=k: after_the_other(k), lambda k=k: two.report(k, True)) for k in range(3, 10)]
        assert coordinator.coordinator.sync.roll.gone() == set()
        counted = [told["counted"] for _, (_, told) in back]
        assert not counted[0], "not in the round in which it returns"
        assert any(counted), "and soon"


def test_a_request_is_not_held_for_ever(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(Timing(round=0.0, deadline=60.0, hold=0.1), wait_for=2))
    [code] = codes_for(store, 1)
    with running(store) as coordinator:
        status, answer = Device(coordinator.url, code).report(0, True)
    assert (status, answer) == (200, {"round": 0, "outcome": "pending", "counted": False, "lease": 0.0, "next": None})


def test_rounds_that_are_not_open_and_runs_that_are_not_ours(store: Store) -> None:
    [code] = codes_for(store, 1)
    with running(store) as coordinator:
        device = Device(coordinator.url, code)
        status, ahead = device.report(5, True)
        assert (status, ahead["error"], ahead["next"]["round"]) == (409, "ahead", 0)
        status, foreign = device.report(0, True, run="another")
        assert (status, foreign["error"]) == (409, "run")


def test_a_restart_goes_on_with_the_open_round(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = begun(path, usual_rules(wait_for=2))
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        one, two = (Device(coordinator.url, code) for code in codes)
        at_once(lambda: one.report(0, True), lambda: two.report(0, True))
        lost = threading.Thread(target=lambda: one.report(1, True))
        lost.start()
        wait_until(lambda: coordinator.coordinator.sync.open.heard == 1)
    lost.join()
    with running(open_store(str(path))) as coordinator:
        one.url = two.url = coordinator.url
        assert coordinator.coordinator.sync.open.number == 1
        late = one.report(0, True)[1]
        assert (late["counted"], late["lease"]) == (True, 0.0), "nobody knows how long ago: no lease"
        answers = at_once(lambda: one.report(1, True), lambda: two.report(1, False))
        assert [answer["counted"] for _, answer in answers] == [True, True]
    with closing(open_store(str(path))) as kept:
        assert [closed.participants for closed in kept.history()] == [2, 1]


def test_two_coordinators_cannot_have_one_sqlite_store(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db")
    with running(store) as first:
        second = running(open_store(str(tmp_path / "run.db")))
        with second as other, pytest.raises(StoreProblem, match="another coordinator"):
            other.call(other.coordinator.ended)
        assert first.coordinator.sync.leads


def test_pausing_draining_and_stopping(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(Timing(round=0.0, deadline=0.2, hold=0.1), wait_for=1))
    [code] = codes_for(store, 1)
    with running(store) as coordinator:
        device, change = Device(coordinator.url, code), coordinator.coordinator.sync.change
        coordinator.call(change, "test", mode="paused")
        assert device.report(0, True)[1]["outcome"] == "pending"
        coordinator.call(change, "test", mode="draining")
        wait_until(lambda: coordinator.coordinator.sync.control.mode == "paused")
        assert device.report(0, True)[1]["counted"]
        assert device.report(1, True)[1]["outcome"] == "pending"
        coordinator.call(change, "test", mode="stopped")
        wait_until(lambda: coordinator.coordinator.sync.open.number == 2)
        stopped = device.report(1, True)[1]
        assert (stopped["counted"], stopped["lease"]) == (False, 0.0), "nobody is acknowledged"
        wait_until(lambda: coordinator.coordinator.sync.control.mode == "paused")
        assert coordinator.coordinator.sync.closed.last.participants == 0


def test_an_operator_elsewhere_changes_the_store_and_the_coordinator_sees_it(store: Store, tmp_path: Path) -> None:
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        devices = [Device(coordinator.url, code) for code in codes]
        with closing(open_store(str(tmp_path / "run.db"))) as elsewhere:
            elsewhere.change("elsewhere", capacity=1.0)
            elsewhere.withdraw(1, "elsewhere", "revoked")
        wait_until(lambda: coordinator.coordinator.sync.control.capacity == 1.0)
        wait_until(lambda: len(coordinator.coordinator.sync.roll.slots) == 1)
        assert devices[1].report(0, True)[0] == 401
        assert devices[0].report(0, True)[0] == 200


def test_who_leaves_is_not_waited_for(store: Store) -> None:
    codes = codes_for(store, 3)
    with running(store) as coordinator:
        one, two, three = (Device(coordinator.url, code) for code in codes)
        assert send(coordinator.url, "POST", "/v1/leave", {}, three.token) == (200, {"left": True})
        answers = at_once(lambda: one.report(0, True), lambda: two.report(0, True))
        assert [answer["counted"] for _, answer in answers] == [True, True]
        assert send(coordinator.url, "GET", "/v1/round", None, three.token)[0] == 401
        assert send(coordinator.url, "GET", "/v1/round", None, one.token)[1]["round"] == 1


def test_who_is_revoked_hears_of_it_at_once(store: Store) -> None:
    """Its held request is answered, and the next one is refused; the others go on waiting."""
    codes = codes_for(store, 3)
    with running(store) as coordinator:
        one, two, _ = (Device(coordinator.url, code) for code in codes)
        with ThreadPoolExecutor(2) as pool:
            revoked, held = pool.submit(one.report, 0, True), pool.submit(two.report, 0, True)
            wait_until(lambda: len(coordinator.coordinator.sync.open.held) == 2)
            coordinator.call(coordinator.coordinator.sync.withdraw, 0, "test", "revoked")
            assert revoked.result(2)[1]["outcome"] == "pending"
            assert not held.done()
            assert one.report(0, True)[0] == 401
            coordinator.call(coordinator.coordinator.sync.withdraw, 2, "test", "revoked")
            assert held.result(5)[1]["counted"]


def test_nobody_waits_for_a_round_loop_that_pauses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store fails for the round loop alone: the operator's changes, devices and the stop go through meanwhile."""
    monkeypatch.setattr("turnout.service.coordinator.round_loop.PAUSE", 60.0)
    codes = codes_for(store, 2)

    def full(*_: object) -> None:
        raise StoreProblem("the disk is full")

    with running(store) as coordinator:
        sync, events = coordinator.coordinator.sync, coordinator.coordinator.events
        store.position = full  # type: ignore[method-assign]
        wait_until(lambda: events.faults.get("store failures") == 1)
        begun_at = time.monotonic()
        one, _ = (Device(coordinator.url, code) for code in codes)
        coordinator.call(sync.change, "test", capacity=1.0, mode="paused")
        coordinator.call(sync.withdraw, 1, "test", "revoked")
        assert send(coordinator.url, "GET", "/v1/round", None, one.token)[0] == 200
        assert (sync.control.capacity, sync.control.mode, sorted(sync.roll.slots.values())) == (1.0, "paused", [0])
    assert time.monotonic() - begun_at < 10.0
    assert events.faults["store failures"] == 1, "it has paused all the while"


def test_what_changes_while_a_round_is_being_closed(store: Store, tmp_path: Path) -> None:
    """Whoever enrols and whatever the operator sets then: memory follows in the order of the store."""
    codes, close_round = codes_for(store, 4), store.close_round
    begins, ends = threading.Event(), threading.Event()

    def slow(*arguments: object) -> None:
        begins.set()
        assert ends.wait(20)
        close_round(*arguments)

    store.close_round = slow  # type: ignore[method-assign]
    with running(store) as coordinator, ThreadPoolExecutor(4) as pool:
        sync = coordinator.coordinator.sync
        devices = [Device(coordinator.url, code) for code in codes[:2]]
        reports = [pool.submit(device.report, 0, True) for device in devices]
        assert begins.wait(20)
        late = pool.submit(Device, coordinator.url, codes[2])
        drained = pool.submit(coordinator.call, sync.change, "test", mode="draining")
        time.sleep(0.2)
        ends.set()
        assert all(report.result(20)[1]["counted"] for report in reports)
        drained.result(20)
        offered = late.result(20).welcome["offer"]["round"]
        again = Device(coordinator.url, codes[3]).welcome["offer"]["round"]
        answers = [pool.submit(device.report, 1, True) for device in [*devices, late.result()]]
        wait_until(lambda: sync.control.mode == "paused" and sync.open.number == 2)
        assert all(answer.result(20)[0] == 200 for answer in answers)
    with closing(open_store(str(tmp_path / "run.db"))) as kept:
        assert [device.joined for device in kept.devices()][2:] == [offered, again]
        assert (kept.control().mode, kept.position().round) == ("paused", 2)


def test_the_hard_limit_holds_and_the_refused_are_told(tmp_path: Path) -> None:
    store = begun(tmp_path / "run.db", usual_rules(wait_for=3, safety=Safety("absent", hard_limit=1)))
    codes = codes_for(store, 3)
    with running(store) as coordinator:
        devices = [Device(coordinator.url, code) for code in codes]
        answers = [answer for _, answer in at_once(*[lambda d=device: d.report(0, True) for device in devices])]
        assert sorted(answer["counted"] for answer in answers) == [False, False, True]
        assert sorted(answer["lease"] > 0 for answer in answers) == [False, False, True]


def test_the_books_become_a_trajectory(store: Store, tmp_path: Path) -> None:
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        one, two = (Device(coordinator.url, code) for code in codes)
        for number in range(4):
            at_once(lambda n=number: one.report(n, True), lambda n=number: two.report(n, n % 2 == 0))
    with closing(open_store(str(tmp_path / "run.db"))) as kept:
        run = export(kept)
    assert run.participants.tolist() == [2, 1, 2, 1]
    assert run.state is not None
    assert run.state.participations.tolist() == [9.0, 7.0]
    assert np.all(np.asarray(run.state.rounds) == 14.0)
    run.save(tmp_path / "run.npz")
    again = type(run).load(tmp_path / "run.npz")
    assert "4 rounds of 2 clients" in repr(again)
    assert "a coordinator and real devices" in run_page([again], ["run"]).html()


def test_a_store_without_a_run_is_refused(tmp_path: Path) -> None:
    with (
        closing(open_store(str(tmp_path / "empty.db"), create=True)) as empty,
        pytest.raises(StoreProblem, match="no run yet"),
    ):
        Coordinator(empty)
