"""Coordinators that are killed, networks that lie, disks that are full, clocks that jump: the books always agree."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import pytest

from service.faults import FAULTS, Proxy, some_of, sooner
from service.postgres import server
from service.scene import SEED, Scene, impatient
from turnout.service.fleet.switchboard import Switchboard
from turnout.service.rules import Timing


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    impatient(monkeypatch)


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request, tmp_path) -> str:
    return str(tmp_path / "run.db") if request.param == "sqlite" else server().database()


async def kill_again_and_again(scene: Scene, kills: int, seed: int, **options) -> list[int]:
    """How many rounds there were at each death. Every fifth dies while it starts."""
    chance, closed = random.Random(seed), []
    for number in range(kills):
        with scene.serve(**options) as coordinator:
            if number % 5 == 4:
                await asyncio.sleep(chance.uniform(0.0, 0.5))
            else:
                await coordinator.soon()
                await asyncio.sleep(chance.uniform(0.05, 0.6))
        closed.append(scene.books().position.round)
    return closed


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


def test_a_coordinator_that_is_killed_five_times(tmp_path):
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=12)
    proxy, _ = asyncio.run(killed(scene, 5))
    books = scene.agreed(proxy)
    assert len(books.rounds) > 5
    assert scene.running.record.reconnects >= 12


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


def test_messages_that_are_lost_doubled_late_reordered_and_cut(tmp_path):
    scene = Scene(tmp_path, str(tmp_path / "run.db"), devices=12, timing=Timing(0.0, 0.5, 0.5, 2.0))
    proxy = asyncio.run(through_a_bad_network(scene, 0.25, rounds=12))
    scene.agreed(proxy, joined_once=False)
    assert_all_faults_were_done(proxy, scene)


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
    proxy = asyncio.run(through_a_bad_network(scene, 0.2, rounds=15, kills=8))
    books = scene.agreed(proxy, joined_once=False)
    assert_all_faults_were_done(proxy, scene)
    print(f"{len(books.rounds)} rounds, {dict(proxy.done)}, {dict(scene.running.record.faults)}")
