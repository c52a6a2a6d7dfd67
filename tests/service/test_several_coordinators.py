"""Several coordinators on one PostgreSQL database: rounds close once, whoever of them dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time

import numpy as np
import pytest

from service.faults import Proxy, Served, sooner, until
from service.postgres import server
from service.running import begun, codes_for, running, send, usual_rules
from service.scene import Scene, impatient
from turnout.service.coordinator import trim
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.rounds import Members, close
from turnout.service.rules import Timing, rules_from_settings
from turnout.service.store.backup import open_store
from turnout.service.store.store import OutOfStep, StaleRound, StoreProblem
from turnout.settings import Table


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    impatient(monkeypatch)


@pytest.fixture
def location():
    return server().database()


def test_a_device_that_enrolled_here_is_known_there_at_once(location):
    """Behind a load balancer the next request may go to another front end."""
    store = begun(location, usual_rules(Timing(round=0.0, deadline=60.0)))
    codes = codes_for(store, 40)
    with running(store) as here, running(open_store(location)) as there:
        for number, code in enumerate(codes):
            status, welcome = send(here.url, "POST", "/v1/enrol", {"code": code, "nonce": "n" * 20})
            assert status == 201
            assert send(there.url, "GET", "/v1/round", None, welcome["token"])[0] == 200, number
        assert send(there.url, "GET", "/v1/round", None, "x" * 43)[0] == 401


def close_now(store):
    """Close the open round with nobody heard, as a leader would."""
    rules, slots = rules_from_settings(Table(dict(store.run().settings))), len(store.devices())
    members = Members(np.ones(slots, np.int64), np.zeros(slots, np.int64), np.ones(slots, np.bool_))
    position, nobody = store.position(), np.zeros(slots, np.uint8)
    store.close_round(*close(rules, position, members, nobody, 2.0, np.random.default_rng(0)))


def test_a_round_that_another_closes_during_an_enrolment(location):
    """The first round of a device is the same in the books as in its own history."""
    store = begun(location, usual_rules(Timing(round=0.0, deadline=60.0)))
    [code] = codes_for(store, 1)
    other, enrol, calls = open_store(location), store.enrol, []

    def overtaken(requests, now):
        calls.append(enrol(requests, now))
        if len(calls) == 1:
            close_now(other)
        return calls[-1]

    store.enrol = overtaken
    with contextlib.closing(other), running(store) as coordinator:
        _, welcome = send(coordinator.url, "POST", "/v1/enrol", {"code": code, "nonce": "n" * 20})
        assert len(calls) == 2
        assert [device.joined for device in other.devices()] == [welcome["offer"]["round"]] == [1]


def test_who_has_lost_the_lead_cannot_close_a_round_again(location):
    """Nor if it forgets to ask which round is open: the books themselves have each round once."""
    with contextlib.closing(begun(location)) as store, contextlib.closing(open_store(location)) as other:
        stale = store.position()
        close_now(other)
        store.position = lambda: stale
        with pytest.raises(StaleRound):
            close_now(store)
        server().sql(location, "UPDATE turnout.state SET round = 0")  # the twin: the fence is gone
        with pytest.raises(StoreProblem, match="duplicate key"):
            close_now(store)
        assert [closed.round for closed in other.history()] == [0]


def test_whose_rounds_were_trimmed_while_it_slept_ends(location, monkeypatch):
    """It can never learn what became of them; started again, it goes on from the database."""
    monkeypatch.setattr("turnout.service.coordinator.exporting.KEPT_ROUNDS", 5)

    async def play() -> None:
        with contextlib.closing(open_store(location)) as other:
            assert other.lead()
            coordinator = Coordinator(store)
            for _ in range(10):
                close_now(other)
            assert trim(other, 1e12, "me").first_kept == 5
            coordinator.start()
            with pytest.raises(OutOfStep, match="round 0 was trimmed while this coordinator slept: start it again"):
                await asyncio.wait_for(coordinator.ended(), 20)
            await coordinator.stop()

    with contextlib.closing(begun(location)) as store:
        asyncio.run(play())


def test_a_leader_that_is_halted_is_replaced(location, monkeypatch, caplog):
    """Its connection lives, and with it the database's lock: rounds would wait for as long as it is halted."""
    monkeypatch.setattr("turnout.service.coordinator.round_loop.OVERDUE", 0.2)
    monkeypatch.setattr("turnout.service.coordinator.round_loop.SILENT", 0.1)
    store = begun(location, usual_rules(Timing(round=0.0, deadline=0.05), wait_for=0))
    with contextlib.closing(open_store(location)) as halted:
        assert halted.lead()
        with running(store) as follower, caplog.at_level(logging.INFO, "turnout.coordinator"):
            until(lambda: follower.coordinator.sync.open.number > 1)
            assert not halted.lead()
        told = [line.getMessage() for line in caplog.records]
        assert told.count("the leader was silent: its database session is ended") == 1


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        ("UPDATE turnout.state SET round = 2", "round 2 is open again, and was closed: this coordinator is at round 3"),
        ("UPDATE turnout.state SET revision = 1", "it is at change 1, and this coordinator at change 2"),
        (
            "SET session_replication_role = replica; UPDATE turnout.books SET closed_at = 7.0 WHERE round = 2",
            "round 2 is another than the one that this coordinator knows",
        ),
    ],
)
def test_a_database_that_was_set_back_ends_whoever_knows_more(location, caplog, lost, told):
    """A failover to a standby that lacks the last rounds, or the last revocations."""

    async def play() -> None:
        with contextlib.closing(open_store(location)) as other:
            for _ in range(3):
                close_now(other)
            coordinator = Coordinator(store)
            coordinator.start()
            await sooner(lambda: coordinator.sync.leads)
            server().sql(location, lost)
            if "books" in lost:
                close_now(other)  # a coordinator that was started again
            with pytest.raises(OutOfStep, match=f"set back .{told}.: .* start this coordinator again"):
                await asyncio.wait_for(coordinator.ended(), 20)
            await coordinator.stop()
            assert other.lead()

    with contextlib.closing(begun(location)) as store:
        for capacity in (3.0, 4.0):
            store.change("test", capacity=capacity)
        with caplog.at_level(logging.INFO, "turnout.coordinator"):
            asyncio.run(play())
    assert "this coordinator ends" in [line.getMessage() for line in caplog.records]


