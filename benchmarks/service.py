"""Rounds a second of the coordinator, beside a bare ASGI application with the same held requests and commits.

    python benchmarks/service.py [--devices 10000] [--rounds 50] [--turns 2]

Devices and coordinator share this machine; every device has a connection of its own. The contenders take turns, each
driven by the same fleet. Prints JSON; fails if our books and the fleet's own record differ in a single bit.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

import machine
from turnout import paper_population
from turnout.service import YES
from turnout.service.load_test import Fleet, allow_connections
from turnout.service.store import open_store

HERE = Path(__file__).parent
OURS, BARE, CALM = "turnout serve", "bare ASGI", "bare ASGI, calm collector"
SEED = 1
FOREVER = "86400"


class Contender:
    """A coordinator in a process of its own, its fleet, and what was measured of both."""

    def __init__(self, name, devices, folder):
        self.name, self.turns = name, []
        self.store, port = folder / f"{name.replace(' ', '-')}.db", free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = self.store.with_suffix(".log").open("wb")
        command = self._ours(devices, port) if name == OURS else self._bare(devices, port)
        self.process = subprocess.Popen([sys.executable, *command], stdout=self.log, stderr=self.log)
        self._wait_until_it_answers()
        codes = self._codes(devices) if name == OURS else ["none"] * devices
        population = paper_population(0, devices)
        self.fleet = Fleet(self.url, population.costs, codes, seed=SEED, progress=self._look)

    def _ours(self, devices, port):
        serve = ["-m", "turnout", "serve", "--store", str(self.store), "--capacity", str(devices / 2)]
        serve += [
            "--missing",
            "absent",
            "--hard-limit",
            "none",
            "--wait-for",
            str(devices),
            "--round-seconds",
            "0",
            "--deadline",
            FOREVER,
        ]
        return [*serve, "--port", str(port), "--operator-port", "0"]

    def _bare(self, devices, port):
        calm = ["calm"] if self.name == CALM else []
        return [str(HERE / "bare_coordinator.py"), str(devices), str(self.store), str(port), *calm]

    def _codes(self, devices):
        command = [sys.executable, "-m", "turnout", "operate", "codes", str(devices), "--store", str(self.store)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    def _wait_until_it_answers(self):
        path = "/healthz" if self.name == OURS else "/v1/round"
        for _ in range(200):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(self.url + path, timeout=5).close()
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit(f"{self.name} does not start: {Path(self.log.name).read_text()}")

    def turn(self, rounds):
        """So many more rounds; connecting, and enrolling in the first turn, are not timed."""
        before, self._marks = set(self.fleet.record.rounds), []
        record = run(self.fleet.run(rounds))
        seen = [record.rounds[number] for number in record.rounds if number not in before]
        took = np.diff([one.last_answer for one in seen])
        (rounds_a, ours_a, theirs_a), (rounds_b, ours_b, theirs_b) = self._marks[0], self._marks[-1]
        share = 1e3 / max(1, rounds_b - rounds_a)
        self.turns.append(
            {
                "rounds": len(seen),
                "rounds_per_second": len(took) / float(took.sum()),
                "slowest_round_s": float(took.max()),
                "first_to_last_answer_s": statistics.median(one.seconds for one in seen),
                "coordinator_cpu_ms_a_round": share * (theirs_b - theirs_a),
                "fleet_cpu_ms_a_round": share * (ours_b - ours_a),
            }
        )

    def _look(self, record):
        newest = record.rounds[max(record.rounds)] if record.rounds else None
        if newest is not None and record.enrolled == record.devices and (newest.round or newest.answered.any()):
            self._marks.append((newest.round, cpu_seconds(os.getpid()), cpu_seconds(self.process.pid)))

    def end(self):
        """Stop it by the signal that an operator's stop sends; returns how it ended."""
        self.process.terminate()
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self.log.close()

    def figures(self):
        record = self.fleet.record
        return {"turns": self.turns, "requests": record.requests, "reconnects": record.reconnects} | {
            "faults": dict(record.faults)
        }


def check_books(contender):
    """Every round of the books against the fleet's own record, device by device: none lost, none counted twice."""
    record, store = contender.fleet.record, open_store(str(contender.store))
    slots = {device.token: device.slot for device in store.devices()}
    mine = [slots[hashlib.sha256(token.encode()).digest()] for token in record.tokens]
    closed = list(store.history())
    store.close()
    differing = 0
    for books in closed:
        seen = record.rounds[books.round]
        differing += int(np.sum((books.codes[mine] == YES) != seen.acknowledged))
        differing += int(books.participants != int(seen.acknowledged.sum())) + int(not seen.answered.all())
    right = differing == 0 and [books.round for books in closed] == list(record.rounds) and len(set(mine)) == len(mine)
    return {"rounds": len(closed), "devices": len(mine), "differing": differing, "agree": right}


def measure(devices, rounds, turns, names=(OURS, BARE, CALM), folder=None):
    """All contenders in turns; ratios are of the same turn (the median over turns)."""
    allow_connections(devices)
    with tempfile.TemporaryDirectory(dir=folder) as made, contextlib.ExitStack() as stack:
        contenders = {}
        for name in names:
            contenders[name] = Contender(name, devices, Path(made))
            stack.callback(contenders[name].end)
        for _ in range(turns):
            for contender in contenders.values():
                contender.turn(rounds // turns)
        ended = {name: contender.end() for name, contender in contenders.items()}
        found = {"devices": devices, "rounds": rounds, "ended": ended[OURS]}
        found["books"] = check_books(contenders[OURS])
        found["contenders"] = {name: contender.figures() for name, contender in contenders.items()}
    for name in names[1:]:
        pairs = list(zip(contenders[OURS].turns, contenders[name].turns, strict=True))
        for figure, key in (("times", "rounds_per_second"), ("CPU, in times", "coordinator_cpu_ms_a_round")):
            ratios = [ours[key] / theirs[key] if theirs[key] else float("nan") for ours, theirs in pairs]
            found[f"{figure} {name}"] = statistics.median(ratios)
    return found


def run(work):
    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def cpu_seconds(process):
    """User and system time of a process; 0 where the system does not say."""
    try:
        times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return 0.0
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=10_000, help="a multiple of 4")
    parser.add_argument("--rounds", type=int, default=50, help="of each contender, in all its turns")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the stores are, for this time: a local disk")
    given = parser.parse_args()
    found = measure(given.devices, given.rounds, given.turns, folder=given.folder)
    print(json.dumps(found | {"machine": machine.hardware()}, indent=1))
    return 0 if found["books"]["agree"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
