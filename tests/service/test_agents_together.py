"""Real agents against the real coordinator: sockets, files and lost messages; at the end all books agree."""

import json
import random
import threading
import time
from collections import Counter

from client.faults import CountingCoins
from service.agents import agent_with
from service.running import begun, codes_for, running, usual_rules
from turnout.service.agent.connection import HttpWire
from turnout.service.coordinator.enrolment import hashed
from turnout.service.network import Unreachable
from turnout.service.rounds import MISSING, NO, REFUSED, YES
from turnout.service.rules import Safety, Timing
from turnout.service.store.backup import open_store

DEVICES, ROUNDS, HARD_LIMIT = 6, 15, 2


class LossyWire(HttpWire):
    """A third of all requests or replies are lost, doubled or late."""

    def __init__(self, url, seed):
        super().__init__(url, seconds=10.0)
        self.random, self.faults = random.Random(seed), 0

    def send(self, method, path, body, token):
        kind = self.random.randrange(12) if path == "/v1/report" else 9
        self.faults += kind < 4
        if kind == 0:
            raise Unreachable("the request was lost")
        if kind == 1:
            super().send(method, path, body, token)
            raise Unreachable("the reply was lost")
        if kind == 2:
            super().send(method, path, body, token)
        if kind == 3:
            time.sleep(0.4)  # later than the deadline
        return super().send(method, path, body, token)


def on_file(folder):
    """{round: (bit, counted)} of a device."""
    found = {}
    for line in (folder / "test" / "rounds.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["entry"] == "decided":
            found[entry["round"]] = (entry["participates"], entry["counted"])
        elif entry["entry"] == "acknowledged":
            found[entry["round"]] = (found[entry["round"]][0], entry["counted"])
    return found


def test_both_sides_have_the_same_books_whatever_gets_lost(tmp_path):
    rules = usual_rules(
        Timing(round=0.02, deadline=0.3, lease=0.3, hold=1.0),
        wait_for=DEVICES,
        safety=Safety("absent", hard_limit=HARD_LIMIT),
    )
    store = begun(tmp_path / "store.db", rules, capacity=3.0)
    coins = [CountingCoins(device) for device in range(DEVICES)]
    with running(store) as coordinator:
        wires = [LossyWire(coordinator.url, device) for device in range(DEVICES)]
        agents = [
            agent_with(
                coordinator.url,
                tmp_path / f"{device}",
                1.0 + device,
                code=code,
                wire=wires[device],
                coins=coins[device],
                sleep=lambda seconds: time.sleep(0.01),
            )
            for device, code in enumerate(codes_for(store, DEVICES))
        ]
        threads = [threading.Thread(target=agent.run, args=(ROUNDS,)) for agent in agents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert sum(wire.faults for wire in wires) > DEVICES * ROUNDS / 6
    store = open_store(str(tmp_path / "store.db"))
    slots = {device.token: device.slot for device in store.devices()}
    books = {closed.round: closed for closed in store.history()}
    seen = Counter()
    for device in range(DEVICES):
        assert max(Counter(coins[device].tossed).values()) == 1
        slot = slots[hashed(json.loads((tmp_path / f"{device}" / "agent.json").read_text())["token"])]
        mine = on_file(tmp_path / f"{device}")
        for round, closed in books.items():
            bit, counted = mine.get(round, (False, None))
            code = closed.code(slot)
            seen[code] += 1
            if counted is not None:  # acknowledged: both have the same
                assert (code == YES) == (bit and counted), (device, round)
                assert code != NO or not bit
            elif code != MISSING:  # it was stopped before the answer came
                assert (code in (YES, REFUSED)) == bit
    for closed in books.values():
        assert closed.participants == sum(closed.code(slot) == YES for slot in slots.values())
        assert closed.participants <= HARD_LIMIT
    assert seen[YES]
    assert seen[NO]
    assert seen[MISSING]
    assert seen[REFUSED]
    store.close()