def broken(*_):
    raise StoreProblem("the database does not answer")


def test_a_lease_is_counted_from_the_last_look_that_succeeded(location):
    """Who could not look for a while does not know when a round was closed: as early as may be."""
    now = [100.0]

    async def play() -> float | None:
        with contextlib.closing(begun(location)) as store, contextlib.closing(open_store(location)) as other:
            coordinator, control = Coordinator(store, clock=lambda: now[0]), store.control
            now[0] = 101.0
            await coordinator.sync.look()
            now[0] = 150.0
            close_now(other)
            store.control = broken
            with pytest.raises(StoreProblem):
                await coordinator.sync.look()
            store.control = control
            now[0] = 160.0
            await coordinator.sync.look()
            return (await coordinator.devices.answered(0)).closed

    assert asyncio.run(play()) == 101.0


def test_no_lease_for_a_round_that_closed_while_this_machine_slept(location, monkeypatch):
    """The device that works on another coordinator's answer, and this one's, would be two."""
    slept, clock_gettime = [0.0], time.clock_gettime
    monkeypatch.setattr(
        time, "clock_gettime", lambda which: clock_gettime(which) + slept[0] * (which == time.CLOCK_BOOTTIME)
    )

    async def play() -> float:
        with contextlib.closing(begun(location)) as store, contextlib.closing(open_store(location)) as other:
            coordinator = Coordinator(store)
            await coordinator.sync.look()
            slept[0] = 3600.0
            close_now(other)
            await coordinator.sync.look()
            return coordinator.sync.clock() - (await coordinator.devices.answered(0)).closed

    assert asyncio.run(play()) >= 3600.0


def test_nobody_is_sent_away_while_the_database_does_not_answer(location, monkeypatch):
    """A token that is not known may be one that another coordinator has just given."""
    monkeypatch.setattr("turnout.service.coordinator.store_sync.LONGEST_LOOK", 0.2)
    store = begun(location)
    with running(store) as coordinator:
        store.control = broken
        until(lambda: coordinator.coordinator.events.faults.get("store failures"))
        report = {"run": "test", "round": 0, "participates": True}
        assert send(coordinator.url, "POST", "/v1/report", report, "x" * 43)[0] == 503
        assert send(coordinator.url, "GET", "/v1/round", None, "x" * 43)[0] == 503


class Several:
    """Processes on one database, and the proxy before them."""

    def __init__(self, scene: Scene, count: int) -> None:
        self.scene, self.all = scene, [scene.serve(port=0) for _ in range(count)]
        self.proxy = Proxy()

    async def ready(self) -> None:
        for one in self.all:
            await one.soon()
        self.proxy.targets = tuple(one.url for one in self.all)

    async def leader(self) -> Served:
        """The one that closes rounds; there is never more than one."""
        found = []

        def there_is_one() -> bool:
            found[:] = [one for one in self.all if one.snapshot()["leader"]]
            return bool(found)

        await sooner(there_is_one)
        return found[0]

    async def replace(self, one: Served) -> None:
        """Kill one; another starts in its place, elsewhere."""
        self.all.remove(one)
        one.kill()
        self.all.append(self.scene.serve(port=0))
        await self.ready()

    def __enter__(self) -> Several:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.all:
            one.kill()


