"""Real agents on a bad network, with a coordinator that is killed again and again: at the end all books agree."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from client.faults import CountingCoins
from service.agents import agent_with
from service.agreement import Books, assert_sound
from service.faults import FAULTS, Proxy, Served, port_of_our_own, proxy_in_a_thread, some_of, until
from service.running import begun, codes_for, usual_rules
from turnout.service.coordinator.enrolment import hashed
from turnout.service.rounds import MISSING, REFUSED, YES
from turnout.service.rules import Timing
from turnout.service.store.backup import open_store
from turnout.service.store.store import PAUSED

DEVICES = 6
TIMING = Timing(round=0.02, deadline=0.4, lease=0.4, hold=1.0)


class Device:
    """An agent in a thread of its own, on files of its own."""

    def __init__(self, folder: Path, url: str, number: int, code: str) -> None:
        self.folder, self.coins, self.error = folder / f"device-{number}", CountingCoins(number), None
        self.agent = agent_with(
            url,
            self.folder,
            1.0 + number,
            code=code,
            coins=self.coins,
            timeout=2.0,
            sleep=lambda seconds: time.sleep(0.05),
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.agent.run()
        except Exception as error:
            self.error = error

    def on_file(self) -> dict[int, tuple[bool, bool | None]]:
        """Bit and acknowledgement by round, as its files have them."""
        found: dict[int, tuple[bool, bool | None]] = {}
        path = self.folder / "test" / "rounds.jsonl"
        for line in path.read_text().splitlines() if path.exists() else ():
            with contextlib.suppress(ValueError):  # the last line may be half written at this moment
                entry = json.loads(line)
                if entry["entry"] == "decided":
                    found[entry["round"]] = (entry["participates"], entry["counted"])
                elif entry["entry"] == "acknowledged":
                    found[entry["round"]] = (found[entry["round"]][0], entry["counted"])
        return found

    @property
    def token(self) -> str:
        return json.loads((self.folder / "agent.json").read_text())["token"]

    def stop(self) -> None:
        self.agent.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()
        assert self.error is None


def drained(location: str, devices: list[Device]) -> None:
    """The open round is the last; everyone knows what became of it, and has decided the next."""
    store = open_store(location)
    store.change("test", mode="draining")
    until(lambda: store.control().mode == PAUSED)
    time.sleep(1.0)
    last = store.position().round - 1
    store.close()
    until(lambda: all(last + 1 in device.on_file() for device in devices))


def assert_agreed(location: str, devices: list[Device], proxy: Proxy) -> Books:
    books = Books.of(location)
    assert_sound(books)
    slots = {device.token: device.slot for device in books.devices}
    for device in devices:
        slot, mine = slots[hashed(device.token)], device.on_file()
        for closed in books.rounds:
            bit, counted = mine.get(closed.round, (False, False))
            assert counted is not None, f"round {closed.round} was never answered"
            assert (closed.code(slot) == YES) == (bit and counted), closed.round
            assert (closed.code(slot) in (MISSING, REFUSED)) == (not counted), closed.round
        assert max(Counter(device.coins.tossed).values()) == 1, "no coin is tossed twice"
        for (token, round), bits in proxy.bits.items():
            if token == device.token:
                assert set(bits) == {mine[round][0]}, "every report is the one on file"
    return books


def play(tmp_path: Path, share: float, kills: int) -> tuple[str, list[Device], Proxy]:
    location, chance = str(tmp_path / "run.db"), random.Random(5)
    store = begun(location, usual_rules(TIMING, wait_for=DEVICES), capacity=3.0)
    codes = codes_for(store, DEVICES)
    store.close()
    port = port_of_our_own()
    proxy = Proxy(f"http://127.0.0.1:{port}", mischief=some_of(FAULTS, share, 5), slowness=0.3)
    with proxy_in_a_thread(proxy), contextlib.ExitStack() as devices_end:
        devices = [Device(tmp_path, proxy.url, number, code) for number, code in enumerate(codes)]
        for device in devices:
            devices_end.callback(device.stop)
        for _ in range(kills):
            with Served(tmp_path, location, port=port) as coordinator:
                coordinator.wait()
                time.sleep(chance.uniform(0.1, 1.0))
        with Served(tmp_path, location, port=port) as coordinator:
            coordinator.wait()
            before = Books.of(location).position.round
            until(lambda: Books.of(location).position.round > max(before, kills) + 5)
            proxy.mischief = lambda _: ""
            drained(location, devices)
            for device in devices:
                spent = device.agent._joined.decider.account(1e-6).rounds
                assert spent >= len(device.coins.tossed), "the ledger has every toss"
            for device in devices:
                device.stop()
    return location, devices, proxy


@pytest.mark.deployment
def test_agents_on_a_bad_network_with_a_coordinator_that_dies(tmp_path):
    location, devices, proxy = play(tmp_path, share=0.2, kills=10)
    books = assert_agreed(location, devices, proxy)
    assert set(proxy.done) == {"", *FAULTS}
    print(f"{len(books.rounds)} rounds, {dict(proxy.done)}")
