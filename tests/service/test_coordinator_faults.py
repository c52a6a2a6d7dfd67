"""Coordinators that are killed, networks that lie, disks that are full, clocks that jump: the books always agree."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import time

import pytest

from service.agreement import Books, assert_sound
from service.faults import FAULTS, Proxy, answer_first, some_of, sooner, until
from service.postgres import server
from service.running import begun, codes_for, running, send, usual_rules
from service.scene import SEED, SHORT, Scene, impatient, kill_again_and_again
from turnout.service.coordinator.store_sync import StoreSync
from turnout.service.load_test.connection import Switchboard
from turnout.service.rules import Timing
from turnout.service.store.backup import open_store
from turnout.service.store.store import SCHEMA, StaleRound, StoreProblem


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    impatient(monkeypatch)


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request, tmp_path) -> str:
    return str(tmp_path / "run.db") if request.param == "sqlite" else server().database()


async def killed(scene: Scene, kills: int, **options) -> tuple[Proxy, list[int]]:
    proxy = Proxy(f"http://127.0.0.1:{scene.port}")
    async with proxy:
        with scene.serve(**options) as coordinator:
            await coordinator.soon()
            async with scene.fleet(proxy):
                await sooner(lambda: scene.running.record.enrolled)
                coordinator.kill()
                closed = await kill_again_and_again(scene, kills, seed=kills, **options)
                with scene.serve(**options) as last:
                    await last.soon()
                    await scene.rounds(3)
                    await scene.drain()
    return proxy, closed


@pytest.mark.deployment
def test_a_coordinator_that_is_killed_five_times(tmp_path):
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=12)
    proxy, _ = asyncio.run(killed(scene, 5))
    books = scene.agreed(proxy)
    assert len(books.rounds) > 5
    assert scene.running.record.reconnects >= 12


@pytest.mark.parametrize("sabotaged", [False, True])
def test_what_is_answered_is_in_the_books_when_the_store_fails(tmp_path, monkeypatch, sabotaged):
    """The sabotaged twin answers before the commit."""
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=8, timing=Timing(0.0, 1.0, 1.0, 0.3))
    store = open_store(scene.location)
    close_round = store.close_round
    if sabotaged:
        monkeypatch.setattr(StoreSync, "close_round", StoreSync.close_round)  # it is undone at the end
        answer_first()

    def failing(closed, position):
        if closed.round == 4:
            raise StoreProblem("the disk is full")
        close_round(closed, position)

    store.close_round = failing

    async def play(url: str) -> None:
        async with Proxy(url) as proxy, scene.fleet(proxy) as fleet:
            await sooner(lambda: 4 in fleet.record.rounds and fleet.record.rounds[4].decided.all())
            await asyncio.sleep(0.5)

    with running(store) as coordinator:
        asyncio.run(play(coordinator.url))
    answered = [number for number, seen in scene.running.record.rounds.items() if seen.answered.any()]
    assert (max(answered) >= scene.books().position.round) == sabotaged


def test_a_round_that_is_stale_although_nobody_has_closed_it_is_tried_again_in_a_while(tmp_path, caplog):
    store, tries = begun(tmp_path / "run.db", usual_rules(Timing(round=0.0, deadline=0.01), wait_for=0)), []

    def stale(closed, position):
        tries.append(closed.round)
        raise StaleRound("another coordinator has closed it")

    store.close_round = stale
    with running(store):
        until(lambda: "the store failed" in [line.getMessage() for line in caplog.records])
        time.sleep(0.2)
    assert tries == [0, 0]


@pytest.mark.deployment
def test_a_coordinator_that_answers_before_the_commit_is_found_out(tmp_path):
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=12)
    proxy, _ = asyncio.run(killed(scene, 4, sabotage="answer-first"))
    with pytest.raises(AssertionError):
        scene.agreed(proxy)


@pytest.mark.deployment
def test_a_coordinator_that_is_killed_fifty_times(tmp_path, location):
    scene = Scene(tmp_path, location)
    begun_at = time.monotonic()
    proxy, closed = asyncio.run(killed(scene, 50))
    books = scene.agreed(proxy)
    record = scene.running.record
    print(f"{len(books.rounds)} rounds, {record.reconnects} reconnects, {dict(record.faults)}, ", end="")
    print(f"{len(set(closed))} different rounds at death, {time.monotonic() - begun_at:.0f} s")
    assert len(set(closed)) >= 20, "it was killed in many different rounds"


async def through_a_bad_network(scene: Scene, share: float, rounds: int, kills: int = 0) -> Proxy:
    """Everything that a network does, to a share of all messages, enrolments too."""
    proxy = Proxy(f"http://127.0.0.1:{scene.port}", mischief=some_of(FAULTS, share, SEED))
    async with proxy:
        with scene.serve() as coordinator:
            await coordinator.soon()
            async with scene.fleet(proxy, patience=3.0):
                await sooner(lambda: scene.running.record.enrolled == scene.running.record.devices)
                await scene.rounds(rounds, 120)
                if kills:
                    coordinator.kill()
                    await kill_again_and_again(scene, kills, SEED)
                with scene.serve() if kills else contextlib.nullcontext(coordinator) as last:
                    await last.soon()
                    proxy.mischief = lambda _: ""
                    await scene.rounds(3)
                    await scene.drain()
    return proxy


def assert_all_faults_were_done(proxy: Proxy, scene: Scene) -> None:
    assert set(proxy.done) == {"", *FAULTS}
    assert any(len(bits) > 1 for bits in proxy.bits.values()), "some were sent again"


@pytest.mark.deployment
def test_messages_that_are_lost_doubled_late_reordered_and_cut(tmp_path):
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=12, timing=Timing(0.0, 0.5, 0.5, 2.0))
    proxy = asyncio.run(through_a_bad_network(scene, 0.25, rounds=12))
    scene.agreed(proxy, joined_once=False)
    assert_all_faults_were_done(proxy, scene)


@pytest.mark.deployment
def test_a_device_that_tosses_anew_is_found_out(tmp_path, monkeypatch):
    connected = Switchboard.connected

    def tossing(self, device, transport):
        swap = {b'"participates": true': b'"participates": false', b'"participates": false': b'"participates": true'}
        request = self._requests[device]
        for bit, other in swap.items():
            if bit in request:
                head, _, body = request.partition(b"\r\n\r\n")
                body = body.replace(bit, other)
                head = head.rpartition(b":")[0] + b": %d" % len(body)
                self._requests[device] = head + b"\r\n\r\n" + body
                break
        connected(self, device, transport)

    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=12, timing=Timing(0.0, 0.5, 0.5, 2.0))
    monkeypatch.setattr(Switchboard, "connected", tossing)
    proxy = asyncio.run(through_a_bad_network(scene, 0.25, rounds=3))
    with pytest.raises(AssertionError):
        scene.agreed(proxy)


@pytest.mark.deployment
def test_a_bad_network_and_a_coordinator_that_dies(tmp_path, location):
    scene = Scene(tmp_path, location, timing=Timing(0.0, 0.7, 0.7, 2.0))
    proxy = asyncio.run(through_a_bad_network(scene, 0.2, rounds=8, kills=6))
    books = scene.agreed(proxy, joined_once=False)
    assert_all_faults_were_done(proxy, scene)
    print(f"{len(books.rounds)} rounds, {dict(proxy.done)}, {dict(scene.running.record.faults)}")


# A slow client, a full disk, a clock that jumps.


async def a_byte_a_while(url: str, request: bytes, seconds: float) -> None:
    """Sends, and reads the answer, a byte at a time, for ever."""
    host, port = url.removeprefix("http://").split(":")
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(host, port, limit=16)
            try:
                for byte in request:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(seconds)
                while await reader.readexactly(1):
                    await asyncio.sleep(seconds)
            finally:
                writer.transport.abort()


@pytest.mark.deployment
def test_slow_clients_delay_nobody(tmp_path):
    """Strangers, readers of much, and a member of the run, which is waited for three times and then no more."""
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=12, wait_for=13)
    store = open_store(scene.location)
    [code] = codes_for(store, 1)
    store.close()

    async def play() -> None:
        with scene.serve() as coordinator:
            await coordinator.soon()
            url = coordinator.url
            enrolment = {"code": code, "nonce": "n" * 20}
            token = (await asyncio.to_thread(send, url, "POST", "/v1/enrol", enrolment))[1]["token"]
            report = json.dumps({"run": "test", "round": 0, "participates": True})
            head = (
                f"POST /v1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(report)}"
            )
            requests = [f"{head}\r\n\r\n{report}", "GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"]
            slow = [
                asyncio.create_task(a_byte_a_while(url, request.encode(), pause))
                for request in requests
                for pause in (0.02, 1.0) * 20
            ]
            async with Proxy(url) as proxy, scene.fleet(proxy):
                await scene.rounds(20)
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(play())
    books = Books.of(scene.location)
    assert_sound(books)
    waited = [closed.seconds >= SHORT.deadline for closed in books.rounds[:20]]
    print([round(closed.seconds, 3) for closed in books.rounds[:20]])
    assert sum(waited[4:]) <= 2, "nobody waits for the slow one"  # a busy machine may be late by itself


@pytest.mark.deployment
def test_a_full_disk_stops_the_rounds_and_nothing_else(tmp_path):
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=12)
    store = open_store(scene.location)
    [code] = codes_for(store, 1)
    store.close()

    async def play() -> Proxy:
        with scene.serve() as coordinator:
            await coordinator.soon()
            async with Proxy(coordinator.url) as proxy, scene.fleet(proxy):
                await scene.rounds(3)
                coordinator.let_files_grow_to(4096)
                await sooner(lambda: coordinator.snapshot()["faults"].get("store failures", 0) >= 2)
                full = scene.books()
                answered = [number for number, seen in scene.running.record.rounds.items() if seen.answered.any()]
                assert max(answered) == full.position.round - 1, "nothing is told that is not in the books"
                enrolment = {"code": code, "nonce": "n" * 20}
                assert (await asyncio.to_thread(send, coordinator.url, "POST", "/v1/enrol", enrolment))[0] == 503
                assert scene.books().position == full.position
                coordinator.let_files_grow_to(-1)
                await scene.rounds(3)
                await scene.drain()
        return proxy

    scene.agreed(asyncio.run(play()))


async def under_a_clock(scene: Scene, sabotage: str, seconds: float) -> Proxy:
    with scene.serve(sabotage=sabotage) as coordinator:
        await coordinator.soon()
        async with Proxy(coordinator.url) as proxy, scene.fleet(proxy):
            with contextlib.suppress(AssertionError):
                await scene.rounds(15, seconds)
    return proxy


def assert_in_time(books: Books, proxy: Proxy) -> None:
    """Rounds and leases took what they take."""
    assert len(books.rounds) >= 15
    assert all(0.0 <= closed.seconds < SHORT.deadline + 1.0 for closed in books.rounds)
    leases = [(said, took) for status, said, took in proxy.answers if status == 200 and said.get("lease")]
    assert leases
    assert all(0.0 < said["lease"] <= SHORT.lease + took for said, took in leases)
    yes = [said for status, said, _ in proxy.answers if status == 200 and said.get("outcome") == "accepted"]
    assert sum(said["lease"] > 0 for said in yes) == len(leases)


@pytest.mark.deployment
def test_a_wall_clock_that_jumps_changes_nothing(tmp_path):
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=12)
    proxy = asyncio.run(under_a_clock(scene, "jumping-clock", 30.0))
    books = scene.books()
    assert_sound(books)
    assert_in_time(books, proxy)
    closed_at = [closed.closed_at for closed in books.rounds]
    assert max(closed_at) - min(closed_at) > 3600.0, "the clock has really jumped"


@pytest.mark.deployment
def test_rounds_by_the_wall_clock_are_found_out(tmp_path):
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=12)
    proxy = asyncio.run(under_a_clock(scene, "by-the-wall", 5.0))
    with pytest.raises(AssertionError):
        assert_in_time(scene.books(), proxy)


# Stop, and go on.


@pytest.mark.deployment
def test_a_graceful_stop_answers_everyone_and_the_restart_goes_on(tmp_path):
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=12, timing=Timing(1.0, 3.0, 3.0, 5.0))
    took = []

    async def play() -> Proxy:
        proxy = Proxy(f"http://127.0.0.1:{scene.port}")
        async with proxy:
            with scene.serve() as first:
                await first.soon()
                async with scene.fleet(proxy):
                    await scene.rounds(2)
                    for signals in (1, 2):
                        with first if signals == 1 else scene.serve() as coordinator:
                            await coordinator.soon()
                            await scene.rounds(1)
                            await sooner(lambda one=coordinator: one.snapshot()["counters"]["held"] == 12)
                            begun_at = time.monotonic()
                            for _ in range(signals):
                                coordinator.signal(signal.SIGTERM)
                                await asyncio.sleep(0.01)
                            await sooner(lambda one=coordinator: one.process.poll() is not None)
                            took.append(time.monotonic() - begun_at)
                            if signals == 1:
                                assert coordinator.process.returncode == 0
                    with scene.serve() as last:
                        await last.soon()
                        await scene.rounds(2)
                        await scene.drain()
        return proxy

    proxy = asyncio.run(play())
    scene.agreed(proxy)
    pending = [said for _, said, _ in proxy.answers if said.get("outcome") == "pending"]
    assert len(pending) >= 12, "whoever was held was answered"
    assert not [status for status, _, _ in proxy.answers if status >= 500 and status != 503]
    print(f"stopped within {took} s")
    assert max(took) < 4.0


def test_another_version_of_the_tables_is_refused(tmp_path):
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=4)
    with sqlite3.connect(scene.location) as tables:
        tables.execute("UPDATE meta SET value = ? WHERE name = 'schema'", (str(SCHEMA + 1),))
    with scene.serve() as coordinator:
        assert coordinator.process.wait(30) == 2
        assert "newer than this turnout; update" in coordinator.output


def test_a_revocation_just_before_an_enrolment_is_seen(tmp_path):
    store = begun(tmp_path / "run.db", usual_rules(wait_for=9))
    one, two = codes_for(store, 2)
    with running(store) as coordinator:
        _, welcome = send(coordinator.url, "POST", "/v1/enrol", {"code": one, "nonce": "n" * 20})
        assert send(coordinator.url, "GET", "/v1/round", None, welcome["token"])[0] == 200
        elsewhere = open_store(str(tmp_path / "run.db"))
        elsewhere.withdraw(0, "elsewhere", "revoked")
        assert send(coordinator.url, "POST", "/v1/enrol", {"code": two, "nonce": "n" * 20})[0] == 201
        until(lambda: send(coordinator.url, "GET", "/v1/round", None, welcome["token"])[0] == 401, 5.0)


def test_an_enrolment_that_is_delivered_again_shuts_nobody_out(tmp_path):
    store = begun(tmp_path / "run.db", usual_rules(wait_for=1))
    [code] = codes_for(store, 1)
    with running(store) as coordinator:
        request = {"code": code, "nonce": "n" * 20}
        _, welcome = send(coordinator.url, "POST", "/v1/enrol", request)
        report = {"run": "test", "round": 0, "participates": True}
        assert send(coordinator.url, "POST", "/v1/report", report, welcome["token"])[1]["counted"]
        assert send(coordinator.url, "POST", "/v1/enrol", request)[1]["token"] == welcome["token"]
        assert send(coordinator.url, "GET", "/v1/round", None, welcome["token"])[0] == 200
        assert send(coordinator.url, "POST", "/v1/enrol", request | {"nonce": "m" * 20})[0] == 403
    assert open_store(str(tmp_path / "run.db")).devices()[0].joined == 0, "its history starts where it did"


def test_a_fleet_that_stopped_asks_what_became_of_its_reports(tmp_path):
    """Its history would otherwise have as missed what the books have as acknowledged."""
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=8, timing=Timing(0.25, 1.0, 1.0, 5.0))

    async def play() -> Proxy:
        with scene.serve() as coordinator:
            await coordinator.soon()
            async with Proxy(coordinator.url) as proxy:
                async with scene.fleet(proxy) as fleet:
                    await sooner(lambda: 1 in fleet.record.rounds and fleet.record.rounds[1].decided.all())
                await scene.rounds(1)
                task = asyncio.create_task(fleet.run())
                await scene.rounds(2)
                await scene.drain()
                fleet.stop()
                await task
        return proxy

    scene.agreed(asyncio.run(play()))