@contextlib.asynccontextmanager
async def several(scene: Scene, count: int = 3, **network):
    with Several(scene, count) as found:
        found.proxy = Proxy(**network)
        await found.ready()
        async with found.proxy, scene.fleet(found.proxy):
            await sooner(lambda: scene.running.record.enrolled == scene.running.record.devices)
            yield found
            await scene.rounds(3)
            await scene.drain()


@pytest.mark.deployment
def test_the_leader_is_killed_and_a_front_end_is_killed(tmp_path, location):
    scene, took = Scene(tmp_path, location), []

    async def play() -> Proxy:
        async with several(scene) as coordinators:
            await scene.rounds(5)
            for turn in range(6):
                leader = await coordinators.leader()
                others = [one for one in coordinators.all if one is not leader]
                victim = leader if turn % 2 == 0 else others[0]
                before, begun_at = scene.books().position.round, time.monotonic()
                coordinators.all.remove(victim)
                victim.kill()
                coordinators.proxy.targets = tuple(one.url for one in coordinators.all)
                await sooner(lambda before=before: scene.books().position.round > before + 1)
                took.append(time.monotonic() - begun_at)
                coordinators.all.append(scene.serve(port=0))
                await coordinators.ready()
                await scene.rounds(3)
        return coordinators.proxy

    proxy = asyncio.run(play())
    books = scene.agreed(proxy)
    print(f"{len(books.rounds)} rounds; rounds go on after {[round(one, 2) for one in took]} s")
    assert max(took) < 10.0


@pytest.mark.deployment
def test_a_front_end_and_a_leader_that_sleep_for_a_while(tmp_path, location):
    """SIGSTOP: others close rounds meanwhile; who wakes finds that it is behind, and does no harm."""
    scene = Scene(tmp_path, location, timing=Timing(0.0, 0.4, 0.4, 2.0))

    async def play() -> Proxy:
        async with several(scene) as coordinators:
            await scene.rounds(5)
            for turn in range(6):
                leader = await coordinators.leader()
                others = [one for one in coordinators.all if one is not leader]
                sleeper = leader if turn % 2 == 0 else others[0]
                sleeper.signal(signal.SIGSTOP)
                await asyncio.sleep(2.5)
                sleeper.signal(signal.SIGCONT)
                await scene.rounds(3)
        return coordinators.proxy

    books = scene.agreed(asyncio.run(play()))
    print(f"{len(books.rounds)} rounds")


@pytest.mark.deployment
def test_a_leader_that_is_frozen_is_replaced(tmp_path, location):
    """SIGSTOP for longer than any deadline: the others go on, and it does no harm when it wakes."""
    scene = Scene(tmp_path, location, timing=Timing(0.0, 0.4, 0.4, 2.0))

    async def play() -> Proxy:
        async with several(scene) as coordinators:
            await scene.rounds(5)
            leader = await coordinators.leader()
            leader.signal(signal.SIGSTOP)
            try:
                begun_at = time.monotonic()
                await scene.rounds(5, 60)
                print(f"rounds go on after {time.monotonic() - begun_at:.1f} s")
                assert time.monotonic() - begun_at < 30.0
            finally:
                leader.signal(signal.SIGCONT)
            await scene.rounds(5)
            await coordinators.leader()
        return coordinators.proxy

    scene.agreed(asyncio.run(play()))


@pytest.mark.deployment
def test_the_database_is_killed(tmp_path):
    """All coordinators live on, and so do the rounds; reports that lay on the table are sent again."""
    from service.postgres import Server

    database = Server()
    try:
        scene = Scene(tmp_path, database.database())

        async def play() -> Proxy:
            async with several(scene, 2) as coordinators:
                await scene.rounds(5)
                for _ in range(3):
                    database.restart()
                    await scene.rounds(5)
                assert all(one.process.poll() is None for one in coordinators.all)
            return coordinators.proxy

        scene.agreed(asyncio.run(play()))
    finally:
        database.remove()


@pytest.mark.deployment
def test_devices_that_join_while_rounds_go_by(tmp_path, location):
    """The round at which a device starts is the same in the books and in its own history."""
    scene = Scene(tmp_path, location, wait_for=1)

    def slow_enrolments(message: bytes) -> str:
        return "delay" if message.startswith(b"POST /v1/enrol") else ""

    async def play() -> Proxy:
        async with several(scene, 2, mischief=slow_enrolments, slowness=3.0) as coordinators:
            await scene.rounds(3)
        return coordinators.proxy

    books = scene.agreed(asyncio.run(play()))
    assert len({device.joined for device in books.devices}) > 1
