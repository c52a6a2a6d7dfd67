"""A fleet of our own agents and of devices in Node, killed and restarted now and then: all files agree."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from service.agreement import Books
from service.faults import Served, port_of_our_own, until
from service.running import begun, codes_for, usual_rules
from turnout.service.coordinator.enrolment import hashed
from turnout.service.rounds import MISSING, NO, REFUSED, YES
from turnout.service.rules import Timing
from turnout.service.store.backup import open_store
from turnout.service.store.store import PAUSED

DEVICE = Path(__file__).parents[2] / "examples" / "node-device" / "device.mjs"
AGENTS, NODES = 20, 10
SPENT = (0, AGENTS)
"""An agent and a Node device with a small budget: they leave."""

KILLS, FEW_REPORTS = 24, 12
TIMING = Timing(round=0.1, deadline=1.0, lease=1.0, hold=2.0)


class Device:
    """A process on files of its own, which may be killed and started again; `with` kills it at the end."""

    def __init__(self, home: Path, url: str, number: int, code: str, script: Path = DEVICE) -> None:
        self.folder, self.in_node = home / f"device-{number}", number >= AGENTS
        self.process: subprocess.Popen[bytes] | None = None
        program = ["node", str(script)] if self.in_node else [sys.executable, "-m", "turnout", "join"]
        options = ["--folder", str(self.folder), "--code", code, "--cost", str(1.0 + number % 7)]
        self._command = [*program, url, *options]
        if number in SPENT:
            self._command += ["--reports", str(FEW_REPORTS)]
        self._log, self._state = home / f"device-{number}.log", home / "state"
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"XDG_STATE_HOME": str(self._state), "OPENBLAS_NUM_THREADS": "1"},
            )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def token(self) -> str:
        name = "device.json" if self.in_node else "agent.json"
        found = json.loads((self.folder / name).read_text())
        return str(found.get("welcome", found)["token"])

    def rounds(self) -> dict[int, tuple[bool, bool | None]]:
        """Bit and acknowledgement of each round on its own disk; rounds that it has lost are left out."""
        found: dict[int, tuple[bool, bool | None]] = {}
        path = self.folder / "test" / "rounds.jsonl"
        for line in path.read_text().splitlines() if path.exists() else ():
            with suppress(ValueError):  # the last line may be half written at this moment
                entry = json.loads(line)
                if entry["entry"] == "decided" and entry["kind"] != "lost":
                    found[entry["round"]] = (entry["participates"], entry.get("counted"))
                elif entry["entry"] == "acknowledged":
                    found[entry["round"]] = (found[entry["round"]][0], entry["counted"])
        return found

    def reserved(self) -> list[int]:
        entries = [json.loads(line) for line in (self.folder / "ledger.jsonl").read_text().splitlines()]
        return [entry["round"] for entry in entries if "run" in entry]


def disturb(devices: list[Device], chance: random.Random) -> Counter[bool]:
    """Kill devices, and start each again a little later; how many of each kind."""
    killed: Counter[bool] = Counter()
    for _ in range(KILLS):
        device = chance.choice([one for one in devices if one.process.poll() is None])
        device.kill()
        killed[device.in_node] += 1
        time.sleep(chance.uniform(0.0, 0.8))
        device.start()
    return killed


def drained(location: str, devices: list[Device]) -> None:
    """The open round is the last, and every device that is still here knows what became of all before."""
    store = open_store(location)
    store.change("test", mode="draining")
    until(lambda: store.control().mode == PAUSED)
    last = store.position().round - 1
    store.close()

    def settled(device: Device) -> bool:
        found = {round: counted for round, (_, counted) in device.rounds().items() if round <= last}
        return device.process.poll() is not None or None not in found.values()

    until(lambda: all(map(settled, devices)))


def assert_agreed(books: Books, devices: list[Device]) -> Counter[int]:
    """What the store has of each device is what the device has itself; how often each code occurs."""
    slots, codes = {device.token: device.slot for device in books.devices}, Counter()
    assert [closed.round for closed in books.rounds] == list(range(books.position.round)), "no round is missing"
    for closed in books.rounds:
        assert closed.participants == (closed.codes == YES).sum()
    for device in devices:
        slot, mine, reserved = slots[hashed(device.token)], device.rounds(), device.reserved()
        for closed in books.rounds:
            code, own = closed.code(slot), mine.get(closed.round)
            codes[code] += 1
            if code == MISSING:
                assert own is None or own[1] is False, (closed.round, own)
            else:
                assert own == {YES: (True, True), NO: (False, True), REFUSED: (True, False)}[code], (closed.round, own)
        assert max(Counter(reserved).values()) == 1
        assert set(mine) <= set(reserved), "every bit was reserved"
        assert len(set(reserved) - set(mine)) <= KILLS, "what was lost"
    return codes


@pytest.mark.deployment
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node (Debian: nodejs)")
def test_a_fleet_of_two_kinds_agrees_with_the_store(tmp_path: Path) -> None:
    location, chance, port = str(tmp_path / "run.db"), random.Random(3), port_of_our_own()
    store = begun(location, usual_rules(TIMING, wait_for=AGENTS + NODES), capacity=12.0)
    codes = codes_for(store, AGENTS + NODES)
    store.close()
    with ExitStack() as ends:
        ends.enter_context(Served(tmp_path, location, port=port)).wait()
        url = f"http://127.0.0.1:{port}"
        devices = [ends.enter_context(Device(tmp_path, url, number, code)) for number, code in enumerate(codes)]
        until(lambda: Books.of(location).position.round > 3)
        killed = disturb(devices, chance)
        before = Books.of(location).position.round
        until(lambda: Books.of(location).position.round > max(before + 10, 40))
        until(lambda: all(devices[number].process.poll() is not None for number in SPENT))
        drained(location, devices)
        books = Books.of(location)
        found = assert_agreed(books, devices)
    assert min(killed[True], killed[False]) >= 3
    assert min(found[YES], found[NO]) > 100
    for number in SPENT:
        slot = next(one.slot for one in books.devices if one.token == hashed(devices[number].token))
        assert books.devices[slot].left is not None, "it has left"
        assert len(devices[number].reserved()) == FEW_REPORTS
    print(f"{len(books.rounds)} rounds, {dict(found)}, killed {dict(killed)}")


@pytest.mark.deployment
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node (Debian: nodejs)")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("round, participates, ...rules }", "round, participates: !participates, ...rules }"),
        ("this.rounds.acknowledge(round, value.counted);", "this.rounds.acknowledge(round, false);"),
    ],
    ids=["sends another bit", "stores another answer"],
)
def test_a_device_whose_files_differ_is_noticed(tmp_path: Path, before: str, after: str) -> None:
    location, script = str(tmp_path / "run.db"), shutil.copytree(DEVICE.parent, tmp_path / "wrong") / DEVICE.name
    assert script.read_text().count(before) == 1
    script.write_text(script.read_text().replace(before, after))
    store = begun(location, usual_rules(TIMING, wait_for=2), capacity=1.0)
    codes = codes_for(store, 2)
    store.close()
    with ExitStack() as ends:
        served = ends.enter_context(Served(tmp_path, location)).wait()
        devices = [
            ends.enter_context(Device(tmp_path, served.url, AGENTS + 1 + number, code, script))
            for number, code in enumerate(codes)
        ]
        until(lambda: Books.of(location).position.round > 10)
        drained(location, devices)
        with pytest.raises(AssertionError):
            assert_agreed(Books.of(location), devices)
