"""Two coordinators are restarted one after the other, and the rules change, under a fleet that never stops."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from service.agreement import Books
from service.faults import Proxy, sooner
from service.postgres import server
from service.running import Running
from service.scene import Scene, impatient
from service.test_several_coordinators import several
from turnout.service import changed_settings
from turnout.service.coordinator.coordinator import Coordinator
from turnout.service.coordinator.store_sync import StoreSync
from turnout.service.rules import Timing
from turnout.service.store.backup import open_store
from turnout.service.store.store import OtherTables

PATIENT = Timing(round=0.1, deadline=30.0, lease=30.0, hold=2.0)
"""A round waits for every device: whoever is not heard has lost a report."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    impatient(monkeypatch)


def change(location: str, **given) -> int:
    """As `turnout operate rules` does; the first round of the new version."""
    store = open_store(location)
    try:
        newest = store.rules()[-1]
        settings = changed_settings(newest.settings, given)
        return store.change_rules(settings, newest.number, "test").since
    finally:
        store.close()


async def upgrade(scene: Scene) -> Proxy:
    """The whole play: other rules, one restart, other rules, the other restart, other rules."""
    async with several(scene, 2) as coordinators:
        await scene.rounds(3)
        change(scene.location, mechanism={"epsilon": 0.5}, timing={"round": 0.2})
        await scene.rounds(3)
        for number in range(2):
            old = coordinators.all.pop(0)
            coordinators.proxy.targets = tuple(one.url for one in coordinators.all)
            old.signal(signal.SIGTERM)
            await sooner(lambda old=old: old.process.poll() is not None)
            assert old.process.returncode == 0, old.output
            coordinators.all.append(scene.serve(port=0))
            await coordinators.ready()
            await scene.rounds(3)
            change(scene.location, timing={"hold": 1.0 + number}, mechanism={"epsilon": 0.6 + 0.1 * number})
            await scene.rounds(3)
    return coordinators.proxy


def assert_nothing_lost(scene: Scene, proxy: Proxy) -> Books:
    """Everyone was heard in every round, once, and agreed to every version; nobody enrolled twice."""
    books, devices = scene.agreed(proxy), len(scene.codes)
    assert {closed.heard for closed in books.rounds} == {devices}
    assert len(books.devices) == devices
    rows = server().sql(scene.location, "SELECT count(*), count(slot), count(DISTINCT slot) FROM turnout.codes")
    assert rows == [(devices, devices, devices)], "each code was used once, and no further one was made"
    assert [version.number for version in books.versions] == [1, 2, 3, 4]
    assert books.versions[-1].since < books.position.round
    assert set(scene.running._devices.agreed) == {books.versions[-1].name}
    return books


def played(folder: Path, devices: int) -> Books:
    scene = Scene(folder, server().database(), devices=devices, timing=PATIENT)
    return assert_nothing_lost(scene, asyncio.run(upgrade(scene)))


async def upgrade_here(scene: Scene) -> Proxy:
    """The same with coordinators in this process: a second or two in all."""
    here = [await started(scene), await started(scene)]
    proxy = Proxy()
    try:
        proxy.targets = tuple(one.url for one in here)
        async with proxy, scene.fleet(proxy):
            await scene.rounds(2)
            change(scene.location, mechanism={"epsilon": 0.25}, timing={"round": 0.02})
            await scene.rounds(2)
            for number in range(2):
                old = here.pop(0)
                proxy.targets = (here[0].url,)
                await asyncio.to_thread(old.stop)
                here.append(await started(scene))
                proxy.targets = tuple(one.url for one in here)
                change(scene.location, timing={"hold": 1.0 + number}, mechanism={"epsilon": 0.5 + 0.25 * number})
                await scene.rounds(3)
            await scene.drain()
    finally:
        for one in here:
            await asyncio.to_thread(one.stop)
    return proxy


async def started(scene: Scene) -> Running:
    return await asyncio.to_thread(lambda: Running(open_store(scene.location)))


def played_here(folder: Path, devices: int = 12) -> Books:
    scene = Scene(folder, server().database(), devices=devices, timing=PATIENT)
    return assert_nothing_lost(scene, asyncio.run(upgrade_here(scene)))


def test_a_small_fleet_loses_nothing(tmp_path):
    played_here(tmp_path)


def test_a_coordinator_that_sees_the_change_a_round_late_is_noticed(tmp_path, monkeypatch):
    """The twin: the first round of each version is still decided under the one before."""
    take = StoreSync._take_versions

    def late(self, versions):
        take(self, [replace(version, since=version.since + 1) for version in versions])

    monkeypatch.setattr(StoreSync, "_take_versions", late)
    with pytest.raises(AssertionError, match="tosses"):
        played_here(tmp_path, devices=40)  # of few devices, none may toss otherwise in any of these rounds


def test_a_coordinator_older_than_the_tables_ends_and_gives_up_the_lead(tmp_path):
    """A newer turnout has brought the store up to date: an older one may write nothing, and must let go."""
    scene = Scene(tmp_path, server().database(), devices=4, timing=PATIENT)

    async def play() -> None:
        coordinator = Coordinator(open_store(scene.location))
        coordinator.start()
        await sooner(lambda: coordinator.sync.leads)
        other = open_store(scene.location)
        assert not other.lead()
        server().sql(scene.location, "UPDATE turnout.meta SET value = '99'")
        server().sql(scene.location, "UPDATE turnout.state SET mode = 'stopped', revision = 9")  # it closes a round
        with pytest.raises(OtherTables, match="start again with that version"):
            await asyncio.wait_for(coordinator.ended(), 20)
        await coordinator.stop()
        assert other.lead()
        other.close()

    asyncio.run(play())


@pytest.mark.deployment
def test_three_hundred_devices_lose_nothing(tmp_path):
    books = played(tmp_path, 300)
    print(f"{len(books.rounds)} rounds, longest {max(closed.seconds for closed in books.rounds):.2f} s")
